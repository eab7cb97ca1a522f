"""Planted effects come out; verdicts, statuses and noise are judged as the design says."""

import dataclasses
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.weightstats import DescrStatsW
from synthetic import (
    ACCURACY,
    BYTES_A_BYTE,
    LATENCY,
    RATE,
    as_read,
    make_environment,
    make_plan,
    make_tip,
    make_turns,
    no_measurements,
)

from bench.analysis.effects import effects
from bench.analysis.intervals import Interval, projected_interval, student_interval
from bench.analysis.noise import WarningKind, flagged_turns, turn_spread, warnings
from bench.analysis.stopping import is_narrow_enough
from bench.analysis.verdicts import PROBABLY, decide, replicates_to_settle, scaled_margin
from bench.records.effects import Effect, read_effects, write_effects
from bench.records.measurements import Turn
from bench.records.plan import Metric, Plan, Section
from bench.tips.tip import HOST_MEMORY, STARTUP


def analysed(plan: Plan, turns: Sequence[Turn]) -> list[Effect]:
    return effects(as_read(list(turns)), plan, make_environment())


def row(
    rows: Sequence[Effect], variant: str, metric: str = RATE.name, workload: str = "loader"
) -> Effect:
    (found,) = (
        row
        for row in rows
        if (row.variant, row.metric, row.workload) == (variant, metric, workload)
    )
    return found


def interval(low: float, high: float, low_90: float, high_90: float) -> Interval:
    return Interval(
        mean=(low + high) / 2,
        low=low,
        high=high,
        low_90=low_90,
        high_90=high_90,
        standard_error=0.01,
        degrees_of_freedom=4,
    )


class TestEffects:
    @pytest.mark.parametrize(
        ("metric", "planted", "effect"),
        [
            (RATE, 1.25, 1.25),
            (RATE, 0.8, 0.8),
            (LATENCY, 0.5, 2.0),  # half the time is twice as good
            (HOST_MEMORY, 2.0, 0.5),
            (STARTUP, 1.6, 0.625),
            (ACCURACY, 1.5, 1.5),
            (BYTES_A_BYTE, -0.9, 0.9),
        ],
    )
    def test_planted_effect_comes_out_with_more_being_better(
        self, metric: Metric, planted: float, effect: float
    ) -> None:
        plan = make_plan(make_tip(metrics=(metric,)))
        turns = make_turns(plan, lambda *_: planted, turn_noise=0.2)
        found = row(analysed(plan, turns), "on", metric.name)
        assert found.effect == pytest.approx(effect)
        assert found.ci_low == pytest.approx(effect)
        assert found.verdict == ("helps" if effect > (metric.kind == "ratio") else "hurts")
        assert found.baseline_value is not None
        assert found.value is not None
        if metric.kind == "ratio":
            assert found.value / found.baseline_value == pytest.approx(planted)
        else:
            assert found.value - found.baseline_value == pytest.approx(planted)

    def test_totals_keep_what_comes_in_bursts(self) -> None:
        plan = make_plan(blocks=20)
        turns = [
            dataclasses.replace(turn, seconds=(turn.seconds or 0) * 1.95)
            if turn.variant == "on" and turn.block is not None and turn.block % 10 == 0
            else turn
            for turn in make_turns(plan)
        ]
        assert row(analysed(plan, turns), "on").effect == pytest.approx(1 / 1.095)

    def test_interval_covers_the_truth_in_95_of_100(self) -> None:
        names = [f"v{number}" for number in range(601)]
        plan = make_plan(make_tip("many", *names), blocks=1)
        turns = make_turns(plan, lambda *_: 1.1, replicate_noise=0.03, seed=7)
        rows = [found for found in analysed(plan, turns) if not found.is_baseline]
        covered = sum((found.ci_low or 9) <= 1.1 <= (found.ci_high or 0) for found in rows)
        # 95 % of 600, give or take three standard deviations of a binomial.
        assert 570 - 16 <= covered <= 570 + 16

    def test_values_and_identity(self) -> None:
        plan = make_plan()
        found = analysed(plan, make_turns(plan, lambda *_: 1.5))
        baseline, variant = found
        assert (baseline.effect, baseline.verdict, baseline.is_baseline) == (None, None, True)
        assert baseline.value == pytest.approx(500)
        assert (variant.replicates, variant.blocks, variant.degrees_of_freedom) == (5, 20, 4)
        assert variant.is_primary
        assert variant.is_recommended
        assert variant.machine_name == "made-up-0-2c"
        assert variant.gpu_model is None
        assert variant.margin == 0.03

    def test_every_planned_pair_has_a_row_even_without_measurements(self) -> None:
        plan = make_plan(
            make_tip("a", "0", "1", "2", metrics=(RATE, HOST_MEMORY), workloads=("read", "load")),
            make_tip("b", reasons={"off": "needs CUDA", "on": "needs CUDA"}),
        )
        found = effects(no_measurements(), plan, make_environment())
        pairs = {(row.tip, row.workload, row.variant) for row in found}
        assert pairs == {
            (tip.id, workload.name, variant.name)
            for tip in plan.tips
            for workload in tip.workloads
            for variant in tip.variants
        }
        assert {row.verdict for row in found} == {"inconclusive", "not measurable here"}

    def test_partial_replicate_is_ignored_for_its_pair_only(self) -> None:
        plan = make_plan(make_tip("t", "a", "b", "c"))
        turns = [
            turn
            for turn in make_turns(plan, lambda *_: 2.0)
            if not (turn.variant == "b" and turn.replicate == 4 and turn.block == 3)
        ]
        found = analysed(plan, turns)
        assert (row(found, "b").replicates, row(found, "c").replicates) == (4, 5)

    def test_turn_measured_again_counts_once_and_the_later_one(self) -> None:
        plan = make_plan()
        first = [
            dataclasses.replace(turn, seconds=(turn.seconds or 0) * 3)
            for turn in make_turns(plan)
            if turn.replicate == 4 and (turn.block or 0) < 2
        ]
        found = row(analysed(plan, [*first, *make_turns(plan, lambda *_: 1.2)]), "on")
        assert found.effect == pytest.approx(1.2)
        assert (found.replicates, found.blocks) == (5, 20)

    def test_arms_in_sets_pair_with_the_baseline_of_their_set(self) -> None:
        plan = make_plan(make_tip("t", "a", "b", "c", metrics=(RATE, HOST_MEMORY)))
        turns = make_turns(plan, lambda *_: 2.0)
        memory = [turn for turn in turns if turn.block is None]
        timed = [turn for turn in turns if turn.block is not None]
        first = [turn for turn in timed if turn.variant != "c"]
        # The second set has replicate numbers of its own; the machine has become half as fast.
        second = [
            dataclasses.replace(
                turn, replicate=(turn.replicate or 0) + 10, seconds=2 * (turn.seconds or 0)
            )
            for turn in timed
            if turn.variant != "b"
        ]
        found = analysed(plan, [*memory, *first, *second])
        for variant in "bc":
            assert row(found, variant).effect == pytest.approx(2)
            assert row(found, variant).replicates == 5
            assert row(found, variant, HOST_MEMORY.name).effect == pytest.approx(0.5)

    def test_none_is_a_variant_name_like_any_other(self, tmp_path: Path) -> None:
        plan = make_plan(make_tip("t", "None", "NA"))
        found = analysed(plan, make_turns(plan, lambda *_: 1.5))
        assert row(found, "NA").effect == pytest.approx(1.5)
        write_effects(tmp_path / "effects.csv", found)
        read = read_effects(tmp_path / "effects.csv")
        assert [row.variant for row in read] == ["None", "NA"]
        assert read == found


class TestStatuses:
    def test_one_failed_row_fails_the_variant_with_its_reason(self) -> None:
        plan = make_plan(make_tip("t", "a", "b", "c", metrics=(RATE, HOST_MEMORY)))
        turns = make_turns(plan, lambda *_: 2.0)
        killed = dataclasses.replace(
            next(turn for turn in turns if turn.variant == "b"),
            status="failed",
            reason="killed by signal 9",
            block=None,
            seconds=None,
        )
        found = analysed(plan, [*turns, killed])
        (failed,) = (row for row in found if row.variant == "b")
        assert (failed.verdict, failed.reason) == ("failed", "killed by signal 9")
        assert (failed.effect, failed.value, failed.metric) == (None, None, RATE.name)
        assert row(found, "c").verdict == "helps"

    def test_not_measurable_by_plan_or_found_out_later(self) -> None:
        plan = make_plan(make_tip("t", "a", "b", "c", reasons={"b": "needs CUDA"}))
        turns = [turn for turn in make_turns(plan) if turn.variant != "c"]
        turns.append(
            Turn(
                run_id=plan.run_id,
                machine_id="m",
                tip="t",
                workload="loader",
                variant="c",
                is_baseline=False,
                status="not measurable here",
                reason="no decoder",
            )
        )
        found = analysed(plan, turns)
        assert [(row.verdict, row.reason) for row in found[1:]] == [
            ("not measurable here", "needs CUDA"),
            ("not measurable here", "no decoder"),
        ]

    def test_failed_baseline_leaves_values_and_nothing_to_compare_with(self) -> None:
        plan = make_plan()
        turns = make_turns(plan, lambda *_: 2.0)
        turns[0] = dataclasses.replace(turns[0], status="failed", reason="broken")
        baseline, variant = analysed(plan, turns)
        assert baseline.verdict == "failed"
        assert variant.verdict == "inconclusive"
        assert "nothing to compare with" in (variant.reason or "")
        assert variant.value == pytest.approx(1000)
        assert variant.effect is None

    @pytest.mark.parametrize(("replicates", "has_interval"), [(1, False), (2, True)])
    def test_too_few_replicates_claim_nothing(self, replicates: int, has_interval: bool) -> None:
        plan = make_plan()
        turns = make_turns(plan, lambda *_: 2.0, replicates=replicates, replicate_noise=0.01)
        found = row(analysed(plan, turns), "on")
        assert found.verdict == "inconclusive"
        assert f"{replicates} of 5 replicates" in (found.reason or "")
        assert found.effect is not None
        assert (found.ci_low is not None) == has_interval

    def test_three_replicates_are_enough(self) -> None:
        plan = make_plan()
        turns = make_turns(plan, lambda *_: 2.0, replicates=3, replicate_noise=0.01)
        assert row(analysed(plan, turns), "on").verdict == "helps"

    def test_smoke_claims_no_verdict(self) -> None:
        plan = make_plan(profile="smoke", claims_verdicts=False)
        found = row(analysed(plan, make_turns(plan, lambda *_: 2.0)), "on")
        assert found.verdict == "inconclusive"
        assert "smoke" in (found.reason or "")

    def test_missing_reading_and_memory_below_zero(self) -> None:
        plan = make_plan(make_tip("t", metrics=(RATE, HOST_MEMORY)))
        turns = make_turns(plan)
        unread = [dataclasses.replace(turn, peak_host_pss_bytes=None) for turn in turns]
        found = row(analysed(plan, unread), "on", HOST_MEMORY.name)
        assert (found.verdict, found.reason) == (
            "inconclusive",
            "no reading of peak_host_pss_bytes",
        )
        negative = [
            dataclasses.replace(turn, peak_host_pss_bytes=-5)
            if turn.peak_host_pss_bytes is not None and turn.replicate == 0
            else turn
            for turn in turns
        ]
        found = row(analysed(plan, negative), "on", HOST_MEMORY.name)
        assert found.verdict == "inconclusive"
        assert "not above zero" in (found.reason or "")

    def test_a_reading_that_a_variant_does_not_have_gives_it_no_row(self) -> None:
        build = Metric(
            name="build_seconds",
            unit="s",
            column="build_seconds",
            aggregate="once",
            higher_is_better=False,
        )
        plan = make_plan(make_tip("t", "loader", "workers", "copy", metrics=(RATE, build)))
        turns = [
            dataclasses.replace(turn, build_seconds=2.5 if turn.variant == "copy" else None)
            for turn in make_turns(make_plan(make_tip("t", "loader", "workers", "copy")))
        ]
        found = analysed(plan, turns)
        assert [(row.variant, row.metric) for row in found] == [
            ("loader", RATE.name),
            ("workers", RATE.name),
            ("copy", RATE.name),
            ("copy", "build_seconds"),
        ]
        assert found[-1].value == 2.5
        assert found[-1].effect is None
        assert found[-1].reason == "nothing to compare with: the baseline has no build_seconds"

    def test_fewer_replicates_by_plan_make_a_variant_exploratory(self) -> None:
        plan = make_plan(make_tip("t", "a", "b", "c", "d", exploratory=("d",)), other_replicates=3)
        assert [row.is_exploratory for row in analysed(plan, make_turns(plan))] == [
            False,
            False,
            True,
            True,
        ]
        two = make_plan(make_tip("t", "a", "b", workloads=("one", "other")), other_replicates=3)
        rows = analysed(two, make_turns(two))
        assert [(row.workload, row.variant) for row in rows if row.is_exploratory] == [
            ("other", "b")
        ]
        equal = dataclasses.replace(plan, other_replicates=5)
        assert [row.is_exploratory for row in analysed(equal, make_turns(plan))] == [
            False,
            False,
            False,
            True,
        ]

    def test_what_an_aa_pair_read_by_chance_is_not_foreseen_to_last(self) -> None:
        def judged(section: Section) -> Effect:
            plan = make_plan(make_tip("t", section=section))
            return analysed(plan, make_turns(plan, lambda *_: 1.01, replicate_noise=0.1))[1]

        aa, other = judged("A/A"), judged("Data loading")
        assert aa.effect == other.effect
        assert aa.verdict == other.verdict == "inconclusive"
        assert aa.reason != other.reason

    def test_shares_that_never_varied_say_nothing_about_their_spread(self) -> None:
        plan = make_plan(make_tip("t", metrics=(RATE, ACCURACY)))
        rows = [row for row in analysed(plan, make_turns(plan)) if row.metric == ACCURACY.name]
        assert rows[1].effect == 0
        assert rows[1].verdict == "inconclusive"
        assert rows[1].reason == "all 5 replicates read the same, so their spread is not known"


class TestVerdicts:
    @pytest.mark.parametrize(
        ("limits", "verdict"),
        [
            ((0.031, 0.08, 0.035, 0.075), "helps"),
            ((0.030, 0.08, 0.035, 0.075), "gain, size unclear"),  # touches the margin
            ((-0.08, -0.031, -0.075, -0.035), "hurts"),
            ((-0.08, -0.030, -0.075, -0.035), "loss, size unclear"),
            ((-0.031, 0.020, -0.029, 0.018), "no difference"),
            ((0.001, 0.028, 0.004, 0.025), "no difference"),  # TOST comes before "gain"
            ((-0.035, 0.020, -0.030, 0.018), "inconclusive"),  # touches the margin
            ((0.001, 0.050, 0.005, 0.045), "gain, size unclear"),
            ((0.000, 0.050, 0.005, 0.045), "inconclusive"),  # touches no effect
            ((-0.050, -0.001, -0.045, -0.005), "loss, size unclear"),
            ((-0.050, 0.000, -0.045, -0.005), "inconclusive"),
        ],
    )
    def test_first_rule_that_matches(
        self, limits: tuple[float, float, float, float], verdict: str
    ) -> None:
        assert decide(interval(*limits), 0.03) == verdict

    def test_90_percent_interval_is_tost(self) -> None:
        random = np.random.default_rng(3)
        agreed = set()
        for _ in range(300):
            values = random.normal(random.normal(0, 0.02), 0.03, size=5)
            found = student_interval(values.tolist())
            p_value, _, _ = DescrStatsW(values).ttost_mean(-0.03, 0.03)
            is_inside = found.low_90 > -0.03 and found.high_90 < 0.03
            assert is_inside == (p_value < 0.05)
            agreed.add(is_inside)
        assert agreed == {True, False}

    def test_swapping_the_arms_mirrors_the_verdict(self) -> None:
        mirrored = {
            "helps": "hurts",
            "hurts": "helps",
            "gain, size unclear": "loss, size unclear",
            "loss, size unclear": "gain, size unclear",
        }
        random = np.random.default_rng(4)
        for _ in range(200):
            values = random.normal(random.normal(0, 0.05), 0.02, size=5)
            there = decide(student_interval(values.tolist()), 0.03)
            back = decide(student_interval((-values).tolist()), 0.03)
            assert back == mirrored.get(there, there)

    def test_margin_is_the_metric_s_own_or_the_run_s(self) -> None:
        assert scaled_margin(RATE, 0.03) == pytest.approx(math.log(1.03))
        assert scaled_margin(ACCURACY, 0.03) == 0.5
        own = dataclasses.replace(RATE, margin=0.1)
        assert scaled_margin(own, 0.03) == pytest.approx(math.log(1.1))

    def test_a_difference_needs_a_margin_in_its_unit(self) -> None:
        with pytest.raises(ValueError, match="needs a margin"):
            dataclasses.replace(ACCURACY, margin=None)

    def test_replicates_that_would_settle_it(self) -> None:
        wide = student_interval([-0.04, 0.05, 0.02, -0.01, 0.06])
        needed = replicates_to_settle(wide, 0.03)
        assert needed is not None
        assert needed > 5
        assert self.settled(wide, needed) == pytest.approx(PROBABLY, abs=0.05)
        assert self.settled(wide, needed // 2) < PROBABLY - 0.1
        hopeless = student_interval([-0.9, 1.0, 0.2, -0.5, 0.3])
        assert replicates_to_settle(hopeless, 0.03) is None

    def settled(self, seen: Interval, replicates: int) -> float:
        """The share of runs of so many replicates that end in a verdict, by trying."""
        random = np.random.default_rng(0)
        spread = seen.standard_error * (seen.degrees_of_freedom + 1) ** 0.5
        verdicts = [
            decide(student_interval(random.normal(seen.mean, spread, replicates).tolist()), 0.03)
            for _ in range(400)
        ]
        return sum(verdict != "inconclusive" for verdict in verdicts) / len(verdicts)

    def test_projection_to_the_same_number_changes_nothing(self) -> None:
        found = student_interval([0.1, 0.2, 0.15, 0.11])
        again = projected_interval(found, 4)
        for field in dataclasses.fields(Interval):
            assert getattr(again, field.name) == pytest.approx(getattr(found, field.name))

    def test_an_interval_needs_two_values(self) -> None:
        with pytest.raises(ValueError, match="two values"):
            student_interval([1.0])


class TestStopping:
    @pytest.mark.parametrize(
        ("planted", "noise", "replicates", "expected"),
        [
            (1.0, 0.005, 5, True),
            (2.0, 0.005, 5, True),
            (0.5, 0.005, 5, True),
            (1.0, 0.2, 5, False),
            (2.0, 0.2, 5, False),
            (2.0, 0.0, 2, False),
            (2.0, 0.0, 0, False),
        ],
    )
    def test_only_the_width_counts(
        self, planted: float, noise: float, replicates: int, expected: bool
    ) -> None:
        plan = make_plan()
        turns = make_turns(plan, lambda *_: planted, replicates=replicates, replicate_noise=noise)
        tip = plan.tips[0]
        workload, variant = tip.workloads[0], tip.variants[1]
        measured = as_read(turns) if turns else no_measurements()
        assert is_narrow_enough(measured, plan, tip, workload, variant) is expected


class TestNoise:
    def test_turn_spread_and_flags(self) -> None:
        plan = make_plan(blocks=50)
        turns = make_turns(plan, turn_noise=0.1)
        turns[0] = dataclasses.replace(turns[0], flags="foreign CPU; throttled")
        measured = as_read(turns)
        spread = turn_spread(measured)
        assert spread["variant"].tolist() == ["off", "on"]
        assert spread["turns"].tolist() == [250, 250]
        assert spread["spread"].tolist() == pytest.approx([0.1, 0.1], abs=0.03)
        assert flagged_turns(measured).to_dict("records") == [
            {"tip": "num_workers", "flag": "foreign CPU", "turns": 1},
            {"tip": "num_workers", "flag": "throttled", "turns": 1},
        ]

    def kinds(self, plan: Plan, turns: Sequence[Turn]) -> set[WarningKind]:
        measured = as_read(list(turns))
        found = effects(measured, plan, make_environment())
        assert all(warning.kind.remedy for warning in warnings(measured, plan, found))
        return {warning.kind for warning in warnings(measured, plan, found)}

    def test_quiet_run_has_no_warning(self) -> None:
        plan = make_plan(make_tip("aa", section="A/A"), make_tip())
        assert self.kinds(plan, make_turns(plan, replicate_noise=0.003)) == set()

    def test_wide_and_shifted_aa_pairs_are_warned_about(self) -> None:
        plan = make_plan(make_tip("aa", section="A/A"))
        wide = make_turns(plan, replicate_noise=0.1)
        assert self.kinds(plan, wide) == {WarningKind.WIDE_AA}
        shifted = make_turns(plan, lambda *_: 1.1, replicate_noise=0.003)
        assert self.kinds(plan, shifted) == {WarningKind.SHIFTED_AA}

    def test_failures_flags_few_replicates_and_smoke_are_warned_about(self) -> None:
        plan = make_plan(claims_verdicts=False)
        turns = [
            dataclasses.replace(turn, flags="throttled" if (turn.block or 0) < 2 else None)
            for turn in make_turns(plan, replicates=2)
        ]
        assert self.kinds(plan, turns) == {
            WarningKind.NO_VERDICTS,
            WarningKind.FLAGGED_TURNS,
            WarningKind.FEW_REPLICATES,
        }
        turns[-1] = dataclasses.replace(turns[-1], status="failed", reason="broken")
        assert WarningKind.FAILED in self.kinds(plan, turns)

    @pytest.mark.parametrize(("percent", "is_disturbed"), [(15.0, False), (25.0, True)])
    def test_arms_that_others_disturbed_all_along_are_warned_about(
        self, percent: float, is_disturbed: bool
    ) -> None:
        plan = make_plan()
        turns = [
            dataclasses.replace(turn, foreign_cpu_percent=percent if turn.variant == "on" else 1.0)
            for turn in make_turns(plan, replicate_noise=0.003)
        ]
        assert self.kinds(plan, turns) == ({WarningKind.DISTURBED_ARMS} if is_disturbed else set())


def test_analysis_and_reporting_work_without_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import bench.analysis.effects, bench.analysis.stopping, bench.reporting\n"
        "import bench.reporting.screen\n"
        "assert 'statsmodels' not in sys.modules, 'statsmodels is slow to import'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
