"""A process and all its descendants: found, frozen (SIGSTOP), thawed (SIGCONT)."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from bench.engine import clock

HAS_PROC = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether /proc tells a process's children; some kernels are built without."""
PATIENCE_SECONDS = 20.0
"""A process that waits for a disk or for a core stops late; one that forks without end never."""


class NotFrozen(Exception):
    """A tree of which some process goes on running."""


def tree(root: int) -> list[int]:
    """Process ids of ``root`` and its descendants, parents before children.

    The tree is walked, not the process group: torchrun puts its ranks into sessions of their own.
    """
    if not HAS_PROC:
        return _tree_by_psutil(root)
    found = [root]
    for pid in found:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - called around each turn
                children = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii")
                found.extend(int(child) for child in children.split())
        except OSError:
            continue
    return found


def freeze(root: int) -> list[int]:
    """Stop the whole tree and return it: children first, until all stand and nothing is new.

    A process that is born while its parent is being stopped is found by the next pass. NotFrozen
    when that doesn't end.
    """
    stopped: set[int] = set()
    deadline = clock.now() + PATIENCE_SECONDS
    while clock.now() < deadline:
        members = tree(root)
        for pid in reversed(members):
            if pid not in stopped:
                _signal(pid, signal.SIGSTOP)
        if stopped.issuperset(members):
            if all(_stands_still(pid) for pid in members):
                return members
            # Nothing is new: what is missing is a core for those that have yet to take the signal.
            time.sleep(0.0002)
        stopped.update(members)
    raise NotFrozen(f"a process of its tree did not stop within {PATIENCE_SECONDS:.0f} s")


def stop(members: Iterable[int]) -> None:
    """Stop the processes at once, without a look whether they stand yet."""
    for pid in members:
        _signal(pid, signal.SIGSTOP)


def thaw(members: Iterable[int]) -> None:
    """Continue the processes, the root first."""
    for pid in members:
        _signal(pid, signal.SIGCONT)


def kill(root: int) -> None:
    """Kill the whole tree, stopped or not."""
    for pid in tree(root):
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _stands_still(pid: int) -> bool:
    if not HAS_PROC:
        try:
            return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] in b"TtZX"


def _tree_by_psutil(root: int) -> list[int]:
    try:
        process = psutil.Process(root)
        return [root, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []
