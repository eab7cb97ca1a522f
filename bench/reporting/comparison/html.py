"""``compare.html``: the page as one file that needs nothing beside it."""

from pathlib import Path

from bench.records.compared import ChangeVerdict
from bench.records.effects import Verdict
from bench.reporting import html as pages
from bench.reporting.comparison.page import Page

_SHAPES: dict[ChangeVerdict, Verdict] = {
    "larger": "helps",
    "larger, size unclear": "gain, size unclear",
    "smaller": "hurts",
    "smaller, size unclear": "loss, size unclear",
    "no difference": "no difference",
    "inconclusive": "inconclusive",
    "not compared": "not measurable here",
}
"""Whose shape and colour a change's verdict has: the effect itself moved that way."""


LONGEST_WHOLE = 24


def html(page: Page, figures: Path) -> str:
    """The whole page; ``figures`` holds its picture as SVG."""
    return pages.page(
        "compare.html", page=page, figures=figures, shapes=_SHAPES, is_short=_is_short
    )


def _is_short(text: str) -> bool:
    """Whether a column is wide enough for the words as they are; longer ones may be broken."""
    return all(len(word) <= LONGEST_WHOLE for word in text.split())
