"""JPEG files held in memory, and the work that walks them in order, for ever."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.workloads.decoders.decoder import NVJPEG_BATCH
from bench.workloads.work import Images, Work

MOST_FILES = 2 * NVJPEG_BATCH
MOST_BYTES = 8 * 2**20
LEAST_FILES = 4
"""So much makes a period of about 0.1 s on one core with files of 110 KB, of about half a second
with photographs of 10 megapixels. It is more than a core's own caches hold."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Jpeg:
    """One file's bytes and its ``index`` in the run's images."""

    index: int
    data: bytes


def hold(images: Images, *, seed: int) -> tuple[Jpeg, ...]:
    """A random subset of the images, the same for the same seed, read into memory.

    At most ``MOST_FILES`` files and about ``MOST_BYTES``, but at least ``LEAST_FILES`` where the
    images have them. From ``NVJPEG_BATCH`` files on they are whole batches: all steps that take
    one are alike.
    """
    held: list[Jpeg] = []
    total = 0
    for index in np.random.default_rng(seed).permutation(len(images.paths)):
        data = (images.folder / images.paths[index]).read_bytes()
        total += len(data)
        held.append(Jpeg(index=int(index), data=data))
        if len(held) == MOST_FILES or (total >= MOST_BYTES and len(held) >= LEAST_FILES):
            break
    return tuple(held[: len(held) // NVJPEG_BATCH * NVJPEG_BATCH or len(held)])


def walk(
    jpegs: Sequence[Jpeg],
    do: Callable[[Sequence[Jpeg]], object],
    evidence: Callable[[], dict[str, Any]],
    *,
    batch: int = 1,
    device: str = "cpu",
) -> Work:
    """The work of doing ``do`` to the files in order, ``batch`` in a step, over and over.

    Its period is one pass over all files, so that every turn of every arm does the same work.
    The reading ``payload_bytes`` is the encoded bytes that a turn decoded.
    """
    batches = [jpegs[start : start + batch] for start in range(0, len(jpegs), batch)]
    endless = itertools.cycle([(part, sum(len(jpeg.data) for jpeg in part)) for part in batches])
    payload = 0

    def prepare(steps: int) -> None:
        nonlocal payload
        payload = 0

    def step() -> int:
        nonlocal payload
        part, size = next(endless)
        do(part)
        payload += size
        return len(part)

    return Work(
        step=step,
        evidence=evidence,
        device=device,
        period=len(batches),
        prepare=prepare,
        readings=lambda: {"payload_bytes": payload},
    )
