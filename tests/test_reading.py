"""Other people's CSVs: read right, or refused with file, line, column and the fix."""

import contextlib
import csv
import dataclasses
import gzip
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from make_machines import machine
from synthetic import as_read, make_environment, make_plan, make_turns

from bench import cli
from bench.errors import UserError
from bench.records.cells import csv_line, parser, to_cell
from bench.records.effects import COLUMNS, Effect, read_effects, write_effects
from bench.records.measurements import (
    MeasurementWriter,
    Turn,
    read_measurements,
    read_turns,
)
from bench.records.plan import write_plan
from bench.records.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
FEW = {"num_workers": 1.2, "jpeg_decoder": 1.5}


@pytest.fixture
def rows() -> list[Effect]:
    return machine(1, tips=FEW)


@pytest.fixture
def written(tmp_path: Path, rows: list[Effect]) -> Path:
    path = tmp_path / "effects.csv"
    write_effects(path, rows)
    return path


def cells(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text("utf-8"))))


def rewrite(path: Path, table: list[list[str]]) -> None:
    path.write_text("".join(map(csv_line, table)), "utf-8")


def changed(path: Path, line: int, column: str, cell: str) -> None:
    """Put ``cell`` on ``line``, counted as editors do."""
    table = cells(path)
    table[line - 1][table[0].index(column)] = cell
    rewrite(path, table)


def problem_of(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        read_effects(path)
    told = str(caught.value)
    assert str(path) in told
    assert len(told.splitlines()) == 2
    return caught.value


class TestReadRight:
    def test_as_it_was_written(self, written: Path, rows: list[Effect]) -> None:
        assert read_effects(written) == rows

    def test_columns_in_another_order_and_unknown_ones(
        self, written: Path, rows: list[Effect]
    ) -> None:
        table = [[*reversed(line), "whatever, = 1"] for line in cells(written)]
        table[0][-1] = "a column of tomorrow"
        rewrite(written, table)
        assert read_effects(written) == rows

    @pytest.mark.parametrize(
        "change",
        [
            lambda content: b"\xef\xbb\xbf" + content,
            lambda content: content.replace(b"\n", b"\r\n"),
            gzip.compress,
            lambda content: gzip.compress(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")),
            lambda content: content.replace(b"\n", b"\n\n"),
            lambda content: content.replace(b"True", b"TRUE").replace(b"False", b"false"),
        ],
        ids=["BOM", "CRLF", "gzip", "all three", "empty lines", "a spreadsheet's booleans"],
    )
    def test_what_programs_do_to_a_file(
        self, written: Path, rows: list[Effect], change: Callable[[bytes], bytes]
    ) -> None:
        written.write_bytes(change(written.read_bytes()))
        assert read_effects(written) == rows

    def test_whole_numbers_that_pandas_wrote_as_floats(
        self, written: Path, rows: list[Effect]
    ) -> None:
        changed(written, 2, "usable_cores", f"{rows[0].usable_cores}.0")
        assert read_effects(written) == rows

    def test_files_of_earlier_versions_lack_the_later_columns(
        self, written: Path, rows: list[Effect]
    ) -> None:
        later = 6
        rewrite(written, [line[:-later] for line in cells(written)])
        assert COLUMNS[-later:] == (
            "margin", "is_exploratory", "value_standard_error", "images_checksum",
            "higher_is_better", "device",
        )  # fmt: skip
        unknown = dict.fromkeys(COLUMNS[-later:]) | {"is_exploratory": False}
        assert read_effects(written) == [dataclasses.replace(row, **unknown) for row in rows]  # type: ignore[arg-type]

    def test_several_runs_in_one_file(self, tmp_path: Path, rows: list[Effect]) -> None:
        both = [*rows, *machine(2, tips=FEW)]
        write_effects(tmp_path / "both.csv", both)
        assert read_effects(tmp_path / "both.csv") == both

    def test_the_published_run_is_read(self) -> None:
        published = list((ROOT / "results").glob("[!l]*/*/effects.csv"))
        assert published
        for path in published:
            assert len(read_effects(path)) == len(cells(path)) - 1


def with_lines(change: Callable[[list[str]], list[str]]) -> Callable[[bytes], bytes]:
    return lambda content: "".join(change(content.decode().splitlines(keepends=True))).encode()


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "problem", "fix"),
        [
            (lambda _: b"", "is empty", "as the run wrote it"),
            (lambda _: b"\n\n", "is empty", "as the run wrote it"),
            (
                lambda content: content.replace(b",", b";"),
                "line 1: the columns are separated by semicolons",
                "with commas",
            ),
            (
                lambda content: content.replace(b",", b"\t"),
                "line 1: the columns are separated by tabs",
                "with commas",
            ),
            (
                lambda content: content[:-30],
                r"line 11: the last line has no end",
                "Copy it again",
            ),
            (
                with_lines(lambda lines: [*lines[:-1], lines[-1][:80] + "\n"]),
                rf"line 11: found \d+ cells, expected {len(COLUMNS)}.*cut short",
                "Copy it again",
            ),
            (
                with_lines(lambda lines: [*lines[:4], lines[0], *lines[4:]]),
                "line 5: found a second header",
                "each by itself",
            ),
            (
                with_lines(lambda lines: [*lines[:4], lines[0].replace(",", ",x,"), *lines[4:]]),
                "line 5: found a second header",
                "each by itself",
            ),
            (
                with_lines(lambda lines: [lines[0].replace("verdict", "effect"), *lines[1:]]),
                "line 1: the column effect stands there more than once",
                "as the run wrote it",
            ),
            (
                with_lines(lambda lines: [lines[0].replace("verdict", "Verdict"), *lines[1:]]),
                "line 1: these columns are missing: verdict",
                "as the run wrote it",
            ),
            (
                with_lines(lambda lines: ["a,b\n", "1,2\n"]),
                "line 1: there is no column schema_version",
                "that a run left",
            ),
            (
                with_lines(lambda lines: [lines[0]]),
                "has a header and no rows",
                "measured something",
            ),
            (
                with_lines(lambda lines: [*lines[:3], lines[1], *lines[3:]]),
                "line 4: this run's row for num_workers, off, samples_per_second stands on line 2",
                "Remove one",
            ),
            (
                lambda content: content.replace(b"off", b'"off', 1),
                "line 2: this row cannot be split",
                "quote is missing",
            ),
            (lambda content: content.replace(b"off", b"\xff", 1), "line 2.*0xff", "UTF-8"),
            (
                lambda content: content.decode().encode("utf-16"),
                "line 1: found a zero byte",
                "UTF-16",
            ),
            (lambda _: b"PK\x03\x04\x14\0\0\0xlsx", "found a zero byte", "spreadsheet's own"),
            (
                lambda content: gzip.compress(content)[:-40],
                "is a broken gzip file",
                "download it again",
            ),
            (
                lambda content: gzip.compress(content)[:200] + b"x" * 50,
                "is a broken gzip file",
                "download it again",
            ),
        ],
    )
    def test_odd_files(
        self, written: Path, change: Callable[[bytes], bytes], problem: str, fix: str
    ) -> None:
        written.write_bytes(change(written.read_bytes()))
        told = problem_of(written)
        assert re.search(problem, told.problem), told.problem
        assert fix in told.fix, told.fix

    @pytest.mark.parametrize(
        ("column", "cell", "expected"),
        [
            ("effect", "1,05", "a finite number with a decimal point"),
            ("effect", "inf", "a finite number"),
            ("effect", "nan", "a finite number"),
            ("effect", "1e999", "a finite number"),
            ("effect", "fast", "a finite number"),
            ("effect", "1_000", "a finite number"),
            ("effect", "٣", "a finite number"),
            ("effect", "0", "a number from ci_low"),
            ("effect", "-1.2", "a number from ci_low"),
            ("effect", "900", "a number from ci_low"),
            ("effect", "", "a number, since ci_low has one"),
            ("ci_low", "1000", "no more than ci_high"),
            ("ci_low", "-0.5", "a ratio, above 0"),
            ("standard_error", "", "a number, since ci_low has one"),
            ("standard_error", "-0.1", "0 or more"),
            ("degrees_of_freedom", "0", "1 or more"),
            ("usable_cores", "2.5", "a whole number"),
            ("usable_cores", "two", "a whole number"),
            ("replicates", "-1", "0 or more"),
            ("replicates", "", "a whole number"),
            ("is_primary", "yes", "True or False"),
            ("is_primary", "1", "True or False"),
            ("is_primary", "", "True or False"),
            ("effect_kind", "quotient", "one of ratio, difference"),
            ("effect_kind", "", "one of ratio, difference"),
            ("verdict", "better", "one of helps, hurts"),
            ("tip", "", "a text"),
            ("machine_id", "", "a text"),
            ("schema_version", "0", "1"),
            ("schema_version", "one", "1"),
            ("torch_version", "1.0", "'2.14.1' as on line 2, since both rows are of run"),
        ],
    )
    def test_odd_cells(self, written: Path, column: str, cell: str, expected: str) -> None:
        line = next(
            number
            for number, row in enumerate(read_effects(written), start=2)
            if row.effect is not None
        )
        assert line > 2
        changed(written, line, column, cell)
        told = problem_of(written)
        assert f", line {line}, column {column}: " in told.problem
        found = re.search(r"found (.*), expected", told.problem)
        assert found
        assert found[1].strip("'") in (cell or "nothing", f"{cell}.0")
        assert f"expected {expected}" in told.problem

    def test_an_unquoted_decimal_comma_makes_a_cell_too_many(self, written: Path) -> None:
        table = written.read_text("utf-8").splitlines(keepends=True)
        table[2] = table[2].replace(".", ",", 1)
        written.write_text("".join(table), "utf-8")
        told = problem_of(written)
        assert f"line 3: found {len(COLUMNS) + 1} cells" in told.problem
        assert "decimal comma" in told.fix

    def test_a_newer_schema_is_told_before_anything_else(self, written: Path) -> None:
        table = [line[:7] for line in cells(written)]
        table[1][0] = table[2][0] = "2"
        rewrite(written, table)
        told = problem_of(written)
        assert "line 2, column schema_version: found 2, this suite reads up to 1" in told.problem
        assert "newer" in told.fix

    def test_lines_are_counted_as_an_editor_does(self, written: Path, rows: list[Effect]) -> None:
        rows[1] = dataclasses.replace(rows[1], reason="two\nlines")
        write_effects(written, rows)
        changed(written, 5, "verdict", "better")
        assert ", line 6, column verdict" in problem_of(written).problem

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        assert "No such file" in problem_of(tmp_path / "none.csv").problem


HARMFUL = (
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\rx", "  =1", "\n=1", "＝1", "'=1", "''@x", "' =1",
)  # fmt: skip
HARMLESS = ("a=1", "1-2", "'quoted'", "", "''", "−1", "{}", "num_workers=1")


class TestFormulas:
    @pytest.mark.parametrize("told", HARMFUL)
    def test_formulas_are_written_harmless_and_read_as_they_were(self, told: str) -> None:
        assert to_cell(told) == f"'{told}"
        assert parser(str)(to_cell(told)) == told

    @pytest.mark.parametrize("told", HARMLESS)
    def test_other_text_stays(self, told: str) -> None:
        assert to_cell(told) == told
        assert parser(str)(told) == told

    def test_a_file_of_others_sends_no_command_to_the_terminal(self) -> None:
        assert parser(str)("\x1b[2Jgone\x9b\x07\ttab\r\nline") == "�[2Jgone��\ttab\r\nline"

    def test_a_short_file_leaves_room_for_the_long_lines_of_the_next(self, tmp_path: Path) -> None:
        before = csv.field_size_limit()
        (tmp_path / "short.csv").write_text("a,b\n")
        with pytest.raises(UserError):
            read_effects(tmp_path / "short.csv")
        assert csv.field_size_limit() >= before

    def test_numbers_stay_numbers(self) -> None:
        assert [to_cell(number) for number in (-1, -0.5, -1e-20)] == ["-1", "-0.5", "-1e-20"]

    def test_files_hold_no_formula(self, tmp_path: Path, rows: list[Effect]) -> None:
        odd = [dataclasses.replace(rows[0], variant=told) for told in (*HARMFUL, "x\ry", 'a"b,')]
        write_effects(tmp_path / "effects.csv", odd)
        assert read_effects(tmp_path / "effects.csv") == odd
        column = COLUMNS.index("variant")
        with (tmp_path / "effects.csv").open(encoding="utf-8", newline="") as file:
            told = [line[column] for line in csv.reader(file)]
        assert not any(re.match(r"\s*[=+\-@\t\r]", cell) for cell in told)

        turns = [
            dataclasses.replace(turn, reason=told)
            for turn, told in zip(make_turns(make_plan()), (*HARMFUL, "x\ry"), strict=False)
        ]
        writer = MeasurementWriter(tmp_path / "measurements.csv")
        for turn in turns:
            writer.append(turn)
        writer.close()
        assert read_turns(tmp_path / "measurements.csv") == turns
        frame = read_measurements(tmp_path / "measurements.csv")
        assert frame["reason"].tolist() == [turn.reason for turn in turns]


class TestMeasurements:
    def written(self, path: Path) -> list[Turn]:
        turns = make_turns(make_plan())
        turns[3] = dataclasses.replace(turns[3], reason="first\nsecond", status="failed")
        writer = MeasurementWriter(path)
        for turn in turns:
            writer.append(turn)
        writer.close()
        return turns

    def test_kinds_of_columns(self, tmp_path: Path) -> None:
        frame = as_read(make_turns(make_plan()))
        kinds = {name: str(kind) for name, kind in frame.dtypes.items()}
        assert kinds["is_baseline"] == "bool"
        assert kinds["samples"] == "int64"
        assert kinds["seconds"] == kinds["peak_host_pss_bytes"] == "float64"
        assert kinds["reason"] == kinds["evidence"] == "str"
        assert frame["reason"].tolist() == [""] * len(frame)
        assert frame["peak_host_pss_bytes"].isna().all()
        assert json.loads(frame["evidence"].iloc[0]) == {"applied": "off"}

    def test_a_row_that_was_cut_is_no_turn_wherever_the_cut_lies(self, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        turns = self.written(path)[:5]
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:7]))
        content = path.read_bytes()
        for end in range(content.index(b"\n") + 1, len(content), 7):
            path.write_bytes(content[:end])
            ends = [len(line) for line in _rows_of(content)]
            whole = sum(end >= sum(ends[: number + 1]) for number in range(1, len(ends)))
            assert read_turns(path) == turns[:whole]

    def test_going_on_after_a_cut_leaves_a_file_that_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "m.csv"
        turns = self.written(path)[:5]
        content = b"".join(_rows_of(path.read_bytes())[:6])
        inside_the_reason = content.index(b"first\n") + len(b"first\nse")
        for cut, kept in ((5, 0), (inside_the_reason, 3), (len(content) - 1, 4)):
            path.write_bytes(content[:cut])
            writer = MeasurementWriter(path)
            writer.append(turns[0])
            writer.close()
            assert read_turns(path) == [*turns[:kept], turns[0]]

    @pytest.mark.parametrize(
        ("column", "cell", "expected"),
        [
            ("seconds", "inf", "a finite number"),
            ("seconds", "0,15", "a finite number with a decimal point"),
            ("status", "fine", "one of ok, failed, not measurable here"),
            ("evidence", "{", "a JSON object"),
            ("is_baseline", "maybe", "True or False"),
        ],
    )
    def test_report_of_a_broken_run_is_two_lines(
        self, tmp_path: Path, column: str, cell: str, expected: str
    ) -> None:
        self.folder(tmp_path)
        path = tmp_path / "measurements.csv"
        self.written(path)
        changed(path, 4, column, cell)
        told = self.report(tmp_path)
        assert f"{path}, line 4, column {column}: found {cell!r}, expected {expected}" in told[0]

    @pytest.mark.parametrize(
        ("name", "content", "problem"),
        [
            ("environment.json", "[]", "environment.json cannot be read"),
            ("environment.json", '{"machine_id": "x"}', "environment.json cannot be read"),
            ("environment.json", "{", "environment.json cannot be read"),
            ("plan.json", "[]", "plan.json is not a run's plan"),
            ("plan.json", '{"schema_version": 1, "tips": ["x"]}', "plan.json is not a run's plan"),
            ("plan.json", '{"schema_version": 2}', "has schema_version 2"),
            ("measurements.csv", "a;b\n1;2\n", "separated by semicolons"),
        ],
    )
    def test_report_of_other_broken_files_is_two_lines(
        self, tmp_path: Path, name: str, content: str, problem: str
    ) -> None:
        self.folder(tmp_path)
        (tmp_path / name).write_text(content, encoding="utf-8")
        assert problem in self.report(tmp_path)[0]

    @staticmethod
    def folder(path: Path) -> None:
        folder = RunFolder(path)
        write_plan(folder.plan, make_plan())
        folder.write_environment(make_environment())

    @staticmethod
    def report(path: Path) -> list[str]:
        """What the command line's ``report`` says of a folder that it cannot read."""
        with (
            mock.patch.object(sys, "argv", ["bench", "report", str(path)]),
            contextlib.redirect_stderr(io.StringIO()) as said,
            pytest.raises(SystemExit) as end,
        ):
            cli.main()
        assert end.value.code == 2, said.getvalue()
        told = said.getvalue().splitlines()
        assert len(told) == 2, told
        return told


def _rows_of(content: bytes) -> list[bytes]:
    """The rows of a file, those with a line end inside a cell whole."""
    rows: list[bytes] = []
    for line in content.splitlines(keepends=True):
        if rows and rows[-1].count(b'"') % 2:
            rows[-1] += line
        else:
            rows.append(line)
    return rows
