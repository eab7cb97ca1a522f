"""Works whose slow-down is known exactly: ``twice_every`` makes that share of items be done twice.

An arm imports this module, so it holds no more than the works need.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.workloads.work import Context, Work

LOADER_WORKERS = 2
LOADER_BATCH_SIZE = 2
"""Small, so that little work is half done at the ends of a turn."""


def decoding(settings: Mapping[str, Any], context: Context) -> Work:
    """Decoding one image with Pillow, on one core; always the same one, so all cost the same."""
    from bench.workloads.decoders import by_name
    from bench.workloads.jpegs import hold
    from bench.workloads.twice import PASS, is_done_twice

    every = settings.get("twice_every", 0)
    decode = by_name("Pillow").load()
    file = hold(context.images, seed=context.seed)[0].data
    done = 0

    def step() -> int:
        nonlocal done
        if is_done_twice(done, every):
            decode([file])
        decode([file])
        done += 1
        return 1

    return Work(step=step, evidence=dict, period=PASS)


def loading(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing a batch from a loader with two workers."""
    from bench.workloads import loaders
    from bench.workloads.twice import PASS, TwiceEvery

    context = dataclasses.replace(context, batch_size=LOADER_BATCH_SIZE)
    make = loaders.SampleMaker(
        transform=loaders.usual_transform(context.image_size), seed=context.seed
    )
    files = loaders.JpegFiles(loaders.shuffled(context.images, context.seed), make)
    dataset = TwiceEvery(files, settings.get("twice_every", 0))
    batches = loaders.Batches(dataset, context, num_workers=LOADER_WORKERS)
    work = loaders.loading_work(batches, dict)
    return dataclasses.replace(work, period=PASS // LOADER_BATCH_SIZE)


def training(settings: Mapping[str, Any], context: Context) -> Work:
    """A small training step on one core; two threads would mostly wait for each other."""
    from bench.workloads.training import training_work
    from bench.workloads.twice import PASS, is_done_twice

    every = settings.get("twice_every", 0)
    work = training_work(dataclasses.replace(context, device="cpu", batch_size=4, image_size=32))
    step, done = work.step, 0

    def step_or_two() -> int:
        nonlocal done
        if is_done_twice(done, every):
            step()
        done += 1
        return step()

    return dataclasses.replace(work, step=step_or_two, evidence=dict, period=PASS)
