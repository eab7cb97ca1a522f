"""Workers prepare the next batches while the model trains on this one.

A DataLoader with `num_workers=0` reads, decodes and augments each batch in the training process,
and the GPU stands still meanwhile. Workers do it in processes of their own, ahead of time.

**Matters when** preparing a batch takes longer than training on it: large JPEGs, heavy
augmentation, a fast GPU, idle cores.

**Doesn't matter when** the data is in memory already, or the training step is the bottleneck. On a
CPU-only machine the workers and the step share the same cores. Each worker costs memory and
start-up time (much more under `spawn` and `forkserver`, the default from Python 3.14, than under
`fork`), and more workers than cores get in each other's way. Inside a container, count the cores
that it may use: `os.cpu_count()` counts the host's.

**How to apply it**

```python
workers = max(1, len(os.sched_getaffinity(0)) // 2)
loader = DataLoader(dataset, batch_size=256, num_workers=workers, persistent_workers=True)
```

**How it is measured** JPEG files to 224 px batches, drawn alone and together with a training step.
Throughput is that of a running loader; the time to the first batch, which holds the start of the
workers, is a figure of its own.
"""

from collections.abc import Mapping
from typing import Any

from bench.tips.tip import (
    HOST_MEMORY,
    IMAGES_PER_SECOND,
    STARTUP,
    THROUGHPUT,
    Tip,
    Variant,
    Workload,
)
from bench.workloads.work import Context, Work
from bench.workloads.workers import MOST_WORKERS, usual_workers


def tip(context: Context) -> Tip:
    """The tip on this machine; with the training step first where there is a GPU to wait."""
    alone = Workload(
        name="loader",
        build=build_loader,
        metrics=(IMAGES_PER_SECOND, STARTUP, HOST_MEMORY),
        memory_scales=(1.0,),
    )
    training = Workload(name="loader + training step", build=build_training, metrics=(THROUGHPUT,))
    return Tip(
        id="num_workers",
        section="Data loading",
        order=1,
        claim="With num_workers at half the physical cores or more, the GPU waits less for data.",
        card=__doc__ or "",
        variants=variants(context),
        workloads=(training, alone) if context.device != "cpu" else (alone, training),
    )


def variants(context: Context) -> tuple[Variant, ...]:
    """0, half the cores (recommended), 1, 2, the cores, twice the cores; each number once."""
    cores, recommended = context.cores, usual_workers(context)
    numbers = (0, recommended, 1, 2, min(MOST_WORKERS, cores), min(MOST_WORKERS, 2 * cores))
    return tuple(
        Variant(
            name=f"num_workers={number}",
            settings={"num_workers": number},
            recommended=number == recommended,
        )
        for number in dict.fromkeys(numbers)
    )


def build_loader(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing batches."""
    from bench.workloads import loaders

    batches = loaders.usual_batches(context, num_workers=settings["num_workers"])
    return loaders.loading_work(
        batches, lambda: batches.evidence(num_workers=settings["num_workers"])
    )


def build_training(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing batches and training on them."""
    from bench.workloads import loaders, training

    batches = loaders.usual_batches(context, num_workers=settings["num_workers"])
    return training.loaded_training_work(
        batches, context, lambda: batches.evidence(num_workers=settings["num_workers"])
    )
