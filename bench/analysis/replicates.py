"""From turns to one number a replicate: the values that intervals are taken over.

Plain dictionaries, since a pair has about thirty turns and pandas would take ten times as long.
"""

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pandas as pd

from bench.records.plan import Metric, PlannedWorkload

Cells = Mapping[str, float]
"""A row's numbers by column; NaN is not known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadTurns:
    """What is needed of the rows with status ``ok`` of one tip and workload.

    ``timed``: variant → (replicate, block) → cells of that turn. ``replicates``: variant →
    replicate → cells of all its rows, the memory reading's too, of each column the last that is
    known.
    """

    timed: Mapping[str, Mapping[tuple[int, int], Cells]]
    replicates: Mapping[str, Mapping[int, Cells]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicateValues:
    """One number a replicate and variant: ``values[variant][i]`` is of replicate number ``i``.

    ``blocks``: how many blocks these replicates hold in all.
    """

    values: Mapping[str, Sequence[float]]
    replicates: int
    blocks: int

    @property
    def are_positive(self) -> bool:
        """Whether a ratio of these values can be taken."""
        return all(value > 0 for column in self.values.values() for value in column)


def workload_turns(
    measurements: pd.DataFrame, tip: str, workload: PlannedWorkload
) -> WorkloadTurns:
    """Sort out the rows of one tip and workload.

    Of a turn that was measured again after a killed run, the later row counts.
    """
    columns = {metric.column for metric in workload.metrics} | {"seconds"}
    rows = measurements[
        (measurements["tip"] == tip)
        & (measurements["workload"] == workload.name)
        & (measurements["status"] == "ok")
        & measurements["replicate"].notna()
    ]
    timed: dict[str, dict[tuple[int, int], Cells]] = defaultdict(dict)
    replicates: dict[str, dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows[["variant", "replicate", "block", *columns]].to_dict("records"):
        variant, replicate = row["variant"], int(row["replicate"])
        cells = {column: float(row[column]) for column in columns if pd.notna(row[column])}
        replicates[variant][replicate] |= cells
        if pd.notna(row["block"]) and "seconds" in cells:
            timed[variant][replicate, int(row["block"])] = cells
    return WorkloadTurns(timed=timed, replicates=replicates)


def replicate_values(
    turns: WorkloadTurns, metric: Metric, variants: Sequence[str], blocks: int
) -> ReplicateValues:
    """``metric`` of each replicate that all of ``variants`` finished, in the metric's unit.

    A replicate with fewer than ``blocks`` blocks in which each of them finished its turn was cut
    short and is left out, and so is one in which a variant has no finite value. What is read
    ``once`` needs no turns: memory is read from an arm that runs alone. Arms that were measured
    in several sets pair with the baseline of their own set.
    """
    shared = finished_blocks(turns, variants, blocks)
    numbers = shared if metric.aggregate != "once" else _seen_replicates(turns, variants)
    found = {
        number: [
            _value(turns, metric, variant, number, shared.get(number, ())) for variant in variants
        ]
        for number in numbers
    }
    kept = [number for number, row in found.items() if all(map(math.isfinite, row))]
    return ReplicateValues(
        values={
            variant: [found[number][column] for number in kept]
            for column, variant in enumerate(variants)
        },
        replicates=len(kept),
        blocks=sum(len(shared.get(number, ())) for number in kept),
    )


def _seen_replicates(turns: WorkloadTurns, variants: Sequence[str]) -> list[int]:
    seen = (set(turns.replicates.get(variant, ())) for variant in variants)
    return sorted(set.intersection(*seen))


def finished_blocks(
    turns: WorkloadTurns, variants: Sequence[str], blocks: int
) -> dict[int, list[int]]:
    """The blocks that all of ``variants`` finished, by replicate, where these are enough."""
    keys = set.intersection(*(set(turns.timed.get(variant, ())) for variant in variants))
    by_replicate: dict[int, list[int]] = defaultdict(list)
    for replicate, block in sorted(keys):
        by_replicate[replicate].append(block)
    return {number: its for number, its in by_replicate.items() if len(its) >= blocks}


def _value(
    turns: WorkloadTurns, metric: Metric, variant: str, replicate: int, blocks: Sequence[int]
) -> float:
    if metric.aggregate == "once":
        return turns.replicates[variant][replicate].get(metric.column, math.nan)
    its = [turns.timed[variant][replicate, block] for block in blocks]
    cells = [turn.get(metric.column, math.nan) for turn in its]
    match metric.aggregate:
        case "rate":
            seconds = sum(turn["seconds"] for turn in its)
            return sum(cells) / seconds if seconds > 0 else math.nan
        case "mean":
            return statistics.fmean(cells)
