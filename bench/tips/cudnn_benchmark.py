"""cuDNN tries its convolution algorithms on the first batch and keeps the fastest.

There are several algorithms for each convolution, and which one is fastest depends on its shape and
on the GPU. By default cuDNN chooses by rules of thumb. With `cudnn.benchmark = True` it runs them
all the first time that it meets a shape, and remembers the winner.

**Matters when** the model is made of convolutions and every batch has the same shape.

**Doesn't matter when** the model has no convolutions. It hurts when shapes vary from batch to
batch, since each new one is tried out again: a step can then take ten times as long. A faster
algorithm may need more memory, and another run may choose another algorithm, with results that
differ in the last digits.

**How to apply it**

```python
torch.backends.cudnn.benchmark = True  # at the start, when all batches have one shape
```

**How it is measured** The training step on one fixed shape; and on images whose height and width
are new in every step, at nearly the same area. The first step, which holds the trials, is a figure
of its own, and so is the peak GPU memory of the steps after it.
"""

import dataclasses
import itertools
import random
from collections.abc import Mapping
from typing import Any

from bench.tips.tip import GPU_MEMORY, STARTUP, THROUGHPUT, Tip, Variant, Workload, needs_cuda
from bench.workloads.work import Context, TreatmentNotApplied, Work

WIDTHS_A_HEIGHT = 4


def tip(context: Context) -> Tip:
    """The tip; it needs CUDA altogether."""
    metrics = (THROUGHPUT, STARTUP, GPU_MEMORY)
    return Tip(
        id="cudnn_benchmark",
        section="Environment",
        order=2,
        claim="cudnn.benchmark = True makes convolutions faster.",
        card=__doc__ or "",
        variants=tuple(
            Variant(
                name=f"cudnn.benchmark={value}",
                settings={"benchmark": value},
                needs=(needs_cuda,),
                recommended=value,
            )
            for value in (False, True)
        ),
        workloads=(
            Workload(name="fixed shape", build=build_fixed, metrics=metrics),
            Workload(name="shapes that vary", build=build_varying, metrics=metrics),
        ),
    )


def build_fixed(settings: Mapping[str, Any], context: Context) -> Work:
    """The training step on one fixed batch."""
    import torch

    from bench.workloads import training

    torch.backends.cudnn.benchmark = settings["benchmark"]
    work = training.training_work(context)
    return dataclasses.replace(work, evidence=lambda: seen(settings, work))


def build_varying(settings: Mapping[str, Any], context: Context) -> Work:
    """The training step on images whose shape is new in every step."""
    import torch

    from bench.workloads import training

    torch.backends.cudnn.benchmark = settings["benchmark"]
    train = training.training_step(context)
    pairs = shapes(context.image_size, context.seed)
    square = dataclasses.replace(context, image_size=max(map(max, pairs)))
    images, labels = training.random_batch(square)
    coming = itertools.cycle(pairs)
    used: set[tuple[int, int]] = set()

    def step() -> int:
        height, width = next(coming)
        used.add((height, width))
        return train(images[:, :, :height, :width].contiguous(), labels)

    work = Work(
        step=step,
        evidence=train.evidence,
        device=context.device,
        prepare=train.prepare,
        readings=train.readings,
    )
    return dataclasses.replace(
        work, evidence=lambda: seen(settings, work) | {"shapes_seen": len(used)}
    )


def shapes(size: int, seed: int) -> list[tuple[int, int]]:
    """Heights and widths of about ``size`` squared pixels, each pair once, in a seeded order."""
    pairs = [
        (height, size * size // height + more)
        for height in range(size * 3 // 4, size * 4 // 3 + 1)
        for more in range(WIDTHS_A_HEIGHT)
    ]
    return random.Random(seed).sample(pairs, len(pairs))


def seen(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """The flag read back, and where the first convolution ran."""
    import torch

    evidence = work.evidence()
    flag = torch.backends.cudnn.benchmark
    if flag != settings["benchmark"]:
        raise TreatmentNotApplied(
            f"cudnn.benchmark={settings['benchmark']} was asked for; it is {flag}"
        )
    if evidence.get("activation_device") != "cuda":
        raise TreatmentNotApplied(
            f"cuDNN serves CUDA; the first layer ran on {evidence.get('activation_device')}"
        )
    return evidence | {"cudnn_benchmark": flag, "cudnn_version": torch.backends.cudnn.version()}
