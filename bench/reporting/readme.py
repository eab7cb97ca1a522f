"""The README's picture and table of a real run, rewritten from the run's own files."""

from pathlib import Path

from bench.errors import UserError
from bench.records.run_folder import RunFolder
from bench.reporting.markdown import code, table, text
from bench.reporting.model import Report
from bench.reporting.units import interval_text, quantity

BEGIN = "<!-- results of {folder}: written by `python -m bench publish`, not by hand -->"
END = "<!-- end of results -->"
_BEGIN_HEAD, _BEGIN_TAIL = BEGIN.split("{folder}")


def published_folder(readme: str) -> str:
    """The folder, relative to the README, whose results it shows; UserError without markers."""
    rest = readme.partition(_BEGIN_HEAD)[2]
    folder, found, _ = rest.partition(_BEGIN_TAIL)
    if not found or END not in rest:
        raise UserError(
            "The README has no place for results: its markers are missing.",
            f"Put back the lines that begin with {_BEGIN_HEAD.strip()!r} and {END!r}.",
        )
    return folder


def with_results(readme: str, report: Report, folder: str) -> str:
    """``readme`` with what stands between its markers replaced by the results in ``folder``."""
    head = readme[: readme.index(_BEGIN_HEAD)]
    tail = readme[readme.index(END) :]
    begin = BEGIN.format(folder=folder)
    return f"{head}{begin}\n\n{_results(report, folder)}\n\n{tail}"


def is_current(readme_path: Path, report: Report) -> bool:
    """Whether the README shows just what the results that it names say."""
    readme = readme_path.read_text(encoding="utf-8")
    return with_results(readme, report, published_folder(readme)) == readme


def results_folder(readme_path: Path) -> RunFolder:
    """The published run that the README shows."""
    readme = readme_path.read_text(encoding="utf-8")
    return RunFolder.existing(readme_path.parent / published_folder(readme))


def _results(report: Report, folder: str) -> str:
    prices = {tip.tip.id for tip in report.tips if tip.tip.is_price}
    rows = []
    for tip in report.tips:
        if tip.tip.is_check:
            continue
        row = tip.headline
        rows.append(
            (
                code(row.tip),
                code(tip.tip.baseline.name),
                code(row.variant),
                text(quantity(row.value, row.unit)) if row.value is not None else "",
                text(interval_text(row, is_price=row.tip in prices)),
                text(row.verdict or ""),
            )
        )
    head = ("Tip", "Baseline", "Recommended", "Value", "Effect [95 %]", "Verdict")
    machine = dict(report.machine)
    return "\n\n".join(
        (
            f"![Each tip's effect with its 95 % interval]({folder}/figures/overview.png)",
            table(head, rows),
            f"{text(machine.get('CPU', report.machine_name))}, "
            f"{machine.get('Usable cores', '?')} cores, torch {machine.get('torch', '?')}, "
            f"profile `{report.plan.profile}`. All variants, pictures and evidence: "
            f"[report.md]({folder}/report.md).",
        )
    )
