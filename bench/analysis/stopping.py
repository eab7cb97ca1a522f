"""When a pair has replicates enough. The rule looks at the width, never at sign or verdict."""

import pandas as pd

from bench.analysis.effects import gains
from bench.analysis.intervals import student_interval
from bench.analysis.replicates import replicate_values, workload_turns
from bench.analysis.verdicts import FEWEST_REPLICATES, scaled_margin
from bench.records.plan import Plan, PlannedTip, PlannedVariant, PlannedWorkload


def is_narrow_enough(
    measurements: pd.DataFrame,
    plan: Plan,
    tip: PlannedTip,
    workload: PlannedWorkload,
    variant: PlannedVariant,
) -> bool:
    """Whether the 95 % interval of the workload's main metric is narrower than the margin.

    That is, its half-width is below it. False while fewer than three replicates count, and
    where no ratio can be taken. How many replicates are wanted at least and at most is the
    caller's to say. Stopping on a width leaves the coverage of the interval nearly as it was,
    stopping on significance would not.
    """
    metric = workload.metrics[0]
    baseline = tip.baseline.name
    turns = workload_turns(measurements, tip.id, workload)
    found = replicate_values(turns, metric, [baseline, variant.name], plan.blocks_of(workload))
    if found.replicates < FEWEST_REPLICATES:
        return False
    if metric.kind == "ratio" and not found.are_positive:
        return False
    interval = student_interval(gains(found, metric, variant.name, baseline))
    return interval.half_width < scaled_margin(metric, plan.margin)
