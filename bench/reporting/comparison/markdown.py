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
        [code(cell) if place in content.codes else text(cell) for place, cell in enumerate(row)]
        for row in content.rows
    )
    return table([text(name) for name in content.head], rows, numbers=content.numbers)
