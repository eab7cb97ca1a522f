"""The page over two to six runs: each beside the first, tip by tip."""

from collections.abc import Iterator, Sequence

from bench.analysis.comparison import Run
from bench.analysis.fairness import Variation, unknown_in_all, variations
from bench.analysis.gate import Gate
from bench.records.compared import ChangeVerdict, ComparedEffect
from bench.reporting.comparison.page import (
    BETWEEN_RUNS,
    Page,
    Picture,
    Section,
    Table,
    by_reason,
    gate_section,
)
from bench.reporting.units import estimate_text, listed, percent, quantity

_MORE: tuple[ChangeVerdict, ...] = ("larger", "larger, size unclear")
_LESS: tuple[ChangeVerdict, ...] = ("smaller", "smaller, size unclear")


def pairs_page(
    runs: Sequence[Run], compared: Sequence[Sequence[ComparedEffect]], gate: Gate | None
) -> Page:
    """The page of ``runs``, the first of them the reference; ``compared`` is of each other one."""
    reference = runs[0]
    machines = [f"{run.facts.machine_name} ({run.label})" for run in runs]
    found = variations(runs)
    sections = [
        Section(title="Runs", table=_runs(runs)),
        Section(
            title="What else differs",
            sentences=(*_unknown(runs), *(() if found else ("Nothing that is known.",))),
            table=_variations(runs, found) if found else None,
        ),
    ]
    if gate is not None:
        sections.insert(0, gate_section(gate))
    for rows in compared:
        other = rows[0].other
        first = other == runs[1].label
        headlines = [row for row in rows if _is_headline(row)]
        sections.append(
            Section(
                title=f"What each tip is worth: {other} against {reference.label}",
                sentences=(
                    *((_how_read(other, reference.label),) if first else ()),
                    *_one_sided(headlines),
                    *_elsewhere(rows, headlines),
                ),
                picture=Picture(
                    name="compare",
                    shows="Each tip's effect with its 95 % interval, a marker a run",
                )
                if first
                else None,
                table=_effects(headlines, where=False),
                is_main=True,
            )
        )
    for rows in compared:
        sections.append(_values(rows))
    for rows in compared:
        others = [row for row in rows if not _is_headline(row) and not row.is_baseline]
        if others:
            sections.append(
                Section(
                    title=f"All other effects: {rows[0].other} against {reference.label}",
                    sentences=tuple(_one_sided(others)),
                    table=_effects(others, where=True),
                    is_folded=True,
                )
            )
    sections.append(Section(title="Method and limits", sentences=_METHOD))
    return Page(
        title=f"{listed(machines[1:])} compared with {machines[0]}",
        summary=(
            *(_found(rows) for rows in compared),
            _fairness(runs, found),
            _how_sure(compared),
        ),
        sections=tuple(sections),
    )


_METHOD = (
    "An effect is what a tip is worth inside one run: the ratio (or the difference) of the variant "
    "and its baseline, measured in turns. Compared are these effects: the difference of their "
    "logarithms (of the differences themselves), with the two standard errors combined and "
    "Welch and Satterthwaite's degrees of freedom.",
    "larger, smaller: the 95 % interval of the change lies beyond the margin, which is that of the "
    "reference; no difference: the 90 % interval lies inside it; size unclear: the 95 % interval "
    "excludes no change, and the change may be one too small to matter; inconclusive: none of "
    "these. Intervals are not corrected for their number.",
    "Variants pair by name. Where a tip recommends another variant on another machine, what is "
    "recommended is compared with what is recommended there.",
)


def _is_headline(row: ComparedEffect) -> bool:
    return row.is_primary and row.is_recommended


def _runs(runs: Sequence[Run]) -> Table:
    head = ("", "Machine", "CPU", "Cores", "GPU", "torch", "Profile", "Run")
    rows = [
        (
            run.label,
            run.facts.machine_name,
            run.facts.cpu_model or "not known",
            str(run.facts.usable_cores or "not known"),
            run.facts.gpu_model or "none",
            run.facts.torch_version or "not known",
            run.facts.profile,
            run.facts.run_id,
        )
        for run in runs
    ]
    return Table(head=head, rows=tuple(rows), numbers=(3,))


def _variations(runs: Sequence[Run], found: Sequence[Variation]) -> Table:
    rows = []
    for variation in found:
        by_place = {place: value for value, its in variation.values for place in its}
        fair = "unfair" if variation.is_unfair else "fair"
        says = variation.fact.confounds or "The machine: this is what is compared."
        values = (value_text(variation, by_place[place]) for place in range(len(runs)))
        rows.append((variation.fact.name, *values, fair, says))
    head = ("What", *(run.label for run in runs), "Fair?", "Why")
    return Table(head=head, rows=tuple(rows))


def value_text(variation: Variation, value: str | int | None) -> str:
    """One value of a fact that runs differ in."""
    if value is None:
        return "not known" if variation.fact.kind == "settings" else "none"
    return str(value)[:8] if variation.fact.column == "images_checksum" else str(value)


def _unknown(runs: Sequence[Run]) -> Iterator[str]:
    if unknown := unknown_in_all(runs):
        names = listed([fact.name.lower() for fact in unknown])
        yield f"Not known in any of the runs, so perhaps not the same: {names}."


def _how_read(other: str, reference: str) -> str:
    return (
        f"{other} / {reference} is the effect in {other} divided by that in {reference}; "
        f"above 1× the tip is worth more in {other}."
    )


def _is_in_both(row: ComparedEffect) -> bool:
    return row.reference_variant is not None and row.other_variant is not None


def _one_sided(rows: Sequence[ComparedEffect]) -> Iterator[str]:
    """What only one of the two runs holds; the table leaves it out."""
    for run, missing in (("reference", "other_variant"), ("other", "reference_variant")):
        its = [row for row in rows if getattr(row, missing) is None]
        tips = list(dict.fromkeys(row.tip for row in its))
        if tips:
            number = "" if len(its) == len(tips) else f"{len(its)} rows of "
            yield f"Only in {getattr(rows[0], run)}: {number}{listed(tips)}."


def _elsewhere(
    rows: Sequence[ComparedEffect], headlines: Sequence[ComparedEffect]
) -> Iterator[str]:
    """The tips whose main results are of different work: on a GPU and on a CPU, perhaps."""
    shown = {row.tip for row in headlines}
    recommended = dict.fromkeys(row.tip for row in rows if row.is_recommended)
    if tips := [tip for tip in recommended if tip not in shown]:
        yield f"Measured by different work in the two runs, so below: {listed(tips)}."


def _effects(rows: Sequence[ComparedEffect], *, where: bool) -> Table | None:
    """A row an effect that both runs hold; ``where`` names its workload and metric too."""
    rows = [row for row in rows if _is_in_both(row)]
    if not rows:
        return None
    reference, other = rows[0].reference, rows[0].other
    head = [
        *("Tip\nvariant", "Workload\nmetric", reference, other),
        *(f"{other} / {reference} [95 %]", "Verdict\nreason"),
    ]
    cells = []
    for row in rows:
        change = estimate_text(
            row.effect_change,
            row.effect_change_ci_low,
            row.effect_change_ci_high,
            kind=row.effect_kind,
            unit=row.unit,
        )
        cells.append(
            [
                *(f"{row.tip}\n{row.variant}", f"{row.workload}\n{row.metric}"),
                *(_side(row, "reference"), _side(row, "other"), change),
                f"{row.verdict}\n{row.reason or ''}".strip(),
            ]
        )
    if not where:
        for line in (head, *cells):
            del line[1]
    return Table(
        head=tuple(head),
        rows=tuple(map(tuple, cells)),
        codes=(0,),
        verdicts=(len(head) - 1,),
    )


def _side(row: ComparedEffect, side: str) -> str:
    effect, low, high, verdict = (
        getattr(row, f"{side}_{name}") for name in ("effect", "ci_low", "ci_high", "verdict")
    )
    told = estimate_text(effect, low, high, kind=row.effect_kind, unit=row.unit)
    return told or verdict or "no effect"


def _values(rows: Sequence[ComparedEffect]) -> Section:
    """Values against values, where both did the same work; else why not."""
    reference, other = rows[0].reference, rows[0].other
    its = [row for row in rows if row.is_primary and (row.is_baseline or row.is_recommended)]
    same = [row for row in its if row.value_change is not None]
    table = Table(
        head=(
            *("Tip\nvariant", "Workload", reference, other),
            f"{other} / {reference} [95 %], more is better",
        ),
        rows=tuple(
            (
                f"{row.tip}\n{row.variant}",
                row.workload,
                quantity(row.reference_value, row.unit),
                quantity(row.other_value, row.unit),
                estimate_text(
                    row.value_change,
                    row.value_change_ci_low,
                    row.value_change_ci_high,
                    kind=row.effect_kind,
                    unit=row.unit,
                ),
            )
            for row in same
        ),
        numbers=(2, 3),
        codes=(0,),
    )
    why_not = by_reason(
        (f"{row.tip} ({row.variant})", row.value_reason) for row in its if row.value_reason
    )
    return Section(
        title=f"Values themselves: {other} against {reference}",
        sentences=(
            *((BETWEEN_RUNS,) if same else ()),
            *(f"Not compared: {told}" for told in why_not),
        ),
        table=table if same else None,
    )


def _found(rows: Sequence[ComparedEffect]) -> str:
    """What one run showed against the reference, in a sentence."""
    other, reference = rows[0].other, rows[0].reference
    headlines = [row for row in rows if _is_headline(row) and row.section != "A/A"]

    compared = [row for row in headlines if row.effect_change_ci_low is not None]

    def those(*verdicts: ChangeVerdict) -> list[str]:
        return [row.tip for row in compared if row.verdict in verdicts]

    if not compared:
        return f"No tip has an interval in both {reference} and {other}, so none can be compared."
    parts = []
    if more := those(*_MORE):
        parts.append(f"worth more in {other}: {listed(more, 6)}")
    if less := those(*_LESS):
        parts.append(f"worth less: {listed(less, 6)}")
    if same := those("no difference"):
        parts.append(f"no difference: {listed(same, 6)}")
    if unclear := those("inconclusive"):
        parts.append(f"inconclusive: {len(unclear)}")
    tips = "1 tip" if len(compared) == 1 else f"{len(compared)} tips"
    return f"Of {tips} compared between {reference} and {other}, {'; '.join(parts)}."


def _fairness(runs: Sequence[Run], found: Sequence[Variation]) -> str:
    names = [variation.fact.name for variation in found if variation.is_unfair]
    same = len({run.facts.machine_id for run in runs}) == 1
    whose = "All runs are of one machine." if same else "The runs are of different machines."
    if names:
        return (
            f"{whose} Software or settings differ ({listed(names)}), so what differs may come "
            "from these."
        )
    return f"{whose} All software and settings that are known are the same."


def _how_sure(compared: Sequence[Sequence[ComparedEffect]]) -> str:
    number = sum(
        row.effect_change_ci_low is not None
        for rows in compared
        for row in rows
        if _is_headline(row)
    )
    margins = sorted(
        {
            row.margin
            for rows in compared
            for row in rows
            if row.effect_kind == "ratio" and row.margin is not None
        }
    )
    told = f", margin ±{listed([percent(margin) for margin in margins])}" if margins else ""
    if not number:
        return "No change has an interval, so nothing is sure."
    return (
        f"Of changes shown with an interval (95 %{told}), {number} here, about one in twenty "
        "misses the truth by chance."
    )
