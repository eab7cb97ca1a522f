"""The README's picture and tables of a real run, rewritten from the run's own files."""

import csv
from collections.abc import Iterator
from pathlib import Path

from bench.errors import UserError
from bench.reporting.markdown import code, table, text
from bench.reporting.model import Report
from bench.reporting.sentences import GAINS
from bench.reporting.units import interval_text, quantity

BEGIN = "<!-- results of {folder}: written by `python -m bench publish`, not by hand -->"
END = "<!-- end of results -->"
_BEGIN_HEAD, _BEGIN_TAIL = BEGIN.split("{folder}")
SELFCHECK_BEGIN = "<!-- selfcheck of that machine: written by `python -m bench publish` too -->"
SELFCHECK_END = "<!-- end of selfcheck -->"
_SELFCHECK_COLUMNS = {
    "check", "workload", "figure", "value", "ci_low", "ci_high", "trials", "required", "holds",
}  # fmt: skip
_SELFCHECK_HEAD = ("Check", "Workload", "Figure", "Seen", "Of", "Required", "Holds")


def published_folder(readme: str) -> str:
    """The folder, relative to the README, whose results it shows; UserError without markers."""
    rest = readme.partition(_BEGIN_HEAD)[2]
    folder, found, _ = rest.partition(_BEGIN_TAIL)
    missing = [mark for mark in (END, SELFCHECK_BEGIN, SELFCHECK_END) if mark not in rest]
    if not found or missing:
        marks = [BEGIN.format(folder="results/…"), END, SELFCHECK_BEGIN, SELFCHECK_END]
        raise UserError(
            "The README has no place for results: its markers are missing.",
            f"Put back, in this order and each on a line of its own: {' '.join(marks)}",
        )
    return folder


def with_results(readme: str, report: Report, folder: Path) -> str:
    """``readme`` with what stands between its markers replaced by the results in ``folder``."""
    name = folder.as_posix()
    head = readme[: readme.index(_BEGIN_HEAD)]
    tail = readme[readme.index(END) :]
    return f"{head}{BEGIN.format(folder=name)}\n\n{_results(report, name)}\n\n{tail}"


def with_selfcheck(readme: str, root: Path) -> str:
    """``readme`` with the figures of ``selfcheck.csv`` beside the run that it shows, if there.

    ``root``: the folder that the README's own paths start from.
    """
    path = Path(published_folder(readme)).parent / "selfcheck.csv"
    head = readme[: readme.index(SELFCHECK_BEGIN)]
    tail = readme[readme.index(SELFCHECK_END) :]
    told = f"{_selfcheck(root / path, path)}\n\n" if (root / path).exists() else ""
    return f"{head}{SELFCHECK_BEGIN}\n\n{told}{tail}"


def _selfcheck(path: Path, shown: Path) -> str:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not _SELFCHECK_COLUMNS <= rows[0].keys():
        raise UserError(
            f"{path} holds no figures of the selfcheck.", f"python -m bench selfcheck --out {path}"
        )
    judged = [row for row in rows if row["holds"]]
    held = sum(row["holds"] == "True" for row in judged)
    return "\n\n".join(
        (
            f"<details><summary>The suite, measured by itself on that machine: {held} of "
            f"{len(judged)} requirements hold</summary>",
            table(_SELFCHECK_HEAD, map(_finding, rows), numbers=(3, 4)),
            f"From [{shown.name}]({shown.as_posix()}); `python -m bench selfcheck` makes yours.",
            "</details>",
        )
    )


def _finding(row: dict[str, str]) -> tuple[str, ...]:
    seen = f"{float(row['value']):.3g}"
    if row["ci_low"]:
        value, low, high = (float(row[name]) for name in ("value", "ci_low", "ci_high"))
        seen = f"{value:.3f} [{low:.3f}, {high:.3f}]"
    holds = {"True": "yes", "False": "**no**"}.get(row["holds"], "")
    cells = (row["check"], row["workload"], row["figure"], seen, row["trials"], row["required"])
    return (*map(text, cells), holds)


def _results(report: Report, folder: str) -> str:
    machine = dict(report.machine)
    return "\n\n".join(
        (
            f"![Each tip's effect with its 95 % interval]({folder}/figures/overview.png)",
            f"{text(machine.get('CPU', report.machine_name))}, "
            f"{machine.get('Usable cores', '?')} cores, torch {machine.get('torch', '?')}, "
            f"profile `{report.plan.profile}`. All variants, pictures and evidence: "
            f"[report.md]({folder}/report.md).",
            "<details><summary>The same as a table</summary>",
            table(
                ("Tip", "Baseline", "Recommended", "Value", "Effect [95 %]", "Verdict"),
                _rows(report),
            ),
            "</details>",
        )
    )


def _rows(report: Report) -> Iterator[tuple[str, ...]]:
    for tip in report.tips:
        if tip.tip.is_check:
            yield code(tip.tip.id), "a check", "", "", "", text(tip.answers)
            continue
        row = tip.headline
        verdict: str = row.verdict or ""
        if tip.tip.is_price and row.verdict in GAINS:
            verdict = "no cost seen"
        yield (
            code(row.tip),
            code(tip.tip.baseline.name),
            code(row.variant),
            text(quantity(row.value, row.unit)) if row.value is not None else "",
            text(interval_text(row, is_price=tip.tip.is_price)),
            text(verdict),
        )
