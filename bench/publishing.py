"""Publish a run: copy it to ``results/<machine>/`` and show it in the README."""

import dataclasses
import math
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from bench.analysis.effects import effects
from bench.errors import UserError
from bench.records.effects import Effect, read_effects
from bench.records.measurements import read_measurements
from bench.records.privacy import names_of_this_user
from bench.records.run_folder import RESULTS, ROOT, RunFolder
from bench.reporting import model, readme
from bench.reporting.html import html
from bench.reporting.markdown import markdown
from bench.reporting.outputs import picture_names

README = ROOT / "README.md"
_PUBLISHED = ("*.json", "*.csv", "*.md", "*.html", "figures/*.png", "figures/*.svg")
"""What of a run's folder is published; whatever else lies there stays."""


def publish(run: Path) -> Path:
    """Copy the run to ``results/<machine>/`` and rewrite the README; returns the new folder.

    A run that lies there already is only shown in the README. Raises UserError when ``run`` is no
    run folder, claims no verdicts, was published before, or names this host, this user or a folder
    of theirs.
    """
    source = RunFolder.existing(run)
    machine = str(source.read_environment().get("machine_name"))
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", machine):
        raise UserError(
            f"{source.environment} has the machine_name {machine!r}, which names no folder.",
            "Give a run as the suite wrote it.",
        )
    target = RESULTS / machine / run.resolve().name
    is_published = target == run.resolve()
    if target.exists() and not is_published:
        raise UserError(
            f"{run} was published before: {target} exists.", "Remove that folder to do it again."
        )
    plan = source.read_plan()
    if not plan.claims_verdicts:
        raise UserError(
            f"{run} is a {plan.profile} run, which claims no verdicts: there is nothing to show.",
            "Publish a run of the profile quick or full.",
        )
    text = README.read_text(encoding="utf-8")
    readme.published_folder(text)
    shown = readme.with_results(text, _report(source), target.relative_to(ROOT))
    for path in _files(run):
        if found := sorted(names_of_this_user(_readable(path))):
            raise UserError(
                f"{path} names what is private: {', '.join(map(repr, found))}.",
                "Take it out of that file (and tell the suite's authors that it was written).",
            )
    if not is_published:
        for path in _files(run):
            copy = target / path.relative_to(run)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    README.write_text(readme.with_selfcheck(shown, ROOT), encoding="utf-8")
    return target


def stale() -> list[str]:
    """What published files say other than the measurements beside them: a sentence each.

    Of pictures only the names are looked at: their bytes depend on the versions that draw them.
    """
    found = []
    text = README.read_text(encoding="utf-8")
    folder = Path(readme.published_folder(text))
    shown = readme.with_results(text, _report(RunFolder.existing(ROOT / folder)), folder)
    if readme.with_selfcheck(shown, ROOT) != text:
        found.append(
            f"README.md does not show what its results say. Fix: python -m bench publish {folder}"
        )
    for plan in sorted(RESULTS.glob("*/*/plan.json")):
        run = RunFolder(plan.parent)
        if run.path.parent.name != "local" and (problem := _stale_report(run)):
            fix = f"python -m bench report {run.path.relative_to(ROOT)}"
            found.append(f"{run.path.relative_to(ROOT)}: {problem} Fix: {fix}")
    return found


def _stale_report(run: RunFolder) -> str | None:
    report = _report(run)
    rows = [row for tip in report.tips for row in tip.rows]
    if not run.effects.exists() or not _are_equal(read_effects(run.effects), rows):
        return "effects.csv is not what the measurements give."
    figures = run.path / "figures"
    pictures = {path.name for path in figures.glob("*")}
    if differing := sorted(pictures ^ set(picture_names(report))):
        return f"figures/ has too many or too few pictures ({', '.join(differing)})."
    for path, expected in ((run.markdown, markdown(report)), (run.report, html(report, figures))):
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        if written != expected:
            return f"{path.name} is not what the measurements give."
    return None


def _are_equal(written: Sequence[Effect], expected: Sequence[Effect]) -> bool:
    """Whether two sequences of rows say the same; the last digits may differ between machines."""
    if len(written) != len(expected):
        return False
    for one, other in zip(written, expected, strict=True):
        for its, theirs in zip(dataclasses.astuple(one), dataclasses.astuple(other), strict=True):
            if isinstance(its, float) and isinstance(theirs, float):
                if not math.isclose(its, theirs, rel_tol=1e-6, abs_tol=1e-9):
                    return False
            elif its != theirs:
                return False
    return True


def _report(folder: RunFolder) -> model.Report:
    plan, environment = folder.read_plan(), folder.read_environment()
    measurements = read_measurements(folder.measurements)
    return model.build(plan, environment, measurements, effects(measurements, plan, environment))


def _files(run: Path) -> Iterator[Path]:
    for pattern in _PUBLISHED:
        yield from sorted(run.glob(pattern))


def _readable(path: Path) -> str:
    """The text of a file: of a picture in pixels, what is written beside them."""
    if path.suffix == ".png":
        with Image.open(path) as picture:
            picture.load()
            return "\n".join(map(str, picture.info.items()))
    # A picture inside a page is random letters, two of which soon make a host's name.
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", path.read_text(encoding="utf-8", errors="replace"))
    return re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
