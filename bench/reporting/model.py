"""What a report says, as one value that every output (Markdown, screen, pictures) is made from."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from bench.analysis.course import TEMPERATURE_BAND, Course, course
from bench.analysis.noise import (
    RunWarning,
    flagged_turns,
    turn_spread,
    warnings,
)
from bench.records.effects import Effect, Verdict
from bench.records.measurements import CHECK
from bench.records.plan import Plan, PlannedTip
from bench.reporting.units import quantity

_ANSWERS: tuple[Verdict, ...] = (
    "failed", "fail", "warn", "inconclusive", "pass", "not measurable here",
)  # fmt: skip
_UNTOLD: tuple[Verdict, ...] = ("pass", "not measurable here")
"""Answers whose questions are counted and not named."""

_MACHINE_LABELS = {
    "machine_name": "Machine",
    "cpu_model": "CPU",
    "usable_cores": "Usable cores",
    "gpu_model": "GPU",
    "driver_version": "NVIDIA driver",
    "cuda_version": "CUDA",
    "torch_version": "torch",
    "torchvision_version": "torchvision",
    "python_version": "Python",
}
_SPELLED = {"gpu": "GPU", "cpu": "CPU", "cuda": "CUDA", "cudnn": "cuDNN"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """The evidence of one variant on one workload, as the arm gave it."""

    workload: str
    variant: str
    evidence: Mapping[str, Any]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Name and value of each fact, as text."""
        return [(str(name), _plain(value)) for name, value in self.evidence.items()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TipReport:
    """All that is said of one tip. ``rows`` are its rows of ``effects.csv``, in that order.

    ``turn_spread``: (workload, variant, spread of single turns as a fraction), a diagnostic.
    """

    tip: PlannedTip
    rows: tuple[Effect, ...]
    seen: tuple[Seen, ...]
    turn_spread: tuple[tuple[str, str, float], ...]

    @property
    def headline(self) -> Effect:
        """The primary pair's row: the recommended variant on the primary metric.

        The baseline's, which has no effect, where the run left the recommended variant out.
        """
        primary = [row for row in self.rows if row.is_primary]
        return next((row for row in primary if row.is_recommended), primary[0])

    @property
    def verdict(self) -> Verdict | None:
        """The headline's verdict; of a check the worst that a question got."""
        if not self.tip.is_check:
            return self.headline.verdict
        return next(
            verdict for verdict in _ANSWERS if verdict in {row.verdict for row in self.rows}
        )

    @property
    def picture(self) -> str:
        """The file name of the tip's picture, without its ending."""
        return self.tip.id

    def main_rows(self) -> Iterator[Effect]:
        """Each workload's main metric, all variants; empty for a check."""
        mains = {workload.name: workload.metrics[0].name for workload in self.tip.workloads}
        return (row for row in self.rows if row.metric == mains.get(row.workload))

    @property
    def answers(self) -> str:
        """How often a check's questions got each verdict: ``1 warn (open files), 9 pass``.

        Where none can be asked here for one and the same reason: that reason.
        """
        (first, reason), *others = {(row.verdict, row.reason) for row in self.rows}
        if first == "not measurable here" and not others:
            return f"{first}: {reason}"
        parts = []
        for verdict in _ANSWERS:
            names = [row.variant for row in self.rows if row.verdict == verdict]
            which = f" ({', '.join(names)})" if verdict not in _UNTOLD else ""
            if names:
                parts.append(f"{len(names)} {verdict}{which}")
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """A run as its readers see it.

    ``flags``: (tip, flag, turns). ``course`` is what the picture of the course is drawn from.
    """

    plan: Plan
    machine: tuple[tuple[str, str], ...]
    warnings: tuple[RunWarning, ...]
    tips: tuple[TipReport, ...]
    flags: tuple[tuple[str, str, int], ...]
    unwatched: tuple[str, ...]
    """What could have disturbed a turn and was not seen in any."""
    turns: int
    course: Course
    command: str

    @property
    def machine_name(self) -> str:
        """The machine's name as people compare it, from its hardware."""
        return dict(self.machine).get(_MACHINE_LABELS["machine_name"], "")

    @property
    def course_sentences(self) -> tuple[str, ...]:
        """What to say beside the picture of the course; the flags have a table of their own."""
        if not self.turns:
            return ("No turn was measured.",)
        flagged = (
            f"Of {self.turns:,} turns these were flagged. They are kept in all figures."
            if self.flags
            else f"None of the {self.turns:,} turns was flagged."
        )
        unwatched = (f"Not known here, so never flagged: {what}." for what in self.unwatched)
        return (*_temperature_sentence(self.course), flagged, *unwatched)


def build(
    plan: Plan,
    environment: Mapping[str, Any],
    measurements: pd.DataFrame,
    effects: Sequence[Effect],
) -> Report:
    """Gather what a run's report says; all outputs are made from the value returned."""
    spread = turn_spread(measurements)
    return Report(
        plan=plan,
        machine=tuple(_machine(environment)),
        warnings=tuple(warnings(measurements, plan, effects)),
        tips=tuple(_tip_report(tip, measurements, effects, spread) for tip in plan.tips),
        flags=tuple(flagged_turns(measurements).itertuples(index=False, name=None)),
        unwatched=tuple(_unwatched(plan, measurements)),
        turns=int(measurements["block"].notna().sum()),
        course=course(measurements),
        command=command(plan),
    )


def _unwatched(plan: Plan, measurements: pd.DataFrame) -> Iterator[str]:
    if measurements["foreign_cpu_percent"].isna().all():
        yield "what other processes did (this system has no /proc)"
    if plan.device != "cpu" and (measurements["gpu_throttle_reasons"] == "").all():
        yield "whether the GPU was throttled (NVML told nothing; pip install nvidia-ml-py)"


def _temperature_sentence(course: Course) -> Iterator[str]:
    seen = course.temperatures
    if seen is None:
        return
    low, high = TEMPERATURE_BAND
    turns = seen.below + seen.inside + seen.above
    stayed = "stayed" if seen.inside == turns else "did not stay"
    where = f": {seen.below:,} below it, {seen.inside:,} inside and {seen.above:,} above"
    yield (
        f"The GPU {stayed} in the {low:.0f} to {high:.0f} °C that the article names: it had "
        f"{seen.lowest:.0f} to {seen.highest:.0f} °C at the ends of {turns:,} turns"
        f"{where if seen.inside != turns else ''}."
    )


def label(row: Effect) -> str:
    """The variant with its tip: ``jpeg_decoder (PyTurboJPEG)``, ``num_workers=1``."""
    if row.variant.startswith(row.tip):
        return row.variant
    return f"{row.tip} ({row.variant})"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _machine(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Label and text of every plain fact that is known, the best known ones first."""
    for key in [*_MACHINE_LABELS, *(key for key in environment if key not in _MACHINE_LABELS)]:
        value = environment.get(key)
        if key in ("machine_id", "schema_version", "run_id") or value in (None, ""):
            continue
        words = key.removesuffix("_bytes").capitalize().split("_")
        label = _MACHINE_LABELS.get(
            key, " ".join(_SPELLED.get(word.lower(), word) for word in words)
        )
        match value:
            case int() | float() if key.endswith("_bytes"):
                yield label, quantity(value, "bytes")
            case str() | int() | float():
                yield label, str(value)
            case Mapping():
                yield label, ", ".join(f"{name} {its}" for name, its in value.items())


_TIMED = ("samples", "latency_p50_seconds")
"""Columns of metrics that the spread of single turns is a spread of."""


def _tip_report(
    tip: PlannedTip, measurements: pd.DataFrame, effects: Sequence[Effect], spread: pd.DataFrame
) -> TipReport:
    timed = [its.name for its in tip.workloads if its.metrics[0].column in _TIMED]
    own = spread[(spread["tip"] == tip.id) & spread["workload"].isin(timed)]
    return TipReport(
        tip=tip,
        rows=tuple(row for row in effects if row.tip == tip.id),
        seen=tuple(_seen(tip, measurements)),
        turn_spread=tuple(
            (workload, variant, fraction)
            for workload, variant, fraction in zip(
                own["workload"], own["variant"], own["spread"], strict=True
            )
            if pd.notna(fraction)
        ),
    )


def _seen(tip: PlannedTip, measurements: pd.DataFrame) -> Iterator[Seen]:
    """The evidence that each variant gave on each workload: all of one replicate, if any is whole.

    What is drawn anew in each replicate, such as digits, differs between them.
    """
    own = measurements[(measurements["tip"] == tip.id) & (measurements["evidence"] != "")]
    for workload in [workload.name for workload in tip.workloads] or [CHECK]:
        its = own[own["workload"] == workload]
        gave = its.groupby("replicate")["variant"].nunique()
        whole = gave[gave == its["variant"].nunique()].index
        if len(whole):
            its = its[its["replicate"] == whole.max()]
        last = its.drop_duplicates("variant", keep="last")
        cells = dict(zip(last["variant"], last["evidence"], strict=True))
        for variant in tip.variants:
            if variant.name in cells:
                yield Seen(
                    workload=workload,
                    variant=variant.name,
                    evidence=json.loads(cells[variant.name]),
                )


def command(plan: Plan) -> str:
    """The command line that repeats the run.

    ``DIR``, ``PATH`` and ``HOST:PORT`` stand for what a plan hides.
    """
    words = ["python", "-m", "bench", "run", "--profile", plan.profile]
    words += ["--tips", ",".join(tip.id for tip in plan.tips)]
    words += ["--seed", str(plan.seed), "--margin", f"{plan.margin:g}"]
    budget = plan.options.get("budget_seconds")
    if budget is not None:
        words += ["--budget", f"{budget:g}s"]
    if plan.options.get("own_images"):
        words += ["--data", "DIR"]
    words += ["--storage", "PATH"] * plan.options.get("storage_places", 0)
    if plan.options.get("own_model"):
        words += ["--model", plan.model]
    words += ["--image-size", str(plan.image_size), "--batch-size", str(plan.batch_size)]
    words += ["--device", plan.device]
    if (nnodes := plan.options.get("nnodes", 1)) > 1:
        words += ["--nnodes", str(nnodes), "--rdzv-endpoint", "HOST:PORT"]
    return shlex.join(words)
