"""What an arm runs (``Work``), what it is told (``Context``), and how it says that it failed."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

Stopwatch = Callable[[Callable[[], None]], float]
"""Runs a call and returns the seconds that it took."""


class TreatmentNotApplied(Exception):
    """The needs are met and the evidence is absent: the variant ran the baseline's code."""


class WorkFailed(Exception):
    """The work ended wrong: a non-finite loss, fewer samples than asked for, another device."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """The images that every arm reads, in one order: ``folder / paths[i]`` with ``labels[i]``."""

    name: str
    folder: Path
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    total_bytes: int
    left_out: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Files that the scan left out: kind → relative paths."""


NO_IMAGES = Images(name="", folder=Path(), paths=(), labels=(), total_bytes=0)
"""For who asks before there are images, or needs none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """What an arm is told beside its variant's settings. Picklable; holds no open resource.

    ``threads`` is the number of usable cores, which ``torch.set_num_threads`` was given in arms
    that were forked and are not pinned to one core; ``cores`` the usable ones (affinity, quota),
    ``torch_threads`` torch's own default. ``cache`` is a folder for derived files (resized copies,
    shards) that are built once and kept. ``start_method`` is that of DataLoader workers. ``gpus``
    is how many CUDA devices are seen. ``nnodes`` machines take part in what runs on several, and
    meet at ``rdzv_endpoint`` (HOST:PORT). ``machine_id`` is the random one of this machine.
    ``stopwatch`` runs a call and returns its seconds: the engine's clock, handed down where a
    reading needs it.
    """

    images: Images
    cache: Path
    seed: int = 0
    threads: int = 1
    cores: int = 1
    physical_cores: int = 1
    torch_threads: int = 1
    device: str = "cpu"
    start_method: str = "fork"
    batch_size: int = 16
    image_size: int = 224
    model: str | None = None
    storage: tuple[Path, ...] = ()
    gpus: int = 0
    nnodes: int = 1
    rdzv_endpoint: str | None = None
    machine_id: str = ""
    replicate: int = 0
    """Which replicate the arm belongs to: seeds what must differ between replicates."""
    stopwatch: Stopwatch | None = None


@dataclasses.dataclass(kw_only=True)
class Work:
    """One variant's work, built inside its arm.

    ``step`` does one unit (one image, one batch, one training step) and returns the samples it
    did; work on a device may still be under way when it returns, the clock waits for ``device``.
    ``evidence`` is called after the first turn, outside the clock; it returns what was seen and
    raises TreatmentNotApplied when that shows that the treatment was not applied. ``prepare`` is
    called before each turn with its number of steps, ``readings`` after each turn; its keys are
    columns of ``records.measurements.READINGS``, and it may raise WorkFailed. What repeats in the
    work does so every ``period`` steps: the turns of a replicate together are a multiple of that.
    At least ``warm_up_steps`` are done before the first turn. ``close`` ends workers and files.

    ``times_steps``: each step is timed by itself, and its latency is what counts. ``steps``, where
    given, does that many steps at once and returns their samples: for work that other processes
    do, to which a step at a time would have to be sent. ``stops_workers``: its processes are loader
    workers, which nothing is asked of outside a turn, so they may stand still whenever the clock
    does.
    """

    step: Callable[[], int]
    evidence: Callable[[], dict[str, Any]]
    device: str = "cpu"
    period: int = 1
    warm_up_steps: int = 0
    prepare: Callable[[int], None] = lambda steps: None
    readings: Callable[[], Mapping[str, float | int]] = dict
    close: Callable[[], None] = lambda: None
    times_steps: bool = False
    steps: Callable[[int], int] | None = None
    stops_workers: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a check saw. ``reason`` says it in one sentence, with the remedy unless it passed."""

    verdict: Literal["pass", "warn", "fail"]
    reason: str
    evidence: Mapping[str, Any] = dataclasses.field(default_factory=dict)
