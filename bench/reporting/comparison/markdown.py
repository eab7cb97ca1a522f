"""``compare.md``: the page as GitHub renders it."""

from collections.abc import Iterator

from bench.reporting.comparison.page import Page, Section, Table
from bench.reporting.markdown import code, table, text


def markdown(page: Page) -> str:
    """The whole page. Text from files is shown as that text."""
    parts = [f"# {text(page.title)}", " ".join(map(text, page.summary))]
    for section in page.sections:
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield f"## {text(section.title)}"
    yield from map(text, section.sentences)
    if section.picture is not None:
        yield f"![{text(section.picture.shows)}](figures/{section.picture.name}.png)"
    if section.table is not None:
        shown = _table(section.table)
        if section.is_folded:
            count = len(section.table.rows)
            yield f"<details><summary>{count:,} rows</summary>\n\n{shown}\n\n</details>"
        else:
            yield shown


def _table(content: Table) -> str:
    rows = (
        [_cell(cell, is_code=place in content.codes) for place, cell in enumerate(row)]
        for row in content.rows
    )
    head = [_cell(name, is_code=False) for name in content.head]
    return table(head, rows, numbers=content.numbers)


def _cell(content: str, *, is_code: bool) -> str:
    """The first line, and the details below it."""
    shown = code if is_code else text
    return "<br>".join(shown(part) for part in content.split("\n", 1) if part)
