"""The picture of a run's course: what ran when, flagged turns, load and the GPU's state."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.analysis.course import TEMPERATURE_BAND, Course
from bench.analysis.noise import flags
from bench.reporting import drawing
from bench.reporting.drawing import EDGE, LINE, TITLE, WIDTH, Row
from bench.reporting.model import Report
from bench.reporting.units import NO_DATA

LABELS_WIDTH = 2.2
WORDS_WIDTH = 1.0
PLOT_WIDTH = WIDTH - 2 * EDGE - LABELS_WIDTH - WORDS_WIDTH
CURVE_HEIGHT = 0.85
NONE_HEIGHT = LINE + 0.1
TITLE_HEIGHT = 0.36
TICKS_HEIGHT = 0.5
LINED_UP = 0.06
"""Inches between the rows of a panel beside their text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """One part of the picture: ``draw`` fills axes that are ``height`` inches high."""

    title: str
    height: float
    draw: Callable[[Axes], None]


def course_picture(report: Report) -> Figure:
    """What ran when, flagged turns, and the monitors' readings, above one axis of time.

    A reading that no turn has is "no data". Without dates the axis counts turns and says so.
    """
    course = report.course
    panels = list(_panels(course))
    footer = drawing.wrap(_footer(report), WIDTH - 2 * EDGE)
    above = EDGE + drawing.text_height("", TITLE) + EDGE
    needed = sum(TITLE_HEIGHT + panel.height + EDGE for panel in panels) + TICKS_HEIGHT
    figure = drawing.new_figure(above + needed + drawing.text_height(footer) + EDGE)
    drawing.write_text(figure, EDGE, "Course of the run", size=TITLE, weight="bold")
    low, high = _span(course)
    top = above
    for panel in panels:
        top += TITLE_HEIGHT
        left = EDGE + LABELS_WIDTH
        axes = drawing.inches_axes(figure, left, top, PLOT_WIDTH, panel.height)
        axes.set_title(panel.title)
        axes.set_xlim(low, high)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=not course.has_dates))
        axes.xaxis.set_major_formatter(FuncFormatter(drawing.tick_text))
        axes.tick_params(labelbottom=panel is panels[-1])
        for pause in course.pauses:
            axes.axvline(pause, color=drawing.DARK, lw=0.8, ls="--")
        panel.draw(axes)
        top += panel.height + EDGE
    axes.set_xlabel(_axis(course))
    drawing.write_text(figure, above + needed, footer, color=drawing.FAINT)
    return figure


def _panels(course: Course) -> Iterator[Panel]:
    turns = course.turns
    yield _rows_panel("What ran when", turns, "tip", _draw_replicates, "no turn was measured")
    flagged = flags(turns)
    yield _rows_panel("Flagged turns", flagged, "flag", _draw_flags, "no turn was flagged")
    yield _reading(turns, "Other processes' CPU load, % of a core", "foreign_cpu_percent")
    yield _reading(turns, "GPU clock, MHz", "gpu_sm_clock_mhz")
    band = f"{TEMPERATURE_BAND[0]:.0f}–{TEMPERATURE_BAND[1]:.0f} °C"
    yield _reading(
        turns,
        f"GPU temperature, °C (band: the article's {band})",
        "gpu_temperature_celsius",
        band=TEMPERATURE_BAND,
    )
    yield _reading(turns, "GPU power, W", "gpu_power_watts")


def _rows_panel(
    title: str,
    turns: pd.DataFrame,
    column: str,
    draw: Callable[[Axes, float, pd.DataFrame], None],
    none: str,
) -> Panel:
    """A row for each value of ``column``, with its number of turns at the right."""
    if turns.empty:
        return Panel(title=title, height=NONE_HEIGHT, draw=lambda axes: _say(axes, none))
    groups = dict(list(turns.groupby(column, sort=False)))
    rows = drawing.stack(
        [
            Row(
                label=drawing.wrap(str(name), LABELS_WIDTH - 0.1),
                words=drawing.wrap(_turns(len(its)), WORDS_WIDTH - 0.1),
            )
            for name, its in groups.items()
        ],
        pad=LINED_UP,
    )

    def draw_rows(axes: Axes) -> None:
        drawing.write_rows(axes, rows)
        for row, its in zip(rows, groups.values(), strict=True):
            draw(axes, row.center, its)

    return Panel(title=title, height=drawing.total_height(rows), draw=draw_rows)


def _draw_replicates(axes: Axes, center: float, turns: pd.DataFrame) -> None:
    """A bar from the first turn of each replicate to its last, dark and pale in turns."""
    for _, its in turns.groupby(["workload", "replicate"], sort=False):
        first, last = its["place"].min(), its["place"].max()
        colour = drawing.SKY if its["replicate"].iloc[0] % 2 else drawing.BLUE
        axes.barh(center, last - first, LINE / 2, left=first, color=colour, ec=colour, lw=0.8)


def _draw_flags(axes: Axes, center: float, turns: pd.DataFrame) -> None:
    axes.plot(
        turns["place"], [center] * len(turns), "|", color=drawing.ORANGE, ms=9, mew=1.2,
        rasterized=True,
    )  # fmt: skip


def _reading(
    turns: pd.DataFrame, title: str, column: str, band: Sequence[float] | None = None
) -> Panel:
    known = turns[turns[column].notna()]
    if known.empty:
        return Panel(title=title, height=NONE_HEIGHT, draw=lambda axes: _say(axes, NO_DATA))

    def draw(axes: Axes) -> None:
        if band is not None:
            axes.axhspan(*band, color=drawing.BAND, lw=0)
        # Thousands of points would make a heavy SVG.
        axes.plot(known["place"], known[column], ".", color=drawing.BLUE, ms=3, rasterized=True)
        ends = [known[column].min(), known[column].max(), *(band or ())]
        low, high = min(ends), max(ends)
        pad = 0.08 * (high - low) or 1.0
        axes.set_ylim(0.0 if 0 <= low < 0.5 * high else low - pad, high + pad)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        axes.yaxis.set_major_formatter(FuncFormatter(drawing.tick_text))
        axes.grid(axis="y")
        axes.text(
            1 + 0.08 / PLOT_WIDTH, 0.5, drawing.wrap(_turns(len(known)), WORDS_WIDTH - 0.1),
            transform=axes.transAxes, va="center",
        )  # fmt: skip

    return Panel(title=title, height=CURVE_HEIGHT, draw=draw)


def _say(axes: Axes, words: str) -> None:
    """Words where nothing can be drawn."""
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.text(0, 0.5, words, transform=axes.transAxes, va="center", color=drawing.FAINT)


def _span(course: Course) -> tuple[float, float]:
    if course.turns.empty:
        return 0.0, 1.0
    low, high = float(course.turns["place"].min()), float(course.turns["place"].max())
    pad = 0.01 * (high - low) or 0.5
    return low - pad, high + pad


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number:,} turns"


def _axis(course: Course) -> str:
    if not course.has_dates:
        return "turns, in their order (this run's file has no dates)"
    paused = "; dashed: stopped, and resumed later" if course.pauses else ""
    return f"minutes since the first turn ended{paused}"


def _footer(report: Report) -> str:
    return (
        "Bars: from a replicate's first turn to its last, dark and pale in turns. Points: a "
        "reading at the end of a turn (the CPU load: over the turn). Flagged turns are kept in all "
        f"figures. {report.machine_name} · {report.plan.profile} run {report.plan.run_id}"
    )
