"""The verdict rule. It looks at intervals only; a margin says what is too small to matter."""

import math

from bench.analysis.intervals import Interval, projected_interval
from bench.records.effects import EffectKind, Verdict
from bench.records.plan import Metric

FEWEST_REPLICATES = 3
"""No verdict from fewer: with two, Student's t leaves 12.7 standard errors on each side."""

MOST_PROJECTED = 100
"""A number of replicates beyond this is not worth naming: no one will run them."""


def scaled_margin(metric: Metric, run_margin: float) -> float:
    """The margin on the scale that intervals are computed on, the same on both sides of zero.

    For a ratio this is a log ratio, so "3 %" reaches from 1 / 1.03 to 1.03 and swapping the two
    arms mirrors the verdict. For a difference it is in the metric's unit.
    """
    margin = run_margin if metric.margin is None else metric.margin
    return margin_on_scale(metric.kind, margin)


def margin_on_scale(kind: EffectKind, margin: float) -> float:
    """``margin``, a fraction or a number in the metric's unit, on the scale of intervals."""
    return math.log1p(margin) if kind == "ratio" else margin


def decide(interval: Interval, margin: float) -> Verdict:
    """The first that matches: beyond the margin, inside it (TOST), beside zero, none of these.

    ``interval`` is oriented so that more is better; ``margin`` is a :func:`scaled_margin`.
    """
    if interval.low > margin:
        return "helps"
    if interval.high < -margin:
        return "hurts"
    if -margin < interval.low_90 and interval.high_90 < margin:
        return "no difference"
    if interval.low > 0:
        return "gain, size unclear"
    if interval.high < 0:
        return "loss, size unclear"
    return "inconclusive"


def replicates_to_settle(interval: Interval, margin: float) -> int | None:
    """How many replicates would probably end in another verdict than ``inconclusive``.

    Takes the mean and the spread seen so far for the true ones. None when more than
    ``MOST_PROJECTED`` would be needed.
    """
    for replicates in range(int(interval.degrees_of_freedom) + 2, MOST_PROJECTED + 1):
        if decide(projected_interval(interval, replicates), margin) != "inconclusive":
            return replicates
    return None
