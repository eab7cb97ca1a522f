"""``plan.json``: every tip and variant that was to be measured, written before anything runs.

The plan holds all that analysis and reports need to know about a tip, so that both read a run
folder without the catalogue, without torch, and years later.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bench.errors import UserError
from bench.records.effects import EffectKind
from bench.records.measurements import SCHEMA_VERSION

Section = Literal[
    "Environment", "Data loading", "Training", "Profiling", "Compression and deployment", "A/A"
]
SECTIONS: tuple[Section, ...] = (
    "Environment",
    "Data loading",
    "Training",
    "Profiling",
    "Compression and deployment",
    "A/A",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """How turns become one number a replicate.

    ``rate``: the sum of ``column`` over the seconds of the replicate's turns; ``once``: the value
    that the replicate read once (start-up, memory); ``mean``: over its turns.
    ``margin`` overrides the run's margin (a fraction for ratios, in ``unit`` for differences).
    ``is_outlay``: seconds that are spent once, before the first epoch, and are to pay off.
    """

    name: str
    unit: str
    column: str
    aggregate: Literal["rate", "once", "mean"]
    higher_is_better: bool = True
    kind: EffectKind = "ratio"
    margin: float | None = None
    is_outlay: bool = False

    def __post_init__(self) -> None:
        if self.kind == "difference" and self.margin is None:
            raise ValueError(f"{self.name} is a difference: it needs a margin in {self.unit}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedVariant:
    """A variant in the plan; ``reason`` says why it is not measurable here, if it isn't."""

    name: str
    is_baseline: bool = False
    is_recommended: bool = False
    is_exploratory: bool = False
    reason: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedWorkload:
    """A workload in the plan; ``metrics[0]`` is its main metric."""

    name: str
    metrics: tuple[Metric, ...]
    reason: str | None = None
    """Why it is not measurable here, if it isn't, whatever the variant."""
    blocks: int | None = None
    """Blocks a replicate, where the workload has a number of its own."""
    turn_seconds: float | None = None
    """About how long a turn is, where the workload has a length of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedTip:
    """A tip in the plan. ``workloads[0].metrics[0]`` is the tip's primary metric.

    A check has no workloads: each of its variants is a question answered pass, warn or fail.
    """

    id: str
    section: Section
    claim: str
    card: str
    is_price: bool
    note: str
    variants: tuple[PlannedVariant, ...]
    workloads: tuple[PlannedWorkload, ...]
    is_followed: bool = False
    """Whether torch does so by itself on that machine: nothing is gained by following it."""

    @property
    def is_check(self) -> bool:
        """Whether the tip is answered instead of measured."""
        return not self.workloads

    @property
    def parts(self) -> tuple[PlannedVariant | PlannedWorkload, ...]:
        """All that may not be measurable here."""
        return (*self.variants, *self.workloads)

    @property
    def baseline(self) -> PlannedVariant:
        """The variant that the others are compared with."""
        return next(variant for variant in self.variants if variant.is_baseline)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run was going to do. ``margin`` is a fraction; 0.03 is 3 %.

    ``images`` describes the data without naming a path: name, count, total_bytes, checksum and
    left_out (kind → file names). ``claims_verdicts`` is false for a run that only proves that
    everything runs (``smoke``).
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    profile: str
    claims_verdicts: bool
    seed: int
    margin: float
    primary_replicates: int
    other_replicates: int
    most_replicates: int
    blocks: int
    turn_seconds: float
    model: str
    batch_size: int
    image_size: int
    threads: int
    device: str
    start_method: str
    images: Mapping[str, Any]
    tips: tuple[PlannedTip, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The options that the run was started with, without paths."""

    def blocks_of(self, workload: PlannedWorkload) -> int:
        """How many blocks a replicate of ``workload`` has."""
        return self.blocks if workload.blocks is None else workload.blocks


def write_plan(path: Path, plan: Plan) -> None:
    """Write ``plan.json``."""
    path.write_text(
        json.dumps(dataclasses.asdict(plan), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )


def read_plan(path: Path) -> Plan:
    """Read ``plan.json``; UserError when it isn't one or is of another schema."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema_version"] != SCHEMA_VERSION:
            raise UserError(
                f"{path} has schema_version {content['schema_version']}, "
                f"this suite reads {SCHEMA_VERSION}.",
                "Use the version of the suite that wrote it.",
            )
        tips = tuple(_tip(tip) for tip in content.pop("tips"))
        plan = Plan(**_known(Plan, content), tips=tips)
        if not (0 < plan.margin < math.inf):
            raise ValueError(f"the margin is {plan.margin}")
        if not isinstance(plan.images, dict):
            raise TypeError(f"images are {plan.images}")
        return plan
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path} is not a run's plan ({error}).", "Give a run folder that holds plan.json."
        ) from error


def _tip(content: dict[str, Any]) -> PlannedTip:
    variants = tuple(
        PlannedVariant(**_known(PlannedVariant, variant)) for variant in content.pop("variants")
    )
    workloads = tuple(
        PlannedWorkload(
            metrics=tuple(Metric(**_known(Metric, metric)) for metric in workload.pop("metrics")),
            **_known(PlannedWorkload, workload),
        )
        for workload in content.pop("workloads")
    )
    return PlannedTip(**_known(PlannedTip, content), variants=variants, workloads=workloads)


def _known(record: type, content: dict[str, Any]) -> dict[str, Any]:
    """The fields of ``record``: plans of other versions may hold more."""
    names = {field.name for field in dataclasses.fields(record)}
    return {name: value for name, value in content.items() if name in names}
