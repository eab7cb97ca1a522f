"""The training step: forward, loss, backward, optimizer step."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bench.workloads.loaders import Batches
from bench.workloads.models import CLASSES, build_model, model_name
from bench.workloads.work import Context, Work, WorkFailed

LEARNING_RATE = 0.01
MOMENTUM = 0.9


def set_tf32(*, convolutions: bool, matmuls: bool) -> None:
    """Let CUDA compute float32 in TF32 or forbid it, whatever torch's defaults are."""
    # The newer fp32_precision switches leave these two unreadable (RuntimeError, torch 2.14), and
    # torch itself still reads them, in cudnn.flags() and in its compiler.
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cuda.matmul.allow_tf32 = matmuls


class TrainingStep:
    """Trains ``model`` on ``device``, one batch a call, and keeps the turn's losses on the device.

    Nothing in a call waits for the device.
    """

    def __init__(self, model: nn.Module, device: str) -> None:
        self.device = device
        self.model = model.to(device).train()
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM
        )
        self._losses: list[Tensor] = []
        self._last_loss = float("nan")
        self._output_dtype = ""

    def __call__(self, images: Tensor, labels: Tensor) -> int:
        """Train on one batch of (batch, 3, size, size) images; returns its number of samples."""
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self.model(images)
        # A user's folder may have more classes than the model has outputs; which label is learnt
        # changes nothing about the time.
        loss = nn.functional.cross_entropy(outputs, labels % outputs.shape[1])
        loss.backward()
        self.optimizer.step()
        self._losses.append(loss.detach())
        self._output_dtype = str(outputs.dtype)
        return len(labels)

    def readings(self) -> Mapping[str, float | int]:
        """The turn's last loss; WorkFailed for one that is not finite or on another device."""
        losses, self._losses = self._losses, []
        if not losses:
            return {}
        wanted = torch.device(self.device).type
        if losses[-1].device.type != wanted:
            raise WorkFailed(f"the step ran on {losses[-1].device.type}, not on {wanted}")
        values = torch.stack(losses).float()
        if not torch.isfinite(values).all():
            raise WorkFailed(f"the loss became {values[~torch.isfinite(values)][0].item()}")
        self._last_loss = values[-1].item()
        return {"loss": self._last_loss}

    def evidence(self) -> dict[str, Any]:
        """What the step ran on and in which precision."""
        parameters = list(self.model.parameters())
        return {
            "device": str(parameters[0].device),
            "parameters": sum(parameter.numel() for parameter in parameters),
            "output_dtype": self._output_dtype,
            "tf32_convolutions": torch.backends.cudnn.allow_tf32,
            "tf32_matmuls": torch.backends.cuda.matmul.allow_tf32,
        }


def training_step(context: Context) -> TrainingStep:
    """The context's model, seeded, on its device, in float32 as torch sets it on CUDA."""
    set_tf32(convolutions=True, matmuls=False)
    torch.manual_seed(context.seed)
    return TrainingStep(build_model(model_name(context)), context.device)


def random_batch(context: Context) -> tuple[Tensor, Tensor]:
    """Seeded images (batch, 3, size, size) and labels (batch,), on the context's device."""
    generator = torch.Generator().manual_seed(context.seed)
    size = (context.batch_size, 3, context.image_size, context.image_size)
    images = torch.randn(size, generator=generator)
    labels = torch.randint(CLASSES, (context.batch_size,), generator=generator)
    return images.to(context.device), labels.to(context.device)


def training_work(context: Context) -> Work:
    """The training step alone, on one fixed batch that is on the device already."""
    train = training_step(context)
    images, labels = random_batch(context)
    return Work(
        step=lambda: train(images, labels),
        evidence=train.evidence,
        device=context.device,
        readings=train.readings,
    )


def loaded_training_work(
    batches: Batches,
    context: Context,
    evidence: Callable[[], dict[str, Any]],
    *,
    non_blocking: bool = False,
) -> Work:
    """Drawing a batch, copying it to the device and training on it; one step is one batch."""
    train = training_step(context)

    def step() -> int:
        batch = batches.next()
        return train(
            batch.images.to(context.device, non_blocking=non_blocking),
            batch.labels.to(context.device, non_blocking=non_blocking),
        )

    return Work(
        step=step,
        evidence=lambda: evidence() | train.evidence(),
        device=context.device,
        period=max(1, batches.loader.num_workers),
        readings=train.readings,
        close=batches.close,
    )
