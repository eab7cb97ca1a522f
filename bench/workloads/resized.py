"""A resized copy of the images, made ahead of time by a process pool."""

import dataclasses
import functools
from pathlib import Path

from PIL import Image

from bench.workloads.derived import build_once, fingerprint
from bench.workloads.pool import worker_pool
from bench.workloads.work import Context, Images

JPEG_QUALITY = 90


def resized_copy(images: Images, context: Context, short_side: int) -> tuple[Images, float | None]:
    """The same images with a short side of at most ``short_side`` pixels, and the build's seconds.

    They are built by a process a core, once, below ``context.cache``.
    """
    folder = context.cache / "resized" / f"{short_side}-{fingerprint(images, short_side)}"
    seconds = build_once(
        folder,
        functools.partial(_build, images=images, context=context, short_side=short_side),
        context.stopwatch,
    )
    paths = tuple(_name(index) for index in range(len(images.paths)))
    copy = dataclasses.replace(
        images,
        name=f"{images.name}, resized to {short_side}",
        folder=folder,
        paths=paths,
        total_bytes=sum((folder / path).stat().st_size for path in paths),
    )
    return copy, seconds


def _build(folder: Path, images: Images, context: Context, short_side: int) -> None:
    jobs = [
        (images.folder / path, folder / _name(index), short_side)
        for index, path in enumerate(images.paths)
    ]
    with worker_pool(start_method="fork", workers=context.cores) as pool:
        for _ in pool.map(_resize, *zip(*jobs, strict=True), chunksize=8):
            pass


def _resize(source: Path, target: Path, short_side: int) -> None:
    image = Image.open(source).convert("RGB")
    scale = short_side / min(image.size)
    if scale < 1:
        width, height = (max(short_side, round(side * scale)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    image.save(target, "JPEG", quality=JPEG_QUALITY)


def _name(index: int) -> str:
    return f"{index:06d}.jpg"
