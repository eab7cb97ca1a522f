"""The verdict table on the screen, at the end of a run; fits 100 columns."""

import itertools
from collections.abc import Iterator, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from bench.records.effects import Effect
from bench.records.plan import Plan
from bench.records.run_folder import RunFolder
from bench.reporting.units import interval_text, quantity

STYLES = {
    "helps": "bold green",
    "gain, size unclear": "green",
    "hurts": "bold red",
    "loss, size unclear": "red",
    "failed": "bold red",
    "fail": "bold red",
    "warn": "yellow",
    "pass": "green",
}


def console() -> Console:
    """Standard output; 100 columns wide where it is no terminal."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=100)


def print_verdicts(console: Console, effects: Sequence[Effect], folder: RunFolder) -> None:
    """How a run ends: the verdict table, and where the reports lie."""
    console.print()
    console.print(verdict_table(effects, folder.read_plan()))
    console.print(f"\nReport: {folder.report} (beside it {folder.markdown.name} and figures/)")


def verdict_table(effects: Sequence[Effect], plan: Plan) -> Group:
    """Each workload's main metric, a line a variant; below it why a variant has no number.

    ``effects`` are in the article's order. Exploratory variants are dimmed.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("Tip and variant", width=35, overflow="fold")
    table.add_column("Value", width=16, overflow="fold")
    table.add_column("Effect [95 %]", width=20, overflow="fold")
    table.add_column("Verdict", width=19)
    table.add_column("n", width=2, justify="right")
    rows = list(_main_rows(effects))
    prices = {tip.id for tip in plan.tips if tip.is_price}
    for (tip, workload), group in itertools.groupby(rows, lambda row: (row.tip, row.workload)):
        table.add_row(Text.assemble((tip, "bold"), (f" · {workload}", "dim")))
        for row in group:
            table.add_row(*_cells(row, is_price=row.tip in prices))
    return Group(table, *_reasons(rows))


def _main_rows(effects: Sequence[Effect]) -> Iterator[Effect]:
    main: dict[tuple[str, str], str] = {}
    for row in effects:
        if main.setdefault((row.tip, row.workload), row.metric) == row.metric:
            yield row


def _cells(row: Effect, *, is_price: bool) -> tuple[Text, Text, Text, Text, Text]:
    style = "dim" if row.is_exploratory or row.verdict == "not measurable here" else ""
    name = Text(f"  {row.variant}", style=f"{style} bold" if row.is_recommended else style)
    if row.is_baseline:
        name.append(" (baseline)", style="not bold dim")
    return (
        name,
        Text("" if row.value is None else quantity(row.value, row.unit), style=style),
        Text(interval_text(row, is_price=is_price, with_unit=False), style=style),
        Text(row.verdict or "", style=STYLES.get(row.verdict or "", style)),
        Text(str(row.replicates or ""), style=style),
    )


def _reasons(rows: Sequence[Effect]) -> Iterator[Text]:
    """One line a reason, with all the variants that it holds for."""
    told: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.value is None and row.verdict not in (None, "pass") and row.reason:
            names = told.setdefault((row.verdict, row.reason), [])
            if (name := f"{row.tip}: {row.variant}") not in names:
                names.append(name)
    for (verdict, reason), names in told.items():
        yield Text.assemble(
            (f"\n{verdict}", STYLES.get(verdict, "bold")),
            f": {reason}\n  ",
            ("; ".join(names), "dim"),
        )
