"""Half the bits, half the memory traffic, and the GPU's fastest units.

Autocast runs convolutions and matrix products in FP16 or BF16 and leaves what needs precision in
FP32. Tensor cores do them several times faster, and activations take half the memory. FP16's
smallest numbers are too large for some gradients, so GradScaler multiplies the loss, and skips the
optimizer step whenever a gradient overflows. BF16 has FP32's range and needs no scaler.

**Matters when** the GPU has tensor cores and is kept busy: large batches, convolutions, attention.
Where the batch was limited by memory, the memory is the larger gain.

**Doesn't matter when** data loading is the bottleneck, or model and batch are so small for the GPU
that starting kernels takes the time: try `--batch-size 256`. "FP32" is not one thing: torch lets
convolutions use TF32, which takes part of the gain already, and forbids it in matrix products. On a
CPU, BF16 gains only with instructions for it (AVX512-BF16, AMX); without them it is emulated and
slower.

**How to apply it**

```python
scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda", dtype=torch.float16):
    loss = criterion(model(images), labels)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
```

With `dtype=torch.bfloat16` leave the scaler out. `torch.cuda.amp.autocast` and
`torch.cuda.amp.GradScaler`, which articles show, are deprecated: `torch.amp` replaces both.

**How it is measured** The training step on one fixed batch. Seen inside the step: the number
format of the first layer's output, the optimizer steps that were really taken (a turn in which one
was skipped fails), the loss scale. Each variant also trains a few steps from the same seed, and its
loss after them stands beside that of FP32.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bench.tips.tip import GPU_MEMORY, THROUGHPUT, Tip, Variant, Workload
from bench.workloads.processor import has_bf16_instructions
from bench.workloads.work import Context, Work

FIXED_STEPS = {"cuda": 10, "cpu": 3}
"""Few on a CPU: emulated BF16 can take ten times as long as FP32."""
SETTLING_STEPS = 20
SCALE_TO_SPARE = 16.0
TENSOR_FLOAT_CAPABILITY = 8
"""TF32 and BF16 came with compute capability 8.0 (Ampere)."""


def tip(context: Context) -> Tip:
    """The tip, with the variants that the device is meant for."""
    on_cuda = context.device.startswith("cuda")
    note = ""
    if not on_cuda and not has_bf16_instructions():
        note = "This processor has no instructions for BF16: torch emulates it, which costs time."
    return Tip(
        id="amp",
        section="Training",
        order=1,
        claim="Autocast, on FP16 with GradScaler, trains faster and in less GPU memory.",
        card=__doc__ or "",
        variants=cuda_variants() if on_cuda else cpu_variants(),
        workloads=(
            Workload(
                name="training step",
                build=build,
                metrics=(THROUGHPUT, GPU_MEMORY) if on_cuda else (THROUGHPUT,),
            ),
        ),
        note=note,
    )


def cuda_variants() -> tuple[Variant, ...]:
    """FP32 as torch sets it, FP16 with a scaler, BF16, FP32 without TF32, TF32 everywhere."""
    return (
        Variant(name="FP32 (TF32 in convolutions)"),
        Variant(
            name="FP16 + GradScaler",
            settings={"compute": "float16", "scales_loss": True},
            recommended=True,
        ),
        Variant(name="BF16", settings={"compute": "bfloat16"}, needs=(needs_ampere,)),
        Variant(
            name="FP32, TF32 off", settings={"tf32_convolutions": False}, needs=(needs_ampere,)
        ),
        Variant(name="TF32 everywhere", settings={"tf32_matmuls": True}, needs=(needs_ampere,)),
    )


def cpu_variants() -> tuple[Variant, ...]:
    """FP32 and BF16: autocast's FP16 with GradScaler is made for GPUs."""
    return (
        Variant(name="FP32"),
        Variant(name="BF16", settings={"compute": "bfloat16"}, recommended=True),
    )


def needs_ampere(context: Context) -> str | None:
    """The need of TF32 and of BF16 that isn't emulated."""
    import torch

    major, minor = torch.cuda.get_device_capability(context.device)
    if major >= TENSOR_FLOAT_CAPABILITY:
        return None
    return f"needs a GPU of compute capability 8.0 or later, and this one has {major}.{minor}"


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """The training step in the variant's precision, after a fixed number of steps."""
    import torch

    from bench.workloads import training
    from bench.workloads.precision import FLOAT32, Precision

    precision = Precision(**settings)
    steps = FIXED_STEPS[context.device.partition(":")[0]]
    plain_loss = math.nan
    if precision != FLOAT32:
        plain_loss = training.train_steps(training.training_step(context), context, steps)
        # What that step took would stay reserved and count as this variant's.
        torch.cuda.empty_cache()
    train = training.training_step(context, precision)
    loss = training.train_steps(train, context, steps)
    after_steps = {
        "steps": steps,
        "optimizer_steps_taken": train.steps_taken,
        "loss": loss,
        "float32_loss": loss if precision == FLOAT32 else plain_loss,
    }
    if precision.scales_loss:
        # GradScaler halves its first scale until no gradient overflows: a step skipped each time.
        training.train_steps(train, context, SETTLING_STEPS)
        # Gradients still grow now and then; what the scale is takes no time.
        train.lower_scale(SCALE_TO_SPARE)
    work = training.fixed_batch_work(train, context)
    return dataclasses.replace(
        work, evidence=lambda: train.evidence() | {"after_fixed_steps": after_steps}
    )
