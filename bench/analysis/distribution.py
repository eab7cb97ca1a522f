"""How one effect varies over many machines: by machine, since runs of one say the same thing."""

import dataclasses
import itertools
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from bench.analysis.comparison import Run, estimate, from_scale, on_scale, order
from bench.analysis.intervals import Estimate, Interval, combined_interval, student_interval
from bench.analysis.verdicts import decide, margin_on_scale
from bench.records.compared import EffectDistribution
from bench.records.effects import Effect, Verdict

EACH_ITS_OWN = "(each machine's own)"
"""The variant, and the baseline, of a tip's row over machines that name them otherwise."""

FEWEST_MACHINES = 3
"""No summary of fewer: two machines leave nothing to see their spread with."""

_WITHOUT_NUMBER: tuple[Verdict, ...] = (
    "failed", "fail", "warn", "inconclusive", "pass", "not measurable here",
)  # fmt: skip
"""Of a machine's runs without a number, the first of these that one of them has counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution:
    """One effect over machines: the row of ``compare.csv`` and each machine's effect, sorted.

    ``is_headline``: what the tip recommends, on its primary metric.
    """

    row: EffectDistribution
    effects: tuple[float, ...]
    is_headline: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OnMachine:
    """One effect on one machine, on the scale of intervals; several runs are combined."""

    verdict: Verdict | None
    mean: float | None = None
    variance: float | None = None


def distributions(runs: Sequence[Run]) -> list[Distribution]:
    """Each effect over the machines, and for each tip one of what it recommends there.

    Several runs of one machine (``machine_id``) count as one: the mean of their effects. Its
    standard error is no smaller than theirs, since runs of one machine and seed may share their
    draws and the state of the machine, and as large as their own spread asks for.
    """
    groups: dict[tuple[str, ...], list[Effect]] = {}
    advice: dict[tuple[str, ...], dict[tuple[str, ...], list[Effect]]] = {}
    for run in runs:
        for row in run.rows:
            baseline = run.baselines.get((row.tip, row.workload), "")
            tip = (row.tip, row.workload, row.metric, row.effect_kind)
            key = (*tip, row.unit, row.variant, baseline)
            groups.setdefault(key, []).append(row)
            if row.is_primary and row.is_recommended:
                advice.setdefault(tip, {}).setdefault(key, []).append(row)
    headlines = {next(iter(its)) for its in advice.values() if len(its) == 1}
    found = [
        _distribution(rows, *key[-2:], is_headline=key in headlines) for key, rows in groups.items()
    ]
    found += [
        _distribution(
            list(itertools.chain(*its.values())), EACH_ITS_OWN, EACH_ITS_OWN, is_headline=True
        )
        for its in advice.values()
        if len(its) > 1
    ]
    return sorted(found, key=lambda its: (*order(its.row, its.row.variant), its.row.baseline or ""))


def _distribution(
    rows: Sequence[Effect], variant: str, baseline: str, *, is_headline: bool
) -> Distribution:
    machines: dict[str, list[Effect]] = {}
    for its in rows:
        machines.setdefault(its.machine_id, []).append(its)
    found = [_on_machine(machines[name]) for name in sorted(machines)]
    first = rows[0]
    counts = Counter(machine.verdict for machine in found)
    numbers: dict[str, Any] = {counted(verdict): counts[verdict] for verdict in get_args(Verdict)}
    empty = EffectDistribution(
        section=first.section,
        tip=first.tip,
        workload=first.workload,
        variant=variant,
        baseline=baseline or None,
        metric=first.metric,
        unit=first.unit,
        is_primary=all(its.is_primary for its in rows),
        is_baseline=all(its.is_baseline for its in rows),
        is_recommended=all(its.is_recommended for its in rows),
        effect_kind=first.effect_kind,
        machines=sum(machine.mean is not None for machine in found),
        **numbers,
    )
    row = _with_spread(empty, [machine.mean for machine in found if machine.mean is not None])
    row = _with_typical(row, found)
    effects = (
        from_scale(row.effect_kind, machine.mean) for machine in found if machine.mean is not None
    )
    return Distribution(row=row, effects=tuple(sorted(effects)), is_headline=is_headline)


def counted(verdict: Verdict) -> str:
    """The column that counts the machines with ``verdict``."""
    return f"{verdict.replace(',', '').replace(' ', '_')}_machines"


def _on_machine(rows: Sequence[Effect]) -> _OnMachine:
    """What the runs of one machine say together."""
    estimates = [its for row in rows if (its := estimate(row)) is not None]
    if not estimates:
        points = [on_scale(row.effect_kind, row.effect) for row in rows if row.effect is not None]
        verdicts = {row.verdict for row in rows}
        verdict = next((its for its in _WITHOUT_NUMBER if its in verdicts), None)
        return _OnMachine(verdict=verdict, mean=statistics.fmean(points) if points else None)
    if len(estimates) == 1:
        (row,) = (row for row in rows if estimate(row) is not None)
        return _OnMachine(
            verdict=row.verdict, mean=estimates[0].mean, variance=estimates[0].standard_error ** 2
        )
    interval = _of_one_machine(estimates)
    margin = max((row.margin for row in rows if row.margin is not None), default=None)
    scaled = None if margin is None else margin_on_scale(rows[0].effect_kind, margin)
    return _OnMachine(
        verdict="inconclusive" if scaled is None else decide(interval, scaled),
        mean=interval.mean,
        variance=interval.standard_error**2,
    )


def _of_one_machine(estimates: Sequence[Estimate]) -> Interval:
    """What runs of one machine say together: by their own noise, or by their spread if larger."""
    typical = Estimate(
        mean=statistics.fmean(its.mean for its in estimates),
        standard_error=statistics.fmean(its.standard_error for its in estimates),
        degrees_of_freedom=min(its.degrees_of_freedom for its in estimates),
    )
    alike = combined_interval([typical], [1.0])
    apart = student_interval([its.mean for its in estimates])
    return max(alike, apart, key=lambda interval: interval.standard_error)


def _with_spread(row: EffectDistribution, means: Sequence[float]) -> EffectDistribution:
    """Quartiles and extremes of the machines' effects, noise included."""
    import numpy as np

    if not means:
        return row
    quantiles = np.quantile(means, (0, 0.25, 0.5, 0.75, 1))
    low, lower, middle, upper, high = (from_scale(row.effect_kind, float(q)) for q in quantiles)
    return dataclasses.replace(
        row, minimum=low, lower_quartile=lower, median=middle, upper_quartile=upper, maximum=high
    )


def _with_typical(row: EffectDistribution, machines: Sequence[_OnMachine]) -> EffectDistribution:
    """The random-effects summary: what is typical, and how far machines differ beyond noise.

    All machines weigh the same, and the variance between them is what their spread has beyond
    their noise (Hedges and Olkin, Statistical Methods for Meta-Analysis, 1985, chapter 9).
    Weights by 1 / variance, as in statsmodels' combine_effects, would take the variance that five
    replicates show for the true one and find machines to differ where they don't.
    """
    from scipy import special

    known = [
        (its.mean, its.variance)
        for its in machines
        if its.mean is not None and its.variance is not None
    ]
    if row.is_baseline or not row.machines:
        return row
    if len(known) < FEWEST_MACHINES:
        reason = f"{len(known)} machines with an interval; a summary needs {FEWEST_MACHINES}"
        return dataclasses.replace(row, reason=reason)
    interval = student_interval([mean for mean, _ in known])
    spread = interval.standard_error**2 * len(known)
    between = max(spread - statistics.fmean(variance for _, variance in known), 0.0)
    t = float(special.stdtrit(len(known) - 1, 0.975))
    reach = t * (between + interval.standard_error**2) ** 0.5
    kind = row.effect_kind
    return dataclasses.replace(
        row,
        typical_effect=from_scale(kind, interval.mean),
        typical_effect_ci_low=from_scale(kind, interval.low),
        typical_effect_ci_high=from_scale(kind, interval.high),
        between_machines=between**0.5,
        machines_low=from_scale(kind, interval.mean - reach),
        machines_high=from_scale(kind, interval.mean + reach),
    )
