"""Pillow's pixels: the reference that every decoder's output is compared with."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image

Pixels = npt.NDArray[np.uint8]

_CALL = (
    "import pickle, sys; function, arguments = pickle.load(sys.stdin.buffer); "
    "sys.stdout.buffer.write(pickle.dumps(function(*arguments)))"
)


def is_pillow_simd() -> bool:
    """Whether this process's PIL is pillow-simd; both go by that name, only the version tells."""
    return ".post" in PIL.__version__


def decoded(files: Sequence[bytes]) -> list[Pixels]:
    """The images as this process's PIL decodes them, H×W×3."""
    return [np.asarray(Image.open(BytesIO(data)).convert("RGB")) for data in files]


def in_pillow(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)`` where PIL is Pillow: here, or in a new process when it isn't here.

    The function must be one that can be pickled. Raises CalledProcessError when it fails there.
    """
    if not is_pillow_simd():
        return function(*arguments)
    project = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", _CALL],
        input=pickle.dumps((function, arguments)),
        env={**os.environ, "PYTHONPATH": project},
        stdout=subprocess.PIPE,
        check=True,
    )
    return pickle.loads(done.stdout)


def as_hwc(image: Any, layout: str) -> Pixels:
    """An array or tensor on any device as an H×W×3 array."""
    if not isinstance(image, np.ndarray):
        image = image.cpu().numpy()
    return image if layout == "HWC" else image.transpose(1, 2, 0)


def mean_difference(one: Pixels, other: Pixels) -> float:
    """The mean absolute difference of two images of one shape, in levels of 0 to 255."""
    return float((np.maximum(one, other) - np.minimum(one, other)).mean())
