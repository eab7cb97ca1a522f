"""Pillow: the baseline, and what torchvision's image folders use."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from bench.workloads.decoders import library, reference
from bench.workloads.decoders.decoder import Decode, Decoder
from bench.workloads.work import TreatmentNotApplied


def problem() -> str | None:
    """Pillow is there whenever the suite is; pillow-simd may have been installed over it."""
    if reference.is_pillow_simd():
        return "PIL here is pillow-simd: pip uninstall pillow-simd, pip install --force Pillow"
    return None


def load() -> Decode:
    """The usual way: open, convert to RGB, view as an array."""
    import numpy as np
    from PIL import Image

    def decode(files: Sequence[bytes]) -> list[Any]:
        # ``open`` reads the header only; it is ``convert`` that decodes. No ``draft``, which
        # would decode at a fraction of the size. ``asarray`` copies once, ``array`` twice.
        return [np.asarray(Image.open(BytesIO(data)).convert("RGB")) for data in files]

    return decode


def loaded_library() -> dict[str, Any]:
    """Pillow's version and the libjpeg that its wheel or the system brought."""
    import PIL

    if reference.is_pillow_simd():
        raise TreatmentNotApplied(f"PIL is pillow-simd {PIL.__version__}, not Pillow.")
    # torchvision brings a libjpeg of its own into the same process, so Pillow's comes first.
    found = library.loaded(r"pillow\.libs/libjpeg-", r"^/usr/.*/libjpeg\.so", r"/PIL/_imaging\.")
    return {"version": PIL.__version__, **found}


DECODER = Decoder(name="Pillow", problem=problem, load=load, library=loaded_library)
