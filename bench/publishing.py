"""Publish a run: copy it to ``results/<machine>/`` and show it in the README."""

import shutil
from pathlib import Path

from bench.analysis.effects import effects
from bench.engine.processes import ROOT
from bench.errors import UserError
from bench.records.measurements import read_measurements
from bench.records.run_folder import RESULTS, RunFolder
from bench.reporting import model, readme

README = ROOT / "README.md"


def publish(run: Path) -> Path:
    """Copy the run folder as it is and rewrite the README; returns the new folder.

    Raises UserError when ``run`` is no run folder or was published before.
    """
    source = RunFolder.existing(run)
    target = RESULTS / source.read_environment()["machine_name"] / run.resolve().name
    if target.exists():
        raise UserError(
            f"{run} was published before: {target} exists.", "Remove that folder to do it again."
        )
    text = README.read_text(encoding="utf-8")
    readme.published_folder(text)
    shown = readme.with_results(text, _report(source), target.relative_to(ROOT).as_posix())
    shutil.copytree(run, target)
    README.write_text(shown, encoding="utf-8")
    return target


def readme_is_current() -> bool:
    """Whether the README shows what the results that it names say."""
    return readme.is_current(README, _report(readme.results_folder(README)))


def _report(folder: RunFolder) -> model.Report:
    plan, environment = folder.read_plan(), folder.read_environment()
    measurements = read_measurements(folder.measurements)
    return model.build(plan, environment, measurements, effects(measurements, plan, environment))
