"""Works whose slow-down is known exactly: ``twice_every`` makes that share of steps be done twice.

An arm imports this module, so it holds no more than the works need.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from bench.workloads.work import Context, Work

PASS = 20
"""Steps a pass: each pass does one of them (5 %) or two (10 %) twice, in turn another one."""
LOADER_WORKERS = 2
LOADER_BATCH_SIZE = 2
"""Small, so that little work is half done at the ends of a turn."""


def decoding(settings: Mapping[str, Any], context: Context) -> Work:
    """Decoding one image with Pillow, on one core; always the same one, so all cost the same."""
    from bench.workloads.decoders import by_name
    from bench.workloads.jpegs import hold

    decode = by_name("Pillow").load()
    file = hold(context.images, seed=context.seed)[0].data
    return _with_some_twice(settings, Work(step=lambda: len(decode([file])), evidence=dict))


def loading(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing a batch from a loader with two workers; the same images every pass."""
    from bench.workloads import loaders

    few = PASS * LOADER_BATCH_SIZE
    images = dataclasses.replace(
        context.images, paths=context.images.paths[:few], labels=context.images.labels[:few]
    )
    context = dataclasses.replace(context, images=images, batch_size=LOADER_BATCH_SIZE)
    batches = loaders.usual_batches(context, num_workers=LOADER_WORKERS)
    return _with_some_twice(settings, loaders.loading_work(batches, dict))


def training(settings: Mapping[str, Any], context: Context) -> Work:
    """A small training step on one core; two threads would mostly wait for each other."""
    from bench.workloads.training import training_work

    work = training_work(dataclasses.replace(context, device="cpu", batch_size=4, image_size=32))
    return dataclasses.replace(_with_some_twice(settings, work), evidence=dict)


def is_done_twice(index: int, every: int) -> bool:
    """Whether step ``index`` is done twice; over ``PASS`` passes every step is, equally often."""
    return every > 0 and (index + 7 * (index // PASS)) % every == 0


def _with_some_twice(settings: Mapping[str, Any], work: Work) -> Work:
    """``work`` of which some steps are done twice and count once."""
    every, done = settings.get("twice_every", 0), 0
    step: Callable[[], int] = work.step

    def step_or_two() -> int:
        nonlocal done
        if is_done_twice(done, every):
            step()
        done += 1
        return step()

    return dataclasses.replace(work, step=step_or_two, period=PASS)
