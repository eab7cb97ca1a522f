"""The words of the catalogue as types: ``Tip``, ``Variant``, ``Workload``."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from bench.records.plan import Metric, Section
from bench.workloads.work import CheckResult, Context, Work

Need = Callable[[Context], str | None]
"""Why this machine cannot run a variant, or None. Called in a process of its own, never in the
runner: it may import what it likes."""


def needs_cuda(context: Context) -> str | None:
    """The need of what runs on a GPU: a device that CUDA was seen to work on."""
    if context.device.startswith("cuda"):
        return None
    return f"needs CUDA, and this run's device is {context.device}"


THROUGHPUT = Metric(name="samples_per_second", unit="samples/s", column="samples", aggregate="rate")
IMAGES_PER_SECOND = dataclasses.replace(THROUGHPUT, unit="images/s")
STARTUP = Metric(
    name="startup_seconds",
    unit="s",
    column="startup_seconds",
    aggregate="once",
    higher_is_better=False,
)
HOST_MEMORY = Metric(
    name="peak_host_pss_bytes",
    unit="bytes",
    column="peak_host_pss_bytes",
    aggregate="once",
    higher_is_better=False,
)
LATENCY_P50 = Metric(
    name="latency_p50_seconds",
    unit="s",
    column="latency_p50_seconds",
    aggregate="mean",
    higher_is_better=False,
)
LATENCY_P99 = dataclasses.replace(
    LATENCY_P50, name="latency_p99_seconds", column="latency_p99_seconds"
)
"""Read only in turns of at least a hundred calls."""
INFERENCE_TURN_SECONDS = 0.075
"""A hundred answers and more, where one takes less than a millisecond."""
FILE_BYTES = Metric(
    name="file_bytes",
    unit="bytes",
    column="file_bytes",
    aggregate="once",
    higher_is_better=False,
)
ACCURACY = Metric(
    name="accuracy",
    unit="points",
    column="accuracy_percent",
    aggregate="once",
    kind="difference",
    margin=0.5,
)
GPU_MEMORY = Metric(
    name="peak_gpu_allocated_bytes",
    unit="bytes",
    column="peak_gpu_allocated_bytes",
    aggregate="mean",
    higher_is_better=False,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to follow or not to follow a tip.

    ``fresh``: started in an interpreter of its own with ``environment`` added, instead of forked
    from the nursery. An exploratory variant is shown with its interval and decides nothing.
    """

    name: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    recommended: bool = False
    exploratory: bool = False
    fresh: bool = False
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """What is timed for each variant. ``metrics[0]`` is the workload's main metric.

    ``build(settings, context)`` runs inside the arm. ``pinned``: single-threaded work, bound to
    one core. ``turn_seconds`` and ``blocks``: None takes the profile's. ``split``: into how many
    blocks each of these is cut, of turns that are shorter by as much; a machine's speed drifts
    within tenths of a second, and many short turns meet it more equally than few long ones, where
    the work is steady and nothing runs ahead in the background. ``memory_scales``: empty
    when memory is not read; otherwise the arm is also run alone once a replicate for each scale (a
    fraction of the images), its peak memory is read, and with two scales the bytes of memory a byte
    of data are the slope between them. The scale is given to ``build`` as ``settings["scale"]``.
    ``memory_of_build``: whether what building takes counts, or only what the work then holds.
    ``needs``: what the work needs with any variant.
    """

    name: str
    build: Callable[[Mapping[str, Any], Context], Work]
    metrics: tuple[Metric, ...]
    needs: tuple[Need, ...] = ()
    pinned: bool = False
    turn_seconds: float | None = None
    blocks: int | None = None
    split: int = 1
    memory_scales: tuple[float, ...] = ()
    memory_of_build: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tip:
    """One piece of advice, the ``order``-th of its section.

    ``variants[0]`` is the baseline, ``workloads[0]`` the primary workload. A check has no
    workloads but ``check``, which answers one question in a process of its own; each of its
    variants is a question, and none of them a baseline.

    ``card`` is the docstring of the tip's file, in Markdown: why it should work, when it should
    matter, when it should not, how to apply it, where the claim comes from. ``is_price``: the tip
    costs speed and buys something else. ``is_followed``: torch does so by itself on this machine.
    ``note`` says what the reader must know here.
    """

    id: str
    section: Section
    order: int
    claim: str
    card: str
    variants: tuple[Variant, ...]
    workloads: tuple[Workload, ...] = ()
    check: Callable[[Mapping[str, Any], Context], CheckResult] | None = None
    is_price: bool = False
    note: str = ""
    is_followed: bool = False

    @property
    def is_check(self) -> bool:
        """Whether the tip is answered instead of measured."""
        return self.check is not None

    @property
    def baseline(self) -> Variant:
        """The variant that the others are compared with."""
        return self.variants[0]

    @property
    def recommended(self) -> Variant:
        """The variant that the article recommends: the primary pair's other half."""
        return next(variant for variant in self.variants if variant.recommended)
