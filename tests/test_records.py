"""A run's own files are read back as they were written, and those of other versions told apart."""

import json
from pathlib import Path

import pytest
from synthetic import make_plan, make_turns

from bench.errors import UserError
from bench.records.measurements import COLUMNS, MeasurementWriter, read_turns
from bench.records.plan import read_plan, write_plan


def test_turns_come_back_as_they_were_written(tmp_path: Path) -> None:
    turns = make_turns(make_plan())
    writer = MeasurementWriter(tmp_path / "measurements.csv")
    for turn in turns:
        writer.append(turn)
    writer.close()
    assert read_turns(tmp_path / "measurements.csv") == turns


@pytest.mark.parametrize("columns", [COLUMNS[:-1], (*COLUMNS, "more"), COLUMNS[::-1]])
def test_rows_are_never_appended_below_other_columns(
    tmp_path: Path, columns: tuple[str, ...]
) -> None:
    path = tmp_path / "measurements.csv"
    path.write_text(",".join(columns) + "\n", encoding="utf-8")
    for use in (MeasurementWriter, read_turns):
        with pytest.raises(UserError, match="another version of the suite"):
            use(path)
    assert path.read_text(encoding="utf-8") == ",".join(columns) + "\n"


def test_a_head_that_was_never_finished_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "measurements.csv"
    for begun in ("", "schema_version,run"):
        path.write_text(begun, encoding="utf-8")
        assert read_turns(path) == []
        MeasurementWriter(path).close()
        assert path.read_text(encoding="utf-8") == ",".join(COLUMNS) + "\n"


def test_a_plan_of_another_version_may_hold_fields_that_are_unknown_here(tmp_path: Path) -> None:
    path, plan = tmp_path / "plan.json", make_plan()
    write_plan(path, plan)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["mood"] = content["tips"][0]["mood"] = "good"
    content["tips"][0]["variants"][0]["mood"] = "good"
    content["tips"][0]["workloads"][0]["seconds_a_replicate"] = 3.0
    content["tips"][0]["workloads"][0]["metrics"][0]["mood"] = "good"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_plan(path) == plan
