"""``effects.csv``: one row a variant and metric, with all that is needed to compare machines."""

import dataclasses
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from bench.errors import UserError
from bench.records.cells import write_rows
from bench.records.measurements import SCHEMA_VERSION
from bench.records.reading import read_rows, refuse

EffectKind = Literal["ratio", "difference"]
Verdict = Literal[
    "helps",
    "hurts",
    "gain, size unclear",
    "loss, size unclear",
    "no difference",
    "inconclusive",
    "pass",
    "warn",
    "fail",
    "not measurable here",
    "failed",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect:
    """One row of ``effects.csv``.

    ``effect`` with its 95 % interval ``ci_low`` to ``ci_high`` is variant against baseline: a
    ratio (1 is no effect) or a difference (0 is none), always turned so that more is better.
    ``standard_error`` is that of the log ratio, or of the difference. ``value`` and
    ``baseline_value`` are in ``unit``; ``value_standard_error`` is that of the logarithm of the
    value, or of the value itself where the effect is a difference, over replicates.
    ``images_checksum`` tells whether two runs worked on the same images, ``device`` what torch
    computed on (cpu, cuda, cuda:1). What is not known is
    None here and empty in the file.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    machine_id: str
    machine_name: str
    cpu_model: str | None
    usable_cores: int | None
    gpu_model: str | None
    driver_version: str | None
    cuda_version: str | None
    torch_version: str | None
    torchvision_version: str | None
    python_version: str | None
    profile: str
    workload: str
    model: str | None
    batch_size: int | None
    image_size: int | None
    threads: int | None
    start_method: str | None
    section: str
    tip: str
    variant: str
    is_baseline: bool
    is_recommended: bool
    metric: str
    unit: str
    is_primary: bool
    baseline_value: float | None = None
    value: float | None = None
    effect_kind: EffectKind = "ratio"
    effect: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    standard_error: float | None = None
    degrees_of_freedom: int | None = None
    verdict: Verdict | None = None
    reason: str | None = None
    replicates: int = 0
    blocks: int = 0
    margin: float | None = None
    is_exploratory: bool = False
    value_standard_error: float | None = None
    images_checksum: str | None = None
    higher_is_better: bool | None = None
    device: str | None = None


COLUMNS = tuple(field.name for field in dataclasses.fields(Effect))

RUN_COLUMNS = (
    "run_id", "machine_id", "machine_name", "cpu_model", "usable_cores", "gpu_model",
    "driver_version", "cuda_version", "torch_version", "torchvision_version", "python_version",
    "profile", "model", "batch_size", "image_size", "threads", "start_method", "images_checksum",
    "device",
)  # fmt: skip
"""What all rows of a run have in common."""

_LATER = (
    "margin", "is_exploratory", "value_standard_error", "images_checksum", "higher_is_better",
    "device",
)  # fmt: skip
"""Columns that files of earlier versions lack."""

_NAMING = ("run_id", "machine_id", "machine_name", "workload", "tip", "variant", "metric")
"""Text without which a row cannot be told from others."""

_key = attrgetter("run_id", "workload", "tip", "variant", "metric")
_facts = attrgetter(*RUN_COLUMNS)


def write_effects(path: Path, effects: Iterable[Effect]) -> None:
    """Write the rows to ``path``, replacing what is there in one step."""
    write_rows(path, Effect, effects)


def read_effects(path: Path) -> list[Effect]:
    """Read an ``effects.csv``, one's own or another's; it may hold several runs.

    Raises UserError, with line, column and fix, for anything that no run would have written.
    """
    effects: list[Effect] = []
    lines: dict[tuple[str, ...], int] = {}
    facts: dict[str, tuple[int, tuple[Any, ...]]] = {}
    rows = read_rows(path, Effect, schema_version=SCHEMA_VERSION, optional=_LATER)
    for line, values in rows:
        row = Effect(**values)
        for column, expected in _impossible(row):
            refuse(path, line, column, getattr(row, column), expected)
        first = lines.setdefault(_key(row), line)
        if first != line:
            raise UserError(
                f"{path}, line {line}: this run's row for {row.tip}, {row.variant}, {row.metric} "
                f"stands on line {first} already: the run is there twice.",
                "Remove one of the two copies.",
            )
        own = _facts(row)
        first, told = facts.setdefault(row.run_id, (line, own))
        if own != told:
            column, one, other = next(
                (column, one, other)
                for column, one, other in zip(RUN_COLUMNS, told, own, strict=True)
                if one != other
            )
            expected = f"{one!r} as on line {first}, since both rows are of run {row.run_id}"
            refuse(path, line, column, other, expected)
        effects.append(row)
    if not effects:
        raise UserError(
            f"{path} has a header and no rows.", "Take the file of a run that measured something."
        )
    return effects


def _impossible(row: Effect) -> Iterator[tuple[str, str]]:
    """Columns of a row whose values no run writes, each with what is expected there."""
    for column in _NAMING:
        if not getattr(row, column):
            yield column, "a text"
    for column in ("replicates", "blocks"):
        if getattr(row, column) < 0:
            yield column, "0 or more"
    for column in ("standard_error", "value_standard_error", "margin"):
        if (getattr(row, column) or 0) < 0:
            yield column, "0 or more"
    interval = ("ci_low", "ci_high", "standard_error", "degrees_of_freedom")
    known = [column for column in interval if getattr(row, column) is not None]
    if known and (len(known) < len(interval) or row.effect is None):
        column = next(name for name in ("effect", *interval) if getattr(row, name) is None)
        yield column, f"a number, since {known[0]} has one"
    if row.effect is not None and row.ci_low is not None and row.ci_high is not None:
        slack = 1e-9 * max(abs(row.ci_low), abs(row.ci_high), 1e-3)
        if not row.ci_low <= row.ci_high:
            yield "ci_low", f"no more than ci_high, which is {row.ci_high!r}"
        elif not row.ci_low - slack <= row.effect <= row.ci_high + slack:
            yield "effect", f"a number from ci_low {row.ci_low!r} to ci_high {row.ci_high!r}"
    if row.effect_kind == "ratio":
        for column in ("effect", "ci_low", "ci_high"):
            value = getattr(row, column)
            if value is not None and value <= 0:
                yield column, "a ratio, above 0"
    if row.degrees_of_freedom is not None and row.degrees_of_freedom < 1:
        yield "degrees_of_freedom", "1 or more"
