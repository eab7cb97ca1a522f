"""Copies of some images on the places that are compared, each variant over files of its own."""

import dataclasses
import functools
import os
from pathlib import Path

from bench.workloads.derived import build_once, fingerprint
from bench.workloads.work import Context, Images

DISTINCT_IMAGES = 256
MOST_FILES = 4096
MOST_BYTES = 192 << 20
FOLDER = "torch-tips-bench"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subset:
    """The images that are copied, and how many copies of each there are on a disk.

    A cold turn must not come round to a file that it has read already, so a disk holds the same
    few images several times over. Where reads come from memory one copy is enough: the samples and
    their order are the same everywhere.
    """

    images: Images
    copies: int

    @property
    def bytes_on_disk(self) -> int:
        """What all copies together take."""
        return self.images.total_bytes * self.copies


def subset(images: Images) -> Subset:
    """The first images, at most DISTINCT_IMAGES and a quarter of MOST_BYTES."""
    chosen: list[int] = []
    total = 0
    for index, path in enumerate(images.paths[:DISTINCT_IMAGES]):
        size = (images.folder / path).stat().st_size
        if chosen and total + size > MOST_BYTES // 4:
            break
        chosen.append(index)
        total += size
    return Subset(
        images=dataclasses.replace(
            images,
            paths=tuple(images.paths[index] for index in chosen),
            labels=tuple(images.labels[index] for index in chosen),
            total_bytes=total,
        ),
        copies=max(1, min(MOST_FILES // len(chosen), MOST_BYTES // max(1, total))),
    )


def copy_to_disk(chosen: Subset, place: Path, purpose: str, context: Context) -> Images:
    """All copies, written out below ``place``, in an order that repeats the images in theirs."""
    images = chosen.images
    folder = place / FOLDER / f"{purpose}-{fingerprint(images, chosen.copies)}"
    build_once(folder, functools.partial(_build, chosen=chosen), context.stopwatch)
    names = tuple(_names(chosen))
    return dataclasses.replace(
        images, folder=folder, paths=names, labels=images.labels * chosen.copies
    )


def copy_to_ram(chosen: Subset, place: Path) -> Images:
    """One copy as files without a name on a RAM file system, gone when this process ends.

    They are opened through ``/proc/self/fd``. One file descriptor a file stays open.
    """
    descriptors = []
    for path in chosen.images.paths:
        descriptor = os.open(place, os.O_TMPFILE | os.O_RDWR)
        with open(descriptor, "wb", closefd=False) as file:
            file.write((chosen.images.folder / path).read_bytes())
        descriptors.append(descriptor)
    return dataclasses.replace(
        chosen.images, folder=Path("/proc/self/fd"), paths=tuple(map(str, descriptors))
    )


def _build(folder: Path, chosen: Subset) -> None:
    sources = [chosen.images.folder / path for path in chosen.images.paths] * chosen.copies
    for source, name in zip(sources, _names(chosen), strict=True):
        (folder / name).write_bytes(source.read_bytes())
    for name in _names(chosen):
        # A page that is not written out yet can't be dropped from the cache.
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


def _names(chosen: Subset) -> list[str]:
    return [f"{index:06d}.jpg" for index in range(len(chosen.images.paths) * chosen.copies)]
