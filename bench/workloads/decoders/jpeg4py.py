"""jpeg4py: a cffi wrapper of the system's libturbojpeg, last released in 2018."""

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from bench.workloads.decoders import library
from bench.workloads.decoders.decoder import Decode, Decoder, import_problem
from bench.workloads.decoders.pyturbojpeg import INSTALL_LIBRARY


def problem() -> str | None:
    """The wrapper imports without its library, so the library is opened too."""
    if missing := import_problem("jpeg4py", package="jpeg4py"):
        return missing
    import jpeg4py

    try:
        jpeg4py.initialize()
    except OSError:
        return f"libturbojpeg is missing: {INSTALL_LIBRARY}"
    return None


def load() -> Decode:
    """Decoding to RGB, which is this wrapper's default."""
    import jpeg4py
    import numpy as np

    def decode(files: Sequence[bytes]) -> list[Any]:
        # Given bytes it would take them for a file name; it wants an array.
        return [jpeg4py.JPEG(np.frombuffer(data, np.uint8)).decode() for data in files]

    return decode


def loaded_library() -> dict[str, Any]:
    """The wrapper's version and the libturbojpeg that it opened."""
    version = importlib.metadata.version("jpeg4py")
    return {"version": version, **library.loaded(r"/libturbojpeg[^/]*$")}


DECODER = Decoder(name="jpeg4py", problem=problem, load=load, library=loaded_library)
