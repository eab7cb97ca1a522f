"""The comparison on the screen: the summary and the main tables."""

from collections.abc import Iterator

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table as ScreenTable
from rich.text import Text

from bench.reporting.comparison.page import Page, Table

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


def _table(content: Table) -> ScreenTable:
    shown = ScreenTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    places = [place for place in range(len(content.head)) if place not in content.details]
    for place in places:
        justify: JustifyMethod = "right" if place in content.numbers else "left"
        shown.add_column(Text(content.head[place]), justify=justify, overflow="fold")
    for row in content.rows:
        shown.add_row(*(Text(row[place], style=STYLES.get(row[place], "")) for place in places))
    return shown
