"""The page over many runs: how each effect varies over machines."""

from collections.abc import Sequence

from bench.analysis.comparison import Run, on_scale
from bench.analysis.distribution import Distribution, counted
from bench.analysis.fairness import FACTS, Variation, variations
from bench.analysis.gate import Gate
from bench.records.compared import EffectDistribution
from bench.records.effects import Verdict
from bench.reporting.comparison.page import Page, Picture, Section, Table, gate_section
from bench.reporting.comparison.pairs import value_text
from bench.reporting.units import estimate_text, listed

_TOLD: tuple[tuple[Verdict, str], ...] = (
    ("helps", "helps"),
    ("gain, size unclear", "gain unclear"),
    ("no difference", "no difference"),
    ("inconclusive", "inconclusive"),
    ("loss, size unclear", "loss unclear"),
    ("hurts", "hurts"),
    ("pass", "pass"),
    ("warn", "warn"),
    ("fail", "fail"),
    ("failed", "failed"),
    ("not measurable here", "not measurable"),
)

_BETTER: tuple[Verdict, ...] = ("helps", "gain, size unclear")
_WORSE: tuple[Verdict, ...] = ("hurts", "loss, size unclear")

MOST_VALUES = 6
"""So many values of a fact are named with their number of runs; the rest are counted."""


def machines_page(runs: Sequence[Run], found: Sequence[Distribution], gate: Gate | None) -> Page:
    """The page of ``runs`` and the distributions of their effects over machines."""
    machines = len({run.facts.machine_id for run in runs})
    varied = variations(runs)
    headlines = [its.row for its in found if its.is_headline]
    others = [its.row for its in found if not its.is_headline and not its.row.is_baseline]
    sections = [
        Section(title="Runs and machines", sentences=_same(runs, varied), table=_facts(varied)),
        Section(
            title="What each tip is worth",
            sentences=(
                "Each machine counts once, with the variant that its run recommends. Typical: the "
                "mean over machines with its 95 % interval; 95 % of machines: where their own true "
                "effects lie, noise taken out. Better: helps, or gain, size unclear; worse: hurts, "
                "or loss, size unclear; same: no difference; unclear: inconclusive.",
            ),
            picture=Picture(
                name="compare",
                shows="Each tip's effect: a dot a machine, the quartiles as a box",
            ),
            table=_headlines(headlines) if headlines else None,
            is_main=True,
        ),
        Section(title="Method and limits", sentences=_METHOD),
    ]
    if others:
        sections.insert(
            2,
            Section(
                title="All other effects and checks",
                table=_others(others),
                is_folded=True,
            ),
        )
    if gate is not None:
        sections.insert(0, gate_section(gate))
    return Page(
        title=f"What each tip is worth on {machines:,} machines",
        summary=(
            f"{len(runs):,} runs of {machines:,} machines."
            + (" Several runs of one machine count as one." if machines < len(runs) else ""),
            *_summary(headlines),
            _fairness(varied),
        ),
        sections=tuple(sections),
    )


_METHOD = (
    "An effect is what a tip is worth inside one run: the ratio (or the difference) of the variant "
    "and its baseline, measured in turns. Quartiles and extremes are of the effects as they were "
    "measured, noise included. Where a machine has several runs, its effect is the mean of theirs.",
    "Typical effect and range are those of a random-effects model in which every machine weighs "
    "the same; the variance between machines is what their spread has beyond their own noise. The "
    "model takes the machines for a random draw, which people who send files are not, and the "
    "logarithms of the effects for normal, which a mix of laptops and servers may not be: look at "
    "the picture.",
    "A variant's row holds the machines that measured it against the same baseline. Values "
    "themselves (images a second) are not compared here.",
)


def _facts(varied: Sequence[Variation]) -> Table | None:
    rows = []
    for variation in varied:
        told = [
            f"{value_text(variation, value)} ({len(places):,})"
            for value, places in variation.values[:MOST_VALUES]
        ]
        if rest := variation.values[MOST_VALUES:]:
            told.append(f"{len(rest):,} more ({sum(len(its) for _, its in rest):,})")
        fair = "unfair" if variation.is_unfair else "fair"
        says = variation.fact.confounds or "The machine: this is what is compared."
        rows.append((variation.fact.name, ", ".join(told), fair, says))
    head = ("What differs", "Values (runs)", "Fair?", "Why")
    return Table(head=head, rows=tuple(rows)) if rows else None


def _same(runs: Sequence[Run], varied: Sequence[Variation]) -> tuple[str, ...]:
    differ = {variation.fact for variation in varied}
    told = [
        f"{fact.name} {value}"
        for fact in FACTS
        if fact not in differ
        and fact.column != "images_checksum"
        and (value := getattr(runs[0].facts, fact.column)) is not None
    ]
    return (f"The same in all runs: {', '.join(told)}.",) if told else ()


def _headlines(rows: Sequence[EffectDistribution]) -> Table:
    head = (
        *("Tip\nvariant", "Machines", "Better", "Same", "Worse", "Unclear"),
        *_SPREAD,
    )
    cells = []
    for row in rows:
        absent = machines_with(row, "not measurable here", "failed")
        counts = (
            machines_with(row, *_BETTER),
            row.no_difference_machines,
            machines_with(row, *_WORSE),
            row.inconclusive_machines,
        )
        cells.append(
            (
                f"{row.tip}\n{row.variant}",
                f"{row.machines:,}" + (f"\n{absent:,} could not" if absent else ""),
                *(f"{count:,}" for count in counts),
                *_spread(row),
            )
        )
    return Table(head=head, rows=tuple(cells), numbers=(1, 2, 3, 4, 5), codes=(0,))


def _others(rows: Sequence[EffectDistribution]) -> Table:
    head = ("Tip\nvariant", "Workload\nmetric", "Machines", "Verdicts", *_SPREAD)
    cells = (
        (
            *(f"{row.tip}\n{row.variant}", f"{row.workload}\n{row.metric}", f"{row.machines:,}"),
            *(verdicts_text(row), *_spread(row)),
        )
        for row in rows
    )
    return Table(head=head, rows=tuple(cells), numbers=(2,), codes=(0,))


_SPREAD = ("Median [quartiles]\nleast to most", "Typical [95 %]\n95 % of machines")


def _spread(row: EffectDistribution) -> tuple[str, ...]:
    """The cells below :data:`_SPREAD`."""
    typical = _estimate(
        row, row.typical_effect, row.typical_effect_ci_low, row.typical_effect_ci_high
    )
    middle = _estimate(row, row.median, row.lower_quartile, row.upper_quartile)
    reach = _range(row, row.machines_low, row.machines_high) or row.reason or ""
    return (
        f"{middle}\n{_range(row, row.minimum, row.maximum)}".strip(),
        f"{typical}\n{reach}".strip(),
    )


def machines_with(row: EffectDistribution, *verdicts: Verdict) -> int:
    """How many machines have one of ``verdicts``."""
    return sum(getattr(row, counted(verdict)) for verdict in verdicts)


def outcome(row: EffectDistribution) -> str:
    """How it went in few words: ``better on 402, worse on 410, no difference on 100 of 947``."""
    counts = (
        ("better", machines_with(row, *_BETTER)),
        ("worse", machines_with(row, *_WORSE)),
        ("no difference", row.no_difference_machines),
        ("inconclusive", row.inconclusive_machines),
    )
    told = ", ".join(f"{words} on {count:,}" for words, count in counts if count)
    return f"{told} of {row.machines:,}"


def verdicts_text(row: EffectDistribution) -> str:
    """How many machines got each verdict: ``helps 812, inconclusive 58``."""
    counts = ((words, getattr(row, counted(verdict))) for verdict, words in _TOLD)
    return ", ".join(f"{words} {count:,}" for words, count in counts if count)


def _estimate(
    row: EffectDistribution, middle: float | None, low: float | None, high: float | None
) -> str:
    return estimate_text(middle, low, high, kind=row.effect_kind, unit=row.unit)


def _range(row: EffectDistribution, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    low_text, high_text = (
        estimate_text(end, None, None, kind=row.effect_kind, unit="") for end in (low, high)
    )
    unit = "" if row.effect_kind == "ratio" else f" {row.unit}"
    return f"{low_text} to {high_text}{unit}"


def _summary(headlines: Sequence[EffectDistribution]) -> tuple[str, ...]:
    rows = [row for row in headlines if row.section != "A/A" and row.machines]
    if not rows:
        return ("No tip was measured on any of them.",)
    rows.sort(key=_smallness)

    def on_most(*verdicts: Verdict) -> list[str]:
        return [row.tip for row in rows if 2 * machines_with(row, *verdicts) > row.machines]

    parts = [
        f"{listed(names, 5)} {says}"
        for names, says in (
            (on_most(*_BETTER), "help"),
            (on_most("no difference"), "make no difference"),
            (on_most(*_WORSE), "hurt"),
        )
        if names
    ]
    if not parts:
        return ("No tip has the same verdict on most of the machines that measured it.",)
    return (f"On most of the machines that measured them, {'; '.join(parts)}.",)


def _smallness(row: EffectDistribution) -> tuple[bool, float]:
    """Sorts ratios before differences, whose units do not compare, and the largest first."""
    size = 0.0 if row.median is None else abs(on_scale(row.effect_kind, row.median))
    return row.effect_kind != "ratio", -size


def _fairness(varied: Sequence[Variation]) -> str:
    names = [variation.fact.name for variation in varied if variation.is_unfair]
    if not names:
        return "All software and settings that are known are the same."
    return (
        f"Software or settings differ ({listed(names)}), so what differs between machines may "
        "come from these."
    )
