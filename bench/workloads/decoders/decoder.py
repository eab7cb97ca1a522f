"""The words of a decoder: what it needs, how it is loaded, what proves that it ran."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Literal

from PIL import Image

from bench.workloads.work import Context

Decode = Callable[[Sequence[bytes]], list[Any]]
"""JPEG files to images: contiguous RGB uint8 in memory, one array or tensor a file."""

NVJPEG_BATCH = 16
"""Files that nvJPEG is given in a call."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoder:
    """One way to decode JPEGs.

    ``problem()`` says why it cannot be used here, naming what to install, or returns None; it may
    import the decoder's library. ``load()`` returns the decode function, set to one thread.
    ``library()`` returns evidence from the process that decoded: the package's version, the
    library file that is really loaded and its libjpeg version where they can be known; it raises
    TreatmentNotApplied when another library did the work. ``layout`` says how the pixels lie in
    memory; ``batch`` is the number of files to give in one call (above 1 where the library's
    manual asks for it). An ``environment`` means that it must be set before the process starts.
    """

    name: str
    problem: Callable[[], str | None]
    load: Callable[[], Decode]
    library: Callable[[], dict[str, Any]]
    layout: Literal["HWC", "CHW"] = "HWC"
    device: Literal["cpu", "cuda"] = "cpu"
    batch: int = 1
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def need(self, context: Context) -> str | None:
        """Why the machine that ``context`` describes cannot use this decoder, or None."""
        if self.device == "cuda" and not context.device.startswith("cuda"):
            return "needs CUDA: nvJPEG decodes on an NVIDIA GPU"
        return self.problem()


def import_problem(module: str, *, package: str) -> str | None:
    """Why ``module`` of the pip package ``package`` cannot be imported, or None."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0]:
            return f"{package} is not installed: pip install {package}"
        return f"{package} cannot be imported ({error})"
    except (ImportError, OSError, RuntimeError) as error:
        return f"{package} cannot be imported ({first_line(error)})"
    return None


def trial_problem(load: Callable[[], Decode]) -> str | None:
    """Why the decoder that ``load`` returns cannot decode a tiny JPEG, or None."""
    buffer = BytesIO()
    Image.new("RGB", (16, 16), "red").save(buffer, "JPEG")
    try:
        load()([buffer.getvalue()])
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        return first_line(error)
    return None


def first_line(error: BaseException) -> str:
    """The first line of an error's text; libraries tend to append pages."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
