"""Runs compared: planted changes come out, nothing is lost, no gate passes for lack of data."""

import csv
import dataclasses
import io
import math
import random
import re
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_reporting
from make_machines import EFFECTS, machine
from rich.console import Console
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from bench import comparing
from bench.analysis.comparison import Run, compare
from bench.analysis.distribution import EACH_ITS_OWN, Distribution, distributions
from bench.analysis.fairness import variations
from bench.analysis.gate import gate
from bench.analysis.intervals import Estimate, combined_interval, student_interval
from bench.comparing import compare_runs, parse_bound, read_runs
from bench.errors import UserError
from bench.records.compared import ChangeVerdict, ComparedEffect, EffectDistribution
from bench.records.effects import Effect, write_effects
from bench.reporting import drawing
from bench.reporting.comparison.markdown import markdown
from bench.reporting.comparison.pairs import pairs_page
from bench.reporting.comparison.pictures import machines_picture, pairs_picture

ROOT = Path(__file__).resolve().parent.parent
NASTY = test_reporting.NASTY


def planted(number: int, effect: float, **changes: Any) -> list[Effect]:
    """A machine with one tip of a known effect, measured in ten replicates."""
    options = {"between": 0.0, "noise": 0.01, "replicates": 10, "absent": 0.0} | changes
    return machine(number, tips={"tip": effect}, **options)


def two(ours: Sequence[Effect], theirs: Sequence[Effect]) -> list[ComparedEffect]:
    return compare(Run(label="A", rows=tuple(ours)), Run(label="B", rows=tuple(theirs)))


def headline(rows: Sequence[ComparedEffect]) -> ComparedEffect:
    (row,) = (row for row in rows if row.is_primary and row.is_recommended)
    return row


def measured(rows: Sequence[Effect], variant: str = "on") -> Effect:
    return next(row for row in rows if row.variant == variant and row.effect is not None)


def instead(rows: Sequence[Effect], old: Effect, **changes: Any) -> list[Effect]:
    return [dataclasses.replace(row, **changes) if row is old else row for row in rows]


def file(path: Path, rows: Sequence[Effect]) -> Path:
    write_effects(path, rows)
    return path


def run(*paths: Path, out: Path, slower: str | None = None) -> tuple[int, str]:
    console = Console(width=100, record=True, file=io.StringIO())
    code = compare_runs(paths, out=out, slower=slower, console=console)
    return code, console.export_text()


class TestChange:
    @pytest.mark.parametrize(
        ("there", "verdict"), [(1.10, "larger"), (1 / 1.10, "smaller"), (1.01, "no difference")]
    )
    def test_planted_change_is_found_and_one_of_1_percent_is_no_difference(
        self, there: float, verdict: ChangeVerdict
    ) -> None:
        rows = [
            headline(
                two(planted(1, 1.3, seed=seed), planted(2, 1.3 * there, noise=0.015, seed=seed))
            )
            for seed in range(30)
        ]
        assert [row.verdict for row in rows].count(verdict) >= 28
        held = [
            row.effect_change_ci_low < there < row.effect_change_ci_high
            for row in rows
            if row.effect_change_ci_low is not None and row.effect_change_ci_high is not None
        ]
        assert len(held) == 30
        assert sum(held) >= 26

    def test_interval_is_welchs(self) -> None:
        random_state = np.random.default_rng(3)
        one = random_state.normal(0.3, 0.02, 5).tolist()
        other = random_state.normal(0.1, 0.1, 9).tolist()
        estimates = [
            Estimate(
                mean=float(np.mean(values)),
                standard_error=float(np.std(values, ddof=1)) / math.sqrt(len(values)),
                degrees_of_freedom=len(values) - 1,
            )
            for values in (one, other)
        ]
        interval = combined_interval(estimates, (1, -1))
        whole = CompareMeans(DescrStatsW(one), DescrStatsW(other))
        low, high = whole.tconfint_diff(alpha=0.05, usevar="unequal")
        low_90, high_90 = whole.tconfint_diff(alpha=0.10, usevar="unequal")
        assert (interval.low, interval.high) == pytest.approx((low, high))
        assert (interval.low_90, interval.high_90) == pytest.approx((low_90, high_90))
        assert interval.degrees_of_freedom == pytest.approx(whole.dof_satt())

    def test_one_estimate_alone_keeps_its_own_interval(self) -> None:
        values = [0.1, 0.2, 0.4, 0.35]
        own = student_interval(values)
        estimate = Estimate(mean=own.mean, standard_error=own.standard_error, degrees_of_freedom=3)
        combined = combined_interval([estimate], [1])
        assert (combined.low, combined.high_90) == pytest.approx((own.low, own.high_90))

    @pytest.mark.parametrize("noise", [0.0, 0.002, 0.01, 0.2])
    def test_a_run_against_itself_shows_nothing(self, noise: float) -> None:
        rows = machine(1, noise=noise, replicates=5)
        found = two(rows, rows)
        assert len(found) == len(rows)
        compared = [row for row in found if row.effect_change is not None]
        assert len(compared) > 60
        assert {row.verdict for row in compared} <= {"no difference", "inconclusive"}
        assert {row.effect_change for row in compared} == {1.0}

    def test_differences_are_subtracted(self) -> None:
        def as_difference(rows: list[Effect], effect: float) -> list[Effect]:
            return instead(
                rows, measured(rows),
                effect_kind="difference", unit="points", effect=effect, ci_low=effect - 0.1,
                ci_high=effect + 0.1, standard_error=0.04, degrees_of_freedom=9, margin=0.5,
            )  # fmt: skip

        row = headline(two(as_difference(planted(1, 1.2), 1.5), as_difference(planted(2, 1), -0.5)))
        assert row.effect_change == pytest.approx(-2)
        assert row.verdict == "smaller"
        assert row.effect_change_standard_error == pytest.approx(0.04 * math.sqrt(2))

    def test_few_replicates_claim_nothing(self) -> None:
        row = headline(two(planted(1, 1.0), planted(2, 3.0, replicates=2)))
        assert row.verdict == "inconclusive"
        assert row.effect_change_ci_low is not None
        assert row.reason == "2 replicates in B; a verdict needs at least 3"

    def test_one_replicate_has_no_interval(self) -> None:
        rows = planted(2, 3.0)
        bare = dict.fromkeys(("ci_low", "ci_high", "standard_error", "degrees_of_freedom"))
        one = instead(rows, measured(rows), **bare, replicates=1)
        row = headline(two(planted(1, 1.0), one))
        assert (row.verdict, row.reason) == ("inconclusive", "no interval in B")
        assert row.effect_change == pytest.approx(3, rel=0.05)

    def test_without_a_margin_there_is_an_interval_and_no_verdict(self) -> None:
        ours, theirs = (
            [dataclasses.replace(row, margin=None) for row in planted(number, 1.5)]
            for number in (1, 2)
        )
        row = headline(two(ours, theirs))
        assert row.effect_change_ci_low is not None
        assert (row.verdict, row.reason) == ("inconclusive", "neither file names a margin")


class TestNothingIsLost:
    def test_what_only_one_run_has_or_could_measure_is_listed_with_why(self) -> None:
        ours = machine(1, tips={"a": 1.2, "b": 1.2, "c": 1.2})
        theirs = machine(2, tips={"a": 1.2, "b": 1.2, "d": 1.2})
        theirs = instead(
            theirs, measured([row for row in theirs if row.tip == "b"]),
            verdict="failed", reason="killed by signal 9", effect=None, ci_low=None, ci_high=None,
            standard_error=None, degrees_of_freedom=None, value=None,
        )  # fmt: skip
        found = two(ours, theirs)
        keys = {(row.tip, row.variant, row.metric) for row in (*ours, *theirs)}
        assert {(row.tip, row.variant, row.metric) for row in found} == keys
        why = {
            (row.tip, row.reason)
            for row in found
            if row.is_primary and row.verdict == "not compared" and row.variant != "half on"
        }
        assert ("c", "not in B") in why
        assert ("d", "not in A") in why
        assert ("b", "failed in B (killed by signal 9)") in why

    def test_a_check_is_listed_and_not_compared(self) -> None:
        (row, *_) = planted(1, 1.2)
        check = dataclasses.replace(
            row, tip="environment", variant="Pillow", metric="verdict", unit="", workload="check",
            is_baseline=False, is_primary=False, value=None, verdict="warn", reason="old",
            replicates=0, higher_is_better=None,
        )  # fmt: skip
        (found,) = two([check], [dataclasses.replace(check, verdict="pass", reason=None)])
        assert found.verdict == "not compared"
        assert found.reason == "warn in A (old); pass in B"

    def test_what_a_tip_recommends_is_compared_whatever_its_name(self) -> None:
        ours, theirs = planted(1, 1.2), planted(2, 1.5)
        theirs = [
            dataclasses.replace(row, variant="on, 4 workers") if row.is_recommended else row
            for row in theirs
        ]
        row = headline(two(ours, theirs))
        assert (row.reference_variant, row.other_variant) == ("on", "on, 4 workers")
        assert row.variant == "on / on, 4 workers"
        assert row.verdict == "larger"
        assert row.value_reason == "the variants differ"

    def test_other_variants_against_another_baseline_are_not_compared(self) -> None:
        ours, theirs = planted(1, 1.2), planted(2, 1.2)
        theirs = [
            dataclasses.replace(row, variant="really off") if row.is_baseline else row
            for row in theirs
        ]
        found = two(ours, theirs)
        (half,) = (row for row in found if row.variant == "half on" and row.is_primary)
        assert half.verdict == "not compared"
        assert half.reason == "measured against other baselines: off; really off"
        assert headline(found).verdict == "no difference"


class TestValues:
    def test_are_turned_so_that_more_is_better(self) -> None:
        ours, theirs = planted(1, 1.2), planted(2, 1.2, speed=1.25)
        (row,) = (row for row in two(ours, theirs) if row.is_baseline)
        assert row.value_change == pytest.approx(1.25, rel=0.02)
        assert row.value_change_ci_low is not None
        assert row.value_change_ci_high is not None
        assert row.value_change_ci_low < 1.25 < row.value_change_ci_high * 1.01
        latency = [
            [dataclasses.replace(row, higher_is_better=False) for row in rows]
            for rows in (ours, theirs)
        ]
        (row,) = (row for row in two(*latency) if row.is_baseline)
        assert row.value_change == pytest.approx(0.8, rel=0.02)

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"batch_size": 64}, "not the same batch size (16; 64)"),
            ({"model": "resnet50"}, "not the same model (small_cnn; resnet50)"),
            ({"images_checksum": "00" * 32}, "not the same images"),
            ({"images_checksum": None}, "images not known in B"),
            ({"threads": None}, "number of threads not known in B"),
            ({"start_method": "spawn"}, "not the same start method (fork; spawn)"),
            ({"value_standard_error": None}, "no interval of the value in B"),
            ({"higher_is_better": None}, "whether more is better is not known in B"),
        ],
    )
    def test_only_where_the_work_is_the_same(self, changes: Mapping[str, Any], reason: str) -> None:
        theirs = [dataclasses.replace(row, **changes) for row in planted(2, 1.2)]
        for row in two(planted(1, 1.2), theirs):
            if row.reference_value is not None and row.other_value is not None:
                assert (row.value_change, row.value_reason) == (None, reason)


def test_fairness_names_what_differs_and_what_that_does() -> None:
    runs = [Run(label=str(number), rows=tuple(planted(number, 1.2))) for number in range(3)]
    found = {variation.fact.column: variation for variation in variations(runs)}
    assert set(found) == {
        "cpu_model", "usable_cores", "gpu_model", "driver_version", "torch_version",
    }  # fmt: skip
    assert not found["gpu_model"].is_unfair
    assert found["torch_version"].is_unfair
    assert found["torch_version"].values == (("2.14.1", (0, 1)), ("2.13.0", (2,)))


class TestGate:
    BOUND = 0.05

    def slower(self, *theirs: Sequence[Effect]) -> list[str]:
        compared = [two(planted(1, 1.2), rows) for rows in theirs]
        return [look.what for look in gate(self.BOUND, compared).slower]

    def test_names_a_tip_that_is_worth_less(self) -> None:
        assert self.slower(planted(2, 1.2)) == []
        assert self.slower(planted(2, 1.2), planted(3, 1.0)) == ["what tip (on) is worth"]
        assert self.slower(planted(2, 1.5)) == []

    def test_names_a_baseline_that_is_slower(self) -> None:
        assert self.slower(planted(2, 1.2, speed=0.85)) == ["tip's baseline (off)"]
        assert self.slower(planted(2, 1.2, speed=0.97)) == []

    def test_noise_alone_is_not_slower(self) -> None:
        assert self.slower(planted(2, 1.1, noise=0.2)) == []

    def test_says_what_could_not_be_looked_at(self) -> None:
        theirs = [dataclasses.replace(row, batch_size=64) for row in planted(2, 1.2)]
        found = gate(self.BOUND, [two(planted(1, 1.2), theirs)])
        assert len(found.looks) == 1
        reason = "not the same batch size (16; 64)"
        assert found.missing == (("tip's baseline (off)", reason),)

    def test_says_how_small_a_slow_down_is_seen(self) -> None:
        (smallest, largest) = gate(
            self.BOUND, [two(planted(1, 1.2), planted(2, 1.2))]
        ).smallest_seen
        assert self.BOUND < smallest <= largest < 2 * self.BOUND

    @pytest.mark.parametrize(
        "theirs", [planted(2, 1.2, replicates=2), machine(2, tips={"another": 1.2})]
    )
    def test_never_passes_for_lack_of_data(self, theirs: list[Effect]) -> None:
        with pytest.raises(UserError, match="B has nothing to compare with A"):
            gate(self.BOUND, [two(planted(1, 1.2), planted(3, 1.2)), two(planted(1, 1.2), theirs)])

    def test_a_tip_that_fails_is_no_reason_to_pass(self) -> None:
        ours = machine(1, tips={"tip": 1.2, "second": 1.2})
        theirs = [
            dataclasses.replace(
                row, effect=None, ci_low=None, ci_high=None, standard_error=None,
                degrees_of_freedom=None, value=None, replicates=0, verdict="failed",
                reason="signal 9",
            )
            if row.tip == "second"
            else row
            for row in machine(2, tips={"tip": 1.2, "second": 1.2})
        ]  # fmt: skip
        with pytest.raises(
            UserError, match=r"B has no number .* second \(failed in B \(signal 9\)"
        ):
            gate(self.BOUND, [two(ours, theirs)])
        cut = [row for row in theirs if row.tip == "tip" or row.is_baseline]
        with pytest.raises(UserError, match=r"B has no number .* second \(not in B\)"):
            gate(self.BOUND, [two(ours, cut)])
        without = [row for row in theirs if row.tip == "tip"]
        looks = gate(self.BOUND, [two(ours, without)]).looks
        assert {look.row.tip for look in looks} == {"tip"}

    def test_exit_codes(self, tmp_path: Path) -> None:
        one, same, worse = (
            file(tmp_path / f"{name}.csv", planted(number, effect))
            for number, (name, effect) in enumerate([("a", 1.2), ("b", 1.2), ("c", 1.0)])
        )
        assert run(one, same, out=tmp_path / "out", slower="5%")[0] == 0
        code, told = run(one, worse, out=tmp_path / "out", slower="5%")
        assert code == 1
        assert "what tip (on) is worth" in told
        assert "Worth less, or slower, by more than 5 %?" in (
            tmp_path / "out" / "compare.md"
        ).read_text("utf-8")
        smoke = file(tmp_path / "smoke.csv", planted(3, 1.2, replicates=2))
        with pytest.raises(UserError):
            run(one, smoke, out=tmp_path / "none", slower="5%")
        assert not (tmp_path / "none").exists()

    def test_looks_at_every_run_among_many(self, tmp_path: Path) -> None:
        paths = [file(tmp_path / f"{n}.csv", planted(n, 1.0 if n == 5 else 1.2)) for n in range(8)]
        code, told = run(*paths, out=tmp_path / "out", slower="0.05")
        assert code == 1
        assert "made-up-5 (run00000005)" in told
        assert run(*paths, out=tmp_path / "out", slower="30%")[0] == 0

    @pytest.mark.parametrize(("text", "bound"), [("5%", 0.05), ("0.05", 0.05), ("12.5 %", 0.125)])
    def test_bounds(self, text: str, bound: float) -> None:
        assert parse_bound(text) == pytest.approx(bound)

    @pytest.mark.parametrize("text", ["5", "-1%", "100%", "five", "", "5%%", "nan"])
    def test_odd_bounds(self, text: str) -> None:
        with pytest.raises(UserError, match=r"such as 5% or 0\.05"):
            parse_bound(text)


class TestMachines:
    def typical(self, runs: Sequence[Sequence[Effect]]) -> Distribution:
        found = distributions([Run(label="", rows=tuple(rows)) for rows in runs])
        (one,) = (its for its in found if its.is_headline)
        return one

    def test_finds_what_is_typical_and_how_far_machines_differ(self) -> None:
        runs = [planted(number, 1.3, between=0.1, noise=0.02) for number in range(150)]
        row = self.typical(runs).row
        assert row.typical_effect == pytest.approx(1.3, rel=0.03)
        assert row.typical_effect_ci_low is not None
        assert row.typical_effect_ci_high is not None
        assert row.typical_effect_ci_low < 1.3 < row.typical_effect_ci_high
        assert row.between_machines == pytest.approx(0.1, rel=0.2)
        assert row.machines_low == pytest.approx(1.3 * math.exp(-0.196), rel=0.05)
        assert row.machines_high == pytest.approx(1.3 * math.exp(0.196), rel=0.05)
        counts = [value for name, value in vars(row).items() if name.endswith("_machines")]
        assert sum(value for value in counts if isinstance(value, int)) == 150

    def test_noise_is_not_taken_for_a_difference_of_machines(self) -> None:
        found = [
            self.typical(
                [planted(n, 1.3, noise=0.05, replicates=5, seed=seed) for n in range(25)]
            ).row.between_machines
            for seed in range(12)
        ]
        variances = [between**2 for between in found if between is not None]
        assert len(variances) == 12
        # A standard error is 0.05 / √5 = 0.022; its square is what must not come out.
        assert float(np.mean(variances)) < 0.35 * 0.022**2

    def test_several_runs_of_one_machine_count_once(self) -> None:
        runs = [planted(number, 1.3, between=0.1) for number in range(4)]
        again = [dataclasses.replace(row, run_id="again") for row in runs[0]]
        assert self.typical([*runs, again]).row.machines == 4
        assert self.typical([*runs, again]).effects == pytest.approx(self.typical(runs).effects)

    def test_each_machines_own_recommendation_makes_one_row(self) -> None:
        runs = [
            [
                dataclasses.replace(row, variant=f"workers={number % 2}")
                if row.is_recommended
                else row
                for row in planted(number, 1.3)
            ]
            for number in range(7)
        ]
        one = self.typical(runs)
        assert one.row.variant == EACH_ITS_OWN
        assert one.row.machines == 7

    def test_unmeasured_ones_are_counted_and_drawn_as_words(self) -> None:
        absent = {
            **dict.fromkeys(("effect", "ci_low", "ci_high", "standard_error", "value")),
            "degrees_of_freedom": None,
            "verdict": "not measurable here",
        }
        runs = [
            [
                dataclasses.replace(row, **absent) if row.effect is not None else row  # type: ignore[arg-type]
                for row in planted(number, 1.3)
            ]
            for number in range(7)
        ]
        one = self.typical(runs)
        assert (one.row.machines, one.row.not_measurable_here_machines) == (0, 7)
        assert one.row.median is None
        with drawing.style():
            figure = machines_picture([one], 7)
        assert any(
            "no machine measured it: not measurable 7" in text.get_text()
            for text in figure.axes[0].texts
        )


class TestRuns:
    def test_names_in_the_order_given(self, tmp_path: Path) -> None:
        both = file(tmp_path / "both.csv", [*planted(2, 1.2), *planted(1, 1.2)])
        third = file(tmp_path / "third.csv", planted(0, 1.2))
        runs = read_runs([third, both])
        assert [(one.label, one.facts.machine_name) for one in runs] == [
            ("A", "made-up-0"),
            ("B", "made-up-1"),
            ("C", "made-up-2"),
        ]

    def test_a_run_folder_stands_for_its_file(self, tmp_path: Path) -> None:
        file(tmp_path / "effects.csv", planted(0, 1.2))
        other = file(tmp_path / "other.csv", planted(1, 1.2))
        assert len(read_runs([tmp_path, other])) == 2

    def test_the_same_run_twice_is_refused_among_three_and_not_among_two(
        self, tmp_path: Path
    ) -> None:
        one, two = (file(tmp_path / f"{n}.csv", planted(n, 1.2)) for n in range(2))
        assert len(read_runs([one, one])) == 2
        with pytest.raises(UserError, match="Run run00000000 is there 2 times"):
            read_runs([one, two, one])

    @pytest.mark.parametrize(
        ("make", "problem"),
        [
            (lambda folder: folder / "nothing", "does not exist"),
            (lambda folder: folder, "is not a run folder"),
            (
                lambda folder: (folder / "plan.json").write_text("{}") and folder,
                "no effects.csv yet",
            ),
        ],
    )
    def test_what_is_no_run(self, tmp_path: Path, make: Any, problem: str) -> None:
        one = file(tmp_path / "one.csv", planted(0, 1.2))
        (tmp_path / "odd").mkdir()
        with pytest.raises(UserError, match=problem):
            read_runs([one, make(tmp_path / "odd")])

    def test_one_run_alone_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="Found 1 run"):
            read_runs([file(tmp_path / "one.csv", planted(0, 1.2))])


class TestOutputs:
    @pytest.mark.parametrize("number", [2, 3, 8])
    def test_do_not_depend_on_the_order_of_rows(self, tmp_path: Path, number: int) -> None:
        tips = dict(list(EFFECTS.items())[:3])
        runs = [machine(place, tips=tips) for place in range(number)]
        written = []
        for turn in range(2):
            for place, rows in enumerate(runs):
                shuffled = random.Random(place).sample(rows, len(rows)) if turn else rows
                file(tmp_path / f"{place}.csv", shuffled)
            paths = [tmp_path / f"{place}.csv" for place in range(number)]
            run(*paths, out=tmp_path / f"out{turn}", slower="50%")
            found = sorted(path for path in (tmp_path / f"out{turn}").rglob("*") if path.is_file())
            written.append({path.name: path.read_bytes() for path in found})
        assert written[0] == written[1]
        names = {"compare.md", "compare.html", "compare.csv", "compare.png", "compare.svg"}
        assert set(written[0]) == names

    def test_csv_has_a_row_for_every_row_of_either_run(self, tmp_path: Path) -> None:
        ours, theirs = machine(1), machine(2)
        paths = file(tmp_path / "a.csv", ours), file(tmp_path / "b.csv", theirs)
        run(*paths, out=tmp_path / "out")
        with (tmp_path / "out" / "compare.csv").open(encoding="utf-8", newline="") as content:
            found = list(csv.DictReader(content))
        assert len(found) == len(ours)
        assert list(found[0]) == [field.name for field in dataclasses.fields(ComparedEffect)]
        change = next(row for row in found if row["verdict"] == "larger")
        assert float(change["effect_change"]) == pytest.approx(
            float(change["other_effect"]) / float(change["reference_effect"])
        )

    def test_texts_are_shown_as_they_are_and_formulas_written_harmless(
        self, tmp_path: Path
    ) -> None:
        odd = [
            dataclasses.replace(row, variant=f"={place}{NASTY}", reason=NASTY, cpu_model=NASTY)
            for place, row in enumerate(planted(1, 1.2))
        ]
        paths = file(tmp_path / "a.csv", odd), file(tmp_path / "b.csv", planted(2, 1.2))
        run(*paths, out=tmp_path / "out")
        told = (tmp_path / "out" / "compare.md").read_text("utf-8")
        outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", told)
        assert "<script>" not in outside_code
        assert "$\\foo" not in outside_code
        assert "解码器" in told
        with (tmp_path / "out" / "compare.csv").open(encoding="utf-8", newline="") as content:
            cells = [cell for line in csv.reader(content) for cell in line]
        assert not any(cell.startswith("=") for cell in cells)
        assert any(cell.startswith("'=") for cell in cells)

    @pytest.mark.parametrize("number", [2, 6])
    def test_pictures_texts_are_whole_and_apart(self, number: int) -> None:
        runs = []
        for place in range(number):
            rows = [
                dataclasses.replace(
                    row,
                    variant=f"{row.variant} {NASTY}",
                    machine_name=f"{row.machine_name} {NASTY}",
                    reason=NASTY,
                )
                for row in machine(place, tips={"tip": 1.2, "解码器" * 20: 0.01, NASTY: 50.0})
            ]
            runs.append(Run(label="ABCDEF"[place], rows=tuple(rows)))
        with drawing.style():
            test_reporting.TestPictures().check(pairs_picture(runs))

    def test_picture_of_machines_has_its_texts_whole_and_apart(self) -> None:
        runs = [Run(label="", rows=tuple(machine(number))) for number in range(7)]
        with drawing.style():
            test_reporting.TestPictures().check(machines_picture(distributions(runs), 7))

    def test_page_says_what_is_worth_more_and_what_is_unfair(self) -> None:
        runs = [
            Run(label=label, rows=tuple(planted(number, effect)))
            for label, number, effect in (("A", 1, 1.0), ("B", 2, 1.5))
        ]
        told = markdown(pairs_page(runs, [compare(*runs)], None))
        assert "# made-up-2 (B) compared with made-up-1 (A)" in told
        assert "worth more in B: tip" in told
        assert "Software or settings differ (NVIDIA driver and torch)" in told
        assert "Values vary more between runs than within one" in told
        for block in told.split("\n\n"):
            if block.startswith("|"):
                counts = {line.replace("\\|", "").count("|") for line in block.split("\n")}
                assert len(counts) == 1, block

    def test_a_tip_whose_main_result_is_of_other_work_is_named(self) -> None:
        """num_workers counts beside a training step on a GPU, alone on a CPU."""

        def both(rows: Sequence[Effect], main: str) -> tuple[Effect, ...]:
            return tuple(
                dataclasses.replace(
                    row, workload=workload, is_primary=row.is_primary and workload == main
                )
                for workload in ("loader", "loader + training step")
                for row in rows
            )

        runs = [
            Run(label="A", rows=both(planted(1, 1.2), "loader")),
            Run(label="B", rows=both(planted(2, 1.2), "loader + training step")),
        ]
        page = pairs_page(runs, [compare(*runs)], None)
        (main,) = (section for section in page.sections if section.is_main)
        assert main.table is None
        assert "Measured by different work in the two runs, so below: tip." in main.sentences

    def test_what_only_one_run_holds_is_named_and_not_tabled(self) -> None:
        many = machine(1, tips={"tip": 1.2, "absent": 1.1, "gone": 1.3})
        runs = [Run(label="A", rows=tuple(many)), Run(label="B", rows=tuple(planted(2, 1.2)))]
        page = pairs_page(runs, [compare(*runs)], None)
        (main,) = (section for section in page.sections if section.is_main)
        assert "Only in A: absent and gone." in main.sentences
        assert main.table is not None
        assert [row[0] for row in main.table.rows] == ["tip\non"]
        nothing = [
            Run(label=run.label, rows=tuple(its))
            for run, its in zip(
                runs, (planted(1, 1.2), machine(2, tips={"other": 1.0})), strict=True
            )
        ]
        page = pairs_page(nothing, [compare(*nothing)], None)
        (main,) = (section for section in page.sections if section.is_main)
        assert main.table is None
        assert {"Only in A: tip.", "Only in B: other."} <= set(main.sentences)
        assert "Only in A" in markdown(page)


def test_works_without_torch_and_pytest(tmp_path: Path) -> None:
    paths = [str(file(tmp_path / f"{n}.csv", planted(n, 1.2))) for n in range(2)]
    code = """
import runpy, sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "torchvision", "pytest", "pytest_benchmark"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
sys.argv = ["bench", "compare", *sys.argv[1:]]
runpy.run_module("bench", run_name="__main__")
"""
    result = subprocess.run(
        [sys.executable, "-c", code, *paths, "--out", str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "compare.html" in result.stdout
    assert (tmp_path / "out" / "figures" / "compare.png").exists()


def test_many_machines_stay_readable_and_small(tmp_path: Path) -> None:
    """As a thousand do, which take half a minute to make: ``make_machines.py 1000 FOLDER``."""
    subprocess.run(
        [sys.executable, "tests/make_machines.py", "150", str(tmp_path / "machines")],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    paths = sorted(map(str, (tmp_path / "machines").iterdir()))
    result = subprocess.run(
        [sys.executable, "-m", "bench", "compare", *paths, "--out", str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    # Of all children so far; in KiB, and in bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak * (1 if sys.platform == "darwin" else 1024) < 2**30
    with (tmp_path / "out" / "compare.csv").open(encoding="utf-8", newline="") as content:
        reader = csv.reader(content)
        names, *rows = reader
    assert names == [field.name for field in dataclasses.fields(EffectDistribution)]
    assert len(rows) < 200
    assert (tmp_path / "out" / "compare.md").stat().st_size < 200_000
    assert (tmp_path / "out" / "figures" / "compare.svg").stat().st_size < 2_000_000
    assert comparing.MOST_SIDE_BY_SIDE < 150
