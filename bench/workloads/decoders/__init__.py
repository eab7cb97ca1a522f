"""ONE FILE A DECODER, and their list in the catalogue's order.

Importing this imports none of their libraries but Pillow.
"""

from bench.workloads.decoders import (
    jpeg4py,
    opencv,
    pillow,
    pillow_simd,
    pyturbojpeg,
    simplejpeg,
    torchcodec,
    torchvision_io,
)
from bench.workloads.decoders.decoder import Decoder

DECODERS: tuple[Decoder, ...] = (
    pillow.DECODER,
    pyturbojpeg.DECODER,
    jpeg4py.DECODER,
    pillow_simd.DECODER,
    opencv.DECODER,
    simplejpeg.DECODER,
    torchvision_io.DECODER,
    torchcodec.DECODER,
    torchvision_io.NVJPEG,
    torchcodec.NVJPEG,
)


def by_name(name: str) -> Decoder:
    """The decoder called ``name``; KeyError if there is none."""
    return {decoder.name: decoder for decoder in DECODERS}[name]
