"""``compare.csv``: how the effects of two runs differ, or how one effect varies over machines."""

import dataclasses
from typing import Literal

from bench.records.effects import EffectKind, Verdict
from bench.records.measurements import SCHEMA_VERSION

ChangeVerdict = Literal[
    "larger",
    "smaller",
    "larger, size unclear",
    "smaller, size unclear",
    "no difference",
    "inconclusive",
    "not compared",
]
"""What holds of an effect in the other run, seen from the reference: ``larger``, the variant is
worth more there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedEffect:
    """One effect in two runs, a row of ``compare.csv`` where few runs are compared.

    ``effect_change`` is the other run's effect divided by the reference's (minus it, where the
    effect is a difference), with its 95 % interval and the standard error of its logarithm (of
    the difference). ``value_change`` is the same of the values themselves, turned so that more
    is better; only there where both did the same work with the same settings, otherwise
    ``value_reason`` says why not. ``is_recommended`` and ``is_baseline`` hold in both runs. What
    is not known is None here and empty in the file.
    """

    schema_version: int = SCHEMA_VERSION
    section: str
    tip: str
    workload: str
    metric: str
    unit: str
    is_primary: bool
    is_baseline: bool
    is_recommended: bool
    effect_kind: EffectKind
    margin: float | None
    reference: str
    reference_run_id: str
    reference_machine_name: str
    reference_variant: str | None
    reference_value: float | None
    reference_effect: float | None
    reference_ci_low: float | None
    reference_ci_high: float | None
    reference_replicates: int | None
    reference_verdict: Verdict | None
    other: str
    other_run_id: str
    other_machine_name: str
    other_variant: str | None
    other_value: float | None
    other_effect: float | None
    other_ci_low: float | None
    other_ci_high: float | None
    other_replicates: int | None
    other_verdict: Verdict | None
    effect_change: float | None = None
    effect_change_ci_low: float | None = None
    effect_change_ci_high: float | None = None
    effect_change_standard_error: float | None = None
    effect_change_degrees_of_freedom: float | None = None
    verdict: ChangeVerdict = "not compared"
    reason: str | None = None
    value_change: float | None = None
    value_change_ci_low: float | None = None
    value_change_ci_high: float | None = None
    value_reason: str | None = None

    @property
    def variant(self) -> str:
        """The variant's name, or both names where the runs name it otherwise."""
        names = dict.fromkeys((self.reference_variant, self.other_variant))
        return " / ".join(name for name in names if name is not None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EffectDistribution:
    """One effect over machines, a row of ``compare.csv`` where many runs are compared.

    ``machines`` have the effect; ``minimum`` to ``maximum`` are of these. The counts by verdict
    add up to all machines that have the row. ``typical_effect`` with its 95 % interval is the
    mean of a random-effects model, in which each machine has an effect of its own;
    ``between_machines`` is the standard deviation of these true effects (of their logarithms for
    a ratio), and 95 % of all machines lie from ``machines_low`` to ``machines_high``.
    """

    schema_version: int = SCHEMA_VERSION
    section: str
    tip: str
    workload: str
    variant: str
    baseline: str | None
    metric: str
    unit: str
    is_primary: bool
    is_baseline: bool
    is_recommended: bool
    effect_kind: EffectKind
    machines: int
    helps_machines: int
    gain_size_unclear_machines: int
    no_difference_machines: int
    inconclusive_machines: int
    loss_size_unclear_machines: int
    hurts_machines: int
    pass_machines: int
    warn_machines: int
    fail_machines: int
    not_measurable_here_machines: int
    failed_machines: int
    minimum: float | None = None
    lower_quartile: float | None = None
    median: float | None = None
    upper_quartile: float | None = None
    maximum: float | None = None
    typical_effect: float | None = None
    typical_effect_ci_low: float | None = None
    typical_effect_ci_high: float | None = None
    between_machines: float | None = None
    machines_low: float | None = None
    machines_high: float | None = None
    reason: str | None = None
