"""The picture of a whole run: each tip's effect with its interval, beside the margin."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.records.effects import Verdict
from bench.records.plan import SECTIONS
from bench.reporting import drawing
from bench.reporting.drawing import EDGE, TITLE, WIDTH, Row
from bench.reporting.effect_axis import EffectAxis, effect_axes
from bench.reporting.model import Report, TipReport, label
from bench.reporting.units import NO_DATA, interval_text

LABELS_WIDTH = 2.9
WORDS_WIDTH = 2.75
PLOT_WIDTH = WIDTH - 2 * EDGE - LABELS_WIDTH - WORDS_WIDTH
INSIDE_WIDTH = PLOT_WIDTH + WORDS_WIDTH - 0.3
TICKS_HEIGHT = 0.55

_LOOKS: dict[Verdict, tuple[str, str, bool]] = {
    "helps": ("o", drawing.BLUE, True),
    "gain, size unclear": ("o", drawing.BLUE, False),
    "hurts": ("s", drawing.ORANGE, True),
    "loss, size unclear": ("s", drawing.ORANGE, False),
    "no difference": ("D", drawing.DARK, True),
    "inconclusive": ("D", drawing.GREY, False),
}
"""Marker, colour, filled: a verdict is told by its shape too."""


def overview_picture(report: Report) -> Figure:
    """A row a tip, in the article's order: the recommended variant on the primary metric.

    A check has how often it passed instead.

    Ratios share one axis. Differences have another, counted in margins, since their units do
    not compare.
    """
    ratios = drawing.stack(list(_rows(report.tips, "ratio")))
    differences = drawing.stack(list(_rows(report.tips, "difference")))
    title = drawing.wrap(
        f"What each tip is worth on {report.machine_name}", WIDTH - 2 * EDGE, TITLE, "bold"
    )
    footer = drawing.wrap(_footer(report), WIDTH - 2 * EDGE)
    header = EDGE + drawing.text_height(title, TITLE) + 1.5 * EDGE
    height = header + drawing.text_height(footer) + EDGE
    for rows in (ratios, differences):
        if rows:
            height += drawing.total_height(rows) + TICKS_HEIGHT + EDGE
    figure = drawing.new_figure(height)
    drawing.write_text(figure, EDGE, title, size=TITLE, weight="bold")
    top = header
    for axis, rows in zip(effect_axes([report.plan.margin]), (ratios, differences), strict=True):
        if rows:
            tall = drawing.total_height(rows)
            axes = drawing.inches_axes(figure, EDGE + LABELS_WIDTH, top, PLOT_WIDTH, tall)
            drawing.write_rows(axes, rows)
            _draw(axis, axes, rows)
            top += tall + TICKS_HEIGHT + EDGE
    drawing.write_text(figure, top, footer, color=drawing.FAINT)
    return figure


def _rows(tips: Sequence[TipReport], kind: str) -> Iterator[Row]:
    for section in SECTIONS:
        those = [tip for tip in tips if tip.tip.section == section and _kind(tip) == kind]
        if those:
            heading = "A/A: the same thing twice" if section == "A/A" else section
            yield Row(label=drawing.wrap(heading, LABELS_WIDTH, weight="bold"), weight="bold")
        yield from (_row(tip) for tip in those)


def _kind(tip: TipReport) -> str:
    """On which axis a tip has its row; a check stands among the ratios, in words only."""
    return "ratio" if tip.tip.is_check else tip.headline.effect_kind


def _row(tip: TipReport) -> Row:
    if tip.tip.is_check:
        named = drawing.wrap(tip.tip.id, LABELS_WIDTH - 0.1)
        return Row(label=named, inside=drawing.wrap(tip.answers, INSIDE_WIDTH))
    effect = tip.headline
    name = effect.tip if effect.section == "A/A" else label(effect)
    named = drawing.wrap(name, LABELS_WIDTH - 0.1)
    if effect.effect is None:
        absent = f"{effect.verdict}: {effect.reason}" if effect.reason else NO_DATA
        return Row(label=named, inside=drawing.wrap(absent, INSIDE_WIDTH))
    number = interval_text(effect, is_price=tip.tip.is_price)
    words = drawing.wrap(f"{number} {effect.verdict}", WORDS_WIDTH - 0.1)
    if drawing.line_count(words) > 1:
        words = "\n".join(
            drawing.wrap(part, WORDS_WIDTH - 0.1) for part in (number, str(effect.verdict))
        )
    return Row(label=named, words=words, effect=effect)


def _draw(axis: EffectAxis, axes: Axes, rows: Sequence[Row]) -> None:
    """Draw each row's effect with the look of its verdict, and a line above each heading."""
    axis.begin(axes)
    reach = 0.0
    for row in rows:
        if row.effect is not None and row.effect.verdict in _LOOKS:
            marker, color, is_filled = _LOOKS[row.effect.verdict]
            reach = max(reach, axis.draw(axes, row, marker, color, is_filled=is_filled))
        if row.weight == "bold" and row.center > row.height:
            axes.axhline(row.center - row.height / 2, color="#E6E6E6", lw=0.8)
    axis.end(axes, reach, PLOT_WIDTH + WORDS_WIDTH - 0.2)


def _footer(report: Report) -> str:
    facts = dict(report.machine)
    parts = [facts[name] for name in ("CPU", "GPU") if name in facts]
    parts += [f"{name} {facts[name]}" for name in ("torch", "Python") if name in facts]
    return (
        "Points: the variant that the article recommends, on the tip's primary metric; lines: "
        "95 % intervals over replicates. Filled: helps, hurts or no difference; hollow: size "
        f"unclear or inconclusive. {' · '.join(parts)} · {report.plan.profile} run "
        f"{report.plan.run_id}"
    )
