"""The page that a comparison comes to: sentences and tables of plain text, for any output."""

import dataclasses
from collections import Counter
from collections.abc import Iterable

from bench.analysis.gate import Gate
from bench.reporting.units import listed, percent

MOST_ROWS = 30
"""A table of more rows is folded on the page where it isn't the main one, and cut on the screen."""

_MOST_NAMED = 6
"""So many names stand in one sentence."""

BETWEEN_RUNS = (
    "Values vary more between runs than within one: the machine's state, what else ran and where "
    "memory lay are new with each run, and these intervals hold only what varied within. Effects "
    "are ratios inside a run and do not suffer from this. Take a small change of a value seriously "
    "only when further runs repeat it."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Cells of plain text; what stands below a cell's first line is detail, not for the screen.

    ``numbers``: columns aligned at the right; ``codes``: of code; ``verdicts``: of verdicts on a
    change.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    verdicts: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture below ``figures/``: its file's name without the ending, and what it shows."""

    name: str
    shows: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what stands below it, in this order; ``is_main`` is for the screen too.

    ``is_folded``: long, and opened only by who wants it.
    """

    title: str
    sentences: tuple[str, ...] = ()
    picture: Picture | None = None
    table: Table | None = None
    is_folded: bool = False
    is_main: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """All that a comparison says, as plain text."""

    title: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]


def gate_section(gate: Gate) -> Section:
    """What ``--fail-if-slower`` found."""
    bound = percent(gate.bound)
    seen = gate.smallest_seen
    found = (
        f"{len(gate.slower) or 'None'} of {len(gate.looks):,} results compared: worse by more "
        f"than {bound}, with the whole 95 % interval. A tip is also worth less where only its "
        "baseline has become faster."
    )
    sees = (
        f"To be found, a slow-down had to reach {percent(round(seen[0], 3))} where the interval is "
        f"narrowest, {percent(round(seen[len(seen) // 2], 3))} in the middle, and "
        f"{percent(round(seen[-1], 3))} where it is widest."
    )
    rows = [
        (look.row.other, look.what, f"{look.ratio:.3f} [{look.low:.3f}, {look.high:.3f}]")
        for look in gate.slower
    ]
    head = ("Run", "Worse", f"Ratio to {gate.looks[0].row.reference} [95 %]")
    return Section(
        title=f"Worth less, or slower, by more than {bound}?",
        sentences=(found, sees, *_not_looked_at(gate)),
        table=Table(head=head, rows=tuple(rows)) if rows else None,
        is_main=True,
        is_folded=len(rows) > MOST_ROWS,
    )


def _not_looked_at(gate: Gate) -> list[str]:
    """What a run lacks, by reason; among many runs only how often."""
    told = by_reason(gate.missing)
    if len(told) <= _MOST_NAMED:
        return [f"Not looked at: {one}" for one in told]
    often = Counter(what for what, _ in gate.missing).most_common(5)
    return [
        f"Not looked at, since one of the two runs lacks it or did it with other settings: "
        f"{len(gate.missing):,} results, most often "
        f"{listed([f'{what} ({count:,})' for what, count in often])}."
    ]


def by_reason(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """(what, reason) pairs as a sentence a reason, with all that it holds for."""
    grouped: dict[str, list[str]] = {}
    for what, reason in pairs:
        its = grouped.setdefault(reason, [])
        if what not in its:
            its.append(what)
    return [f"{reason}: {listed(its, _MOST_NAMED)}." for reason, its in grouped.items()]
