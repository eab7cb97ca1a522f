"""simplejpeg: a Cython wrapper with libjpeg-turbo built in."""

from collections.abc import Sequence
from typing import Any

from bench.workloads.decoders import library
from bench.workloads.decoders.decoder import Decode, Decoder, import_problem


def problem() -> str | None:
    """The wheel brings all that it needs."""
    return import_problem("simplejpeg", package="simplejpeg")


def load() -> Decode:
    """Decoding to RGB at full size and quality."""
    import simplejpeg

    def decode(files: Sequence[bytes]) -> list[Any]:
        # ``fastdct`` and ``fastupsample`` stay off: they buy speed with other pixels.
        return [simplejpeg.decode_jpeg(data, colorspace="RGB") for data in files]

    return decode


def loaded_library() -> dict[str, Any]:
    """The wrapper's version and its extension, which holds libjpeg-turbo."""
    import simplejpeg

    return {"version": simplejpeg.__version__, **library.loaded(r"/simplejpeg/_jpeg\.")}


DECODER = Decoder(name="simplejpeg", problem=problem, load=load, library=loaded_library)
