"""The comparison on the screen: the summary and the main tables."""

from collections.abc import Iterator

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table as ScreenTable
from rich.text import Text

from bench.reporting.comparison.page import MOST_ROWS, Page, Table

STYLES = {
    "larger": "bold green",
    "larger, size unclear": "green",
    "smaller": "bold red",
    "smaller, size unclear": "red",
}


def screen(page: Page) -> Group:
    """What a person wants to see at once; the rest stands in the files."""
    return Group(*_parts(page))


def _parts(page: Page) -> Iterator[RenderableType]:
    yield Text(page.title, style="bold")
    yield Text(" ".join(page.summary))
    for section in page.sections:
        if section.is_main:
            yield Text(f"\n{section.title}", style="bold")
            yield from (Text(sentence) for sentence in section.sentences)
            if section.table is not None:
                yield _table(section.table)


def _first(cell: str) -> Text:
    """A cell without its details."""
    line = cell.partition("\n")[0]
    return Text(line, style=STYLES.get(line, ""))


def _table(content: Table) -> ScreenTable:
    shown = ScreenTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, name in enumerate(content.head):
        justify: JustifyMethod = "right" if place in content.numbers else "left"
        shown.add_column(_first(name), justify=justify, overflow="fold")
    for row in content.rows[:MOST_ROWS]:
        shown.add_row(*map(_first, row))
    if len(content.rows) > MOST_ROWS:
        shown.add_row(f"… {len(content.rows) - MOST_ROWS:,} more in the files")
    return shown
