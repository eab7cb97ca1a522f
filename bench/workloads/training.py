"""The training step: forward, loss, backward, optimizer step."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bench.workloads.loaders import Batches
from bench.workloads.models import CLASSES, build_model, model_name
from bench.workloads.precision import FLOAT32, Precision, set_tf32
from bench.workloads.work import Context, TreatmentNotApplied, Work, WorkFailed

LEARNING_RATE = 0.01
MOMENTUM = 0.9


@dataclasses.dataclass(kw_only=True)
class _Seen:
    """What the hooks saw. They hold this and not the step, or its model would outlive its use."""

    steps_taken: int = 0
    inside: dict[str, str] = dataclasses.field(default_factory=dict)

    def count(self, *_: object) -> None:
        self.steps_taken += 1

    def look(self, layer: nn.Module, _: object, output: Any) -> None:
        if isinstance(output, Tensor):
            self.inside = {
                "activation_dtype": str(output.dtype),
                "activation_device": output.device.type,
            }


class TrainingStep:
    """Trains ``model`` on ``device``, one batch a call, and keeps the turn's losses on the device.

    Nothing in a call waits for the device, but for what GradScaler does by itself where
    ``precision`` has one. A skipped optimizer step is cheap and looks fast: they are counted, and
    fail the turn.
    """

    def __init__(self, model: nn.Module, device: str, precision: Precision = FLOAT32) -> None:
        self.device = device
        self.precision = precision
        self.model = model.to(device).train()
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM
        )
        self._seen = _Seen()
        self._steps_asked = 0
        self._autocast = precision.autocast(device)
        self._scaler = precision.scaler(device)
        self._losses: list[Tensor] = []
        self._last_loss = float("nan")
        self._output_dtype = ""
        self.optimizer.register_step_post_hook(self._seen.count)
        self._hook = _first_layer(self.model).register_forward_hook(self._seen.look)

    def __call__(self, images: Tensor, labels: Tensor) -> int:
        """Train on one batch of (batch, 3, size, size) images; returns its number of samples."""
        self._steps_asked += 1
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            outputs = _logits(self.model(images), len(labels))
            # A user's folder may have more classes than the model has outputs; which label is
            # learnt changes nothing about the time.
            loss = nn.functional.cross_entropy(outputs, labels % outputs.shape[1])
        if self._scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self.optimizer)
            self._scaler.update()
        self._losses.append(loss.detach())
        self._output_dtype = str(outputs.dtype)
        return len(labels)

    def prepare(self, steps: int) -> None:
        """Count the optimizer's steps from here on."""
        self._seen.steps_taken = self._steps_asked = 0

    @property
    def steps_taken(self) -> int:
        """The optimizer's steps since ``prepare``, without those that were skipped."""
        return self._seen.steps_taken

    def readings(self) -> Mapping[str, float | int]:
        """The turn's last loss.

        WorkFailed for one that is not finite or on another device, and for skipped steps.
        """
        losses = self.take_losses()
        if not losses:
            return {}
        wanted = torch.device(self.device).type
        if losses[-1].device.type != wanted:
            raise WorkFailed(f"the step ran on {losses[-1].device.type}, not on {wanted}")
        values = torch.stack(losses).float()
        if not torch.isfinite(values).all():
            raise WorkFailed(f"the loss became {values[~torch.isfinite(values)][0].item()}")
        if self.steps_taken != self._steps_asked:
            raise WorkFailed(
                f"{self._steps_asked - self.steps_taken} of {self._steps_asked} optimizer steps "
                f"were skipped; the loss scale is {self.scale:g}"
            )
        self._last_loss = values[-1].item()
        return {"loss": self._last_loss}

    def take_losses(self) -> list[Tensor]:
        """The losses since they were last taken, on the device."""
        losses, self._losses = self._losses, []
        return losses

    @property
    def scale(self) -> float:
        """What GradScaler multiplies the loss by, 1 without one. Waits for the device."""
        return 1.0 if self._scaler is None else float(self._scaler.get_scale())

    def lower_scale(self, by: float) -> None:
        """Divide GradScaler's scale: gradients may grow so much before a step is skipped."""
        if self._scaler is not None:
            self._scaler.update(self.scale / by)

    def evidence(self) -> dict[str, Any]:
        """What the step ran on and in which precision.

        TreatmentNotApplied where the first layer put out another type than autocast should give,
        and where the TF32 switches are no longer as they were set.
        """
        self._hook.remove()
        parameters = list(self.model.parameters())
        tf32 = {
            "tf32_convolutions": torch.backends.cudnn.allow_tf32,
            "tf32_matmuls": torch.backends.cuda.matmul.allow_tf32,
        }
        wanted = {name: getattr(self.precision, name) for name in tf32}
        if self.device != "cpu" and tf32 != wanted:
            raise TreatmentNotApplied(f"{wanted} was asked for; the switches are {tf32}")
        inside = self._seen.inside
        if inside and inside["activation_dtype"] != f"torch.{self.precision.compute}":
            raise TreatmentNotApplied(
                f"{self.precision.compute} was asked for; inside the step the first layer "
                f"put out {inside['activation_dtype']}"
            )
        scaler = {} if self._scaler is None else {"loss_scale": self.scale}
        return {
            "device": str(parameters[0].device),
            "parameters": sum(parameter.numel() for parameter in parameters),
            "output_dtype": self._output_dtype,
            "optimizer_steps_taken": self.steps_taken,
            **tf32,
            **inside,
            **scaler,
        }


def _first_layer(model: nn.Module) -> nn.Module:
    """The first layer that autocast runs in its own type; the model itself where there is none."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
    return next((layer for layer in model.modules() if isinstance(layer, kinds)), model)


def _logits(outputs: Any, batch_size: int) -> Tensor:
    """What a model put out as (batch, classes) logits; the first of several outputs."""
    # Inception and GoogLeNet add auxiliary heads in training.
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    if not isinstance(first, Tensor) or first.ndim != 2 or len(first) != batch_size:
        found = list(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise WorkFailed(
            f"the model put out {found}; a classification model puts out "
            f"[{batch_size}, number of classes]"
        )
    return first


def training_step(context: Context, precision: Precision = FLOAT32) -> TrainingStep:
    """The context's model, seeded, on its device, by default in float32 as torch sets it."""
    set_tf32(convolutions=precision.tf32_convolutions, matmuls=precision.tf32_matmuls)
    torch.manual_seed(context.seed)
    return TrainingStep(build_model(model_name(context)), context.device, precision)


def random_batch(context: Context) -> tuple[Tensor, Tensor]:
    """Seeded images (batch, 3, size, size) and labels (batch,), on the context's device."""
    generator = torch.Generator().manual_seed(context.seed)
    size = (context.batch_size, 3, context.image_size, context.image_size)
    images = torch.randn(size, generator=generator)
    labels = torch.randint(CLASSES, (context.batch_size,), generator=generator)
    return images.to(context.device), labels.to(context.device)


def training_work(context: Context, precision: Precision = FLOAT32) -> Work:
    """The training step alone, on one fixed batch that is on the device already."""
    return fixed_batch_work(training_step(context, precision), context)


def fixed_batch_work(train: TrainingStep, context: Context) -> Work:
    """``train`` on one fixed batch that is on the device already."""
    images, labels = random_batch(context)
    return Work(
        step=lambda: train(images, labels),
        evidence=train.evidence,
        device=context.device,
        prepare=train.prepare,
        readings=train.readings,
    )


def train_steps(train: TrainingStep, context: Context, steps: int) -> float:
    """Train on one fixed batch, untimed; the loss of the last step, which may be non-finite.

    Afterwards ``train.steps_taken`` says how many optimizer steps were taken, not skipped.
    """
    images, labels = random_batch(context)
    train.prepare(steps)
    for _ in range(steps):
        train(images, labels)
    return train.take_losses()[-1].item()


def loaded_training_work(
    batches: Batches,
    context: Context,
    evidence: Callable[[], dict[str, Any]],
    *,
    non_blocking: bool = False,
) -> Work:
    """Drawing a batch, copying it to the device and training on it; one step is one batch."""
    train = training_step(context)
    workers = batches.loader.num_workers
    ahead = workers * (batches.loader.prefetch_factor or 0)

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
        period=max(1, workers),
        # A GPU leaves the workers their cores, so the first batches of all of them are there when
        # timing could begin, and would be had for free.
        warm_up_steps=0 if context.device == "cpu" else 2 * ahead,
        stops_workers=True,
        prepare=train.prepare,
        readings=train.readings,
        close=batches.close,
    )
