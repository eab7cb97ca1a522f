"""OpenCV's imdecode, with libjpeg-turbo built into the wheel."""

import re
from collections.abc import Sequence
from typing import Any

from bench.workloads.decoders import library
from bench.workloads.decoders.decoder import Decode, Decoder, import_problem


def problem() -> str | None:
    """The headless build needs no graphics libraries."""
    return import_problem("cv2", package="opencv-python-headless")


def load() -> Decode:
    """Decoding to BGR and turning that into RGB, in one thread."""
    import cv2
    import numpy as np

    cv2.setNumThreads(1)

    def decode(files: Sequence[bytes]) -> list[Any]:
        images = []
        for data in files:
            # EXIF orientation is ignored, as all other decoders do.
            flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
            image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
            if image is None:  # imdecode's way to say that it failed
                raise ValueError("OpenCV cannot decode the file.")
            # Its own order is BGR. Its RGB flag (IMREAD_COLOR_RGB) was no faster when tried.
            images.append(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))
        return images

    return decode


def loaded_library() -> dict[str, Any]:
    """OpenCV's version, its extension, and the libjpeg that its build report names."""
    import cv2

    built_with = re.search(r"JPEG:\s+.*\(ver ([\d.]+)", cv2.getBuildInformation())
    file = library.loaded_file(r"/cv2/[^/]*\.so$", r"/libopencv_imgcodecs")
    return {
        "version": cv2.__version__,
        "library": file and library.shown(file),
        "libjpeg": built_with.group(1) if built_with else None,
    }


DECODER = Decoder(name="OpenCV", problem=problem, load=load, library=loaded_library)
