"""torchvision.io.decode_jpeg, on the CPU and, with nvJPEG, on CUDA.

Deprecated since torchvision 0.29 in favour of TorchCodec.
"""

import warnings
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
    """A torchvision may be built without libjpeg, or be one that no longer decodes."""
    if missing := import_problem("torchvision.io", package="torchvision"):
        return missing
    if trouble := trial_problem(load):
        return f"this torchvision does not decode JPEGs ({trouble})"
    return None


def load() -> Decode:
    """Decoding to H×W×3 in one thread."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)
    _allow_read_only_input()

    def decode(files: Sequence[bytes]) -> list[Any]:
        # The default mode leaves a grayscale file with one channel. The tensor comes as 3×H×W, but
        # that is a view: its memory is H×W×3 already, so turning it back costs nothing.
        return [
            decode_jpeg(torch.frombuffer(data, dtype=torch.uint8), ImageReadMode.RGB).permute(
                1, 2, 0
            )
            for data in files
        ]

    return decode


def loaded_library() -> dict[str, Any]:
    """The versions of torchvision and of the libjpeg that its wheel brought."""
    import torchvision

    # Pillow brings a libjpeg of its own into the same process, so torchvision's comes first.
    found = library.loaded(
        r"torchvision\.libs/libjpeg", r"/torchvision/image[^/]*\.so$", r"/torchvision/_C[^/]*$"
    )
    return {"version": torchvision.__version__, **found}


def nvjpeg_problem() -> str | None:
    """A torchvision may be built without nvJPEG."""
    if missing := import_problem("torchvision.io", package="torchvision"):
        return missing
    if trouble := trial_problem(load_nvjpeg):
        return f"this torchvision does not decode with nvJPEG ({trouble})"
    return None


def load_nvjpeg() -> Decode:
    """Decoding to 3×H×W on the current CUDA device."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    _allow_read_only_input()

    def decode(files: Sequence[bytes]) -> list[Any]:
        # A list, decoded in one call: the manual's advice, file by file is much slower.
        encoded = [torch.frombuffer(data, dtype=torch.uint8) for data in files]
        return list(decode_jpeg(encoded, ImageReadMode.RGB, device="cuda"))

    return decode


def nvjpeg_library() -> dict[str, Any]:
    """The version of torchvision and the nvJPEG that is loaded."""
    import torchvision

    return {"version": torchvision.__version__, **library.loaded(r"/libnvjpeg[^/]*$")}


def _allow_read_only_input() -> None:
    # torch warns that bytes cannot be written; a decoder only reads them.
    warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)


DECODER = Decoder(name="torchvision.io", problem=problem, load=load, library=loaded_library)
NVJPEG = Decoder(
    name="torchvision.io nvJPEG",
    problem=nvjpeg_problem,
    load=load_nvjpeg,
    library=nvjpeg_library,
    layout="CHW",
    device="cuda",
    batch=NVJPEG_BATCH,
)
