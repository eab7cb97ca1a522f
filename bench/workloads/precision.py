"""In which number format a training step computes: autocast, loss scaling, TF32."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import torch

Format = Literal["float32", "float16", "bfloat16"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precision:
    """How a training step computes. The defaults are torch's own.

    ``compute``: what autocast turns the operations into that gain from it; float32 is no autocast.
    ``scales_loss``: GradScaler multiplies the loss, so that small gradients survive float16.
    The TF32 switches matter to float32 on CUDA only.
    """

    compute: Format = "float32"
    scales_loss: bool = False
    tf32_convolutions: bool = True
    tf32_matmuls: bool = False

    def autocast(self, device: str) -> Callable[[], contextlib.AbstractContextManager[Any]]:
        """What makes the context that a forward pass runs in."""
        if self.compute == "float32":
            return contextlib.nullcontext
        kind = torch.device(device).type
        return functools.partial(torch.autocast, kind, dtype=getattr(torch, self.compute))

    def scaler(self, device: str) -> torch.amp.GradScaler | None:
        """A fresh GradScaler, where the loss is scaled."""
        if not self.scales_loss:
            return None
        # To try a higher scale costs a skipped step, once in 2000: too rare to be measured, and
        # common enough to fail a turn.
        return torch.amp.GradScaler(torch.device(device).type, growth_interval=1_000_000_000)


FLOAT32 = Precision()


def set_tf32(*, convolutions: bool, matmuls: bool) -> None:
    """Let CUDA compute float32 in TF32 or forbid it, whatever torch's defaults are."""
    # The newer fp32_precision switches leave these two unreadable (RuntimeError, torch 2.14), and
    # torch itself still reads them, in cudnn.flags() and in its compiler.
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cuda.matmul.allow_tf32 = matmuls
