"""The embedded corpus: 1,000 JPEGs cut from photographs that installed packages carry.

No download: scikit-image and scikit-learn ship ten photographs, and each is a class. Every image
is a random part of one, scaled to ImageNet-like sizes (500 pixels on the long side is by far the
most common), with the grain that a sensor leaves (a scaled-down photograph is too smooth to
compress like one) and with a mix of JPEG qualities, chroma subsamplings, progressive and
grayscale files. The mean file is about 110 KB, as ImageNet's.
"""

import functools
import hashlib
import importlib.util
import os
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from bench.errors import UserError
from bench.workloads.pool import worker_pool
from bench.workloads.work import Images

VERSION = 1
"""Raised with every change that changes a byte of the corpus."""

COUNT = 1000
SEED = 20_240_501

PHOTOGRAPHS = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "chelsea": ("skimage", "data/chelsea.png"),
    "china": ("sklearn", "datasets/images/china.jpg"),
    "coffee": ("skimage", "data/coffee.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "hubble": ("skimage", "data/hubble_deep_field.jpg"),
    "ihc": ("skimage", "data/ihc.png"),
    "motorcycle": ("skimage", "data/motorcycle_left.png"),
    "retina": ("skimage", "data/retina.jpg"),
    "rocket": ("skimage", "data/rocket.jpg"),
}
"""Class → package and file. Labels follow this order."""

_PROJECTS = {"skimage": "scikit-image", "sklearn": "scikit-learn"}

_ASPECTS = (4 / 3, 3 / 2, 1.0, 3 / 4, 2 / 3, 16 / 9)
_ASPECT_SHARES = (0.42, 0.22, 0.12, 0.12, 0.06, 0.06)
_QUALITIES = (75, 85, 90, 92, 95, 97)
_QUALITY_SHARES = (0.10, 0.12, 0.20, 0.20, 0.25, 0.13)
_SUBSAMPLINGS = ("4:2:0", "4:4:4", "4:2:2")
_SUBSAMPLING_SHARES = (0.65, 0.25, 0.10)
_PROGRESSIVE_SHARE = 0.05
_GRAYSCALE_SHARE = 0.015


def prepare(cache: Path, count: int = COUNT) -> Images:
    """The first ``count`` images of the corpus (at most 1,000), built below ``cache`` if missing.

    Any ``count`` is a prefix of the same list, in which the classes take turns, and a later call
    with a larger one builds only what is missing. Each file appears under its name only when it
    is whole, and its bytes hang on nothing but its index and the versions of Pillow and NumPy,
    so a build may be killed, or run twice at once. Raises UserError when a photograph's package
    is missing.
    """
    if not 1 <= count <= COUNT:
        raise ValueError(f"The corpus holds 1 to {COUNT} images, not {count}.")
    folder = cache / f"corpus-v{VERSION}"
    paths = tuple(_path(index) for index in range(count))
    missing = [index for index, path in enumerate(paths) if not (folder / path).exists()]
    if missing:
        for name in PHOTOGRAPHS:
            photograph_path(name)
            (folder / name).mkdir(parents=True, exist_ok=True)
        with worker_pool() as pool:
            list(pool.map(_write, [folder] * len(missing), missing, chunksize=8))
    return Images(
        name=f"corpus-v{VERSION}",
        folder=folder,
        paths=paths,
        labels=tuple(index % len(PHOTOGRAPHS) for index in range(count)),
        total_bytes=sum((folder / path).stat().st_size for path in paths),
    )


def checksum(images: Images) -> str:
    """SHA-256 of the names and sizes, in order: equal lists of equal files have equal checksums."""
    digest = hashlib.sha256()
    for path in images.paths:
        size = (images.folder / path).stat().st_size
        digest.update(os.fsencode(f"{path} {size}\n"))
    return digest.hexdigest()


def encode(index: int) -> bytes:
    """The JPEG bytes of image ``index``."""
    rng = np.random.default_rng((SEED, index))
    name = list(PHOTOGRAPHS)[index % len(PHOTOGRAPHS)]
    image = _grain(_cut(_photograph(name), rng), rng)
    if rng.random() < _GRAYSCALE_SHARE:
        image = image.convert("L")
    buffer = BytesIO()
    image.save(
        buffer,
        "JPEG",
        quality=int(rng.choice(_QUALITIES, p=_QUALITY_SHARES)),
        subsampling=str(rng.choice(_SUBSAMPLINGS, p=_SUBSAMPLING_SHARES)),
        progressive=bool(rng.random() < _PROGRESSIVE_SHARE),
    )
    return buffer.getvalue()


def photograph_path(name: str) -> Path:
    """Where the photograph of class ``name`` is installed; UserError when it isn't."""
    package, file = PHOTOGRAPHS[name]
    if path := installed_file(package, file):
        return path
    project = _PROJECTS[package]
    raise UserError(
        f"The corpus needs the photograph {Path(file).name} of {project}, which is not installed.",
        f"Install it (pip install {project}), or give a folder of your own images with --data.",
    )


def installed_file(package: str, file: str) -> Path | None:
    """Where ``file`` of ``package`` is installed, or None.

    It is found without importing the package, which would take a second or two.
    """
    spec = importlib.util.find_spec(package)
    locations = (spec and spec.submodule_search_locations) or ()
    paths = (Path(location) / file for location in locations)
    return next((path for path in paths if path.exists()), None)


@functools.cache
def _photograph(name: str) -> Image.Image:
    with Image.open(photograph_path(name)) as photograph:
        return photograph.convert("RGB")


def _path(index: int) -> str:
    name = list(PHOTOGRAPHS)[index % len(PHOTOGRAPHS)]
    return f"{name}/{index:04d}.jpg"


def _write(folder: Path, index: int) -> None:
    path = folder / _path(index)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(encode(index))
    partial.replace(path)


def _cut(photograph: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A random part of the photograph, at a size drawn from an ImageNet-like distribution."""
    aspect = float(rng.choice(_ASPECTS, p=_ASPECT_SHARES))
    long_side = int(_long_side(rng))
    width, height = (
        (long_side, round(long_side / aspect))
        if aspect >= 1
        else (round(long_side * aspect), long_side)
    )
    fit = min(photograph.width / width, photograph.height / height)
    scale = fit * rng.uniform(0.6, 1.0)
    left = rng.uniform(0, photograph.width - width * scale)
    top = rng.uniform(0, photograph.height - height * scale)
    part = (left, top, left + width * scale, top + height * scale)
    image = photograph.resize((width, height), Image.Resampling.BICUBIC, box=part)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return image


def _long_side(rng: np.random.Generator) -> int:
    kind = rng.random()
    if kind < 0.70:
        return 500
    low, high = (300, 500) if kind < 0.90 else (500, 800) if kind < 0.98 else (800, 1400)
    return int(rng.integers(low, high, endpoint=True))


def _grain(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Noise as a sensor leaves, of a strength that differs between images."""
    strength = int(rng.integers(5, 27))
    shape = (image.height, image.width, 1)
    # Sums of integers, since a normal draw's last bit can differ between mathematical libraries.
    noise = rng.integers(-strength, strength, shape, np.int16, endpoint=True)
    noise = noise + rng.integers(-strength, strength, shape, np.int16, endpoint=True)
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))
