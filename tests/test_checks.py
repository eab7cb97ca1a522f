"""Checks from end to end: asked once, recorded, judged, shown; a finding fails no run."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import planted
import planted_checks
import pytest
from rich.console import Console
from synthetic import as_read, make_environment, make_plan, make_tip, make_turns, no_measurements

from bench import reporting
from bench.analysis.effects import effects
from bench.analysis.noise import WarningKind, warnings
from bench.engine.checks import run_checks
from bench.records.effects import Effect, read_effects, write_effects
from bench.records.measurements import CHECK, Turn
from bench.records.plan import Plan, PlannedTip, read_plan, write_plan
from bench.reporting import model
from bench.reporting.drawing import style
from bench.reporting.markdown import markdown
from bench.reporting.overview_picture import overview_picture
from bench.reporting.screen import verdict_table
from bench.session import planned_tip

ROOT = Path(__file__).parents[1]
ANSWERS = {
    "one": "pass",
    "two": "warn",
    "three": "fail",
    "four": "raise",
    "five": "unmet",
    "six": "pass",
}


def planned(tip_id: str = "asked") -> PlannedTip:
    unmet = {(tip_id, "five"): "needs a unicorn"}
    return planned_tip(planted_checks.tip(ANSWERS, tip_id), unmet, planted.PACE)


def answered() -> list[Turn]:
    """The rows of a run that was stopped before it asked the sixth question."""
    rows = []
    for question, answer in list(ANSWERS.items())[:4]:
        columns: dict[str, Any] = {"verdict": answer, "reason": f"saw {answer}. Do this."}
        if answer == "raise":
            columns = {"status": "failed", "reason": "ValueError: nothing"}
        rows.append(
            Turn(
                run_id="r",
                machine_id="m",
                tip="asked",
                workload=CHECK,
                variant=question,
                is_baseline=False,
                evidence={"value": question},
                **columns,
            )
        )
    return rows


def rows_of(plan: Plan, turns: list[Turn]) -> list[Effect]:
    return effects(as_read(turns) if turns else no_measurements(), plan, make_environment())


def test_each_question_is_a_row_and_one_that_crashes_costs_only_itself() -> None:
    names = ("pass", "raise", "die", "warn")
    tip = planted_checks.tip(dict(zip(names, names, strict=True)))
    with planted.bench() as (bench, turns):
        run_checks(bench, tip, tip.variants)
    assert [(turn.variant, turn.status, turn.verdict) for turn in turns] == [
        ("pass", "ok", "pass"),
        ("raise", "failed", None),
        ("die", "failed", None),
        ("warn", "ok", "warn"),
    ]
    assert all(turn.workload == CHECK and turn.replicate is None for turn in turns)
    assert "ValueError: nothing to read" in (turns[1].reason or "")
    assert "SIGKILL" in (turns[2].reason or "")


def test_every_question_has_a_row_of_effects_whatever_happened(tmp_path: Path) -> None:
    plan = make_plan(planned(), make_tip("other"), other_replicates=3)
    found = [row for row in rows_of(plan, answered()) if row.tip == "asked"]
    assert [(row.variant, row.verdict, row.reason) for row in found] == [
        ("one", "pass", "saw pass. Do this."),
        ("two", "warn", "saw warn. Do this."),
        ("three", "fail", "saw fail. Do this."),
        ("four", "failed", "ValueError: nothing"),
        ("five", "not measurable here", "needs a unicorn"),
        ("six", "inconclusive", "the run was stopped before it was asked"),
    ]
    for row in found:
        assert (row.workload, row.metric, row.unit) == (CHECK, "verdict", "")
        assert (row.effect, row.value, row.margin, row.replicates) == (None, None, None, 0)
        flags = (row.is_baseline, row.is_recommended, row.is_primary, row.is_exploratory)
        assert not any(flags)
    write_effects(tmp_path / "effects.csv", found)
    assert read_effects(tmp_path / "effects.csv") == found


def test_a_plan_with_a_check_is_read_back(tmp_path: Path) -> None:
    plan = make_plan(planned(), make_tip())
    write_plan(tmp_path / "plan.json", plan)
    again = read_plan(tmp_path / "plan.json")
    assert again == plan
    assert [tip.is_check for tip in again.tips] == [True, False]
    assert not any(variant.is_baseline for variant in again.tips[0].variants)


def test_a_question_that_the_machine_fails_warns_the_reader_of_the_run() -> None:
    plan = make_plan(planned())
    (failed, unfit) = warnings(as_read(answered()), plan, rows_of(plan, answered()))
    assert (failed.kind, unfit.kind) == (WarningKind.FAILED, WarningKind.CHECK_FAILED)
    assert "asked: three" in unfit.found


def test_the_report_has_a_table_of_questions_and_no_picture_of_them(tmp_path: Path) -> None:
    plan = make_plan(planned(), make_tip("other"))
    turns = [*answered(), *make_turns(make_plan(make_tip("other")))]
    found = rows_of(plan, turns)
    reporting.write(tmp_path, plan, make_environment(), as_read(turns), found)
    pictures = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert pictures == {"overview", "course", "other"}
    told = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| Question | Verdict | What was seen |" in told
    assert "| three | fail | saw fail. Do this. |" in told
    summary = (
        "1 failed (four), 1 fail (three), 1 warn (two), 1 inconclusive (six), 1 pass, "
        "1 not measurable here"
    )
    assert f"In all: {summary}." in told
    assert "**The check itself failed and gave no answer.** Four: " in told
    assert f"| `asked` |  | check |  |  |  | {summary} |  |  |" in told
    assert "figures/asked" not in told
    assert "value: `three`" in told
    for block in told.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.replace("\\|", "").split("\n")}) == 1


@pytest.mark.parametrize("turns", [[], answered()])
def test_a_run_of_nothing_but_checks_is_reported(turns: list[Turn]) -> None:
    plan = make_plan(planned())
    found = rows_of(plan, turns)
    measurements = as_read(turns) if turns else no_measurements()
    report = model.build(plan, make_environment(), measurements, found)
    assert "asked" in markdown(report)
    with style():
        figure = overview_picture(report)
    texts = " ".join(text.get_text() for axes in figure.axes for text in axes.texts)
    assert "asked" in texts
    assert ("1 fail" in texts.replace("\n", " ")) == bool(turns)


def test_the_screen_names_each_answer_and_tells_what_to_do_unless_it_passed() -> None:
    plan = make_plan(planned())
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(verdict_table(rows_of(plan, answered()), plan))
    told = console.export_text()
    assert max(map(len, told.split("\n"))) <= 100
    assert "asked · check" in told
    assert "fail: saw fail. Do this." in told
    assert "warn: saw warn. Do this." in told
    assert "saw pass" not in told


PROGRAM = """
import dataclasses, sys
sys.path[:0] = {paths!r}
import planted, planted_checks
import bench.options, bench.session
from bench.cli import main
TIPS = {tips}
bench.session.catalogue = bench.options.catalogue = lambda context: tuple(TIPS)
bench.options.PROFILES["quick"] = dataclasses.replace(
    bench.options.PROFILES["quick"], pace=planted.PACE, images=8
)
{then}
"""
COMPARED = 'planted.tip(planted.variant("plain"), planted.variant("treated"), tip_id="one")'


def tips(tip_id: str = "asked", **answers: str) -> str:
    return f"[planted_checks.tip({answers!r}, {tip_id!r}), {COMPARED}]"


def finish(
    *arguments: str | Path, catalogue: str, cache: Path, then: str = "main()"
) -> tuple[int, str]:
    program = PROGRAM.format(paths=[str(ROOT / "tests"), str(ROOT)], tips=catalogue, then=then)
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "COLUMNS": "100"},
        timeout=120,
    )
    return result.returncode, result.stdout + result.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def asked(cache: Path) -> list[str]:
    path = cache / "torch-tips-bench" / "asked.txt"
    return path.read_text().split() if path.exists() else []


def recorded(folder: Path) -> list[dict[str, str]]:
    with (folder / "measurements.csv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["workload"] == CHECK]


def test_a_run_asks_once_reports_and_exits_0_also_when_the_machine_fails(
    tmp_path: Path, cache: Path
) -> None:
    folder = tmp_path / "run"
    catalogue = tips(a="pass", b="warn", c="fail", d="unmet")
    before = len(asked(cache))
    code, output = finish("run", "--out", folder, catalogue=catalogue, cache=cache)
    assert code == 0, output
    assert [(row["variant"], row["verdict"]) for row in recorded(folder)] == [
        ("a", "pass"),
        ("b", "warn"),
        ("c", "fail"),
    ]
    assert asked(cache)[before:] == ["pass", "warn", "fail"]
    assert str(Path.home()) + "/" not in (folder / "measurements.csv").read_text()
    effects = read_effects(folder / "effects.csv")
    verdicts = [row.verdict for row in effects if row.tip == "asked"]
    assert verdicts == ["pass", "warn", "fail", "not measurable here"]
    assert sum(row.tip == "one" for row in effects) >= 2
    names = {
        row["name"] for row in json.loads((folder / "benchmark.json").read_text())["benchmarks"]
    }
    assert names == {"test_variant[one-burning-plain]", "test_variant[one-burning-treated]"}
    assert "3 questions of 1 check" in output
    assert "fail: seen: fail" in output

    code, output = finish("run", "--resume", folder, catalogue=catalogue, cache=cache)
    assert code == 0, output
    assert asked(cache)[before:] == ["pass", "warn", "fail"]
    assert len(recorded(folder)) == 3


def test_under_pytest_a_run_compares_with_one_that_was_saved(tmp_path: Path, cache: Path) -> None:
    def run(option: str) -> tuple[int, str]:
        options = [
            *("--benchmark-only", "-p", "bench.pytest_plugin", "-p", "no:cacheprovider"),
            *("-k", "one", f"--benchmark-storage={tmp_path / 'saved'}", option),
            f"--bench-out={tmp_path / option}",
        ]
        then = (
            "import pytest; from bench.pytest_plugin import CATALOGUE; "
            f"sys.exit(pytest.main([str(CATALOGUE), *{options!r}]))"
        )
        return finish(catalogue=tips(a="pass"), cache=cache, then=then)

    code, output = run("--benchmark-save=first")
    assert code == 0, output
    code, output = run("--benchmark-compare")
    assert code == 0, output
    assert "one-burning-treated] (0001_first)" in output


def test_a_question_that_crashes_fails_the_run_and_asks_the_rest(
    tmp_path: Path, cache: Path
) -> None:
    folder = tmp_path / "run"
    catalogue = tips(a="raise", b="pass")
    code, output = finish(
        "run", "--out", folder, "--tips", "asked", catalogue=catalogue, cache=cache
    )
    assert code == 1, output
    assert [row["status"] for row in recorded(folder)] == ["failed", "ok"]


def test_under_pytest_a_warning_warns_and_a_failed_question_is_an_expected_failure(
    tmp_path: Path, cache: Path
) -> None:
    then = (
        "import pytest; from bench.pytest_plugin import CATALOGUE; sys.exit(pytest.main("
        "[str(CATALOGUE), '--benchmark-only', '-p', 'bench.pytest_plugin', '-p', "
        f"'no:cacheprovider', '-rxsP', '-k', 'asked', '--bench-out', {str(tmp_path / 'run')!r}]))"
    )
    catalogue = tips(a="pass", b="warn", c="fail", d="unmet")
    code, output = finish(catalogue=catalogue, cache=cache, then=then)
    assert code == 0, output
    assert "2 passed, 1 skipped, 2 deselected, 1 xfailed" in output, output
    assert "asked: b: seen: warn" in output
    # The skip's reason is the row's.
    assert re.search(r"SKIPPED.*needs a unicorn", output)
    assert "not used at all" not in output


@pytest.mark.parametrize(
    ("answers", "code"),
    [({"a": "pass", "b": "warn", "d": "unmet"}, 0), ({"a": "fail"}, 1), ({"a": "raise"}, 1)],
)
def test_env_exits_1_when_something_would_spoil_results(
    answers: dict[str, str], code: int, cache: Path
) -> None:
    catalogue = tips("environment", **answers)
    found, output = finish("env", "--json", catalogue=catalogue, cache=cache)
    assert found == code, output
    content = json.loads(output)
    assert [answer["question"] for answer in content["answers"]] == list(answers)
    expected = {"unmet": "not measurable here", "raise": "failed"}
    assert [answer["verdict"] for answer in content["answers"]] == [
        expected.get(answer, answer) for answer in answers.values()
    ]
    assert str(Path.home()) + "/" not in output
    assert content["machine"]["usable_cores"] >= 1


def test_env_prints_questions_with_their_remedies(cache: Path) -> None:
    catalogue = tips("environment", a="pass", b="warn", d="unmet")
    code, output = finish("env", catalogue=catalogue, cache=cache)
    assert code == 0, output
    assert "torch computes on: " in output
    for told in ("warn", "Do this.", "needs a unicorn"):
        assert told in output
