"""TorchCodec's decode_jpeg, which takes over from torchvision.io: CPU and, with nvJPEG, CUDA."""

from collections.abc import Sequence
from typing import Any

from bench.workloads.decoders import library
from bench.workloads.decoders.decoder import (
    NVJPEG_BATCH,
    Decode,
    Decoder,
    import_problem,
    trial_problem,
)


def problem() -> str | None:
    """Older TorchCodecs decode video only."""
    if missing := import_problem("torchcodec", package="torchcodec"):
        return missing
    if trouble := trial_problem(load):
        return f"this TorchCodec does not decode JPEGs ({trouble}): pip install 'torchcodec>=0.16'"
    return None


def load() -> Decode:
    """Decoding to H×W×3 in one thread."""
    import torch
    from torchcodec.decoders import decode_jpeg

    torch.set_num_threads(1)

    def decode(files: Sequence[bytes]) -> list[Any]:
        # As with torchvision, 3×H×W is a view of memory that lies as H×W×3.
        images: list[Any] = [decode_jpeg(data, mode="RGB") for data in files]
        return [image.permute(1, 2, 0) for image in images]

    return decode


def loaded_library() -> dict[str, Any]:
    """TorchCodec's version and the libjpeg that its wheel brought."""
    import torchcodec

    found = library.loaded(r"torchcodec\.libs/libjpeg", r"/torchcodec/libtorchcodec_image")
    return {"version": torchcodec.__version__, **found}


def nvjpeg_problem() -> str | None:
    """TorchCodec's CPU wheels are built without nvJPEG."""
    if missing := import_problem("torchcodec", package="torchcodec"):
        return missing
    if trouble := trial_problem(load_nvjpeg):
        return f"this TorchCodec does not decode with nvJPEG ({trouble})"
    return None


def load_nvjpeg() -> Decode:
    """Decoding to 3×H×W on the current CUDA device."""
    from torchcodec.decoders import decode_jpeg

    def decode(files: Sequence[bytes]) -> list[Any]:
        # A list, decoded in one call: the manual's advice, file by file is much slower.
        return list(decode_jpeg(list(files), mode="RGB", device="cuda"))

    return decode


def nvjpeg_library() -> dict[str, Any]:
    """TorchCodec's version and the nvJPEG that is loaded."""
    import torchcodec

    return {"version": torchcodec.__version__, **library.loaded(r"/libnvjpeg[^/]*$")}


DECODER = Decoder(name="TorchCodec", problem=problem, load=load, library=loaded_library)
NVJPEG = Decoder(
    name="TorchCodec nvJPEG",
    problem=nvjpeg_problem,
    load=load_nvjpeg,
    library=nvjpeg_library,
    layout="CHW",
    device="cuda",
    batch=NVJPEG_BATCH,
)
