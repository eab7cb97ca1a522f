"""How quiet the machine was: the spread of turns, flagged turns, A/A pairs, and warnings."""

import dataclasses
import enum
from collections.abc import Iterable, Sequence

import pandas as pd

from bench.records.effects import Effect
from bench.records.plan import Plan

FLAGGED_SHARE = 0.10
"""A run with more flagged turns, or disturbed arms, than this is warned about."""

DISTURBED_PERCENT = 20.0
"""Of a core, used by others: more than this over all turns of an arm has disturbed it. A single
turn is too short for that: the kernel counts in ticks, so only gross cases are flagged there."""


class WarningKind(enum.Enum):
    """What can be wrong with a run as a whole. The value is what the reader can do about it."""

    FAILED = (
        "Read the reason in the variant's row: the suite, a library or the machine is broken there."
    )
    CHECK_FAILED = "Mend it before you trust this run: its row names the remedy."
    NO_VERDICTS = "Run the profile quick or full for verdicts."
    WIDE_AA = (
        "Close other programs and run again, or allow more replicates (profile full, "
        "a larger budget)."
    )
    SHIFTED_AA = (
        "By chance one A/A row in twenty does this. If it happens again, do not trust effects of "
        "this size on this machine."
    )
    DISTURBED_ARMS = "Close other programs, and run again."
    FLAGGED_TURNS = "Close other programs, cool the machine, and run again."
    FEW_REPLICATES = "Run again with a larger budget, or continue this run with --resume."

    @property
    def remedy(self) -> str:
        """One sentence that says what to do."""
        return self.value


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunWarning:
    """One warning about a run: what was found, in a sentence; ``kind.remedy`` says what to do."""

    kind: WarningKind
    found: str


def turn_spread(measurements: pd.DataFrame) -> pd.DataFrame:
    """How much single turns differ: a diagnostic, never a part of an interval.

    A row a (tip, workload, variant) with ``turns``, their number, and ``spread``, the standard
    deviation of samples a second over its mean.
    """
    timed = measurements[(measurements["status"] == "ok") & measurements["block"].notna()]
    rates = (timed["samples"] / timed["seconds"]).groupby(
        [timed["tip"], timed["workload"], timed["variant"]], sort=False
    )
    spread = rates.std() / rates.mean()
    return pd.DataFrame({"turns": rates.size(), "spread": spread}).reset_index()


def flags(measurements: pd.DataFrame) -> pd.DataFrame:
    """The flagged rows, with what was flagged in the column flag.

    A turn with two flags, written with a comma or a semicolon between them, has two rows.
    """
    flagged = measurements[measurements["flags"].fillna("") != ""]
    split = flagged.assign(flag=flagged["flags"].str.split(r"\s*[;,]\s*", regex=True))
    return split.explode("flag")


def flagged_turns(measurements: pd.DataFrame) -> pd.DataFrame:
    """How many turns of each tip were flagged, and with what: columns tip, flag, turns."""
    counted = flags(measurements).groupby(["tip", "flag"], sort=False).size()
    return counted.rename("turns").reset_index()


def disturbed_arms(measurements: pd.DataFrame) -> tuple[int, int]:
    """How many arms others disturbed over all their turns, and of how many that is known."""
    timed = measurements[
        measurements["block"].notna() & measurements["foreign_cpu_percent"].notna()
    ]
    arms = [timed[name] for name in ("tip", "workload", "variant", "replicate")]
    used = (timed["foreign_cpu_percent"] * timed["seconds"]).groupby(arms).sum()
    share = used / timed["seconds"].groupby(arms).sum()
    return int((share > DISTURBED_PERCENT).sum()), len(share)


def primary_pairs(effects: Iterable[Effect]) -> list[Effect]:
    """The rows that the run's conclusions rest on: recommended variant, primary metric."""
    return [row for row in effects if row.is_primary and row.is_recommended]


def aa_rows(effects: Iterable[Effect]) -> list[Effect]:
    """The primary rows of the A/A pairs."""
    return [row for row in primary_pairs(effects) if row.section == "A/A"]


def warnings(measurements: pd.DataFrame, plan: Plan, effects: Sequence[Effect]) -> list[RunWarning]:
    """All that the reader must know before reading a verdict of this run."""
    found: list[RunWarning] = []

    def warn(kind: WarningKind, sentence: str) -> None:
        found.append(RunWarning(kind=kind, found=sentence))

    failed = sorted({f"{row.tip}: {row.variant}" for row in effects if row.verdict == "failed"})
    if failed:
        warn(WarningKind.FAILED, f"{_count(len(failed), 'variant')} failed ({'; '.join(failed)}).")
    unfit = [f"{row.tip}: {row.variant}" for row in effects if row.verdict == "fail"]
    if unfit:
        warn(
            WarningKind.CHECK_FAILED,
            f"{_count(len(unfit), 'check')} did not pass ({'; '.join(unfit)}).",
        )
    if not plan.claims_verdicts:
        warn(WarningKind.NO_VERDICTS, f"The profile {plan.profile} claims no verdicts.")
    for row in aa_rows(effects):
        if row.effect is None or row.ci_low is None or row.ci_high is None or row.margin is None:
            continue
        margin = f"±{100 * row.margin:.3g} %"
        if row.ci_high / row.ci_low > (1 + row.margin) ** 2:
            warn(
                WarningKind.WIDE_AA,
                f"The A/A pair {row.tip} has an interval from {row.ci_low:.3f} to "
                f"{row.ci_high:.3f}, wider than {margin}: small effects cannot be seen here.",
            )
        if row.verdict not in ("no difference", "inconclusive"):
            warn(
                WarningKind.SHIFTED_AA,
                f"The A/A pair {row.tip} shows {row.effect:.3f} ({row.verdict}) where there is "
                "nothing to show.",
            )
    timed = measurements[measurements["block"].notna()]
    flagged = int((timed["flags"].fillna("") != "").sum())
    if len(timed) and flagged / len(timed) > FLAGGED_SHARE:
        warn(
            WarningKind.FLAGGED_TURNS,
            f"During {flagged} of {len(timed)} turns other work or throttling disturbed the "
            "machine (such turns are kept).",
        )
    disturbed, arms = disturbed_arms(measurements)
    if arms and disturbed / arms > FLAGGED_SHARE:
        warn(
            WarningKind.DISTURBED_ARMS,
            f"Beside {disturbed} of {arms} arms other processes used more than "
            f"{DISTURBED_PERCENT:.0f} % of a core, over all turns of the arm.",
        )
    short = [
        row.tip for row in primary_pairs(effects) if 0 < row.replicates < plan.primary_replicates
    ]
    if short:
        warn(
            WarningKind.FEW_REPLICATES,
            f"{_count(len(short), 'tip')} got fewer than the {plan.primary_replicates} planned "
            f"replicates ({', '.join(short)}).",
        )
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
