"""Compare runs: read them, compare them, write the page; and the gate for CI."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from bench.analysis.comparison import Run, compare
from bench.analysis.distribution import distributions
from bench.analysis.gate import Gate, gate
from bench.errors import UserError
from bench.records.compared import ComparedEffect, EffectDistribution
from bench.records.effects import Effect, read_effects
from bench.records.run_folder import OTHER_OUT, RESULTS, RunFolder, made, unused_folder
from bench.reporting import drawing
from bench.reporting.comparison import outputs
from bench.reporting.comparison.machines import machines_page
from bench.reporting.comparison.page import Page
from bench.reporting.comparison.pairs import pairs_page
from bench.reporting.comparison.pictures import machines_picture, pairs_picture
from bench.reporting.comparison.screen import screen

MOST_SIDE_BY_SIDE = 6
"""More runs than this are shown as distributions over machines; columns would not fit a page."""


def compare_runs(
    paths: Sequence[Path], *, out: Path | None, slower: str | None, console: Console
) -> int:
    """Compare the runs in ``paths``, write the page to ``out``, and return the exit code.

    The first run is the reference. ``slower``: the bound of ``--fail-if-slower``; then 1 is
    returned when a run is slower by more. Raises UserError, before anything is written, for
    input that cannot be compared.
    """
    bound = None if slower is None else parse_bound(slower)
    runs = read_runs(paths)
    show = _side_by_side if len(runs) <= MOST_SIDE_BY_SIDE else _over_machines
    shown = show(runs, bound)
    folder = _folder(out)
    with drawing.style():
        outputs.write(folder, shown.page, shown.draw(), shown.record, shown.rows)
    console.print(screen(shown.page))
    console.print(
        f"\nComparison: {folder / 'compare.html'}, and compare.md and compare.csv beside it"
    )
    return int(shown.gate is not None and bool(shown.gate.slower))


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in run folders and effects.csv files, in the order given, named A, B and so on.

    A file with several runs gives them in the order of their ids. Many runs are named by their
    machine and id. Raises UserError for fewer than two runs, and for one given twice among more.
    """
    found: list[tuple[Path, list[Effect]]] = []
    for path in paths:
        by_run: dict[str, list[Effect]] = {}
        for row in read_effects(_effects_file(path)):
            by_run.setdefault(row.run_id, []).append(row)
        found += [(path, rows) for _, rows in sorted(by_run.items())]
    if len(found) < 2:
        raise UserError(
            f"Found {len(found)} run, expected two or more to compare.",
            "python -m bench compare RUN RUN… (run folders or effects.csv files)",
        )
    counts = Counter(rows[0].run_id for _, rows in found)
    for run_id, count in counts.items():
        if count > 1 and len(found) > 2:
            where = ", ".join(str(path) for path, rows in found if rows[0].run_id == run_id)
            raise UserError(f"Run {run_id} is there {count} times: {where}.", "Give each run once.")
    return [
        Run(
            label=chr(ord("A") + place)
            if len(found) <= MOST_SIDE_BY_SIDE
            else f"{rows[0].machine_name} ({rows[0].run_id})",
            rows=tuple(rows),
        )
        for place, (_, rows) in enumerate(found)
    ]


def parse_bound(text: str) -> float:
    """``5%`` or ``0.05`` as 0.05; UserError for what is no share from 0 to below 1."""
    number, percent, rest = text.strip().partition("%")
    try:
        bound = float(number) / (100 if percent else 1)
    except ValueError:
        bound = -1.0
    if rest or not 0 <= bound < 1:
        raise UserError(
            f"--fail-if-slower: found {text!r}, expected a share such as 5% or 0.05.",
            "Five percent is --fail-if-slower 5%",
        )
    return bound


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shown:
    """What is written: the page with its picture, and the rows of compare.csv with their type."""

    page: Page
    gate: Gate | None
    record: type
    rows: Sequence[Any]
    draw: Callable[[], Figure]


def _side_by_side(runs: Sequence[Run], bound: float | None) -> _Shown:
    compared = [compare(runs[0], other) for other in runs[1:]]
    result = None if bound is None else gate(bound, compared)
    return _Shown(
        page=pairs_page(runs, compared, result),
        gate=result,
        record=ComparedEffect,
        rows=[row for its in compared for row in its],
        draw=lambda: pairs_picture(runs),
    )


def _over_machines(runs: Sequence[Run], bound: float | None) -> _Shown:
    found = distributions(runs)
    result = None if bound is None else gate(bound, _primary_only(runs))
    return _Shown(
        page=machines_page(runs, found, result),
        gate=result,
        record=EffectDistribution,
        rows=[its.row for its in found],
        draw=lambda: machines_picture(found, len(runs)),
    )


def _primary_only(runs: Sequence[Run]) -> list[list[ComparedEffect]]:
    """Each run compared with the first on primary metrics: the gate looks at nothing else."""
    short = [
        dataclasses.replace(run, rows=tuple(row for row in run.rows if row.is_primary))
        for run in runs
    ]
    return [compare(short[0], other) for other in short[1:]]


def _effects_file(path: Path) -> Path:
    """The effects.csv that ``path`` is or holds."""
    if path.is_dir():
        folder = RunFolder(path)
        if folder.effects.exists():
            return folder.effects
        if folder.plan.exists():
            raise UserError(
                f"{path} holds no effects.csv yet.", f"Write it: python -m bench report {path}"
            )
        raise UserError(
            f"{path} is not a run folder: it holds no effects.csv.",
            f"Give run folders or files; for a folder of files: {path / '*.csv'}",
        )
    if not path.exists():
        raise UserError(f"{path} does not exist.", "Give a run folder or an effects.csv file.")
    return path


def _folder(out: Path | None) -> Path:
    """The folder for what is written; UserError when it cannot be made."""
    folder = out or unused_folder(RESULTS / "local", "compare-")
    return made(folder, "folder for the comparison", OTHER_OUT)
