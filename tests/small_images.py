"""A few small JPEG files for tests, each of its own colour and size."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench.workloads.work import Context, Images


def make_images(folder: Path, count: int = 12, side: int = 60) -> Images:
    """Write ``count`` JPEGs of about ``side`` pixels below ``folder``, two classes in turn."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    paths = []
    for index in range(count):
        pixels = rng.integers(0, 255, (side + index, side + 2 * index, 3), dtype=np.uint8)
        paths.append(f"{index:03d}.jpg")
        Image.fromarray(pixels).save(folder / paths[-1], quality=90)
    return Images(
        name="small",
        folder=folder,
        paths=tuple(paths),
        labels=tuple(index % 2 for index in range(count)),
        total_bytes=sum((folder / path).stat().st_size for path in paths),
    )


def make_context(folder: Path, **options: object) -> Context:
    """A context over small images: batches of 4 at 32 px, one thread, as an arm gets it."""
    torch.set_num_threads(1)
    (folder / "cache").mkdir()
    given = {
        "images": make_images(folder / "images"),
        "cache": folder / "cache",
        "batch_size": 4,
        "image_size": 32,
        "cores": 2,
        "threads": 1,
    }
    return Context(**(given | options))  # type: ignore[arg-type]
