"""``report.html``: one file that needs nothing beside it, on a screen, on paper or read aloud.

:func:`page` renders any template of ``templates/`` with what they share; a page of its own extends
``base.html`` and takes what it draws with from ``parts.html``.
"""

import base64
import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from bench.records.effects import Effect
from bench.records.plan import SECTIONS
from bench.reporting.method import PRIVATE, how_to_read, method
from bench.reporting.model import Report, TipReport
from bench.reporting.sentences import conclusion, summary
from bench.reporting.units import interval_text, margin_text, quantity

LINEAR_UP_TO = 3.0
"""Margins up to which a strip is to scale; larger effects are drawn ever closer together."""

FARTHEST = 80.0
"""Margins at the ends of a strip: about 11× where the margin is 3 %. It is the same on all strips,
so that those of two reports compare."""

_LONG = 80
"""Characters from which a fact about the machine is folded away."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strip:
    """An effect beside the margin, in percent of the strip's width; no effect is at 50.

    ``low`` and ``high`` are None without an interval. An end that lies beyond the strip is cut.
    """

    point: float
    low: float | None
    high: float | None
    is_low_cut: bool
    is_high_cut: bool
    verdict: str
    words: str


BAND = 46 * math.asinh(1 / LINEAR_UP_TO) / math.asinh(FARTHEST / LINEAR_UP_TO)
"""Half the margin band's width in percent of a strip's."""


def html(report: Report, figures: Path) -> str:
    """The whole report; ``figures`` holds its pictures as SVG."""
    return page(
        "report.html",
        report=report,
        figures=figures,
        summary=summary(report),
        conclusions={tip.tip.id: conclusion(tip, report) for tip in report.tips},
        sections=[
            (section, tips)
            for section in SECTIONS
            if (tips := [tip for tip in report.tips if tip.tip.section == section])
        ],
        facts=[fact for fact in report.machine if len(fact[1]) < _LONG],
        long_facts=[fact for fact in report.machine if len(fact[1]) >= _LONG],
        how_to_read=how_to_read(report),
        method=method(report),
        private=PRIVATE,
    )


def page(template: str, **values: object) -> str:
    """``template`` filled with ``values``; texts among them are shown as they are."""
    return _environment().get_template(template).render(**values)


def strip(row: Effect, *, is_price: bool = False) -> Strip | None:
    """Where the row's effect and interval lie; None where there is no effect or no margin."""
    if row.effect is None or not row.margin or (row.effect_kind == "ratio" and row.effect <= 0):
        return None
    point, low, high = (_margins(row, end) for end in (row.effect, row.ci_low, row.ci_high))
    assert point is not None
    return Strip(
        point=_place(point),
        low=None if low is None else _place(low),
        high=None if high is None else _place(high),
        is_low_cut=low is not None and abs(low) > FARTHEST,
        is_high_cut=high is not None and abs(high) > FARTHEST,
        verdict=row.verdict or "",
        words=f"{interval_text(row, is_price=is_price)}; margin {margin_text(row)}: {row.verdict}",
    )


def anchor(tip: str) -> str:
    """The address of a tip's card within the page."""
    return "tip-" + re.sub(r"[^\w]", "-", tip)


def breakable(name: str) -> Markup:
    """A name of code that a narrow column may break where its parts end."""
    return Markup(re.sub(r"(?<=[\w)])([_.=,(/-])(?=\w)", r"\1<wbr>", str(escape(name))))


def data_uri(path: Path) -> str:
    """An SVG picture as an address that holds it."""
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def skipped(tip: TipReport) -> Iterator[tuple[str, str, list[str]]]:
    """Verdict, reason and variants (with their workload, if only there) of what has no number."""
    rows = [row for row in tip.rows if row.verdict in ("not measurable here", "failed")]
    everywhere = {
        variant
        for variant, its in itertools.groupby(sorted(rows, key=_variant), _variant)
        if len(list(its)) == len(tip.tip.workloads)
    }
    told: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        where = row.variant if row.variant in everywhere else f"{row.variant}, {row.workload}"
        told.setdefault((row.verdict or "", row.reason or ""), {})[where] = None
    return ((verdict, reason, list(names)) for (verdict, reason), names in told.items())


def groups(tip: TipReport) -> list[list[Effect]]:
    """The rows that were measured, baseline first, by workload and metric in the plan's order.

    A row that gave no number although it ran is among them, with its reason.
    """
    found: dict[tuple[str, str], list[Effect]] = {}
    for row in tip.rows:
        if row.verdict not in ("not measurable here", "failed"):
            found.setdefault((row.workload, row.metric), []).append(row)
    return list(found.values())


def _variant(row: Effect) -> str:
    return row.variant


def _margins(row: Effect, value: float | None) -> float | None:
    """``value`` of the row's effect, counted in margins from no effect."""
    assert row.margin is not None
    if value is None:
        return None
    if row.effect_kind == "difference":
        return value / row.margin
    return math.log(value) / math.log1p(row.margin) if value > 0 else -math.inf


def _place(margins: float) -> float:
    cut = min(max(margins, -FARTHEST), FARTHEST)
    return 50 + 46 * math.asinh(cut / LINEAR_UP_TO) / math.asinh(FARTHEST / LINEAR_UP_TO)


@functools.cache
def _markdown() -> MarkdownIt:
    # A picture in a card would be a request to somewhere.
    return MarkdownIt("commonmark", {"html": False}).disable("image")


def _render_card(card: str) -> Markup:
    return Markup(_markdown().render(card))


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("bench.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "anchor": anchor,
        "breakable": breakable,
        "card": _render_card,
        "data_uri": data_uri,
    }
    environment.globals |= {
        "BAND": BAND,
        "groups": groups,
        "interval_text": interval_text,
        "margin_text": margin_text,
        "quantity": quantity,
        "skipped": skipped,
        "strip": strip,
    }
    return environment
