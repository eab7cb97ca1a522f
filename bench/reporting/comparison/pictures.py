"""The picture of a comparison: each tip's effect in each run, or over many machines."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.analysis.comparison import Run, order
from bench.analysis.distribution import Distribution
from bench.records.effects import Effect
from bench.reporting import drawing
from bench.reporting.comparison.machines import outcome, verdicts_text
from bench.reporting.drawing import EDGE, TITLE, WIDTH, Row
from bench.reporting.effect_axis import EffectAxis, effect_axes
from bench.reporting.model import label
from bench.reporting.units import NO_DATA, effect_text, estimate_text

LABELS_WIDTH = 2.6
WORDS_WIDTH = 3.1
PLOT_WIDTH = WIDTH - 2 * EDGE - LABELS_WIDTH - WORDS_WIDTH
INSIDE_WIDTH = PLOT_WIDTH + WORDS_WIDTH - 0.3
TICKS_HEIGHT = 0.6
KEY_HEIGHT = 0.3
DOTS_HEIGHT = 0.55

LOOKS = (
    ("o", drawing.BLUE),
    ("s", drawing.ORANGE),
    ("D", "#009E73"),
    ("^", "#CC79A7"),
    ("v", "#56B4E9"),
    ("P", drawing.DARK),
)
"""Marker and colour of each run: told by its shape too."""

_GOLDEN = (math.sqrt(5) - 1) / 2
"""Steps of this share fill a row evenly, and the same way each time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Part:
    """One axis with its rows; ``starts`` are those before which a faint line is drawn.

    ``draw`` gives how far from no effect it has drawn.
    """

    axis: EffectAxis
    rows: list[Row]
    starts: list[int]
    draw: Callable[[Axes], float]


def pairs_picture(runs: Sequence[Run]) -> Figure:
    """Each tip's effect with its interval, a line a run, on one axis."""
    ours = [
        {row.tip: row for row in run.rows if row.is_primary and row.is_recommended} for run in runs
    ]
    tips = {row.tip: row for rows in reversed(ours) for row in rows.values()}
    ordered = sorted(tips.values(), key=lambda row: order(row, row.variant))
    parts: list[_Part] = []
    for axis in effect_axes([row.margin for row in ordered if row.effect_kind == "ratio"]):
        lines = [
            [*_lines(runs, [its.get(first.tip) for its in ours])]
            for first in ordered
            if first.effect_kind == axis.kind
        ]
        if lines:
            placed = drawing.stack([row for its in lines for row, _ in its], pad=0.08)
            looks = [LOOKS[place] for its in lines for _, place in its]
            starts = list(itertools.accumulate(map(len, lines[:-1])))
            parts.append(
                _Part(axis=axis, rows=placed, starts=starts, draw=_of_runs(axis, placed, looks))
            )
    names = [f"{run.label} {run.facts.machine_name}" for run in runs]
    footer = (
        "Points: what each run recommends, on the tip's primary metric; lines: 95 % intervals over "
        f"replicates. Runs: {', '.join(f'{run.label} {run.facts.run_id}' for run in runs)}."
    )
    return _figure("What each tip is worth", parts, footer, names)


def machines_picture(found: Sequence[Distribution], runs: int) -> Figure:
    """Each tip's effects over machines: a dot a machine, a box from quartile to quartile."""
    headlines = [its for its in found if its.is_headline]
    parts: list[_Part] = []
    for axis in effect_axes([None]):
        its = [one for one in headlines if one.row.effect_kind == axis.kind]
        if its:
            placed = drawing.stack([_distribution_line(one) for one in its], pad=0.24)
            draw = _of_machines(axis, placed, its)
            starts = list(range(1, len(placed)))
            parts.append(_Part(axis=axis, rows=placed, starts=starts, draw=draw))
    machines = max((one.row.machines for one in headlines), default=0)
    footer = (
        f"{runs:,} runs; a tip was measured on up to {machines:,} machines. A dot a machine, at "
        "its measured effect; box: the middle half of them; line: the median."
    )
    return _figure("What each tip is worth, over machines", parts, footer, [])


def _lines(runs: Sequence[Run], its: Sequence[Effect | None]) -> Iterator[tuple[Row, int]]:
    """A tip's rows with the place of their run; runs that lack it for one reason share a row."""
    there = [row for row in its if row is not None]
    names = {label(row) for row in there}
    name = names.pop() if len(names) == 1 else there[0].tip
    named = drawing.wrap(name, LABELS_WIDTH - 0.1)
    absent: dict[str, list[int]] = {}
    for place, row in enumerate(its):
        if row is not None and row.effect is not None:
            own = "" if name == label(row) else f", {row.variant}"
            told = f"{runs[place].label} {effect_text(row)}{own}"
            yield Row(label=named, words=drawing.wrap(told, WORDS_WIDTH - 0.1), effect=row), place
            named = ""
        else:
            absent.setdefault(_why_absent(row), []).append(place)
    for why, places in absent.items():
        told = f"{', '.join(runs[place].label for place in places)}: {why}"
        yield Row(label=named, inside=drawing.wrap(told, INSIDE_WIDTH)), places[0]
        named = ""


def _why_absent(row: Effect | None) -> str:
    if row is None:
        return "not in this run"
    return ": ".join(part for part in (row.verdict, row.reason) if part) or NO_DATA


def _distribution_line(one: Distribution) -> Row:
    row = one.row
    name = row.tip if row.variant.startswith(("(", row.tip)) else f"{row.tip} ({row.variant})"
    named = drawing.wrap(name, LABELS_WIDTH - 0.1)
    if not one.effects:
        told = f"no machine measured it: {verdicts_text(row) or NO_DATA}"
        return Row(label=named, inside=drawing.wrap(told, INSIDE_WIDTH))
    middle = estimate_text(
        row.median, row.lower_quartile, row.upper_quartile, kind=row.effect_kind, unit=row.unit
    )
    words = "\n".join(drawing.wrap(part, WORDS_WIDTH - 0.1) for part in (middle, outcome(row)))
    return Row(label=named, words=words)


def _of_runs(
    axis: EffectAxis, placed: Sequence[Row], looks: Sequence[tuple[str, str]]
) -> Callable[[Axes], float]:
    """Draws each row's effect with the look of its run; gives how far from no effect it reaches."""

    def draw(axes: Axes) -> float:
        return max(
            axis.draw(axes, row, marker, color, is_filled=True)
            for row, (marker, color) in zip(placed, looks, strict=True)
        )

    return draw


def _of_machines(
    axis: EffectAxis, placed: Sequence[Row], found: Sequence[Distribution]
) -> Callable[[Axes], float]:
    """Draws each row's machines; gives how far from no effect they reach."""

    def draw(axes: Axes) -> float:
        reach = 0.0
        for row, one in zip(placed, found, strict=True):
            quartiles = (one.row.lower_quartile, one.row.median, one.row.upper_quartile)
            lower, middle, upper = (
                0.0 if quartile is None else axis.cut(axis.place(quartile, None))
                for quartile in quartiles
            )
            if not one.effects:
                continue
            room = min(row.height, DOTS_HEIGHT) - 0.1
            places = [axis.cut(axis.place(effect, None)) for effect in one.effects]
            heights = [
                row.center + room * ((number * _GOLDEN) % 1 - 0.5) for number in range(len(places))
            ]
            # As pixels: twenty thousand circles would make the SVG too large to open.
            axes.plot(
                places, heights, "o", color=drawing.SKY, ms=2.5, mew=0, alpha=0.6, rasterized=True
            )
            axes.barh(
                row.center, upper - lower, 0.6 * room, left=lower,
                fc="none", ec=drawing.DARK, lw=1.0, zorder=3,
            )  # fmt: skip
            axes.plot(
                [middle] * 2, [row.center - room / 2, row.center + room / 2],
                color=drawing.ORANGE, lw=2.0, zorder=4,
            )  # fmt: skip
            reach = max(reach, *map(abs, places))
        return reach

    return draw


def _figure(title: str, parts: Sequence[_Part], footer: str, names: Sequence[str]) -> Figure:
    """Title, key, the axes one below another, footer."""
    full = WIDTH - 2 * EDGE
    footer = drawing.wrap(footer, full)
    key = _key_lines(names, full)
    header = EDGE + 0.4 + len(key) * KEY_HEIGHT
    drawn = sum(drawing.total_height(part.rows) + TICKS_HEIGHT + EDGE for part in parts)
    figure = drawing.new_figure(header + drawn + drawing.text_height(footer) + EDGE)
    drawing.write_text(figure, EDGE, title, size=TITLE, weight="bold")
    for number, line in enumerate(key):
        _write_key(figure, EDGE + 0.4 + number * KEY_HEIGHT, line)
    top = header
    for part in parts:
        axis = part.axis
        tall = drawing.total_height(part.rows)
        axes = drawing.inches_axes(figure, EDGE + LABELS_WIDTH, top, PLOT_WIDTH, tall)
        drawing.write_rows(axes, part.rows)
        axis.begin(axes)
        axis.end(axes, part.draw(axes), PLOT_WIDTH + WORDS_WIDTH - 0.2)
        for row in (part.rows[start] for start in part.starts):
            axes.axhline(row.center - row.height / 2, color="#E6E6E6", lw=0.8)
        top += tall + TICKS_HEIGHT + EDGE
    drawing.write_text(figure, top, footer, color=drawing.FAINT)
    return figure


_Key = list[tuple[float, str, tuple[str, str]]]


def _key_lines(names: Sequence[str], inches: float) -> list[_Key]:
    """Which marker is which run: place, name and look, in as many lines as they need."""
    lines: list[_Key] = []
    left = 0.0
    for name, look in zip(names, LOOKS, strict=False):
        shown = drawing.wrap(name, inches - 0.4).split("\n")[0]
        width = 0.25 + drawing.text_width(shown) + 0.25
        if not lines or left + width > inches:
            lines.append([])
            left = 0.0
        lines[-1].append((left, shown, look))
        left += width
    return lines


def _write_key(figure: Figure, top: float, line: _Key) -> None:
    axes = drawing.inches_axes(figure, EDGE, top, WIDTH - 2 * EDGE, KEY_HEIGHT)
    axes.set_xlim(0, WIDTH - 2 * EDGE)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    axes.set_xticks([])
    axes.set_yticks([])
    for left, name, (marker, colour) in line:
        axes.plot(left + 0.1, 0.5, marker, color=colour, ms=6)
        axes.text(left + 0.25, 0.5, name, va="center")
