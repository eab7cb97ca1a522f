"""The order of a whole run, without running anything."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from planted import PACE, group, renamed, tip, variant

from bench.engine import rounds
from bench.engine.replicate import Group, Measured
from bench.engine.rounds import End, Policy, Standing, run_rounds
from bench.tips.tip import Variant

QUICK = Policy(primary=5, others=3, most=0)
FULL = Policy(primary=5, others=5, most=10)


@dataclasses.dataclass
class Bench:
    """Stands for a bench: only its pace is looked at."""

    pace: Any = PACE


@dataclasses.dataclass
class Mock:
    """Measures nothing, writes down what was asked for, and takes a second an arm."""

    log: list[tuple[str, int, tuple[str, ...]]] = dataclasses.field(default_factory=list)
    fails: frozenset[tuple[str, int]] = frozenset()
    time: float = 0.0

    def measure(
        self,
        bench: Bench,
        group: Group,
        replicate: int,
        variants: Sequence[Variant],
        *,
        most_arms: int,
    ) -> Measured:
        names = tuple(variant.name for variant in variants)
        self.log.append((group.tip.id, replicate, names))
        self.time += len(names)
        failed = frozenset(name for name in names if (name, replicate) in self.fails)
        return Measured(failed=failed, numbers_used=1, most_arms=most_arms)

    def run(
        self,
        policy: Policy,
        groups: Sequence[Group],
        *,
        standings: dict[tuple[str, str], Standing] | None = None,
        is_settled: Callable[[Group, Variant], bool] = lambda group, variant: False,
        deadline: float | None = None,
    ) -> End:
        return run_rounds(
            Bench(),  # type: ignore[arg-type]
            groups,
            policy,
            standings={} if standings is None else standings,
            is_settled=is_settled,
            deadline=deadline,
        )


@pytest.fixture
def mock(monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock()
    monkeypatch.setattr(rounds, "measure", made.measure)
    monkeypatch.setattr(rounds.clock, "now", lambda: made.time)
    return made


PLANTED = tip(variant("plain"), variant("treated"), variant("third"))
TWO = [group(renamed(PLANTED, "one")), group(renamed(PLANTED, "two"))]


def test_a_round_measures_every_tip_before_the_next_begins(mock: Mock) -> None:
    assert mock.run(QUICK, TWO) is End.COMPLETE
    assert [(name, number) for name, number, _ in mock.log] == [
        (name, number) for number in range(5) for name in ("one", "two")
    ]


def test_quick_gives_five_replicates_to_the_primary_pair_and_three_to_the_others(
    mock: Mock,
) -> None:
    mock.run(QUICK, TWO)
    variants = [names for name, _, names in mock.log if name == "one"]
    assert variants == 3 * [("plain", "treated", "third")] + 2 * [("plain", "treated")]


def test_full_goes_on_until_the_interval_is_narrow_but_not_for_ever(mock: Mock) -> None:
    mock.run(FULL, TWO[:1], is_settled=lambda group, variant: variant.name == "third")
    variants = [names for _, _, names in mock.log]
    assert variants == 5 * [("plain", "treated", "third")] + 5 * [("plain", "treated")]


def test_a_narrow_interval_ends_nothing_before_the_least_number_of_replicates(mock: Mock) -> None:
    mock.run(FULL, TWO[:1], is_settled=lambda group, variant: True)
    assert len(mock.log) == 5


def test_a_budget_is_the_number_of_rounds_that_fit(mock: Mock) -> None:
    """A round of both tips takes six seconds; two fit into 14, and the third is not begun."""
    assert mock.run(QUICK, TWO, deadline=14.0) is End.BUDGET
    assert [(name, number) for name, number, _ in mock.log] == [
        ("one", 0),
        ("two", 0),
        ("one", 1),
        ("two", 1),
    ]


def test_a_small_budget_goes_on_with_the_primary_pairs_alone(mock: Mock) -> None:
    """A round of six seconds: three don't fit into 15, one and two of four seconds do."""
    policy = dataclasses.replace(QUICK, fewest=3)
    assert mock.run(policy, TWO, deadline=15.0) is End.BUDGET
    everything, pair = ("plain", "treated", "third"), ("plain", "treated")
    assert [names for _, _, names in mock.log] == [*[everything] * 2, *[pair] * 4]
    mock.log.clear()
    mock.time = 0.0
    assert mock.run(policy, TWO, deadline=18.0) is End.BUDGET
    assert {names for _, _, names in mock.log} == {everything}


def test_a_failed_variant_is_not_tried_again_and_the_others_go_on(mock: Mock) -> None:
    mock.fails = frozenset({("treated", 1)})
    mock.run(QUICK, TWO[:1])
    assert [names for _, _, names in mock.log] == [
        ("plain", "treated", "third"),
        ("plain", "treated", "third"),
        ("plain", "third"),
    ]


def test_a_failed_baseline_ends_its_tip_and_no_other(mock: Mock) -> None:
    mock.fails = frozenset({("plain", 0)})
    standings = {
        TWO[1].key: Standing(done={"plain": 4, "treated": 4, "third": 3}, next_replicate=7)
    }
    assert mock.run(QUICK, TWO, standings=standings) is End.COMPLETE
    assert mock.log == [
        ("one", 0, ("plain", "treated", "third")),
        ("two", 7, ("plain", "treated")),
    ]


def test_a_run_that_goes_on_measures_no_finished_replicate_again(mock: Mock) -> None:
    """The tip that is behind catches up first; numbers that were used are not used again."""
    standings = {
        TWO[0].key: Standing(done={"plain": 2, "treated": 2, "third": 2}, next_replicate=3),
        TWO[1].key: Standing(done={"plain": 1, "treated": 1, "third": 1}, next_replicate=1),
    }
    mock.run(QUICK, TWO, standings=standings)
    assert [(name, number) for name, number, _ in mock.log][:3] == [
        ("two", 1),
        ("one", 3),
        ("two", 2),
    ]
    assert sum(name == "one" for name, _, _ in mock.log) == 3
    assert sum(name == "two" for name, _, _ in mock.log) == 4


def test_a_tip_of_which_only_the_baseline_is_measurable_is_not_measured(mock: Mock) -> None:
    alone = dataclasses.replace(TWO[0], variants=PLANTED.variants[:1])
    assert mock.run(QUICK, [alone]) is End.COMPLETE
    assert mock.log == []
