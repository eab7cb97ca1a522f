"""How the effects of two runs differ: each interval of the one against that of the other."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from bench.analysis.intervals import Estimate, combined_interval
from bench.analysis.verdicts import FEWEST_REPLICATES, decide, margin_on_scale
from bench.records.compared import ChangeVerdict, ComparedEffect
from bench.records.effects import Effect, EffectKind, Verdict
from bench.records.plan import SECTIONS

_WORDED: dict[Verdict, ChangeVerdict] = {
    "helps": "larger",
    "hurts": "smaller",
    "gain, size unclear": "larger, size unclear",
    "loss, size unclear": "smaller, size unclear",
    "no difference": "no difference",
    "inconclusive": "inconclusive",
}

SAME_WORK = {
    "unit": "unit",
    "model": "model",
    "batch_size": "batch size",
    "image_size": "image size",
    "images_checksum": "images",
    "threads": "number of threads",
    "start_method": "start method",
    "device": "device",
}
"""What must be the same, and known, before values themselves can be compared."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The rows of one run under the name that it has in this comparison."""

    label: str
    rows: tuple[Effect, ...]

    @property
    def facts(self) -> Effect:
        """Any row: what a run's rows have in common, machine and settings, can be read from it."""
        return self.rows[0]

    @functools.cached_property
    def baselines(self) -> dict[tuple[str, str], str]:
        """The variant that effects are measured against, by tip and workload."""
        return {(row.tip, row.workload): row.variant for row in self.rows if row.is_baseline}


def compare(reference: Run, other: Run) -> list[ComparedEffect]:
    """Every row of both runs, compared where both have it; none is left out.

    Variants pair by name. A tip can also recommend another variant on another machine
    (``num_workers=1``, ``num_workers=4``): these pair too, since both are what the advice comes
    to there. The order is always the same, whatever that of the rows.
    """
    pair = _Pair(reference=reference, other=other)
    rows = [pair.compared(ours, theirs) for ours, theirs in pair.rows()]
    return sorted(rows, key=lambda row: order(row, row.variant))


def estimate(row: Effect) -> Estimate | None:
    """The row's effect on the scale of its interval, if it has one."""
    if row.effect is None or row.standard_error is None or row.degrees_of_freedom is None:
        return None
    return Estimate(
        mean=on_scale(row.effect_kind, row.effect),
        standard_error=row.standard_error,
        degrees_of_freedom=row.degrees_of_freedom,
    )


def on_scale(kind: EffectKind, effect: float) -> float:
    """An effect on the scale that intervals are computed on: the logarithm of a ratio."""
    return math.log(effect) if kind == "ratio" else effect


def from_scale(kind: EffectKind, number: float) -> float:
    """The way back from :func:`on_scale`."""
    return math.exp(number) if kind == "ratio" else number


def order(row: Any, variant: str) -> tuple[Any, ...]:
    """Sorts rows of a record with section, tip, workload and metric as people read them.

    The primary workload and metric first, then by name; of the variants the baseline first, then
    the recommended one, then by name, where numbers count as numbers.
    """
    section = SECTIONS.index(row.section) if row.section in SECTIONS else len(SECTIONS)
    natural = [
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in re.split(r"(\d+)", variant)
    ]
    return (
        section, row.section, row.tip, not row.is_primary, row.workload, row.metric,
        not row.is_baseline, not row.is_recommended, natural,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pair:
    reference: Run
    other: Run

    def rows(self) -> Iterator[tuple[Effect | None, Effect | None]]:
        """The rows that are compared with each other, and those that only one run has."""
        ours, theirs = ({_key(row): row for row in run.rows} for run in self._runs)
        paired: set[tuple[str, ...]] = set()
        roles: tuple[Callable[[Effect], bool], ...] = (
            lambda row: row.is_baseline,
            lambda row: row.is_recommended,
        )
        for has_role in roles:
            one, two = (_alone_in_role(run, has_role) for run in self._runs)
            for group in one.keys() & two.keys():
                if one[group].variant != two[group].variant:
                    paired |= {_key(one[group]), _key(two[group])}
                    yield one[group], two[group]
        for key in ours.keys() | theirs.keys():
            if (key in ours and key in theirs) or key not in paired:
                yield ours.get(key), theirs.get(key)

    def compared(self, ours: Effect | None, theirs: Effect | None) -> ComparedEffect:
        """One row, with the change of the effect and that of the value."""
        there = [row for row in (ours, theirs) if row is not None]
        first = there[0]
        margins = [row.margin for row in there if row.margin is not None]
        row = ComparedEffect(
            section=first.section,
            tip=first.tip,
            workload=first.workload,
            metric=first.metric,
            unit=first.unit,
            is_primary=all(row.is_primary for row in there),
            is_baseline=all(row.is_baseline for row in there),
            is_recommended=all(row.is_recommended for row in there),
            effect_kind=first.effect_kind,
            margin=margins[0] if margins else None,
            **_side("reference", self.reference, ours),
            **_side("other", self.other, theirs),
        )
        if ours is None or theirs is None:
            lacking = self.reference if ours is None else self.other
            reason = f"not in {lacking.label}"
            return dataclasses.replace(row, reason=reason, value_reason=reason)
        return self._with_value(self._with_effect(row, ours, theirs), ours, theirs)

    @property
    def _runs(self) -> tuple[Run, Run]:
        return self.reference, self.other

    def _with_effect(self, row: ComparedEffect, ours: Effect, theirs: Effect) -> ComparedEffect:
        if (reason := self._why_no_effect(row, ours, theirs)) is not None:
            return dataclasses.replace(row, reason=reason)
        assert ours.effect is not None
        assert theirs.effect is not None
        kind = row.effect_kind
        change = on_scale(kind, theirs.effect) - on_scale(kind, ours.effect)
        row = dataclasses.replace(
            row, effect_change=from_scale(kind, change), verdict="inconclusive"
        )
        estimates = estimate(theirs), estimate(ours)
        if estimates[0] is None or estimates[1] is None:
            lacking = self.reference if estimates[1] is None else self.other
            return dataclasses.replace(row, reason=f"no interval in {lacking.label}")
        interval = combined_interval([estimates[0], estimates[1]], (1, -1))
        row = dataclasses.replace(
            row,
            effect_change_ci_low=from_scale(kind, interval.low),
            effect_change_ci_high=from_scale(kind, interval.high),
            effect_change_standard_error=interval.standard_error,
            effect_change_degrees_of_freedom=interval.degrees_of_freedom,
        )
        for run, side in zip(self._runs, (ours, theirs), strict=True):
            if side.replicates < FEWEST_REPLICATES:
                few = f"{side.replicates} replicates in {run.label}"
                reason = f"{few}; a verdict needs at least {FEWEST_REPLICATES}"
                return dataclasses.replace(row, reason=reason)
        if row.margin is None:
            return dataclasses.replace(row, reason="neither file names a margin")
        verdict = decide(interval, margin_on_scale(kind, row.margin))
        return dataclasses.replace(row, verdict=_WORDED[verdict])

    def _why_no_effect(self, row: ComparedEffect, ours: Effect, theirs: Effect) -> str | None:
        if row.is_baseline:
            return "the baseline: its value alone is compared"
        if (ours.effect_kind, ours.unit) != (theirs.effect_kind, theirs.unit):
            return "the runs measured this in another unit"
        without: dict[tuple[str, str | None], list[str]] = {}
        for run, side in zip(self._runs, (ours, theirs), strict=True):
            if side.effect is None:
                why = (side.verdict or "no effect", side.reason)
                without.setdefault(why, []).append(run.label)
        if without:
            return "; ".join(
                f"{verdict} in {' and '.join(labels)}" + (f" ({reason})" if reason else "")
                for (verdict, reason), labels in without.items()
            )
        one, two = (run.baselines.get((row.tip, row.workload)) for run in self._runs)
        if one != two and not row.is_recommended:
            return f"measured against other baselines: {one}; {two}"
        return None

    def _with_value(self, row: ComparedEffect, ours: Effect, theirs: Effect) -> ComparedEffect:
        if (reason := self._why_no_value(ours, theirs)) is not None:
            return dataclasses.replace(row, value_reason=reason)
        kind = row.effect_kind
        sides = [
            Estimate(
                mean=on_scale(kind, side.value),
                standard_error=side.value_standard_error,
                degrees_of_freedom=side.replicates - 1,
            )
            for side in (theirs, ours)
            if side.value is not None and side.value_standard_error is not None
        ]
        sign = 1 if ours.higher_is_better else -1
        interval = combined_interval(sides, (sign, -sign))
        return dataclasses.replace(
            row,
            value_change=from_scale(kind, interval.mean),
            value_change_ci_low=from_scale(kind, interval.low),
            value_change_ci_high=from_scale(kind, interval.high),
        )

    def _why_no_value(self, ours: Effect, theirs: Effect) -> str | None:
        if ours.variant != theirs.variant:
            return "the variants differ"
        for column, name in SAME_WORK.items():
            one, two = getattr(ours, column), getattr(theirs, column)
            for run, told in zip(self._runs, (one, two), strict=True):
                if told is None:
                    return f"{name} not known in {run.label}"
            if one != two:
                told = "" if column == "images_checksum" else f" ({one}; {two})"
                return f"not the same {name}{told}"
        for run, side in zip(self._runs, (ours, theirs), strict=True):
            if side.value is None:
                return f"no value in {run.label}"
            if side.effect_kind == "ratio" and side.value <= 0:
                return f"the value in {run.label} is not above 0"
            if side.value_standard_error is None or side.replicates < 2:
                return f"no interval of the value in {run.label}"
            if side.higher_is_better is None:
                return f"whether more is better is not known in {run.label}"
        return None


def _key(row: Effect) -> tuple[str, str, str, str]:
    return row.tip, row.workload, row.metric, row.variant


def _alone_in_role(
    run: Run, has_role: Callable[[Effect], bool]
) -> dict[tuple[str, str, str], Effect]:
    """The row of each (tip, workload, metric) that has a role, where just one has it."""
    found: dict[tuple[str, str, str], list[Effect]] = {}
    for row in filter(has_role, run.rows):
        found.setdefault((row.tip, row.workload, row.metric), []).append(row)
    return {group: rows[0] for group, rows in found.items() if len(rows) == 1}


def _side(side: str, run: Run, row: Effect | None) -> dict[str, Any]:
    """The columns of one of the two runs."""
    own = ("variant", "value", "effect", "ci_low", "ci_high", "replicates", "verdict")
    return {
        side: run.label,
        f"{side}_run_id": run.facts.run_id,
        f"{side}_machine_name": run.facts.machine_name,
        **{f"{side}_{name}": None if row is None else getattr(row, name) for name in own},
    }
