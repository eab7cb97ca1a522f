"""The verdict rule. It looks at intervals only; a margin says what is too small to matter."""

import math
import statistics

from bench.analysis.intervals import Interval, projected_interval, shifted
from bench.records.effects import EffectKind, Verdict
from bench.records.plan import Metric

FEWEST_REPLICATES = 3
"""No verdict from fewer: with two, Student's t leaves 12.7 standard errors on each side."""

MOST_PROJECTED = 100
"""A number of replicates beyond this is not worth naming: no one will run them."""

PROBABLY = 0.8
"""The share of runs that a named number of replicates would settle."""
_CHANCES = [statistics.NormalDist().inv_cdf((step + 0.5) / 40) for step in range(40)]
"""Where, in standard errors, the mean of more replicates may come to lie: equally likely."""


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
    """How many replicates end in another verdict than ``inconclusive`` four times in five.

    Takes the mean and the spread seen so far for the true ones; the mean of so many replicates
    will still lie beside it, by chance. None when more than ``MOST_PROJECTED`` would be needed.
    """
    for replicates in range(int(interval.degrees_of_freedom) + 2, MOST_PROJECTED + 1):
        projected = projected_interval(interval, replicates)
        outcomes = [
            decide(shifted(projected, chance * projected.standard_error), margin)
            for chance in _CHANCES
        ]
        if outcomes.count("inconclusive") <= (1 - PROBABLY) * len(outcomes):
            return replicates
    return None
