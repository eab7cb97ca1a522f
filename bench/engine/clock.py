"""The one clock of the code base. Nothing else in ``bench`` reads a clock around work."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")


def timed(work: Callable[[], T], device: str) -> tuple[T, float]:
    """Do ``work`` and return its result and the seconds until ``device`` had finished it.

    ``device`` is a torch device ("cpu", "cuda", "cuda:1"); it is synchronised before the clock
    starts, so that earlier work is not counted, and before it stops, so that this work is.
    """
    wait = _synchronizer(device)
    wait()
    start = time.perf_counter()
    result = work()
    wait()
    return result, time.perf_counter() - start


def stopwatch(call: Callable[[], None]) -> float:
    """The seconds that a call on the processor took: for what an arm builds, outside its turns."""
    return timed(call, "cpu")[1]


def now() -> float:
    """Seconds of a clock that only goes forward: for budgets and time-outs, never for work."""
    return time.monotonic()


def date() -> str:
    """The date and time of day, UTC, ISO 8601 with milliseconds: for records, never for work."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _synchronizer(device: str) -> Callable[[], None]:
    """What waits for ``device``; torch is touched only when the work ran on an accelerator."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return lambda: None
    import torch

    backend = getattr(torch, kind)
    return lambda: backend.synchronize(int(index)) if index else backend.synchronize()
