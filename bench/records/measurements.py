"""``measurements.csv``: one row a turn, appended and flushed as it happens."""

import csv
import dataclasses
import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from bench.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1

CHECK = "check"
"""The workload column of a check's rows."""

Status = Literal["ok", "failed", "not measurable here"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One row of ``measurements.csv``: what one arm did in one turn.

    A value that is not known is None here and empty in the file, never 0. A row without a
    ``block`` is not a timed turn: it holds a memory reading, a check's ``verdict``, or the reason
    why nothing was measured. ``seconds`` is the clock's time for ``samples`` samples. ``ended_at``
    is when the turn ended, in UTC as ISO 8601 with milliseconds; runs of older versions have no
    such column. Fields from ``payload_bytes`` on are a tip's own readings.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    machine_id: str
    tip: str
    workload: str
    variant: str
    is_baseline: bool
    replicate: int | None = None
    block: int | None = None
    position: int | None = None
    ended_at: str | None = None
    steps: int | None = None
    samples: int | None = None
    seconds: float | None = None
    samples_per_second: float | None = None
    startup_seconds: float | None = None
    peak_gpu_allocated_bytes: int | None = None
    peak_gpu_reserved_bytes: int | None = None
    peak_host_pss_bytes: int | None = None
    cpu_percent: float | None = None
    foreign_cpu_percent: float | None = None
    run_delay_seconds: float | None = None
    gpu_utilization_percent: float | None = None
    gpu_power_watts: float | None = None
    gpu_temperature_celsius: float | None = None
    gpu_sm_clock_mhz: float | None = None
    gpu_throttle_reasons: str | None = None
    energy_joules: float | None = None
    disk_read_bytes: int | None = None
    start_method: str | None = None
    status: Status = "ok"
    reason: str | None = None
    flags: str | None = None
    evidence: Mapping[str, Any] | None = None
    verdict: Literal["pass", "warn", "fail"] | None = None
    payload_bytes: int | None = None
    peak_bytes_per_data_byte: float | None = None
    build_seconds: float | None = None
    latency_p50_seconds: float | None = None
    latency_p99_seconds: float | None = None
    accuracy_percent: float | None = None
    file_bytes: int | None = None
    compressed_bytes: int | None = None
    voluntary_context_switches: int | None = None
    involuntary_context_switches: int | None = None
    loss: float | None = None
    output_difference: float | None = None
    trace_bytes: int | None = None
    scaling_efficiency: float | None = None
    peak_bytes_a_gpu: int | None = None
    equal_runs: float | None = None


COLUMNS = tuple(field.name for field in dataclasses.fields(Turn))
READINGS = COLUMNS[COLUMNS.index("payload_bytes") :]
"""Columns that a tip's own readings may fill (``Work.readings``)."""


def text_columns(record: type) -> list[str]:
    """The fields of a record type that hold text, where an empty cell is "" and not a number."""
    numbers = (int, float, bool, int | None, float | None)
    return [field.name for field in dataclasses.fields(record) if field.type not in numbers]


_TEXT = text_columns(Turn)


class MeasurementWriter:
    """Appends turns to ``measurements.csv``; each row is on disk before the next turn starts.

    Raises UserError for a file that another version of the suite began: its columns are others.
    """

    def __init__(self, path: Path) -> None:
        is_new = not (path.exists() and _has_own_columns(path))
        if path.exists():
            _end_cut_line(path)
        self._file: TextIO = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if is_new:
            self._writer.writerow(COLUMNS)
            self._file.flush()

    def append(self, turn: Turn) -> None:
        """Write one row and flush it to the operating system."""
        self._writer.writerow([_cell(getattr(turn, name)) for name in COLUMNS])
        self._file.flush()

    def close(self) -> None:
        """Close the file; nothing is buffered here at any time."""
        self._file.close()


def read_measurements(path: Path) -> "pd.DataFrame":
    """Read ``measurements.csv`` as it was written: text columns as str, unknown values as NaN.

    A last line that a killed run left unfinished is not a turn and is dropped.
    """
    import pandas as pd

    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    return pd.read_csv(
        BytesIO(whole),
        dtype=dict.fromkeys(_TEXT, "str"),
        keep_default_na=False,
        na_values={name: [""] for name in COLUMNS if name not in _TEXT},
    )


def read_turns(path: Path) -> list[Turn]:
    """Read ``measurements.csv`` back into the values that were written.

    Raises UserError for a file that another version of the suite wrote.
    """
    if not _has_own_columns(path):
        return []
    whole = {field.name for field in dataclasses.fields(Turn) if field.type in (int, int | None)}
    turns = []
    for row in read_measurements(path).to_dict("records"):
        values: dict[str, Any] = {}
        for name, value in row.items():
            if value == "" or value != value:
                values[str(name)] = None
            elif name == "evidence":
                values["evidence"] = json.loads(value)
            elif name in whole:
                values[str(name)] = int(value)
            else:
                values[str(name)] = value
        turns.append(Turn(**values))
    return turns


def _has_own_columns(path: Path) -> bool:
    """Whether the head is there, or was never finished; UserError for other columns."""
    with path.open(encoding="utf-8", newline="") as file:
        head = file.readline()
    if not head.endswith("\n"):
        return False
    found = next(csv.reader([head]))
    if found != list(COLUMNS):
        others = sorted(set(found) ^ set(COLUMNS)) or ["their order"]
        raise UserError(
            f"{path} was begun by another version of the suite: its columns differ "
            f"({', '.join(others)}).",
            "Go on with it in that version, or start a new run.",
        )
    return True


def _end_cut_line(path: Path) -> None:
    """Drop a last line without an end, which a killed run can leave."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value)
        case float():
            # numpy's floats are floats too, and their own repr is "np.float64(…)".
            return repr(float(value))
        case Mapping():
            return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)
        case _:
            return str(value)
