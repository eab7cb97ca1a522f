"""The picture of one tip: its variants' values, throughput and memory side by side.

Variants whose names are numbers (``num_workers=4``) make a curve, others make bars.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.records.effects import Effect
from bench.records.plan import Metric, PlannedTip, PlannedWorkload
from bench.reporting import drawing
from bench.reporting.drawing import EDGE, LINE, WIDTH, Row
from bench.reporting.model import Report, TipReport
from bench.reporting.units import (
    NO_DATA,
    interval_text,
    margin_text,
    quantity,
    scale,
)

LABELS_WIDTH = 1.7
WORDS_WIDTH = 1.75
AXIS_WIDTH = 0.55
CURVE_HEIGHT = 1.9
TITLE_HEIGHT = 0.3
TICKS_HEIGHT = 0.45
BAR_HEIGHT = 0.2
CLAIM_SIZE = 9.0
TITLE_SIZE = 9.0
FULL = WIDTH - 2 * EDGE

_NUMBER = re.compile(r"(?P<name>.*?)(?P<number>\d+(\.\d+)?)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """One metric on one workload: a row a variant, baseline first; drawn in ``factor`` units."""

    workload: str
    unit: str
    metric: Metric
    factor: float
    effects: tuple[Effect, ...]
    is_price: bool

    def title(self, inches: float) -> str:
        """Workload, metric, and which way is better, in one line of at most ``inches``."""
        what = "memory, " if _is_memory(self.metric) else ""
        better = "more" if self.metric.higher_is_better else "less"
        rest = f": {what}{self.unit} ({better} is better)"
        room = inches - drawing.text_width(rest, TITLE_SIZE, "bold")
        return f"{_fitted(self.workload, room, TITLE_SIZE)}{rest}"

    def words(self, row: Effect) -> str:
        """The effect with its interval; the unit stands with the value."""
        return interval_text(row, is_price=self.is_price, with_unit=False)

    def values(self) -> list[float]:
        """What is known of the variants' values, as drawn."""
        return [row.value / self.factor for row in self.effects if row.value is not None]

    def span(self, row: Effect) -> tuple[float, float] | None:
        """The interval of the row's effect as values around the baseline's, as drawn."""
        if row.baseline_value is None or row.ci_low is None or row.ci_high is None:
            return None
        ends = [self._shifted(row.baseline_value, end) for end in (row.ci_low, row.ci_high)]
        return min(ends), max(ends)

    def band(self) -> tuple[float, float] | None:
        """What lies within the margin of the baseline, as drawn."""
        base, margin = self.effects[0].value, self.effects[0].margin
        if base is None or margin is None:
            return None
        if self.metric.kind == "ratio":
            return self._shifted(base, 1 / (1 + margin)), self._shifted(base, 1 + margin)
        return self._shifted(base, -margin), self._shifted(base, margin)

    def _shifted(self, base: float, effect: float) -> float:
        """The value that stands ``effect`` away from ``base``."""
        if self.metric.kind == "ratio":
            return (base * effect if self.metric.higher_is_better else base / effect) / self.factor
        return (base + effect if self.metric.higher_is_better else base - effect) / self.factor


def tip_picture(tip: TipReport, report: Report) -> Figure:
    """The variants of one tip: value, interval of the effect, margin; grey where unmeasured."""
    panels = list(_panels(tip))
    numbers = _numbers(tip.tip)
    measured = sum(row.value is not None for row in panels[0].effects)
    if numbers is not None and measured > 1:
        return _curves(tip, report, panels, *numbers)
    return _bars(tip, report, panels)


def _panels(tip: TipReport) -> Iterator[Panel]:
    """Each workload's main metric; then the first workload's throughput and memory, if others."""
    for workload in tip.tip.workloads:
        yield _panel(tip, workload, workload.metrics[0])
    first = tip.tip.workloads[0]
    main = first.metrics[0]
    for metric in first.metrics[1:]:
        is_throughput = metric.aggregate == "rate" and main.aggregate != "rate"
        if is_throughput or (_is_memory(metric) and not _is_memory(main)):
            panel = _panel(tip, first, metric)
            if panel.values():
                yield panel


def _panel(tip: TipReport, workload: PlannedWorkload, metric: Metric) -> Panel:
    found = {(row.variant, row.metric): row for row in tip.rows if row.workload == workload.name}
    main = workload.metrics[0].name
    effects = tuple(
        # What was not measured has a row under the main metric only.
        found.get((variant.name, metric.name)) or found[variant.name, main]
        for variant in tip.tip.variants
    )
    values = [abs(row.value) for row in effects if row.value is not None]
    factor, unit = scale(max(values, default=1.0), metric.unit)
    return Panel(
        workload=workload.name,
        unit=unit,
        metric=metric,
        factor=factor,
        effects=effects,
        is_price=tip.tip.is_price,
    )


def _is_memory(metric: Metric) -> bool:
    return metric.column.startswith("peak_")


def _numbers(tip: PlannedTip) -> tuple[str, list[str]] | None:
    """What is varied and its numbers in rising order, if the variants are numbers of one thing."""
    matches = [_NUMBER.fullmatch(variant.name) for variant in tip.variants]
    if len(matches) < 3 or not all(matches):
        return None
    found = [match for match in matches if match]
    names = {match["name"] for match in found}
    if len(names) != 1:
        return None
    ordered = sorted(found, key=lambda match: float(match["number"]))
    return names.pop().rstrip("= ") or tip.id, [match["number"] for match in ordered]


def _bars(tip: TipReport, report: Report, panels: Sequence[Panel]) -> Figure:
    columns = min(len(panels), 2)
    width = (FULL - LABELS_WIDTH - (columns - 1) * EDGE) / columns - WORDS_WIDTH
    lines = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    tables = [_tables(line, width) for line in lines]
    heights = [drawing.total_height(line[0]) for line in tables]
    needed = sum(heights) + len(lines) * (TITLE_HEIGHT + TICKS_HEIGHT)
    figure, top = _start(tip, report, needed, _legend(panels))
    for line, rows, height in zip(lines, tables, heights, strict=True):
        top += TITLE_HEIGHT
        for column, (panel, table) in enumerate(zip(line, rows, strict=True)):
            left = EDGE + LABELS_WIDTH + column * (width + WORDS_WIDTH + EDGE)
            axes = drawing.inches_axes(figure, left, top, width, height)
            axes.set_title(panel.title(width + WORDS_WIDTH))
            _draw_bars(axes, panel, table)
            drawing.write_rows(axes, table, labels=column == 0)
        top += height + TICKS_HEIGHT
    return figure


def _tables(line: Sequence[Panel], width: float) -> list[list[Row]]:
    """The rows of panels that stand side by side, each as high as its highest neighbour."""
    tables = [drawing.stack([_row(row, panel, width) for row in panel.effects]) for panel in line]
    heights = [max(row.height for row in rows) for rows in zip(*tables, strict=True)]
    tops = [0.0, *itertools.accumulate(heights)]
    return [
        [
            dataclasses.replace(row, height=height, center=top + height / 2)
            for row, height, top in zip(table, heights, tops, strict=False)
        ]
        for table in tables
    ]


def _row(effect: Effect, panel: Panel, width: float) -> Row:
    weight = "bold" if effect.is_recommended else "normal"
    label = drawing.wrap(effect.variant, LABELS_WIDTH - 0.1, weight=weight)
    if effect.value is None:
        return Row(label=label, weight=weight, inside=drawing.wrap(_absent(effect), width - 0.16))
    value = quantity(effect.value, panel.metric.unit)
    parts = (
        [f"{value}, baseline"] if effect.is_baseline else [value, *_verdict_words(effect, panel)]
    )
    words = "\n".join(drawing.wrap(part, WORDS_WIDTH - 0.1) for part in parts)
    return Row(label=label, weight=weight, words=words, effect=effect)


def _verdict_words(effect: Effect, panel: Panel) -> list[str]:
    """The effect and its verdict, in one line where they fit."""
    parts = [part for part in (panel.words(effect), effect.verdict) if part]
    together = " ".join(parts)
    return [together] if drawing.text_width(together) <= WORDS_WIDTH - 0.1 else parts


def _absent(effect: Effect) -> str:
    return f"{effect.verdict}: {effect.reason}" if effect.reason else NO_DATA


def _draw_bars(axes: Axes, panel: Panel, rows: Sequence[Row]) -> None:
    if not panel.values():
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        return
    if (band := panel.band()) is not None:
        axes.axvspan(*band, color=drawing.BAND, lw=0)
    for row in rows:
        effect = row.effect
        if effect is None or effect.value is None:
            continue
        value = effect.value / panel.factor
        if panel.metric.kind == "ratio":
            axes.barh(
                row.center, value, BAR_HEIGHT, color=_colour(effect), ec=_edge(effect), lw=0.8
            )
        else:
            axes.plot(value, row.center, "o", color=_colour(effect), mec=_edge(effect), ms=7)
        if (span := panel.span(effect)) is not None:
            errors = [[max(value - span[0], 0)], [max(span[1] - value, 0)]]
            axes.errorbar(value, row.center, xerr=errors, color=drawing.DARK, lw=1.2)
    axes.set_xlim(*_limits(panel))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))


def _curves(
    tip: TipReport, report: Report, panels: Sequence[Panel], name: str, numbers: Sequence[str]
) -> Figure:
    columns = 2 if len(panels) > 1 and len(numbers) <= 5 else 1
    width = (FULL - (columns - 1) * 2 * EDGE) / columns - AXIS_WIDTH
    room = width / len(numbers)
    lines = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    words = [[_curve_labels(panel, numbers, room) for panel in line] for line in lines]
    heights = [
        max(drawing.line_count(label) for labels in line for label in labels) * LINE
        for line in words
    ]
    absent = {
        f"{row.variant}: {_absent(row)}."
        for panel in panels
        for row in panel.effects
        if row.value is None
    }
    needed = sum(heights) + len(lines) * (TITLE_HEIGHT + CURVE_HEIGHT + TICKS_HEIGHT)
    figure, top = _start(tip, report, needed, [*sorted(absent), *_legend(panels)])
    for line, labels, height in zip(lines, words, heights, strict=True):
        top += TITLE_HEIGHT
        for column, panel in enumerate(line):
            left = EDGE + AXIS_WIDTH + column * (width + AXIS_WIDTH + 2 * EDGE)
            axes = drawing.inches_axes(figure, left, top, width, CURVE_HEIGHT)
            axes.set_title(panel.title(width), x=-AXIS_WIDTH / width)
            _draw_curve(axes, panel, numbers)
            axes.set_xticks(range(len(numbers)), labels[column])
            axes.set_xlabel(name)
        top += CURVE_HEIGHT + height + TICKS_HEIGHT
    return figure


def _draw_curve(axes: Axes, panel: Panel, numbers: Sequence[str]) -> None:
    effects = {_number_of(row): row for row in panel.effects}
    if (band := panel.band()) is not None:
        axes.axhspan(*band, color=drawing.BAND, lw=0)
    heights = []
    for place, text in enumerate(numbers):
        effect = effects[text]
        # A gap in the curve where a number has no value.
        heights.append(math.nan if effect.value is None else effect.value / panel.factor)
        if effect.value is None:
            continue
        axes.plot(place, heights[-1], "o", color=_colour(effect), mec=_edge(effect), ms=7, zorder=3)
        if (span := panel.span(effect)) is not None:
            errors = [[max(heights[-1] - span[0], 0)], [max(span[1] - heights[-1], 0)]]
            axes.errorbar(place, heights[-1], yerr=errors, color=drawing.DARK, lw=1.2, zorder=4)
    axes.plot(range(len(numbers)), heights, color=drawing.SKY, zorder=2)
    axes.set_xlim(-0.5, len(numbers) - 0.5)
    axes.set_ylim(*_limits(panel))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))
    axes.grid(axis="y")


def _curve_labels(panel: Panel, numbers: Sequence[str], room: float) -> list[str]:
    """What stands below each number: its effect and verdict."""
    effects = {_number_of(row): row for row in panel.effects}
    labels = []
    for text in numbers:
        effect = effects[text]
        if effect.value is None:
            parts = [NO_DATA]
        elif effect.is_baseline:
            parts = ["baseline"]
        else:
            parts = [*panel.words(effect).replace(" [", "\n[").split("\n"), effect.verdict or ""]
        wrapped = [drawing.wrap(part, room - 0.08) for part in (text, *parts) if part]
        labels.append("\n".join(wrapped))
    return labels


def _number_of(effect: Effect) -> str:
    match = _NUMBER.fullmatch(effect.variant)
    assert match is not None
    return match["number"]


def _limits(panel: Panel) -> tuple[float, float]:
    """From zero for ratios; around the values for differences, which bars would hide.

    An interval of two replicates can be a hundred times the value: it is cut at twice the
    greatest, where it is seen to go on.
    """
    values = panel.values()
    spans = [span for row in panel.effects if (span := panel.span(row)) is not None]
    ends = [*values, *(panel.band() or ()), *(end for span in spans for end in span)]
    if panel.metric.kind == "ratio":
        return 0, 1.05 * min(max(ends), 2 * max(values)) or 1
    around = max(max(values) - min(values), 4 * (panel.effects[0].margin or 0))
    low = max(min(ends), min(values) - around)
    high = min(max(ends), max(values) + around)
    pad = 0.1 * (high - low) or 1
    return low - pad, high + pad


def _start(
    tip: TipReport, report: Report, needed: float, notes: Sequence[str]
) -> tuple[Figure, float]:
    """A picture with title, claim and notes, and ``needed`` inches between: it, and their top."""
    claim = drawing.wrap(tip.tip.claim, FULL, CLAIM_SIZE)
    machine = f"{report.machine_name} · {report.plan.profile} run {report.plan.run_id}"
    footer = "\n".join(drawing.wrap(note, FULL) for note in (*notes, machine))
    above = EDGE + 0.28 + drawing.line_count(claim) * CLAIM_SIZE * 1.25 / 72 + EDGE
    figure = drawing.new_figure(above + needed + drawing.line_count(footer) * LINE + EDGE)
    drawing.write_text(figure, EDGE, _fitted(tip.tip.id, FULL, 13), size=13, weight="bold")
    drawing.write_text(figure, EDGE + 0.28, claim, size=CLAIM_SIZE, color=drawing.FAINT)
    drawing.write_text(figure, above + needed, footer, color=drawing.FAINT)
    return figure, above


def _tick(value: float, place: int | None) -> str:
    return f"{value:,.6g}".replace("-", "−")


def _legend(panels: Sequence[Panel]) -> list[str]:
    if not any(panel.values() for panel in panels):
        return []
    margins = sorted({margin_text(panel.effects[0]) for panel in panels})
    return [
        "Blue: the variant that the article recommends; grey: the baseline; pale: exploratory. "
        "Black lines: the effect's 95 % interval, drawn around the baseline's value. Band: the "
        f"margin, {' and '.join(margins)}."
    ]


def _fitted(text: str, inches: float, size: float) -> str:
    """``text`` in one line, its end left out where it is too long."""
    lines = drawing.wrap(text, inches, size, "bold").split("\n")
    if len(lines) == 1:
        return lines[0]
    return drawing.wrap(text, inches - 0.2, size, "bold").split("\n")[0] + " …"


def _colour(effect: Effect) -> str:
    if effect.is_baseline:
        return drawing.GREY
    if effect.is_recommended:
        return drawing.BLUE
    return drawing.PALE if effect.is_exploratory else drawing.SKY


def _edge(effect: Effect) -> str:
    return drawing.SKY if effect.is_exploratory else _colour(effect)
