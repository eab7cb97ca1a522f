"""Pinned batches reach the GPU in one copy, while the program goes on.

The GPU can copy straight out of page-locked (pinned) memory. From ordinary memory the driver
copies twice, and the program waits. `pin_memory=True` lets a thread of the loader move each batch
into pinned memory; only `non_blocking=True` then lets the program run on and queue the next steps.
The GPU itself copies and computes in turn, as they were queued: that both go on at once takes a
second stream.

**Matters when** batches are large and the copy takes a visible share of the step.

**Doesn't matter when** the step is long against the copy, or without a GPU, where the setting does
nothing. Pinned memory can't be swapped out, and pinning itself costs CPU time.

**How to apply it**

```python
loader = DataLoader(dataset, num_workers=8, pin_memory=True)
for images, labels in loader:
    images = images.to("cuda", non_blocking=True)
    labels = labels.to("cuda", non_blocking=True)
```

**How it is measured** Loader, copy and training step together; and the copy of one batch alone,
over and over, as bytes a second from host to device.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.records.plan import Metric
from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload, needs_cuda
from bench.workloads.work import Context, TreatmentNotApplied, Work
from bench.workloads.workers import usual_workers

COPY_RATE = Metric(
    name="host_to_device_bytes_per_second",
    unit="bytes/s",
    column="payload_bytes",
    aggregate="rate",
)


def tip(context: Context) -> Tip:
    """The tip; it needs CUDA altogether."""
    baseline, both, pinned = (
        Variant(
            name=name,
            settings={"pin_memory": pin_memory, "non_blocking": non_blocking},
            needs=(needs_cuda,),
            recommended=non_blocking,
        )
        for name, pin_memory, non_blocking in (
            ("pin_memory=False", False, False),
            ("pin_memory=True, non_blocking=True", True, True),
            ("pin_memory=True", True, False),
        )
    )
    return Tip(
        id="pin_memory",
        section="Data loading",
        order=2,
        claim="With pin_memory=True, batches reach the GPU faster and it waits less.",
        card=__doc__ or "",
        variants=(baseline, both, pinned),
        workloads=(
            Workload(name="loader + training step", build=build_training, metrics=(THROUGHPUT,)),
            Workload(name="copy", build=build_copy, metrics=(COPY_RATE,)),
        ),
    )


def build_training(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing batches, copying them to the GPU and training on them."""
    from bench.workloads import loaders, training

    workers = usual_workers(context)
    pin_memory = settings["pin_memory"]
    batches = loaders.usual_batches(context, num_workers=workers, pin_memory=pin_memory)
    return training.loaded_training_work(
        batches,
        context,
        lambda: batches.evidence(num_workers=workers, pin_memory=pin_memory),
        non_blocking=settings["non_blocking"],
    )


def build_copy(settings: Mapping[str, Any], context: Context) -> Work:
    """Copying one batch of images from the host to the GPU, again and again."""
    from bench.workloads import training

    host, _ = training.random_batch(dataclasses.replace(context, device="cpu"))
    if settings["pin_memory"]:
        host = host.pin_memory()
    target = host.to(context.device)
    copied = 0

    def step() -> int:
        nonlocal copied
        target.copy_(host, non_blocking=settings["non_blocking"])
        copied += host.nbytes
        return len(host)

    def prepare(steps: int) -> None:
        nonlocal copied
        copied = 0

    def evidence() -> dict[str, Any]:
        if host.is_pinned() != settings["pin_memory"]:
            raise TreatmentNotApplied(
                f"pin_memory={settings['pin_memory']} was asked for; "
                f"is_pinned() said {host.is_pinned()}"
            )
        return {
            "pinned": host.is_pinned(),
            "device": str(target.device),
            "bytes_a_copy": host.nbytes,
        }

    return Work(
        step=step,
        evidence=evidence,
        device=context.device,
        prepare=prepare,
        readings=lambda: {"payload_bytes": copied},
    )
