"""PyTurboJPEG: a ctypes wrapper of the system's libturbojpeg."""

from collections.abc import Sequence
from typing import Any

from bench.workloads.decoders import library
from bench.workloads.decoders.decoder import Decode, Decoder, first_line, import_problem

INSTALL_LIBRARY = (
    "apt install libturbojpeg0 (Debian), apt install libturbojpeg (Ubuntu), "
    "brew install jpeg-turbo (macOS)"
)


def problem() -> str | None:
    """The wrapper and the library that it wraps are installed apart."""
    if missing := import_problem("turbojpeg", package="PyTurboJPEG"):
        return missing
    import turbojpeg

    try:
        turbojpeg.TurboJPEG()
    except AttributeError as error:
        # Version 2 of the wrapper calls functions that libjpeg-turbo has since version 3.
        return f"PyTurboJPEG does not fit libturbojpeg ({error}): pip install 'PyTurboJPEG<2'"
    except (RuntimeError, OSError) as error:
        return f"libturbojpeg is missing ({first_line(error)}): {INSTALL_LIBRARY}"
    return None


def load() -> Decode:
    """Decoding to RGB with full-quality upsampling."""
    from turbojpeg import TJPF_RGB, TurboJPEG

    turbo = TurboJPEG()

    def decode(files: Sequence[bytes]) -> list[Any]:
        # The wrapper's default is BGR. No flags: FASTUPSAMPLE changes pixels by up to 130.
        return [turbo.decode(data, TJPF_RGB) for data in files]

    return decode


def loaded_library() -> dict[str, Any]:
    """The wrapper's version and the libturbojpeg that it found."""
    import turbojpeg

    return {"version": turbojpeg.__version__, **library.loaded(r"/libturbojpeg[^/]*$")}


DECODER = Decoder(name="PyTurboJPEG", problem=problem, load=load, library=loaded_library)
