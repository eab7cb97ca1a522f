"""The picture of a whole run: each tip's effect with its interval, beside the margin."""

import math
from collections.abc import Callable, Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.records.effects import Effect, Verdict
from bench.records.plan import SECTIONS
from bench.reporting import drawing
from bench.reporting.drawing import EDGE, TITLE, WIDTH, Row
from bench.reporting.model import Report, TipReport, label
from bench.reporting.units import NO_DATA, interval_text, percent

LABELS_WIDTH = 2.9
WORDS_WIDTH = 2.75
PLOT_WIDTH = WIDTH - 2 * EDGE - LABELS_WIDTH - WORDS_WIDTH
INSIDE_WIDTH = PLOT_WIDTH + WORDS_WIDTH - 0.3
TICKS_HEIGHT = 0.55

LINEAR_UP_TO = 0.1
"""Log ratios up to this (about 10 %) are drawn to scale, larger ones ever closer together: one
axis shows the margin and a tenfold gain."""

_LOOKS: dict[Verdict, tuple[str, str, bool]] = {
    "helps": ("o", drawing.BLUE, True),
    "gain, size unclear": ("o", drawing.BLUE, False),
    "hurts": ("s", drawing.ORANGE, True),
    "loss, size unclear": ("s", drawing.ORANGE, False),
    "no difference": ("D", drawing.DARK, True),
    "inconclusive": ("D", drawing.GREY, False),
}
"""Marker, colour, filled: a verdict is told by its shape too."""

RATIO_TICKS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.85, 0.95, 1,
    1.05, 1.15, 1.4, 2, 3, 5, 10, 20, 50, 100,
)  # fmt: skip
_DIFFERENCE_TICKS = (-100, -30, -10, -5, -3, -1, 0, 1, 3, 5, 10, 30, 100)


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
    for rows, draw in ((ratios, _draw_ratios), (differences, _draw_differences)):
        if rows:
            tall = drawing.total_height(rows)
            axes = drawing.inches_axes(figure, EDGE + LABELS_WIDTH, top, PLOT_WIDTH, tall)
            drawing.write_rows(axes, rows)
            draw(axes, rows, report.plan.margin)
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


def _draw_ratios(axes: Axes, rows: Sequence[Row], margin: float) -> None:
    _draw(axes, rows, lambda row, value: math.log(value), math.log1p(margin), LINEAR_UP_TO)
    set_ticks(axes, {math.log(tick): f"{tick:g}×" for tick in RATIO_TICKS})
    axes.set_xlabel(
        f"variant / baseline; right is better. Band: ±{percent(margin)}. Logarithmic, and large "
        "effects are drawn closer together."
    )


def _draw_differences(axes: Axes, rows: Sequence[Row], margin: float) -> None:
    _draw(axes, rows, lambda row, value: value / (row.margin or margin), 1, 3)
    set_ticks(
        axes, {tick: f"{tick:+g}".replace("-", "−") if tick else "0" for tick in _DIFFERENCE_TICKS}
    )
    axes.set_xlabel(
        "variant − baseline, in margins of the row; right is better. Band: ±1 margin. Large "
        "effects are drawn closer together."
    )


def _draw(
    axes: Axes,
    rows: Sequence[Row],
    position: Callable[[Effect, float], float],
    bound: float,
    linear_up_to: float,
) -> None:
    """Draw each row's point and interval where ``position`` puts them, and the margin band."""
    axes.set_xscale("asinh", linear_width=linear_up_to)
    axes.axvspan(-bound, bound, color=drawing.BAND, lw=0)
    axes.axvline(0, color=drawing.GREY, lw=0.8)
    # Beyond this an interval (of two replicates, say) is cut, and an arrow head says so.
    most = 50 * linear_up_to
    reach = 2 * bound
    for row in rows:
        effect = row.effect
        if effect is None or effect.effect is None or effect.verdict is None:
            continue
        marker, colour, filled = _LOOKS[effect.verdict]
        point = _clip(position(effect, effect.effect), most)
        ends = (point, point)
        if effect.ci_low is not None and effect.ci_high is not None:
            ends = (position(effect, effect.ci_low), position(effect, effect.ci_high))
            drawing.draw_interval(axes, row.center, ends, (-most, most), color=colour)
        axes.plot(
            point, row.center, marker, color=colour, ms=6.5, zorder=5,
            mfc=colour if filled else "white", clip_on=False,
        )  # fmt: skip
        reach = max(reach, abs(point), *(abs(_clip(end, most)) for end in ends))
    axes.set_xlim(-1.15 * reach, 1.15 * reach)
    for row in rows:
        if row.weight == "bold" and row.center > row.height:
            axes.axhline(row.center - row.height / 2, color="#E6E6E6", lw=0.8)


def _clip(value: float, most: float) -> float:
    return min(max(value, -most), most)


def set_ticks(axes: Axes, labels: dict[float, str]) -> None:
    """Those ticks that fit without touching, from no effect outwards."""
    drawn = axes.transData
    low, high = axes.get_xlim()
    width = axes.get_position().width * WIDTH
    left, right = (drawn.transform((end, 0))[0] for end in (low, high))
    kept: dict[float, tuple[float, float]] = {}
    for tick in sorted((tick for tick in labels if low <= tick <= high), key=abs):
        center = (drawn.transform((tick, 0))[0] - left) / (right - left) * width
        half = drawing.text_width(labels[tick]) / 2 + 0.06
        if all(center + half < start or end < center - half for start, end in kept.values()):
            kept[tick] = (center - half, center + half)
    axes.set_xticks(list(kept), [labels[tick] for tick in kept])
    axes.minorticks_off()


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
