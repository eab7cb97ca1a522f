"""The picture of one tip: its variants' values, throughput and memory side by side.

Variants whose names are numbers (``num_workers=4``) make a curve, others make bars.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.records.effects import Effect
from bench.records.plan import Metric, PlannedTip, PlannedWorkload
from bench.reporting import drawing
from bench.reporting.drawing import EDGE, LINE, TITLE, WIDTH, Row
from bench.reporting.model import Report, TipReport
from bench.reporting.units import (
    NO_DATA,
    interval_text,
    margin_text,
    quantity,
    scale,
)

LABELS_WIDTH = 2.05
WORDS_WIDTH = 2.05
AXIS_WIDTH = 0.65
CURVE_HEIGHT = 1.9
TITLE_PAD = 0.2
TICKS_HEIGHT = 0.5
BAR_HEIGHT = 0.2
CLAIM_SIZE = 10.5
TITLE_SIZE = 10.5
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
        """Workload, metric, and which way is better, in lines of at most ``inches``."""
        what = "memory, " if _is_memory(self.metric) else ""
        better = "more" if self.metric.higher_is_better else "less"
        parts = (f"{self.workload}:", f"{what}{self.unit} ({better} is better)")
        together = " ".join(parts)
        if drawing.text_width(together, TITLE_SIZE, "bold") <= inches:
            return together
        return "\n".join(drawing.wrap(part, inches, TITLE_SIZE, "bold") for part in parts)

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

    def band(self, row: Effect) -> tuple[float, float] | None:
        """What lies within the margin of the baseline in the row's own replicates, as drawn.

        A variant with fewer replicates is compared with the baseline of just these.
        """
        base = self.effects[0].value if row.baseline_value is None else row.baseline_value
        margin = self.effects[0].margin
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
    titles = [[panel.title(width + WORDS_WIDTH) for panel in line] for line in lines]
    tables = [_tables(line, width) for line in lines]
    heights = [drawing.total_height(line[0]) for line in tables]
    needed = sum(heights) + sum(map(_titles_height, titles)) + len(lines) * TICKS_HEIGHT
    figure, top = _start(tip, report, needed, _legend(panels))
    for line, named, rows, height in zip(lines, titles, tables, heights, strict=True):
        top += _titles_height(named)
        for column, (panel, title, table) in enumerate(zip(line, named, rows, strict=True)):
            left = EDGE + LABELS_WIDTH + column * (width + WORDS_WIDTH + EDGE)
            axes = drawing.inches_axes(figure, left, top, width, height)
            axes.set_title(title)
            _draw_bars(axes, panel, table)
            drawing.write_rows(axes, table, labels=column == 0)
        top += height + TICKS_HEIGHT
    return figure


def _titles_height(titles: Sequence[str]) -> float:
    """Inches above panels that stand side by side."""
    return max(drawing.text_height(title, TITLE_SIZE) for title in titles) + TITLE_PAD


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
        room = width + WORDS_WIDTH - 0.26
        return Row(label=label, weight=weight, inside=drawing.wrap(_absent(effect), room))
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
    edges, lows, highs = [], [], []
    for row, effect in zip(rows, panel.effects, strict=True):
        if (band := panel.band(effect)) is not None:
            edges += [row.center - row.height / 2, row.center + row.height / 2]
            lows += [band[0]] * 2
            highs += [band[1]] * 2
    axes.fill_betweenx(edges, lows, highs, color=drawing.BAND, lw=0, zorder=0)
    limits = _limits(panel)
    for row, effect in zip(rows, panel.effects, strict=True):
        if effect.value is None:
            continue
        value = effect.value / panel.factor
        if panel.metric.kind == "ratio":
            axes.barh(
                row.center, value, BAR_HEIGHT, color=_colour(effect), ec=_edge(effect), lw=0.8
            )
        else:
            axes.plot(value, row.center, _marker(effect), zorder=5, **_look(effect))
        if (span := panel.span(effect)) is not None:
            drawing.draw_interval(axes, row.center, span, limits)
    axes.set_xlim(*limits)
    wide = axes.get_position().width * WIDTH
    axes.xaxis.set_major_locator(MaxNLocator(nbins=min(4, int(wide / 0.55))))
    axes.xaxis.set_major_formatter(FuncFormatter(drawing.tick_text))


def _curves(
    tip: TipReport, report: Report, panels: Sequence[Panel], name: str, numbers: Sequence[str]
) -> Figure:
    columns = 2 if len(panels) > 1 and len(numbers) <= 5 else 1
    width = (FULL - (columns - 1) * 2 * EDGE) / columns - AXIS_WIDTH
    room = width / len(numbers)
    lines = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    titles = [[panel.title(AXIS_WIDTH + width) for panel in line] for line in lines]
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
    needed = sum(heights) + sum(map(_titles_height, titles))
    needed += len(lines) * (CURVE_HEIGHT + TICKS_HEIGHT)
    figure, top = _start(tip, report, needed, [*sorted(absent), *_legend(panels)])
    for line, named, labels, height in zip(lines, titles, words, heights, strict=True):
        top += _titles_height(named)
        for column, (panel, title) in enumerate(zip(line, named, strict=True)):
            left = EDGE + AXIS_WIDTH + column * (width + AXIS_WIDTH + 2 * EDGE)
            axes = drawing.inches_axes(figure, left, top, width, CURVE_HEIGHT)
            axes.set_title(title, x=-AXIS_WIDTH / width)
            _draw_curve(axes, panel, numbers)
            axes.set_xticks(range(len(numbers)), labels[column])
            axes.set_xlabel(name)
        top += CURVE_HEIGHT + height + TICKS_HEIGHT
    return figure


def _draw_curve(axes: Axes, panel: Panel, numbers: Sequence[str]) -> None:
    effects = {_number_of(row): row for row in panel.effects}
    edges, lows, highs = [], [], []
    for place, text in enumerate(numbers):
        if (band := panel.band(effects[text])) is not None:
            edges += [place - 0.5, place + 0.5]
            lows += [band[0]] * 2
            highs += [band[1]] * 2
    axes.fill_between(edges, lows, highs, color=drawing.BAND, lw=0, zorder=0)
    limits = _limits(panel)
    heights = []
    for place, text in enumerate(numbers):
        effect = effects[text]
        # A gap in the curve where a number has no value.
        heights.append(math.nan if effect.value is None else effect.value / panel.factor)
        if effect.value is None:
            continue
        axes.plot(place, heights[-1], _marker(effect), zorder=5, **_look(effect))
        if (span := panel.span(effect)) is not None:
            drawing.draw_interval(axes, place, span, limits, is_upright=True)
    axes.plot(range(len(numbers)), heights, color=drawing.SKY, zorder=2)
    axes.set_xlim(-0.5, len(numbers) - 0.5)
    axes.set_ylim(*limits)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_formatter(FuncFormatter(drawing.tick_text))
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
    greatest.
    """
    values = panel.values()
    spans = [span for row in panel.effects if (span := panel.span(row)) is not None]
    bands = [band for row in panel.effects if (band := panel.band(row)) is not None]
    ends = [*values, *(end for pair in (*bands, *spans) for end in pair)]
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
    title = drawing.wrap(tip.tip.id, FULL, TITLE, "bold")
    claim = drawing.wrap(tip.tip.claim, FULL, CLAIM_SIZE)
    machine = f"{report.machine_name} · {report.plan.profile} run {report.plan.run_id}"
    footer = "\n".join(drawing.wrap(note, FULL) for note in (*notes, machine))
    below_title = EDGE + drawing.text_height(title, TITLE) + 0.08
    above = below_title + drawing.text_height(claim, CLAIM_SIZE) + EDGE
    figure = drawing.new_figure(above + needed + drawing.text_height(footer) + EDGE)
    drawing.write_text(figure, EDGE, title, size=TITLE, weight="bold")
    drawing.write_text(figure, below_title, claim, size=CLAIM_SIZE, color=drawing.FAINT)
    drawing.write_text(figure, above + needed, footer, color=drawing.FAINT)
    return figure, above


def _legend(panels: Sequence[Panel]) -> list[str]:
    if not any(panel.values() for panel in panels):
        return []
    margins = sorted({margin_text(panel.effects[0]) for panel in panels})
    return [
        "Dark blue (a point: a diamond): the variant that the article recommends; grey (a square): "
        "the baseline; pale: exploratory. Thin lines: the effect's 95 % interval, drawn around "
        f"the baseline's value. Band: the margin ({' and '.join(margins)}) around the baseline, of "
        "each variant's own replicates."
    ]


def _colour(effect: Effect) -> str:
    if effect.is_baseline:
        return drawing.GREY
    if effect.is_recommended:
        return drawing.BLUE
    return drawing.PALE if effect.is_exploratory else drawing.SKY


def _marker(effect: Effect) -> str:
    """The shape of a point, which tells it apart where there is no colour."""
    if effect.is_baseline:
        return "s"
    return "D" if effect.is_recommended else "o"


def _look(effect: Effect) -> dict[str, Any]:
    return {"color": _colour(effect), "mec": _edge(effect), "ms": 6 if effect.is_recommended else 7}


def _edge(effect: Effect) -> str:
    return drawing.SKY if effect.is_exploratory else _colour(effect)
