"""Files that are derived from the images, built once below the cache folder and kept."""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from bench.workloads.work import Images, Stopwatch

_RECORD = "built.json"


def fingerprint(images: Images, *parts: object) -> str:
    """Twelve hexadecimal digits that change with the images, their order, or ``parts``."""
    return digest(images.name, images.paths, images.labels, images.total_bytes, *parts)


def digest(*parts: object) -> str:
    """Twelve hexadecimal digits that change with ``parts``, by their ``repr``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def build_once(
    folder: Path, build: Callable[[Path], None], stopwatch: Stopwatch | None
) -> float | None:
    """Have ``folder`` hold what ``build`` writes into the empty folder that it is given.

    Nothing is built where it is there already. A build that is killed leaves nothing that is taken
    for a finished one, and two at once make one. Returns the seconds that it took when it was
    built, None where no stopwatch was at hand.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(folder, build, stopwatch)
    seconds: float | None = json.loads((folder / _RECORD).read_text())["build_seconds"]
    return seconds


def _build(folder: Path, build: Callable[[Path], None], stopwatch: Stopwatch | None) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    seconds = None
    if stopwatch is None:
        build(partial)
    else:
        seconds = stopwatch(lambda: build(partial))
    (partial / _RECORD).write_text(json.dumps({"build_seconds": seconds}))
    partial.rename(folder)
