"""A user's folder of images: which files every decoder reads, and reads alike.

What some decoder cannot read, or reads differently, is left out for all and named by kind, so
that all variants do the same work. The rules on a file's structure are asked of Pillow alone,
and so are the same whatever other decoders are installed; then each decoder that is installed
is compared with Pillow.

Files are examined in worker processes, a few at a time. A decoder that crashes takes its worker
along, and then the files that were under way are examined again, each in a process of its own:
the one that ends that process too is the culprit, and the scan goes on.
"""

import functools
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from bench.errors import UserError
from bench.workloads import decoders, placed
from bench.workloads.decoders.decoder import Decode
from bench.workloads.decoders.reference import as_hwc, mean_difference
from bench.workloads.pool import worker_pool
from bench.workloads.work import Images

EXTENSIONS = (".jpg", ".jpeg")
LARGEST_DIFFERENCE = 2.0
"""Mean difference from Pillow in levels of 0 to 255. Users of libjpeg-turbo give equal pixels; a
file that one of them can only read in part differs by far more."""

UNDER_WAY = 8
"""Files examined or waiting at one time: all that memory must hold."""

_ORIENTATION = 0x0112
_ROTATED = range(2, 9)
_END_OF_IMAGE = b"\xff\xd9"
_CONTENTS = (
    (b"\x89PNG", 0, "PNG"),
    (b"GIF8", 0, "GIF"),
    (b"WEBP", 8, "WebP"),
    (b"BM", 0, "BMP"),
    (b"II*\0", 0, "TIFF"),
    (b"MM\0*", 0, "TIFF"),
    (b"%PDF", 0, "PDF"),
    (b"PK\3\4", 0, "ZIP"),
    (b"ftyp", 4, "HEIC, AVIF or video"),
    (b"\0\0\0\x0cjP", 0, "JPEG 2000"),
    (b"\xff\x0a", 0, "JPEG XL"),
    (b"version https://git-lfs", 0, "Git LFS pointer"),
)


def scan(folder: Path, *, limit: int, seed: int) -> Images:
    """The first ``limit`` usable JPEGs below ``folder``, in a random order drawn from ``seed``.

    Files whose names end in .jpg or .jpeg count, at any depth and through links; each file's own
    folder is its class. Call it in a process that may import torch and start processes. Raises
    UserError when there is no folder or nothing usable in it.
    """
    left_out: dict[str, list[str]] = defaultdict(list)
    names = _names(folder, left_out)
    order = np.random.default_rng(seed).permutation(len(names))
    usable: list[str] = []
    for name, fault in _examined(folder, [names[index] for index in order]):
        if fault is not None:
            left_out[fault].append(name)
        else:
            usable.append(name)
            if len(usable) == limit:
                break
    if not usable:
        counts = ", ".join(f"{kind}: {len(files)}" for kind, files in sorted(left_out.items()))
        raise UserError(
            f"No JPEG in {folder} can be used ({counts}).",
            "Give a folder of RGB or grayscale JPEG files.",
        )
    classes = sorted({os.path.dirname(name) for name in usable})  # noqa: PTH120
    return Images(
        name="your images",
        folder=folder,
        paths=tuple(usable),
        labels=tuple(classes.index(os.path.dirname(name)) for name in usable),  # noqa: PTH120
        total_bytes=sum((folder / name).stat().st_size for name in usable),
        left_out={
            kind: tuple(sorted(_printable(name) for name in files))
            for kind, files in sorted(left_out.items())
        },
    )


def _names(folder: Path, left_out: Mapping[str, list[str]]) -> list[str]:
    """The names of the files to examine, relative to the folder, sorted."""
    if not folder.exists():
        raise UserError(f"There is no folder {folder}.", "Give a folder of JPEG files.")
    if not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder.", "Give the folder that holds it.")

    def unreadable(error: OSError) -> None:
        left_out["folder cannot be read"].append(os.path.relpath(error.filename, folder))

    names = []
    visited = set()
    for path, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        # A link may lead back to a folder above it.
        if (place := os.path.realpath(path)) in visited:
            folders.clear()
            continue
        visited.add(place)
        # An earlier run's copies of images, left for the next comparison of disks.
        folders[:] = [name for name in folders if name != placed.FOLDER]
        names += [
            Path(path, file).relative_to(folder).as_posix()
            for file in files
            if file.lower().endswith(EXTENSIONS)
        ]
    if not names:
        raise UserError(
            f"{folder} holds no file named .jpg or .jpeg.", "Give a folder of JPEG files."
        )
    return sorted(names)


def _examined(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Each name with its fault or None, in order."""
    # Imported here once, so that the workers, which are forked, find them loaded.
    compared = tuple(
        decoder.name
        for decoder in decoders.DECODERS
        if decoder.device == "cpu"
        and not decoder.environment
        and decoder is not decoders.DECODERS[0]
        and decoder.problem() is None
    )
    waiting = deque(names)
    while waiting:
        under_way: deque[tuple[str, Future[str | None]]] = deque()
        with worker_pool(start_method="fork") as pool:
            try:
                while waiting or under_way:
                    while waiting and len(under_way) < UNDER_WAY:
                        future = pool.submit(_fault, folder / waiting[0], compared)
                        under_way.append((waiting.popleft(), future))
                    name, future = under_way[0]
                    fault = future.result()
                    under_way.popleft()
                    yield name, fault
            except BrokenProcessPool:
                pass
        for name, _ in under_way:
            yield name, _fault_alone(folder / name, compared)


def _fault_alone(path: Path, compared: tuple[str, ...]) -> str | None:
    with worker_pool(start_method="fork", workers=1) as pool:
        try:
            return pool.submit(_fault, path, compared).result()
        except BrokenProcessPool:
            return "crashes a decoder"


def _fault(path: Path, compared: tuple[str, ...]) -> str | None:
    """Why a file cannot be used, or None. Runs in a worker."""
    try:
        if not path.is_file():
            return "not a file"
        data = path.read_bytes()
    except OSError:
        return "cannot be read"
    if not data.startswith(b"\xff\xd8\xff"):
        return f"not a JPEG: {_content(data)}"
    try:
        with Image.open(BytesIO(data), formats=["JPEG"]) as image:
            if image.mode == "CMYK":  # YCCK is shown as CMYK too
                return "CMYK or YCCK"
            if image.getexif().get(_ORIENTATION) in _ROTATED:
                return "EXIF orientation other than 1"
            expected = np.asarray(image.convert("RGB"))
    except Exception:  # a damaged file makes Pillow raise almost anything
        return "damaged" if _END_OF_IMAGE in data[-64:] else "truncated"
    for name in compared:
        try:
            [pixels] = _loaded(name)([data])
        except Exception:  # each library has exceptions of its own
            return f"decoders disagree: {name} cannot read it"
        found = as_hwc(pixels, "HWC")
        if found.shape != expected.shape or mean_difference(found, expected) > LARGEST_DIFFERENCE:
            return f"decoders disagree: {name} reads it differently"
    return None


@functools.cache
def _loaded(name: str) -> Decode:
    return decoders.by_name(name).load()


def _content(data: bytes) -> str:
    """What a file that is no JPEG is, from its first bytes."""
    if not data:
        return "empty"
    for mark, start, name in _CONTENTS:
        if data.startswith(mark, start):
            return name
    if data[:256].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "HTML"
    return "something else"


def _printable(name: str) -> str:
    # A name that is not UTF-8 can be opened, but not written into a UTF-8 file.
    return os.fsencode(name).decode("utf-8", "replace")
