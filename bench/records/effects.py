"""``effects.csv``: one row a variant and metric, with all that is needed to compare machines."""

import csv
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

from bench.records.measurements import SCHEMA_VERSION, text_columns

EffectKind = Literal["ratio", "difference"]
Verdict = Literal[
    "helps",
    "hurts",
    "gain, size unclear",
    "loss, size unclear",
    "no difference",
    "inconclusive",
    "pass",
    "warn",
    "fail",
    "not measurable here",
    "failed",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect:
    """One row of ``effects.csv``.

    ``effect`` with its 95 % interval ``ci_low`` to ``ci_high`` is variant against baseline: a
    ratio (1 is no effect) or a difference (0 is none), always turned so that more is better.
    ``standard_error`` is that of the log ratio, or of the difference. ``value`` and
    ``baseline_value`` are in ``unit``. What is not known is None here and empty in the file.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    machine_id: str
    machine_name: str
    cpu_model: str | None
    usable_cores: int | None
    gpu_model: str | None
    driver_version: str | None
    cuda_version: str | None
    torch_version: str | None
    torchvision_version: str | None
    python_version: str | None
    profile: str
    workload: str
    model: str | None
    batch_size: int | None
    image_size: int | None
    threads: int | None
    start_method: str | None
    section: str
    tip: str
    variant: str
    is_baseline: bool
    is_recommended: bool
    metric: str
    unit: str
    is_primary: bool
    baseline_value: float | None = None
    value: float | None = None
    effect_kind: EffectKind = "ratio"
    effect: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    standard_error: float | None = None
    degrees_of_freedom: int | None = None
    verdict: Verdict | None = None
    reason: str | None = None
    replicates: int = 0
    blocks: int = 0
    margin: float | None = None
    is_exploratory: bool = False


COLUMNS = tuple(field.name for field in dataclasses.fields(Effect))

_TEXT = text_columns(Effect)


def write_effects(path: Path, effects: Iterable[Effect]) -> None:
    """Write the rows to ``path``, replacing what is there in one step."""
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for effect in effects:
            row = dataclasses.astuple(effect)
            writer.writerow(["" if value is None else value for value in row])
    partial.replace(path)


def read_effects(path: Path) -> "pd.DataFrame":
    """Read ``effects.csv`` as it was written: text columns as str, unknown numbers as NaN."""
    import pandas as pd

    return pd.read_csv(
        path,
        dtype=dict.fromkeys(_TEXT, "str"),
        keep_default_na=False,
        na_values={name: [""] for name in COLUMNS if name not in _TEXT},
    )
