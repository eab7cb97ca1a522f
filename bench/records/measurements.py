"""``measurements.csv``: one row a turn, appended and flushed as it happens."""

import csv
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from bench.errors import UserError
from bench.records.cells import csv_line, to_cell
from bench.records.reading import finished, read_rows

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
    such column. The GPU's columns are what NVML told right after the turn; utilisation and power
    are the driver's averages over up to a second, so of several short turns together. Fields from
    ``payload_bytes`` on are a tip's own readings.
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


_NEEDED = (
    "schema_version", "run_id", "machine_id", "tip", "workload", "variant", "is_baseline",
    "replicate", "block", "samples", "seconds", "status", "reason", "flags", "evidence",
)  # fmt: skip
_MAY_LACK = tuple(name for name in COLUMNS if name not in _NEEDED)
"""Columns that files of other versions may lack: then nothing is known of them."""


class MeasurementWriter:
    """Appends turns to ``measurements.csv``; each row is on disk before the next turn starts.

    Raises UserError for a file that another version of the suite began: its columns are others.
    """

    def __init__(self, path: Path) -> None:
        is_new = not (path.exists() and _has_own_columns(path))
        if path.exists():
            _end_cut_line(path)
        self._file: TextIO = path.open("a", encoding="utf-8", newline="")
        if is_new:
            self._file.write(csv_line(COLUMNS))
            self._file.flush()

    def append(self, turn: Turn) -> None:
        """Write one row and flush it to the operating system."""
        self._file.write(csv_line([to_cell(getattr(turn, name)) for name in COLUMNS]))
        self._file.flush()

    def close(self) -> None:
        """Close the file; nothing is buffered here at any time."""
        self._file.close()


def read_measurements(path: Path) -> "pd.DataFrame":
    """Read ``measurements.csv``: columns of text as str, unknown as ""; numbers unknown as NaN.

    A last row that a killed run left unfinished is not a turn and is dropped. Raises UserError
    for a file that no run would have written.
    """
    import pandas as pd

    rows = list(_rows(path))
    frame = {}
    for field in dataclasses.fields(Turn):
        cells = [row[field.name] for row in rows]
        if field.type is bool:
            frame[field.name] = pd.Series(cells, dtype="bool")
        elif field.type is int or (field.type == int | None and None not in cells):
            frame[field.name] = pd.Series(cells, dtype="int64")
        elif field.type in (float, int | None, float | None):
            frame[field.name] = pd.Series(cells, dtype="float64")
        else:
            frame[field.name] = pd.Series([cell or "" for cell in cells], dtype="str")
    return pd.DataFrame(frame)


def read_turns(path: Path) -> list[Turn]:
    """Read ``measurements.csv`` back into the values that were written.

    Raises UserError for a file that another version of the suite wrote.
    """
    if not _has_own_columns(path):
        return []
    return [
        Turn(**row | {"evidence": None if row["evidence"] is None else json.loads(row["evidence"])})
        for row in _rows(path)
    ]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The values of each row by column, None for a column that the file lacks."""
    unknown = dict.fromkeys(_MAY_LACK)
    rows = read_rows(path, Turn, schema_version=SCHEMA_VERSION, optional=_MAY_LACK, is_growing=True)
    return (unknown | values for _, values in rows)


def _has_own_columns(path: Path) -> bool:
    """Whether the head is there, or was never finished; UserError for other columns."""
    with path.open("rb") as file:
        head = file.readline()
    if not head.endswith(b"\n"):
        return False
    found = next(csv.reader([head.decode("utf-8", errors="replace")]))
    if found != list(COLUMNS):
        others = sorted(set(found) ^ set(COLUMNS)) or ["their order"]
        raise UserError(
            f"{path} was begun by another version of the suite: its columns differ "
            f"({', '.join(others)}).",
            "Go on with it in that version, or start a new run.",
        )
    return True


def _end_cut_line(path: Path) -> None:
    """Drop a last row without an end, which a killed run can leave."""
    content = path.read_bytes()
    whole = len(finished(content))
    if whole != len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
