"""Write what people read into a comparison's folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.records.cells import write_rows
from bench.reporting.comparison.html import html
from bench.reporting.comparison.markdown import markdown
from bench.reporting.comparison.page import Page
from bench.reporting.drawing import save


def write(folder: Path, page: Page, figure: Figure, record: type, rows: Sequence[Any]) -> None:
    """Write ``compare.html``, ``.md`` and ``.csv``, and ``figures/compare.png`` and ``.svg``.

    ``rows`` are values of the dataclass ``record``. Call it inside :func:`drawing.style`.
    """
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    save(figure, figures, "compare", page.title)
    write_rows(folder / "compare.csv", record, rows)
    (folder / "compare.md").write_text(markdown(page), encoding="utf-8")
    (folder / "compare.html").write_text(html(page, figures), encoding="utf-8")
