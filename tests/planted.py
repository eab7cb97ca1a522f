"""Tips with a known truth: what the engine must find, survive or report."""

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.engine import clock
from bench.engine.processes import Processes
from bench.engine.replicate import Bench, Group, Pace
from bench.records import machine
from bench.records.measurements import Turn
from bench.tips.tip import HOST_MEMORY, STARTUP, THROUGHPUT, Tip, Variant, Workload
from bench.workloads import heap
from bench.workloads.work import Context, Images, TreatmentNotApplied, Work, WorkFailed

PACE = Pace(blocks=3, turn_seconds=0.02, warm_up_seconds=0.0)


def burn(units: int) -> None:
    """Work on the processor: about a millisecond a unit."""
    for _ in range(units):
        sum(range(40_000))


def loaded() -> Iterator[Any]:
    """Tensors that two worker processes make and hand over in shared memory."""
    import torch
    from torch.utils.data import DataLoader

    data = torch.ones(1, 10_000).expand(100_000, -1)
    yield from DataLoader(data, num_workers=2)  # type: ignore[arg-type]


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Work that burns, and misbehaves as its settings ask."""
    done = 0

    batches = loaded() if settings.get("loads") else None
    began = clock.now()
    time.sleep(settings.get("build_seconds", 0.0))
    built = clock.now()

    def step() -> int:
        nonlocal done
        done += 1
        if batches is not None:
            next(batches)
        after = settings.get("after", 0)
        match settings.get("misbehave") if done > after else None:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(7)
            case "raise":
                raise ValueError("the planted error\nwith a second line")
            case "allocate":
                bytearray(10**15)
            case "hang":
                signal.pause()
            case "lose samples":
                return 0
            case "run dry":
                raise StopIteration
        every = settings.get("twice_every", 0)
        burn(2 if every and done % every == 0 else 1)
        return 1

    def evidence() -> dict[str, Any]:
        if settings.get("misbehave") == "ignore the treatment":
            raise TreatmentNotApplied("batch.is_pinned() is False")
        return {
            "pid": os.getpid(),
            "built": (began, built),
            "kept_in_heap": [len(block) for block in heap.kept],
            "affinity": sorted(os.sched_getaffinity(0)),
            "data_bytes": context.images.total_bytes * settings.get("scale", 1),
        }

    def readings() -> dict[str, float]:
        if settings.get("misbehave") == "lose the loss":
            raise WorkFailed("the loss is nan after 3 steps")
        return {"loss": 1.0}

    if settings.get("misbehave") == "fail to build":
        raise ImportError("No module named 'nowhere'")
    hold = bytearray(os.urandom(1)) * int(
        settings.get("bytes_a_data_byte", 0) * context.images.total_bytes * settings.get("scale", 1)
    )
    return Work(
        step=step,
        evidence=evidence,
        readings=readings,
        close=hold.clear,
        period=settings.get("period", 1),
    )


def tip(*variants: Variant, memory_scales: tuple[float, ...] = (), tip_id: str = "planted") -> Tip:
    """A tip of these variants, the first one the baseline."""
    return Tip(
        id=tip_id,
        section="Data loading",
        order=1,
        claim="a planted claim",
        card="A planted card.",
        variants=variants,
        workloads=(
            Workload(
                name="burning",
                build=build,
                metrics=(THROUGHPUT, STARTUP, HOST_MEMORY),
                pinned=True,
                memory_scales=memory_scales,
            ),
        ),
    )


def variant(name: str, **settings: Any) -> Variant:
    """A variant with these settings."""
    return Variant(name=name, settings=settings, recommended=name == "treated")


def group(tip: Tip) -> Group:
    """All of the tip's variants on its first workload."""
    return Group(tip=tip, workload=tip.workloads[0], variants=tip.variants)


CONTEXT = Context(
    images=Images(name="none", folder=Path(), paths=(), labels=(), total_bytes=50_000_000),
    cache=Path(),
    threads=1,
)


@contextmanager
def bench(
    pace: Pace = PACE, *, on_turn: Callable[[Turn], None] = lambda turn: None
) -> Iterator[tuple[Bench, list[Turn]]]:
    """A bench whose turns are kept in a list."""
    turns: list[Turn] = []

    def record(turn: Turn) -> None:
        turns.append(turn)
        on_turn(turn)

    with Processes(preload=["bench.tips.tip"]) as processes:
        yield (
            Bench(
                processes=processes,
                context=CONTEXT,
                cores=machine.core_ids(),
                pace=pace,
                run_id="run",
                machine_id="machine",
                record=record,
            ),
            turns,
        )


def renamed(tip: Tip, tip_id: str) -> Tip:
    """The same tip under another id."""
    return dataclasses.replace(tip, id=tip_id)
