"""The suite's check of itself: what it plants is what it says, and its judgement can fail."""

import dataclasses
import math
from collections import Counter

import pytest
from synthetic import make_environment, make_plan, no_measurements

from bench.analysis.effects import effects
from bench.records.effects import Effect, Verdict
from bench.selfcheck import SLOW_DOWNS, judge_trials
from bench.workloads.known import PASS, is_done_twice

TRIALS = 20


@pytest.mark.parametrize("every", SLOW_DOWNS.values())
def test_each_pass_does_the_same_number_twice_and_each_item_has_its_turn(every: int) -> None:
    twice = [index for index in range(PASS * PASS) if is_done_twice(index, every)]
    assert Counter(index // PASS for index in twice) == dict.fromkeys(range(PASS), PASS // every)
    assert Counter(index % PASS for index in twice) == dict.fromkeys(range(PASS), PASS // every)


def trials(**ratios: float) -> list[Effect]:
    """A row a trial and variant with an interval of ±4 % around the given ratio."""
    plan = make_plan()
    empty = effects(no_measurements(), plan, make_environment())[0]
    names = dict(zip(("again", *SLOW_DOWNS), ("again", "five", "ten"), strict=True))
    return [
        dataclasses.replace(
            empty,
            workload="decoding",
            tip=f"decoding {number}",
            variant=variant,
            is_baseline=False,
            effect=ratios[name],
            ci_low=ratios[name] / 1.04,
            ci_high=ratios[name] * 1.04,
            verdict=verdict(ratios[name]),
        )
        for number in range(TRIALS)
        for variant, name in names.items()
    ]


def verdict(ratio: float) -> Verdict:
    return "inconclusive" if abs(math.log(ratio)) < math.log(1.04) else "hurts"


def judged(rows: list[Effect]) -> dict[tuple[str, str], bool | None]:
    return {
        (finding.check, finding.figure): finding.holds
        for finding in judge_trials("decoding", rows, TRIALS)
    }


FOUND = "found (interval below 1)"
HOLD = "intervals that hold the true ratio"


def test_what_is_right_holds() -> None:
    verdicts = judged(trials(again=1.0, five=1 / 1.05, ten=1 / 1.1))
    assert set(verdicts.values()) == {True, None}


@pytest.mark.parametrize(
    ("ratios", "broken"),
    [
        ({"again": 0.9}, ("A/A", "false verdicts")),
        ({"five": 0.99}, ("planted, 5 % slower", FOUND)),
        ({"five": 0.9}, ("planted, 5 % slower", HOLD)),
        ({"ten": 1.0}, ("planted, 10 % slower", FOUND)),
        ({"ten": 0.7}, ("planted, 10 % slower", HOLD)),
    ],
)
def test_what_is_wrong_does_not_hold(ratios: dict[str, float], broken: tuple[str, str]) -> None:
    verdicts = judged(trials(**({"again": 1.0, "five": 1 / 1.05, "ten": 1 / 1.1} | ratios)))
    assert verdicts[broken] is False


def test_missing_trials_do_not_hold() -> None:
    rows = trials(again=1.0, five=1 / 1.05, ten=1 / 1.1)[: 3 * 5]
    verdicts = judged(rows)
    assert verdicts["A/A", "false verdicts"] is False
    assert verdicts["planted, 10 % slower", FOUND] is False
