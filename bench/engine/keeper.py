"""The keeper: nothing of a run is left when the runner is gone, however it went.

A frozen arm cannot notice that its runner died. The keeper is a small process that is never
frozen and blocks on a pipe from the runner; at the pipe's end it kills every process whose
environment holds the run's token, until none is left, and removes the run's temporary folder.
"""

import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

TOKEN = "BENCH_RUN_TOKEN"
_PATIENCE_SECONDS = 10.0


def kill_all(token: str) -> None:
    """Kill every process that was started with ``token`` in its environment.

    multiprocessing's resource tracker is spared until the others are dead: it then removes the
    semaphores that they left and ends by itself.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    dead: set[int] = set()
    while members := _holders(token):
        trackers = {pid for pid in members if _is_tracker(pid)}
        overdue = time.monotonic() > deadline
        for pid in members if overdue else members - trackers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            dead.add(pid)
        if overdue:
            break
        time.sleep(0.01)
    _remove_shared_memory(dead)


def _holders(token: str) -> set[int]:
    needle = f"{TOKEN}={token}".encode()
    if not Path("/proc/self/environ").exists():
        return _holders_by_psutil(token)
    found = set()
    for entry in (path.name for path in Path("/proc").iterdir()):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
            stat = Path(f"/proc/{entry}/stat").read_bytes()
        except OSError:
            continue
        is_zombie = stat[stat.rindex(b")") + 2 :].startswith(b"Z")
        if needle in environment.split(b"\0") and not is_zombie:
            found.add(int(entry))
    return found


def _holders_by_psutil(token: str) -> set[int]:
    import psutil

    found = set()
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(TOKEN) == token:
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def _is_tracker(pid: int) -> bool:
    try:
        return b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _remove_shared_memory(pids: set[int]) -> None:
    """Remove tensors that a worker had named in /dev/shm when it was killed: ``torch_<pid>_…``."""
    folder = Path("/dev/shm")
    for path in folder.glob("torch_*") if folder.is_dir() else ():
        owner = re.match(r"torch_(\d+)_", path.name)
        if owner and int(owner.group(1)) in pids:
            path.unlink(missing_ok=True)


def main(descriptor: int, token: str, scratch: str) -> None:
    """Wait until the runner is gone, then clean up after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(descriptor, 1):
        pass
    kill_all(token)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
