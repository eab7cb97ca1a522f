"""A process pool over the usable cores whose workers never outlive the process that made it."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Literal

from bench.records.machine import usable_cores


def worker_pool(
    *, start_method: Literal["fork", "spawn"] = "spawn", workers: int | None = None
) -> ProcessPoolExecutor:
    """A pool of ``workers`` processes (default: one a usable core).

    ``spawn`` is right anywhere. ``fork`` hands over what the calling process has imported, and is
    for a process without other threads; only Linux gets it, other systems spawn.
    """
    method = start_method if sys.platform == "linux" else "spawn"
    return ProcessPoolExecutor(
        max_workers=workers or usable_cores(),
        mp_context=multiprocessing.get_context(method),
        initializer=_start,
    )


def _start() -> None:
    # Ctrl-C reaches every process of the terminal; the one that made the pool sees to its end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A worker waits for its next task for ever when its parent is killed: no one closes the pipe.
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.join,), daemon=True).start()


def _exit_after(wait: Callable[[], None]) -> None:
    wait()
    os._exit(1)
