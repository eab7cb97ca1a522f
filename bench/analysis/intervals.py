"""Student's t over replicates, the only interval in this suite (DESIGN.md, "Statistics")."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean with its two-sided intervals, in the unit of the values (log ratios, differences).

    ``low`` to ``high`` holds the true mean with 95 %. ``low_90`` to ``high_90`` does with 90 %,
    and lies inside a margin just when two one-sided tests at 5 % (TOST) say "equivalent".
    """

    mean: float
    low: float
    high: float
    low_90: float
    high_90: float
    standard_error: float
    degrees_of_freedom: float

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        return (self.high - self.low) / 2


def student_interval(values: Sequence[float]) -> Interval:
    """The interval of the mean of ``values``, one a replicate; ValueError for fewer than two."""
    # statsmodels takes two seconds to import, which a run that shows --help need not wait for.
    from statsmodels.stats.weightstats import DescrStatsW

    if len(values) < 2:
        raise ValueError(f"An interval needs two values, not {len(values)}.")
    described = DescrStatsW(list(values))
    low, high = described.tconfint_mean(alpha=0.05)
    low_90, high_90 = described.tconfint_mean(alpha=0.10)
    return Interval(
        mean=float(described.mean),
        low=float(low),
        high=float(high),
        low_90=float(low_90),
        high_90=float(high_90),
        standard_error=float(described.std_mean),
        degrees_of_freedom=len(values) - 1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over replicates, of which only its standard error is left, as in ``effects.csv``."""

    mean: float
    standard_error: float
    degrees_of_freedom: float


def combined_interval(estimates: Sequence[Estimate], weights: Sequence[float]) -> Interval:
    """The interval of the weighted sum of independent estimates: (1, −1) gives a difference.

    Degrees of freedom after Welch (Biometrika 34, 1947, 28–35) and Satterthwaite; statsmodels and
    scipy take them from the single values, which a file of effects does not hold.
    """
    from scipy import special

    terms = list(zip(estimates, weights, strict=True))
    mean = sum(weight * estimate.mean for estimate, weight in terms)
    variances = [(weight * estimate.standard_error) ** 2 for estimate, weight in terms]
    uncertainty = sum(
        variance**2 / estimate.degrees_of_freedom
        for variance, (estimate, _) in zip(variances, terms, strict=True)
    )
    # Without any spread every number of degrees of freedom gives the same interval.
    degrees = sum(variances) ** 2 / uncertainty if uncertainty else 1.0
    error = sum(variances) ** 0.5
    half, half_90 = (float(special.stdtrit(degrees, share)) * error for share in (0.975, 0.95))
    return Interval(
        mean=mean,
        low=mean - half,
        high=mean + half,
        low_90=mean - half_90,
        high_90=mean + half_90,
        standard_error=error,
        degrees_of_freedom=degrees,
    )


def shifted(interval: Interval, by: float) -> Interval:
    """``interval`` around another mean."""
    return dataclasses.replace(
        interval,
        mean=interval.mean + by,
        low=interval.low + by,
        high=interval.high + by,
        low_90=interval.low_90 + by,
        high_90=interval.high_90 + by,
    )


def projected_interval(interval: Interval, replicates: int) -> Interval:
    """What ``interval`` would be with another number of replicates, all else being the same."""
    from scipy import stats

    spread = interval.standard_error * (interval.degrees_of_freedom + 1) ** 0.5
    error = spread / replicates**0.5
    t = stats.t(df=replicates - 1, loc=interval.mean, scale=error)
    low, high = t.interval(0.95)
    low_90, high_90 = t.interval(0.90)
    return Interval(
        mean=interval.mean,
        low=float(low),
        high=float(high),
        low_90=float(low_90),
        high_90=float(high_90),
        standard_error=error,
        degrees_of_freedom=replicates - 1,
    )
