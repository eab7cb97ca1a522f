"""A longer queue of ready batches bridges one that takes unusually long.

Each worker keeps `prefetch_factor` batches ready. A longer queue bridges a batch that takes
unusually long, so that the training step doesn't wait for it.

**Matters when** the cost of samples is uneven (some files are large or slow to fetch) while the
workers are fast enough on average.

**Doesn't matter when** the workers are the bottleneck: a queue that is always empty doesn't get
fuller by being longer. Each batch that waits costs host memory, workers × prefetch_factor of them.

**How to apply it**

```python
loader = DataLoader(dataset, num_workers=8, prefetch_factor=4)  # only with workers
```

**How it is measured** A loader in which one batch in each round of the workers holds samples that
are decoded five times, with a training step that takes the batches.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.tips.tip import HOST_MEMORY, THROUGHPUT, Tip, Variant, Workload
from bench.workloads.work import Context, Work
from bench.workloads.workers import PREFETCH_FACTORS, usual_workers

RECOMMENDED = 4
COSTLY_EVERY = 4
COSTLY_DECODES = 5


def tip(context: Context) -> Tip:
    """The tip."""
    return Tip(
        id="prefetch_factor",
        section="Data loading",
        order=3,
        claim="A higher prefetch_factor keeps more batches ready and shortens the wait.",
        card=__doc__ or "",
        variants=tuple(
            Variant(
                name=f"prefetch_factor={factor}",
                settings={"prefetch_factor": factor},
                recommended=factor == RECOMMENDED,
            )
            for factor in PREFETCH_FACTORS
        ),
        workloads=(
            Workload(
                name="uneven loader + training step",
                build=build,
                metrics=(THROUGHPUT, HOST_MEMORY),
                memory_scales=(1.0,),
            ),
        ),
    )


def batches_a_round(num_workers: int) -> int:
    """How many batches hold one costly one: a batch of each worker, two where there is one."""
    return max(2, num_workers)


def decodes(batch_size: int, round_batches: int) -> tuple[int, ...]:
    """How often the samples at successive positions are decoded, over as many rounds as batches.

    The costly batch moves on by one place from round to round, so that each worker gets its share
    and all rounds cost the same.
    """
    cheap = (1,) * batch_size
    costly = tuple(
        COSTLY_DECODES if index % COSTLY_EVERY == 0 else 1 for index in range(batch_size)
    )
    places = range(round_batches)
    return tuple(
        decodes
        for round_number in places
        for place in places
        for decodes in (costly if place == round_number else cheap)
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing batches of uneven cost and training on them."""
    from bench.workloads import loaders, training

    workers = usual_workers(context)
    factor = settings["prefetch_factor"]
    round_batches = batches_a_round(workers)
    dataset = loaders.JpegFiles(
        loaders.shuffled(context.images, context.seed),
        loaders.SampleMaker(
            transform=loaders.usual_transform(context.image_size), seed=context.seed
        ),
        decodes(context.batch_size, round_batches),
    )
    batches = loaders.Batches(dataset, context, num_workers=workers, prefetch_factor=factor)
    work = training.loaded_training_work(
        batches, context, lambda: batches.evidence(num_workers=workers, prefetch_factor=factor)
    )
    return dataclasses.replace(work, period=round_batches)
