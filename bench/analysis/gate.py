"""Whether a tip is worth less, or its baseline slower, than in a reference; for CI.

It never gives an answer for lack of data.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from bench.analysis.verdicts import FEWEST_REPLICATES
from bench.errors import UserError
from bench.records.compared import ComparedEffect


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """One number that is looked at: a tip's worth, or its baseline's value.

    ``ratio`` with its 95 % interval is the other run's against the reference's, below 1 where the
    other is worse.
    """

    row: ComparedEffect
    what: str
    ratio: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """What was looked at, and what is worse with its whole interval beyond ``bound``.

    ``bound`` is a fraction. ``missing``: (what, reason) of all that the reference measured and
    that could not be looked at in another run.
    """

    bound: float
    looks: tuple[Look, ...]
    missing: tuple[tuple[str, str], ...]

    @property
    def slower(self) -> list[Look]:
        """What is worth less, or is slower, by more than the bound."""
        return [look for look in self.looks if look.high < 1 - self.bound]

    @property
    def smallest_seen(self) -> list[float]:
        """How large a slow-down had to be to be called one, as a fraction, smallest first.

        Its whole interval must lie beyond the bound, so that it is more than the bound by the
        upper half of its interval.
        """
        return sorted(1 - (1 - self.bound) * look.ratio / look.high for look in self.looks)


def gate(bound: float, compared: Sequence[Sequence[ComparedEffect]]) -> Gate:
    """Look at each run that was compared with the reference; one sequence of rows a run.

    Looked at are, of the primary pairs whose effect is a ratio, the tip's worth (not of A/A
    pairs) and the baseline's value (of A/A pairs too). UserError when a run has no tip to look
    at, and when it has no number for a tip that it was to measure and that the reference measured:
    a tip that fails is no reason to pass.
    """
    looks: list[Look] = []
    missing: list[tuple[str, str]] = []
    for rows in compared:
        its = list(_looks(rows))
        if not any(look.row.is_recommended for look in its):
            raise UserError(
                f"{rows[0].other} has nothing to compare with {rows[0].reference}: no tip whose "
                f"effect is a ratio with an interval over {FEWEST_REPLICATES} replicates in both.",
                "Compare runs of the profile quick or full that measured the same tips.",
            )
        if lost := _lost(rows):
            told = "; ".join(f"{tip} ({reason})" for tip, reason in lost[:3])
            more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
            raise UserError(
                f"{rows[0].other} has no number for what {rows[0].reference} measured: "
                f"{told}{more}.",
                "Mend what its report says there, or compare without --fail-if-slower.",
            )
        looks += its
        missing += _missing(rows)
    return Gate(bound=bound, looks=tuple(looks), missing=tuple(missing))


def _looks(rows: Sequence[ComparedEffect]) -> Iterator[Look]:
    for row, what, (ratio, low, high), _ in _parts(rows):
        few = min(row.reference_replicates or 0, row.other_replicates or 0) < FEWEST_REPLICATES
        if ratio is not None and low is not None and high is not None and not few:
            yield Look(row=row, what=what, ratio=ratio, low=low, high=high)


def _lost(rows: Sequence[ComparedEffect]) -> list[tuple[str, str]]:
    """Tips, with the reason, whose worth the reference knows and the other run lost."""
    ran = {row.tip for row in rows if row.other_variant is not None}
    return [
        (row.tip, row.reason or "too few replicates")
        for row in rows
        if row.tip in ran
        and row.is_primary
        and row.is_recommended
        and row.section != "A/A"
        and row.reference_effect is not None
        and (row.reference_replicates or 0) >= FEWEST_REPLICATES
        and (row.other_effect is None or (row.other_replicates or 0) < FEWEST_REPLICATES)
    ]


def _missing(rows: Sequence[ComparedEffect]) -> Iterator[tuple[str, str]]:
    for row, what, (_, low, _), reason in _parts(rows):
        if low is None and (row.reference_replicates or 0) >= FEWEST_REPLICATES:
            yield what, reason or ""
    for row in rows:
        if row.is_primary and row.is_recommended and row.effect_kind == "difference":
            yield _worth(row), "a difference has no share to be bounded"


def _parts(
    rows: Sequence[ComparedEffect],
) -> Iterator[tuple[ComparedEffect, str, tuple[float | None, ...], str | None]]:
    """Each row that is looked at: what it is, its ratio with the interval, or why it has none."""
    for row in rows:
        if not row.is_primary or row.effect_kind != "ratio":
            continue
        if row.is_recommended and row.section != "A/A":
            change = row.effect_change, row.effect_change_ci_low, row.effect_change_ci_high
            yield row, _worth(row), change, row.reason
        elif row.is_baseline:
            change = row.value_change, row.value_change_ci_low, row.value_change_ci_high
            yield row, f"{row.tip}'s baseline ({row.variant})", change, row.value_reason


def _worth(row: ComparedEffect) -> str:
    return f"what {row.tip} ({row.variant}) is worth"
