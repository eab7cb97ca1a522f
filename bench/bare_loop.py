"""The same work in a plain loop outside the suite, to measure what the suite itself costs.

``python -m bench.bare_loop`` reads one pickled ``Order`` from standard input, then a number of
steps a line; it answers each line with the samples and the seconds of that many steps.
"""

import dataclasses
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.workloads import heap
from bench.workloads.work import Context, Work


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What to loop over, on which cores with how many threads, and how memory lies."""

    build: Callable[[Mapping[str, Any], Context], Work]
    context: Context
    cores: tuple[int, ...]
    threads: int
    layout: str


def main() -> None:
    """Loop as often as standard input says."""
    order: Order = pickle.load(sys.stdin.buffer)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, order.cores)
    heap.settle()
    heap.shuffle(order.layout)
    work = order.build({}, order.context)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(order.threads)
    for line in sys.stdin.buffer:
        steps, samples = int(line), 0
        _signal_workers(signal.SIGCONT)
        start = time.perf_counter()  # noqa: TID251 - the point is a clock that is not the suite's
        for _ in range(steps):
            samples += work.step()
        seconds = time.perf_counter() - start  # noqa: TID251
        _signal_workers(signal.SIGSTOP)
        print(samples, seconds, flush=True)
    _signal_workers(signal.SIGCONT)
    work.close()


def _signal_workers(number: signal.Signals) -> None:
    """Workers work while the loop does: what they did outside it would be had for free."""
    for worker in multiprocessing.active_children():
        if worker.pid is not None:
            os.kill(worker.pid, number)


if __name__ == "__main__":
    main()
