"""Synthetic runs: plans, turns with planted ratios, machines. No clock, no torch."""

import dataclasses
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from bench.records.measurements import COLUMNS, MeasurementWriter, Turn, read_measurements
from bench.records.plan import (
    Metric,
    Plan,
    PlannedTip,
    PlannedVariant,
    PlannedWorkload,
    Section,
)

RATE = Metric(name="images_per_second", unit="images/s", column="samples", aggregate="rate")
BYTES_RATE = Metric(
    name="payload_bytes_per_second", unit="bytes/s", column="payload_bytes", aggregate="rate"
)
BYTES_A_BYTE = Metric(
    name="peak_bytes_per_data_byte",
    unit="bytes/byte",
    column="peak_bytes_per_data_byte",
    aggregate="once",
    higher_is_better=False,
    kind="difference",
    margin=0.03,
)
LATENCY = Metric(
    name="latency_p50_seconds",
    unit="s",
    column="latency_p50_seconds",
    aggregate="mean",
    higher_is_better=False,
)
ACCURACY = Metric(
    name="accuracy",
    unit="points",
    column="accuracy_percent",
    aggregate="mean",
    kind="difference",
    margin=0.5,
)

BASELINE_LEVEL: Mapping[str, float] = {
    "samples": 500.0,
    "payload_bytes": 55e6,
    "startup_seconds": 0.12,
    "build_seconds": 3.0,
    "peak_host_pss_bytes": 180e6,
    "peak_bytes_per_data_byte": 1.0,
    "latency_p50_seconds": 0.0123,
    "accuracy_percent": 91.0,
}
"""What a baseline shows: the column's value, or a second of it for rates."""

LENGTH = 10**6
"""Turns are so many times as long as the plan says: samples are whole numbers, and only many of
them show a rate to the last digit."""

_COUNTS = {field.name for field in dataclasses.fields(Turn) if field.type == int | None}

Effects = Callable[[str, str, str, Metric], float]
"""The planted effect of (tip, workload, variant, metric): a ratio or a difference of values."""


def make_tip(
    tip: str = "num_workers",
    *names: str,
    section: Section = "Data loading",
    metrics: tuple[Metric, ...] = (RATE,),
    workloads: tuple[str, ...] = ("loader",),
    recommended: int = 1,
    reasons: Mapping[str, str] | None = None,
    exploratory: tuple[str, ...] = (),
    is_price: bool = False,
    note: str = "",
) -> PlannedTip:
    """A planned tip; the first of ``names`` is the baseline."""
    names = names or ("off", "on")
    return PlannedTip(
        id=tip,
        section=section,
        claim=f"{tip} makes it faster.",
        card=f"Why {tip} should work, and when it should not.",
        is_price=is_price,
        note=note,
        variants=tuple(
            PlannedVariant(
                name=name,
                is_baseline=index == 0,
                is_recommended=index == recommended,
                is_exploratory=name in exploratory,
                reason=(reasons or {}).get(name),
            )
            for index, name in enumerate(names)
        ),
        workloads=tuple(PlannedWorkload(name=name, metrics=metrics) for name in workloads),
    )


def make_plan(*tips: PlannedTip, **changes: Any) -> Plan:
    """A plan of ``tips``, five replicates of four blocks each."""
    plan = Plan(
        run_id="20260101T120000Z",
        profile="quick",
        claims_verdicts=True,
        seed=1,
        margin=0.03,
        primary_replicates=5,
        other_replicates=5,
        most_replicates=10,
        blocks=4,
        turn_seconds=0.15,
        model="small_cnn",
        batch_size=16,
        image_size=224,
        threads=2,
        device="cpu",
        start_method="fork",
        images={"name": "embedded", "count": 1000, "total_bytes": 110_000_000, "left_out": {}},
        tips=tips or (make_tip(),),
    )
    return dataclasses.replace(plan, **changes)


def make_environment(number: int = 0) -> dict[str, Any]:
    """What ``environment.json`` says of the ``number``-th machine."""
    cores = 2 ** (1 + number % 6)
    return {
        "machine_id": f"{number:032x}",
        "machine_name": f"made-up-{number}-{cores}c",
        "cpu_model": "Made-Up CPU",
        "usable_cores": cores,
        "torch_version": "2.14.1",
        "torchvision_version": "0.29.1",
        "python_version": "3.11.2",
        "memory_bytes": 8 * 2**30,
    }


def make_turns(
    plan: Plan,
    planted: Effects = lambda tip, workload, variant, metric: float(metric.kind == "ratio"),
    *,
    replicates: int | None = None,
    replicate_noise: float = 0.0,
    turn_noise: float = 0.0,
    seed: int = 0,
) -> list[Turn]:
    """Turns of ``plan`` with planted effects.

    ``replicate_noise``: standard deviation of the log ratio between replicates;
    ``turn_noise``: that of the machine's speed, which the turns of a block share.
    """
    random = np.random.default_rng(seed)
    turns: list[Turn] = []
    for number in range(plan.primary_replicates if replicates is None else replicates):
        for tip in plan.tips:
            for workload in tip.workloads:
                speed = np.exp(turn_noise * random.standard_normal(plan.blocks))
                for variant in tip.variants:
                    if variant.reason is None:
                        shift = 0.0 if variant.is_baseline else replicate_noise
                        turns += _arm(
                            plan, tip, workload, variant, planted, number, speed,
                            np.exp(shift * random.standard_normal()),
                        )  # fmt: skip
    return turns


def _arm(
    plan: Plan,
    tip: PlannedTip,
    workload: PlannedWorkload,
    variant: PlannedVariant,
    planted: Effects,
    replicate: int,
    speed: np.ndarray,
    shift: float,
) -> list[Turn]:
    def level(metric: Metric) -> float:
        base = BASELINE_LEVEL[metric.column]
        if variant.is_baseline:
            return base
        effect = planted(tip.id, workload.name, variant.name, metric)
        return base * effect * shift if metric.kind == "ratio" else base + effect + np.log(shift)

    common: dict[str, Any] = {
        "run_id": plan.run_id,
        "machine_id": make_environment()["machine_id"],
        "tip": tip.id,
        "workload": workload.name,
        "variant": variant.name,
        "is_baseline": variant.is_baseline,
        "replicate": replicate,
    }
    turns = []
    for block in range(plan.blocks):
        # A turn is as long as its samples need, so that the rate is exact.
        seconds = LENGTH * plan.turn_seconds / float(speed[block])
        cells: dict[str, Any] = {"samples": 75 * LENGTH, "seconds": seconds}
        for metric in workload.metrics:
            if metric.aggregate == "once" and metric.column != "startup_seconds":
                continue
            if metric.aggregate == "once" and block:
                continue
            per_second = metric.aggregate == "rate"
            length = LENGTH * plan.turn_seconds if per_second else 1
            cells[metric.column] = as_counted(metric.column, level(metric) * length)
        if block == 0:
            cells["evidence"] = {"applied": variant.name}
        turns.append(Turn(**common, block=block, position=0, **cells))
    once: dict[str, Any] = {
        metric.column: as_counted(metric.column, level(metric))
        for metric in workload.metrics
        if metric.aggregate == "once" and metric.column != "startup_seconds"
    }
    if once:
        turns.append(Turn(**common, **once))
    return turns


def as_counted(column: str, value: float) -> float:
    """``value`` as its column can hold it: samples and bytes are whole numbers."""
    return round(value) if column in _COUNTS else value


def as_read(turns: list[Turn]) -> pd.DataFrame:
    """The turns, written to ``measurements.csv`` and read back."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "measurements.csv"
        writer = MeasurementWriter(path)
        for turn in turns:
            writer.append(turn)
        writer.close()
        return read_measurements(path)


def no_measurements() -> pd.DataFrame:
    """What a run that was stopped before its first turn leaves."""
    return pd.read_csv(io.StringIO(",".join(COLUMNS) + "\n"))
