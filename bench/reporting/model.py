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
    aa_rows,
    flagged_turns,
    primary_pairs,
    turn_spread,
    warnings,
)
from bench.records.effects import Effect, Verdict
from bench.records.measurements import CHECK
from bench.records.plan import Plan, PlannedTip
from bench.reporting.units import effect_text, interval_text, percent, quantity

GAINS: tuple[Verdict, ...] = ("helps", "gain, size unclear")
LOSSES: tuple[Verdict, ...] = ("hurts", "loss, size unclear")

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
        """The primary pair's row: the recommended variant on the primary metric."""
        return next(row for row in self.rows if row.is_primary and row.is_recommended)

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
    summary: tuple[str, str, str]
    machine: tuple[tuple[str, str], ...]
    warnings: tuple[RunWarning, ...]
    tips: tuple[TipReport, ...]
    flags: tuple[tuple[str, str, int], ...]
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
        return (*_temperature_sentence(self.course), flagged)


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
        summary=summary(plan, effects),
        machine=tuple(_machine(environment)),
        warnings=tuple(warnings(measurements, plan, effects)),
        tips=tuple(_tip_report(tip, measurements, effects, spread) for tip in plan.tips),
        flags=tuple(flagged_turns(measurements).itertuples(index=False, name=None)),
        turns=int(measurements["block"].notna().sum()),
        course=course(measurements),
        command=command(plan),
    )


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


def summary(plan: Plan, effects: Sequence[Effect]) -> tuple[str, str, str]:
    """Three sentences: what helped most, what did not, how sure that is."""
    prices = {tip.id for tip in plan.tips if tip.is_price}
    rows = [row for row in primary_pairs(effects) if row.section != "A/A"]
    return (
        _what_helped([row for row in rows if row.tip not in prices], plan),
        _what_did_not(rows, prices),
        _how_sure(effects, plan),
    )


def _what_helped(rows: Sequence[Effect], plan: Plan) -> str:
    helped = [row for row in rows if row.verdict in GAINS]
    if not helped:
        if not plan.claims_verdicts:
            return (
                f"This {plan.profile} run shows that everything runs; "
                "it claims nothing about what helps."
            )
        return "No tip was seen to help here."
    ratios = sorted(
        (row for row in helped if row.effect_kind == "ratio"), key=lambda row: -(row.effect or 0)
    )
    ordered = ratios + [row for row in helped if row.effect_kind != "ratio"]
    named = [f"{label(row)} {effect_text(row)}" for row in ordered]
    if len(named) == 1:
        return f"One tip helped: {named[0]}."
    more = f"; then {', '.join(named[1:4])}" if named[1:] else ""
    rest = f" and {len(named) - 4} more" if len(named) > 4 else ""
    return f"What helped most was {named[0]}{more}{rest}."


def _what_did_not(rows: Sequence[Effect], prices: set[str]) -> str:
    def those(*verdicts: Verdict | None) -> list[Effect]:
        return [row for row in rows if row.verdict in verdicts and row.tip not in prices]

    parts = []
    if hurt := those(*LOSSES):
        told = ", ".join(f"{label(row)} {effect_text(row)}" for row in hurt)
        parts.append(f"{told} made it worse")
    priced = [row for row in rows if row.tip in prices and row.effect is not None]
    parts += [f"{label(row)} {interval_text(row, is_price=True)}" for row in priced]
    if same := those("no difference"):
        parts.append(f"{_list(same)} made no difference")
    if unclear := those("inconclusive"):
        parts.append(f"{_list(unclear)} stayed inconclusive")
    if absent := [row for row in rows if row.verdict == "not measurable here"]:
        parts.append(f"{_list(absent)} cannot be measured on this machine")
    if failed := [row for row in rows if row.verdict == "failed"]:
        parts.append(f"{_list(failed)} failed")
    if not parts:
        return "No other tip was measured."
    return f"Of the rest, {'; '.join(parts)}."


def _how_sure(effects: Sequence[Effect], plan: Plan) -> str:
    intervals = [row for row in primary_pairs(effects) if row.ci_low is not None]
    if not intervals:
        return "How sure: not at all yet, since no interval could be taken."
    replicates = sorted({row.replicates for row in intervals})
    number = str(replicates[0]) if len(replicates) == 1 else f"{replicates[0]} to {replicates[-1]}"
    aa = [row for row in aa_rows(effects) if row.effect is not None]
    pairs = ""
    if aa:
        told = ", ".join(f"{row.tip} {effect_text(row)}" for row in aa)
        pairs = f", and the same thing measured twice read {told}"
    return (
        f"How sure: each of the {len(intervals)} primary intervals (95 %, {number} replicates, "
        f"margin ±{percent(plan.margin)}) holds its true effect with 95 %, so about one in "
        f"twenty misses by chance{pairs}."
    )


def _list(rows: Sequence[Effect]) -> str:
    names = [row.tip for row in rows]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


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


def _tip_report(
    tip: PlannedTip, measurements: pd.DataFrame, effects: Sequence[Effect], spread: pd.DataFrame
) -> TipReport:
    own = spread[spread["tip"] == tip.id]
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
    """The last evidence that each variant gave on each workload."""
    own = measurements[
        (measurements["tip"] == tip.id) & (measurements["evidence"].fillna("") != "")
    ]
    last = own.drop_duplicates(["workload", "variant"], keep="last")
    cells = last.set_index(["workload", "variant"])["evidence"].to_dict()
    for workload in [workload.name for workload in tip.workloads] or [CHECK]:
        for variant in tip.variants:
            if (workload, variant.name) in cells:
                yield Seen(
                    workload=workload,
                    variant=variant.name,
                    evidence=json.loads(cells[workload, variant.name]),
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
