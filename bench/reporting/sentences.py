"""What a run's results mean, in plain sentences: the summary, and whether to follow a tip."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from bench.analysis.noise import WarningKind, aa_rows, primary_pairs
from bench.analysis.verdicts import FEWEST_REPLICATES
from bench.records.effects import Effect, Verdict
from bench.records.plan import Plan
from bench.reporting.model import Report, TipReport
from bench.reporting.units import interval_text, listed, margin_text, percent, quantity

GAINS: tuple[Verdict, ...] = ("helps", "gain, size unclear")
LOSSES: tuple[Verdict, ...] = ("hurts", "loss, size unclear")

MOST_NAMED = 3
"""A sentence names this many tips and counts the others."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What the run says of a tip: ``short`` without a full stop, then ``why`` in sentences."""

    short: str
    why: str


def summary(report: Report) -> tuple[str, str, str]:
    """Three sentences: what helped most, what did not, how sure that is."""
    effects = [row for tip in report.tips for row in tip.rows]
    prices = {tip.tip.id for tip in report.tips if tip.tip.is_price}
    followed = {tip.tip.id for tip in report.tips if tip.tip.is_followed}
    rows = [row for row in primary_pairs(effects) if row.section != "A/A"]
    checks = [tip.verdict for tip in report.tips if tip.tip.is_check]
    sure = _how_sure(effects, report)
    if not report.plan.claims_verdicts:
        runs = f"This {report.plan.profile} run shows that everything runs"
        return f"{runs}; it claims nothing about what helps.", _what_ran(rows, checks), sure
    kept = [row for row in rows if row.tip in followed and row.verdict in GAINS]
    rows = [row for row in rows if row not in kept]
    return _what_helped(rows, prices), _what_did_not(rows, prices, checks, kept), sure


def conclusion(tip: TipReport, report: Report) -> Conclusion:
    """Whether to follow ``tip`` on this machine, and how sure that is."""
    if tip.tip.is_check:
        return _of_check(tip)
    row = tip.headline
    found = _of_comparison(tip, report.plan)
    if told := " ".join(_pays_off(tip, report.plan)):
        found = dataclasses.replace(found, why=f"{found.why} {told}")
    best = _best_other(tip.rows)
    if row.effect is None or row.verdict in GAINS or tip.tip.section == "A/A" or best is None:
        return found
    others = sum(row.is_primary and row.effect is not None for row in tip.rows) - 1
    which = "the other variant" if others == 1 else f"the best of {others} other variants"
    told = interval_text(best, is_price=tip.tip.is_price)
    weight = ", which decides nothing" if best.is_exploratory else ""
    beside = f"“{best.variant}”, {which}, read {told}{weight}."
    return dataclasses.replace(found, why=f"{found.why} {beside}")


def _of_check(tip: TipReport) -> Conclusion:
    if tip.verdict == "pass":
        return Conclusion(short="Nothing to mend here", why=_sentence(tip.answers))
    told: dict[str, list[str]] = {}
    for row in tip.rows:
        if row.verdict == tip.verdict:
            told.setdefault(row.reason or "no reason was given", []).append(row.variant)
    why = "; ".join(f"{listed(names)}: {reason}" for reason, names in told.items())
    return Conclusion(short=_ASKED[tip.verdict], why=f"{_sentence(why)} In all: {tip.answers}.")


_ASKED: dict[Verdict | None, str] = {
    "failed": "The check itself failed and gave no answer",
    "fail": "Mend this before you trust a measurement here",
    "warn": "Look at this: it may spoil training or results",
    "inconclusive": "The run was stopped before all was asked",
    "not measurable here": "Cannot be asked here",
}


def _of_comparison(tip: TipReport, plan: Plan) -> Conclusion:
    row = tip.headline
    reason = _sentence(row.reason or "")
    if row.is_baseline:
        left_out = "The run left out the variant that the article recommends."
        return Conclusion(short="Not measured in this run", why=left_out)
    if row.verdict == "not measurable here":
        return Conclusion(short="Not measured here", why=reason)
    if row.verdict == "failed":
        return Conclusion(short="It failed here, so there is no number", why=reason)
    if row.effect is None or row.verdict is None:
        return Conclusion(short="No answer from this run", why=reason)
    effect = interval_text(row, is_price=tip.tip.is_price)
    measured = f"“{row.variant}” against “{tip.tip.baseline.name}”: {effect}"
    if not plan.claims_verdicts:
        short = f"No verdict: a {plan.profile} run shows only that it runs"
        return Conclusion(short=short, why=f"{measured}, which proves nothing.")
    if tip.tip.section == "A/A":
        is_quiet = row.verdict == "no difference"
        lesson = "as it should" if is_quiet else _within([row])
        short = "Nothing to follow: this is the same thing twice"
        return Conclusion(short=short, why=f"It read {effect}, {lesson}.")
    if row.verdict == "inconclusive":
        few = row.replicates < FEWEST_REPLICATES
        short = "Too few replicates to say" if few else "Too noisy to say"
        return Conclusion(short=short, why=f"{measured}; {row.reason}.")
    is_price = tip.tip.is_price and row.effect_kind == "ratio"
    if tip.tip.is_followed and row.verdict in GAINS:
        return Conclusion(short="It is followed here without your doing", why=f"{measured}.")
    why = f"{measured}. {_SURE[row.verdict].format(margin=margin_text(row))}"
    if is_price and row.verdict in GAINS:
        why = f"{why} A price hardly is a gain: this shows how far the run's noise reaches."
    return Conclusion(short=_follow(row.verdict, row, is_price=is_price), why=why)


def _within(rows: Sequence[Effect]) -> str:
    """What A/A pairs teach: which effects are too small to see. It doesn't matter who is first."""
    ends = [end for row in rows for end in (row.ci_low, row.ci_high) if end]
    reach = max((max(end, 1 / end) for end in ends), default=None)
    if reach is None:
        return "which says little"
    return f"so an effect between {1 / reach:.2f}× and {reach:.2f}× means little here"


_SURE: dict[Verdict, str] = {
    "helps": "The whole 95 % interval lies beyond the margin ({margin}).",
    "hurts": "The whole 95 % interval lies beyond the margin ({margin}), on the worse side.",
    "no difference": "The 90 % interval lies inside the margin ({margin}).",
    "gain, size unclear": (
        "The 95 % interval excludes no effect, but reaches into the margin ({margin})."
    ),
    "loss, size unclear": (
        "The 95 % interval excludes no effect, but reaches into the margin ({margin})."
    ),
}


def _follow(verdict: Verdict, row: Effect, *, is_price: bool) -> str:
    if is_price:
        return {
            "helps": "No cost was seen here",
            "gain, size unclear": "No cost was seen here",
            "no difference": "It costs nothing here that matters",
            "loss, size unclear": "It costs something here, perhaps too little to matter",
            "hurts": f"It {_brief(row, is_price=True)} of the speed here",
        }[verdict]
    return {
        "helps": "Follow it here",
        "gain, size unclear": "It helps here, perhaps too little to matter",
        "no difference": "It makes no difference here",
        "loss, size unclear": "It hurts here, perhaps too little to matter",
        "hurts": "Don't follow it here",
    }[verdict]


def _pays_off(tip: TipReport, plan: Plan) -> Iterator[str]:
    """After how many epochs what is spent once has paid off, a sentence a variant that spends."""
    outlays = [
        metric.name for its in tip.tip.workloads for metric in its.metrics if metric.is_outlay
    ]
    rates = {row.variant: row for row in tip.rows if row.is_primary and row.effect is not None}
    images = plan.images.get("count")
    for row in tip.rows:
        rate = rates.get(row.variant)
        if images and rate and rate.baseline_value and row.value and row.metric in outlays:
            epoch = images / rate.baseline_value
            after, soonest, latest = (
                _epochs(row.value, epoch, gain) for gain in (rate.effect, rate.ci_high, rate.ci_low)
            )
            yield (
                f"“{row.variant}” spends {quantity(row.value, row.unit)} once, which pays off "
                f"after {after} epochs of {images:,} images (95 %: from {soonest} to {latest})."
            )


def _epochs(outlay: float, epoch: float, gain: float | None) -> str:
    """How many epochs of ``epoch`` seconds, ``gain`` times as fast then, save ``outlay``."""
    if gain is None:
        return "?"
    return "infinitely many" if gain <= 1 else f"{outlay / epoch / (1 - 1 / gain):.2g}"


def _best_other(rows: Sequence[Effect]) -> Effect | None:
    """The variant besides the recommended one that was seen to gain most, if any was."""
    gained = [
        row for row in rows if row.is_primary and not row.is_recommended and row.verdict in GAINS
    ]
    return max(gained, key=lambda row: row.effect or 0, default=None)


def _what_helped(rows: Sequence[Effect], prices: Collection[str]) -> str:
    tips = [row for row in rows if row.tip not in prices]
    sure = _by_size([row for row in tips if row.verdict == "helps"], largest_first=True)
    unclear = [row.tip for row in tips if row.verdict == "gain, size unclear"]
    parts = []
    if sure:
        first, *others = (f"{row.tip} at {_brief(row)}" for row in sure[:MOST_NAMED])
        then = f", then {listed(others)}" if others else ""
        more = f", and {len(sure) - MOST_NAMED} more helped" if len(sure) > MOST_NAMED else ""
        parts.append(f"What helped most is {first}{then}{more}")
    if unclear:
        parts.append(f"{listed(unclear, MOST_NAMED)} helped, perhaps too little to matter")
    return f"{'; '.join(parts)}." if parts else "No tip was seen to help here."


def _what_did_not(
    rows: Sequence[Effect],
    prices: Collection[str],
    checks: Sequence[Verdict | None],
    kept: Sequence[Effect],
) -> str:
    tips = [row for row in rows if row.tip not in prices]
    priced = [row for row in rows if row.tip in prices]
    parts = []
    if kept:
        already = [f"{row.tip} ({_brief(row)})" for row in kept]
        verb = "is" if len(kept) == 1 else "are"
        parts.append(f"{listed(already, MOST_NAMED)} {verb} followed here without your doing")
    if hurt := _by_size([row for row in tips if row.verdict in LOSSES], largest_first=False):
        worse = listed([f"{row.tip} ({_brief(row)})" for row in hurt], MOST_NAMED)
        parts.append(f"{worse} made things worse")
    costly = [row for row in priced if row.verdict in LOSSES]
    parts += [f"{row.tip} {_brief(row, is_price=True)} of the speed" for row in costly]
    if same := [row.tip for row in tips if row.verdict == "no difference"]:
        parts.append(f"{listed(same, MOST_NAMED)} made no difference")
    if free := [row.tip for row in priced if row.verdict == "no difference"]:
        parts.append(
            f"{listed(free, MOST_NAMED)} cost{'s' if len(free) == 1 else ''} nothing that matters"
        )
    unlikely = [row for row in priced if row.verdict in GAINS]
    parts += [f"{row.tip} {_brief(row, is_price=True)}, which must be noise" for row in unlikely]
    unclear = [row for row in rows if row.verdict == "inconclusive"]
    if noisy := sum(row.effect is not None for row in unclear):
        parts.append(f"{noisy} stayed inconclusive")
    if silent := [row.tip for row in unclear if row.effect is None]:
        parts.append(f"{listed(silent, MOST_NAMED)} gave no number")
    parts += _without_number(rows, checks)
    return f"Of the rest, {'; '.join(parts)}." if parts else "No other tip was measured."


def _what_ran(rows: Sequence[Effect], checks: Sequence[Verdict | None]) -> str:
    ran = sum(row.effect is not None for row in rows)
    ran += sum(verdict in ("pass", "warn", "fail") for verdict in checks)
    parts = [f"{ran} {'tip' if ran == 1 else 'tips'} ran"]
    if silent := sum(row.effect is None and row.verdict == "inconclusive" for row in rows):
        parts.append(f"{silent} gave no number")
    parts += _without_number(rows, checks)
    return f"{'; '.join(parts)}."


def _without_number(rows: Sequence[Effect], checks: Sequence[Verdict | None]) -> Iterator[str]:
    verdicts = [*(row.verdict for row in rows), *checks]
    if absent := verdicts.count("not measurable here"):
        yield f"{absent} cannot be measured on this machine"
    if failed := [row.tip for row in rows if row.verdict == "failed"]:
        yield f"{listed(failed, MOST_NAMED)} failed"


def _how_sure(effects: Sequence[Effect], report: Report) -> str:
    plan = report.plan
    intervals = [row for row in primary_pairs(effects) if row.ci_low is not None]
    if not intervals:
        return "How sure: not at all yet, since no interval could be taken."
    replicates = sorted({row.replicates for row in intervals})
    number = str(replicates[0]) if len(replicates) == 1 else f"{replicates[0]} to {replicates[-1]}"
    aa = [row for row in aa_rows(effects) if row.effect is not None]
    twice = ""
    if aa:
        told = listed([interval_text(row, is_price=False) for row in aa])
        is_quiet = all(row.verdict == "no difference" for row in aa)
        lesson = "as it should" if is_quiet else _within(aa)
        twice = f"; the same thing measured twice read {told}, {lesson}"
    disturbed = ""
    disturbing = (WarningKind.FLAGGED_TURNS, WarningKind.DISTURBED_ARMS)
    if any(warning.kind in disturbing for warning in report.warnings):
        disturbed = ", but this run was disturbed (see the warning), so trust it less"
    return (
        f"How sure: each 95 % interval, over {number} replicates and beside a margin of "
        f"±{percent(plan.margin)}, misses its true effect about one time in twenty by "
        f"chance{disturbed}{twice}."
    )


def _by_size(rows: Sequence[Effect], *, largest_first: bool) -> list[Effect]:
    """Ratios by size, then differences, whose units do not compare."""
    sign = -1 if largest_first else 1
    return sorted(rows, key=lambda row: (row.effect_kind != "ratio", sign * (row.effect or 0)))


def _brief(row: Effect, *, is_price: bool = False) -> str:
    """The effect without its interval: ``1.52×``, ``+1.2 points``, ``costs 4 %``."""
    return interval_text(row, is_price=is_price, with_interval=False)


def _sentence(text: str) -> str:
    """``text`` as a sentence; a first word that is a name in code keeps its small letter."""
    first = text.partition(" ")[0].rstrip(":,;")
    return f"{text[:1].upper() if first.isalpha() else text[:1]}{text[1:]}." if text else ""
