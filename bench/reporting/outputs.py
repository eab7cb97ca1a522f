"""Write what people read into a run's folder: ``report.html``, ``report.md`` and the pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bench.analysis.effects import effects as effects_of
from bench.errors import UserError
from bench.records.effects import Effect, write_effects
from bench.records.measurements import MeasurementWriter, read_measurements
from bench.records.plan import Plan
from bench.records.run_folder import RunFolder
from bench.reporting import model
from bench.reporting.course_picture import course_picture
from bench.reporting.drawing import save, style
from bench.reporting.html import html
from bench.reporting.markdown import markdown
from bench.reporting.model import Report
from bench.reporting.overview_picture import overview_picture
from bench.reporting.tip_picture import tip_picture


def conclude(folder: RunFolder) -> list[Effect]:
    """Write ``effects.csv``, both reports and the pictures of a run folder anew.

    Needs what the run left and nothing that it was measured with. A run that was stopped before
    its first turn gets an empty ``measurements.csv``. Raises UserError where it cannot be written.
    """
    plan, environment = folder.read_plan(), folder.read_environment()
    if not folder.measurements.exists():
        MeasurementWriter(folder.measurements).close()
    measurements = read_measurements(folder.measurements)
    found = effects_of(measurements, plan, environment)
    try:
        write_effects(folder.effects, found)
        write(folder.path, plan, environment, measurements, found)
    except OSError as error:
        raise UserError(
            f"The report cannot be written: {error.strerror} ({error.filename}).",
            "Mend that, then: python -m bench report with the run's folder.",
        ) from error
    return found


def write(
    folder: Path,
    plan: Plan,
    environment: Mapping[str, Any],
    measurements: pd.DataFrame,
    effects: Sequence[Effect],
) -> None:
    """Write both reports and ``figures/*.png`` and ``.svg`` into the run folder ``folder``.

    ``measurements`` are as :func:`read_measurements` gives them, ``effects`` as
    :func:`bench.analysis.effects.effects` does. What is there already is replaced.
    """
    report = model.build(plan, environment, measurements, effects)
    figures = folder / "figures"
    figures.mkdir(exist_ok=True)
    with style():
        save(overview_picture(report), figures, "overview", "What each tip is worth")
        save(course_picture(report), figures, "course", "Course of the run")
        for tip in report.tips:
            if not tip.tip.is_check:
                save(tip_picture(tip, report), figures, tip.picture, f"{tip.tip.id}, measured")
    run = RunFolder(folder)
    for path, content in ((run.report, html(report, figures)), (run.markdown, markdown(report))):
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(content, encoding="utf-8")
        partial.replace(path)


def picture_names(report: Report) -> list[str]:
    """The names of the files that :func:`write` puts into ``figures/``."""
    tips = [tip.picture for tip in report.tips if not tip.tip.is_check]
    return [f"{name}.{kind}" for name in ("overview", "course", *tips) for kind in ("png", "svg")]
