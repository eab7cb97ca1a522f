"""Every planned variant's effect, with its interval and verdict: the rows of ``effects.csv``."""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from bench.analysis.intervals import Interval, student_interval
from bench.analysis.replicates import (
    ReplicateValues,
    WorkloadTurns,
    finished_blocks,
    replicate_values,
    workload_turns,
)
from bench.analysis.verdicts import (
    FEWEST_REPLICATES,
    MOST_PROJECTED,
    decide,
    replicates_to_settle,
    scaled_margin,
)
from bench.records.effects import Effect
from bench.records.measurements import CHECK, READINGS
from bench.records.plan import Metric, Plan, PlannedTip, PlannedVariant, PlannedWorkload

_ANSWER = Metric(name="verdict", unit="", column="verdict", aggregate="once")
_QUESTIONS = PlannedWorkload(name=CHECK, metrics=(_ANSWER,))


def effects(measurements: pd.DataFrame, plan: Plan, environment: Mapping[str, Any]) -> list[Effect]:
    """The rows of ``effects.csv``, in the plan's order.

    Every planned (tip, workload, variant) has a row for the workload's main metric, whatever
    happened to it, and rows for the other metrics where it was measured and has them; a check has
    a row a question. ``environment`` names the machine by the keys of :class:`Effect`;
    ``machine_id`` and ``machine_name`` must be there.
    """
    return [
        row
        for tip in plan.tips
        for row in (
            _answers(measurements, plan, environment, tip)
            if tip.is_check
            else _tip_effects(measurements, plan, environment, tip)
        )
    ]


def gains(found: ReplicateValues, metric: Metric, variant: str, baseline: str) -> list[float]:
    """What the interval is taken over: one number a replicate, turned so that more is better.

    The log ratio of variant and baseline, or their difference for a metric of that kind. Values
    must be above zero for a ratio.
    """
    sign = 1 if metric.higher_is_better else -1
    pairs = zip(found.values[variant], found.values[baseline], strict=True)
    if metric.kind == "ratio":
        return [sign * math.log(value / base) for value, base in pairs]
    return [sign * (value - base) for value, base in pairs]


def unmeasured(
    measurements: pd.DataFrame, tip: PlannedTip, workload: PlannedWorkload
) -> dict[str, tuple[Literal["failed", "not measurable here"], str]]:
    """Verdict and reason of the variants that have no numbers.

    One failed row is enough: numbers of a variant that failed once would hide the failure.
    """
    rows = measurements[
        (measurements["tip"] == tip.id)
        & (measurements["workload"] == workload.name)
        & (measurements["status"] != "ok")
    ]
    planned = [
        (variant.name, reason)
        for variant in tip.variants
        if (reason := variant.reason or workload.reason)
    ]
    found: dict[str, tuple[Literal["failed", "not measurable here"], str]] = {
        variant: ("not measurable here", reason) for variant, reason in planned
    }
    for status in ("not measurable here", "failed"):
        its = rows[rows["status"] == status].drop_duplicates("variant")
        for variant, reason in zip(its["variant"], its["reason"], strict=True):
            found[variant] = (status, reason)
    return found


def _answers(
    measurements: pd.DataFrame, plan: Plan, environment: Mapping[str, Any], tip: PlannedTip
) -> Iterator[Effect]:
    """A row a question of a check: its verdict, and as the reason what was seen."""
    rows = measurements[(measurements["tip"] == tip.id) & (measurements["verdict"] != "")]
    last = rows.drop_duplicates("variant", keep="last")
    answers = dict(
        zip(last["variant"], zip(last["verdict"], last["reason"], strict=True), strict=True)
    )
    without = unmeasured(measurements, tip, _QUESTIONS)
    for variant in tip.variants:
        empty = _empty_row(plan, environment, tip, _QUESTIONS, variant, _ANSWER)
        unknown = ("inconclusive", "the run was stopped before it was asked")
        verdict, reason = without.get(variant.name) or answers.get(variant.name, unknown)
        yield dataclasses.replace(
            empty,
            verdict=verdict,
            reason=reason,
            margin=None,
            is_exploratory=False,
            higher_is_better=None,
        )


def _tip_effects(
    measurements: pd.DataFrame, plan: Plan, environment: Mapping[str, Any], tip: PlannedTip
) -> Iterator[Effect]:
    for workload in tip.workloads:
        yield from _workload_effects(measurements, plan, environment, tip, workload)


def _workload_effects(
    measurements: pd.DataFrame,
    plan: Plan,
    environment: Mapping[str, Any],
    tip: PlannedTip,
    workload: PlannedWorkload,
) -> Iterator[Effect]:
    plan = dataclasses.replace(plan, blocks=plan.blocks_of(workload))
    turns = workload_turns(measurements, tip.id, workload)
    without = unmeasured(measurements, tip, workload)
    no_baseline = without.get(tip.baseline.name)

    def lacks(variant: PlannedVariant, metric: Metric) -> bool:
        is_main = metric == workload.metrics[0]
        return not is_main and _has_no_such_reading(turns, metric, variant.name, plan)

    for variant in tip.variants:
        for metric in workload.metrics:
            empty = _empty_row(plan, environment, tip, workload, variant, metric)
            if variant.name in without:
                verdict, reason = without[variant.name]
                yield dataclasses.replace(empty, verdict=verdict, reason=reason)
                break
            if lacks(variant, metric):
                continue
            if variant.is_baseline:
                yield _alone(empty, turns, metric, plan)
            elif no_baseline is not None:
                yield dataclasses.replace(
                    _alone(empty, turns, metric, plan),
                    verdict="inconclusive",
                    reason=f"nothing to compare with, the baseline: {no_baseline[0]}",
                )
            elif lacks(tip.baseline, metric):
                yield dataclasses.replace(
                    _alone(empty, turns, metric, plan),
                    verdict="inconclusive",
                    reason=f"nothing to compare with: the baseline has no {metric.name}",
                )
            else:
                yield _against_baseline(empty, turns, metric, plan, tip.baseline.name)


def _empty_row(
    plan: Plan,
    environment: Mapping[str, Any],
    tip: PlannedTip,
    workload: PlannedWorkload,
    variant: PlannedVariant,
    metric: Metric,
) -> Effect:
    got_fewer = plan.other_replicates < plan.primary_replicates
    is_first = workload in tip.workloads[:1]
    is_other = not (variant.is_baseline or (variant.is_recommended and is_first))
    return Effect(
        run_id=plan.run_id,
        machine_id=environment["machine_id"],
        machine_name=environment["machine_name"],
        cpu_model=environment.get("cpu_model"),
        usable_cores=environment.get("usable_cores"),
        gpu_model=environment.get("gpu_model"),
        driver_version=environment.get("driver_version"),
        cuda_version=environment.get("cuda_version"),
        torch_version=environment.get("torch_version"),
        torchvision_version=environment.get("torchvision_version"),
        python_version=environment.get("python_version"),
        profile=plan.profile,
        workload=workload.name,
        model=plan.model,
        batch_size=plan.batch_size,
        image_size=plan.image_size,
        threads=plan.threads,
        start_method=plan.start_method,
        section=tip.section,
        tip=tip.id,
        variant=variant.name,
        is_baseline=variant.is_baseline,
        is_recommended=variant.is_recommended,
        metric=metric.name,
        unit=metric.unit,
        is_primary=is_first and metric == workload.metrics[0],
        effect_kind=metric.kind,
        margin=plan.margin if metric.margin is None else metric.margin,
        is_exploratory=variant.is_exploratory or (is_other and got_fewer),
        images_checksum=plan.images.get("checksum"),
        device=plan.device,
        higher_is_better=metric.higher_is_better,
    )


def _alone(empty: Effect, turns: WorkloadTurns, metric: Metric, plan: Plan) -> Effect:
    """A variant's value without an effect: the baseline's, or one that has no baseline."""
    found = replicate_values(turns, metric, [empty.variant], plan.blocks)
    if not found.replicates:
        reason = _why_nothing(turns, metric, [empty.variant], plan)
        return dataclasses.replace(empty, verdict="inconclusive", reason=reason)
    return dataclasses.replace(
        empty,
        value=_typical(found.values[empty.variant], metric),
        value_standard_error=_value_error(found.values[empty.variant], metric),
        replicates=found.replicates,
        blocks=found.blocks,
    )


def _against_baseline(
    empty: Effect, turns: WorkloadTurns, metric: Metric, plan: Plan, baseline: str
) -> Effect:
    pair = [baseline, empty.variant]
    found = replicate_values(turns, metric, pair, plan.blocks)
    if not found.replicates:
        reason = _why_nothing(turns, metric, pair, plan)
        return dataclasses.replace(empty, verdict="inconclusive", reason=reason)
    measured = dataclasses.replace(
        empty,
        baseline_value=_typical(found.values[baseline], metric),
        value=_typical(found.values[empty.variant], metric),
        value_standard_error=_value_error(found.values[empty.variant], metric),
        replicates=found.replicates,
        blocks=found.blocks,
    )
    if metric.kind == "ratio" and not found.are_positive:
        reason = f"no ratio: a replicate's {metric.name} is not above zero"
        return dataclasses.replace(measured, verdict="inconclusive", reason=reason)
    as_effect = math.exp if metric.kind == "ratio" else float
    gained = gains(found, metric, empty.variant, baseline)
    measured = dataclasses.replace(measured, effect=as_effect(statistics.fmean(gained)))
    if found.replicates == 1:
        return _judged(measured, None, metric, plan)
    if metric.kind == "difference" and not any(gained):
        reason = f"all {found.replicates} replicates read the same, so their spread is not known"
        return dataclasses.replace(measured, verdict="inconclusive", reason=reason)
    interval = student_interval(gained)
    measured = dataclasses.replace(
        measured,
        ci_low=as_effect(interval.low),
        ci_high=as_effect(interval.high),
        standard_error=interval.standard_error,
        degrees_of_freedom=found.replicates - 1,
    )
    return _judged(measured, interval, metric, plan)


def _judged(measured: Effect, interval: Interval | None, metric: Metric, plan: Plan) -> Effect:
    if not plan.claims_verdicts:
        return dataclasses.replace(
            measured,
            verdict="inconclusive",
            reason=f"the profile {plan.profile} proves that everything runs and claims no verdict",
        )
    if interval is None or measured.replicates < FEWEST_REPLICATES:
        return dataclasses.replace(
            measured, verdict="inconclusive", reason=_too_few(measured, plan)
        )
    margin = scaled_margin(metric, plan.margin)
    verdict = decide(interval, margin)
    reason = None
    if verdict == "inconclusive":
        # An A/A pair is twice the same thing, whatever it read.
        is_same = measured.section == "A/A"
        likely = dataclasses.replace(interval, mean=0.0) if is_same else interval
        needed = replicates_to_settle(likely, margin)
        number = f"more than {MOST_PROJECTED}" if needed is None else f"about {needed}"
        reason = f"{number} replicates would probably settle it, {measured.replicates} measured"
    return dataclasses.replace(measured, verdict=verdict, reason=reason)


def _too_few(row: Effect, plan: Plan) -> str:
    planned = plan.other_replicates if row.is_exploratory else plan.primary_replicates
    return (
        f"{row.replicates} of {max(planned, FEWEST_REPLICATES)} replicates measured; "
        f"a verdict needs at least {FEWEST_REPLICATES}"
    )


def _has_no_such_reading(turns: WorkloadTurns, metric: Metric, variant: str, plan: Plan) -> bool:
    """Whether the metric is a reading of the tip's own that this variant's work does not have.

    A copy that is built ahead has its seconds to build, a loader has none: not a failure.
    """
    return (
        metric.column in READINGS
        and bool(finished_blocks(turns, [variant], plan.blocks))
        and not replicate_values(turns, metric, [variant], plan.blocks).replicates
    )


def _why_nothing(turns: WorkloadTurns, metric: Metric, variants: Sequence[str], plan: Plan) -> str:
    if finished_blocks(turns, variants, plan.blocks):
        return f"no reading of {metric.name}"
    return "no replicate was finished"


def _typical(values: Sequence[float], metric: Metric) -> float:
    """The mean over replicates, for a ratio the geometric one.

    So value, baseline value and effect agree to the last digit. Where a value is not above zero
    there is no effect either, and the arithmetic mean is shown.
    """
    if metric.kind == "ratio" and min(values) > 0:
        return statistics.geometric_mean(values)
    return statistics.fmean(values)


def _value_error(values: Sequence[float], metric: Metric) -> float | None:
    """The standard error over replicates of :func:`_typical`: for a ratio, of its logarithm."""
    if len(values) < 2 or (metric.kind == "ratio" and min(values) <= 0):
        return None
    from scipy import stats

    on_scale = [math.log(value) for value in values] if metric.kind == "ratio" else values
    return float(stats.sem(on_scale))
