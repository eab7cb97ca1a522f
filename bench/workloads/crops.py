"""JPEG to training crop: decode, RandomResizedCrop, flip, with the resize of each decoder's kind.

All pipelines cut the same parts and flip the same images, and all resize bilinearly with
antialiasing: Pillow and pillow-simd with their own ``resize``; OpenCV by averaging areas along
the axes that shrink and linearly along those that grow, since its linear mode has no
antialiasing; all others with torchvision's v2 functions, whose result is Pillow's to within
rounding.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from bench.workloads.decoders.decoder import Decoder
from bench.workloads.decoders.reference import Pixels

Pipeline = Callable[[Sequence[bytes], Sequence["Crop"]], list[Any]]
"""Files and the part to cut from each → contiguous uint8 images, size×size×3 or 3×size×size."""

SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crop:
    """The part of an image to cut out, in pixels, and whether it is mirrored then."""

    top: int
    left: int
    height: int
    width: int
    flip: bool

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom, as Pillow wants them."""
        return (self.left, self.top, self.left + self.width, self.top + self.height)

    @property
    def shorter_side(self) -> int:
        """The smaller of height and width."""
        return min(self.height, self.width)


def draw(data: bytes, *, seed: int, index: int) -> Crop:
    """The crop of image ``index``, whose file is ``data``; the same for the same seed and index.

    It is distributed as RandomResizedCrop's of torchvision with its defaults: an area of 8 to
    100 %, an aspect ratio of 3/4 to 4/3 on a log scale, and when ten draws don't fit into the
    image, its middle. Half of the images are mirrored.
    """
    with Image.open(BytesIO(data)) as image:
        width, height = image.size
    rng = np.random.default_rng((seed, index))
    flip = bool(rng.random() < 0.5)
    for _ in range(ATTEMPTS):
        area = width * height * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(*np.log(RATIO)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            top = int(rng.integers(height - high, endpoint=True))
            left = int(rng.integers(width - wide, endpoint=True))
            return Crop(top=top, left=left, height=high, width=wide, flip=flip)
    wide = min(width, round(height * RATIO[1]))
    high = min(height, round(width / RATIO[0]))
    top, left = (height - high) // 2, (width - wide) // 2
    return Crop(top=top, left=left, height=high, width=wide, flip=flip)


def pipeline(decoder: Decoder, size: int) -> Pipeline:
    """The decoder with the resize that comes with it."""
    match decoder.name:
        case "Pillow" | "pillow-simd":
            return lambda files, crops: pillow_crops(files, crops, size)
        case "OpenCV":
            return _opencv(decoder, size)
        case _:
            return _torchvision(decoder, size)


def pillow_crops(files: Sequence[bytes], crops: Sequence[Crop], size: int) -> list[Pixels]:
    """The crops as the process's PIL makes them."""
    images = []
    for data, crop in zip(files, crops, strict=True):
        # Cropped first: with ``resize(box=…)`` pixels from outside the box would blend in.
        image = Image.open(BytesIO(data)).convert("RGB").crop(crop.box)
        image = image.resize((size, size), Image.Resampling.BILINEAR)
        if crop.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        images.append(np.asarray(image))
    return images


def references(
    files: Sequence[bytes], crops: Sequence[Crop], size: int
) -> tuple[list[Pixels], list[Pixels]]:
    """The crops as Pillow makes them, and as resizing without antialiasing would make them."""
    aliased = []
    for data, crop in zip(files, crops, strict=True):
        image = Image.open(BytesIO(data)).convert("RGB")
        image = image.transform(
            (size, size), Image.Transform.EXTENT, crop.box, Image.Resampling.BILINEAR
        )
        if crop.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        aliased.append(np.asarray(image))
    return pillow_crops(files, crops, size), aliased


def _opencv(decoder: Decoder, size: int) -> Pipeline:
    import cv2

    decode = decoder.load()

    def run(files: Sequence[bytes], crops: Sequence[Crop]) -> list[Any]:
        images = []
        for image, crop in zip(decode(files), crops, strict=True):
            part = image[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
            # INTER_AREA averages only where both axes shrink, so each axis gets its own step.
            smaller = (min(crop.width, size), min(crop.height, size))
            if smaller != (crop.width, crop.height):
                part = cv2.resize(part, smaller, interpolation=cv2.INTER_AREA)
            if smaller != (size, size):
                part = cv2.resize(part, (size, size), interpolation=cv2.INTER_LINEAR)
            images.append(cv2.flip(part, 1) if crop.flip else np.ascontiguousarray(part))
        return images

    return run


def _torchvision(decoder: Decoder, size: int) -> Pipeline:
    import torch
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as v2

    torch.set_num_threads(1)
    decode = decoder.load()

    def run(files: Sequence[bytes], crops: Sequence[Crop]) -> list[Any]:
        images = []
        for image, crop in zip(decode(files), crops, strict=True):
            tensor = image if isinstance(image, torch.Tensor) else torch.from_numpy(image)
            part = v2.resized_crop(
                tensor.permute(2, 0, 1) if decoder.layout == "HWC" else tensor,
                crop.top,
                crop.left,
                crop.height,
                crop.width,
                [size, size],
                InterpolationMode.BILINEAR,
                antialias=True,
            )
            images.append(v2.horizontal_flip(part) if crop.flip else part)
        return images

    return run
