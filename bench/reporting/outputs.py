"""Write what people read into a run's folder: ``report.md`` and the pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bench.records.effects import Effect
from bench.records.plan import Plan
from bench.reporting import model
from bench.reporting.course_picture import course_picture
from bench.reporting.drawing import save, style
from bench.reporting.markdown import markdown
from bench.reporting.model import Report
from bench.reporting.overview_picture import overview_picture
from bench.reporting.tip_picture import tip_picture


def write(
    folder: Path,
    plan: Plan,
    environment: Mapping[str, Any],
    measurements: pd.DataFrame,
    effects: Sequence[Effect],
) -> None:
    """Write ``report.md`` and ``figures/*.png`` and ``.svg`` into the run folder ``folder``.

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
    partial = folder / "report.md.partial"
    partial.write_text(markdown(report), encoding="utf-8")
    partial.replace(folder / "report.md")


def picture_names(report: Report) -> list[str]:
    """The names of the files that :func:`write` puts into ``figures/``."""
    tips = [tip.picture for tip in report.tips if not tip.tip.is_check]
    return [f"{name}.{kind}" for name in ("overview", "course", *tips) for kind in ("png", "svg")]
