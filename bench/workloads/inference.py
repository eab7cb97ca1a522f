"""Inference on the CPU: one fixed batch, answered again and again, each answer timed by itself."""

import ctypes
import gc
import io
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bench.workloads.work import Work, WorkFailed

Predict = Callable[[Tensor], Tensor]
"""From a batch of inputs to (batch, classes) outputs."""


class Inference:
    """Answers ``inputs`` with ``predict``, one call a step, and keeps the last answer."""

    def __init__(self, predict: Predict, inputs: Tensor) -> None:
        self.inputs = inputs
        self._predict = predict
        self._outputs: Any = None

    def __call__(self) -> int:
        """Answer the batch once; returns the number of answers."""
        with torch.inference_mode():
            self._outputs = self._predict(self.inputs)
        return len(self._outputs)

    def check(self) -> None:
        """WorkFailed unless the last answer is a finite tensor with a row for each input."""
        if self._outputs is None:
            return
        if not isinstance(self._outputs, Tensor):
            raise WorkFailed(f"the model answers with a {type(self._outputs).__name__}, no tensor")
        if len(self._outputs) != len(self.inputs):
            raise WorkFailed(f"{len(self._outputs)} answers to {len(self.inputs)} inputs")
        if not torch.isfinite(self._outputs).all():
            raise WorkFailed("an answer is not finite")


def inference_work(
    predict: Predict,
    inputs: Tensor,
    *,
    evidence: Callable[[], dict[str, Any]],
    readings: Mapping[str, float | int],
) -> Work:
    """Work whose step is one answer to ``inputs``; ``readings`` are the same after every turn."""
    answer = Inference(predict, inputs)

    def read() -> Mapping[str, float | int]:
        answer.check()
        return readings

    return Work(
        step=answer,
        evidence=lambda: {
            "threads": torch.get_num_threads(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            **evidence(),
        },
        readings=read,
        times_steps=True,
    )


def file_of(model: nn.Module) -> bytes:
    """The file that ``torch.save`` makes of the model's parameters."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.getvalue()


def release_memory() -> None:
    """Give what is no longer held back to the system, so that memory shows what is."""
    gc.collect()
    # glibc keeps freed blocks for later; other C libraries have no such call.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
