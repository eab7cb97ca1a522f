"""Which replicate is measured next: round r measures replicate r of every tip, then comes r + 1.

So the replicates of a tip lie minutes apart, and a run that is stopped early has measured every
tip with fewer replicates. A budget is the number of rounds that fit; where too few would, the
rounds after the first measure the primary pairs alone.
"""

import dataclasses
import enum
import sys
from collections.abc import Callable, MutableMapping, Sequence

from bench.engine import clock
from bench.engine.replicate import Bench, Group, Pace, measure
from bench.tips.tip import Variant

# Seconds on a slow core, for the estimate that is printed before anything has run.
_MORE_FOR_FRESH_SECONDS = 0.65
_MEMORY_SECONDS = 0.8
_BETWEEN_TURNS_SECONDS = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """How many replicates a variant gets.

    At least ``primary`` where it is half of a tip's primary pair and ``others`` elsewhere; then
    more, up to ``most``, until its interval is narrow. A budget that is too small for ``fewest``
    rounds of everything goes on with the primary pairs alone after the first.
    """

    primary: int
    others: int
    most: int
    fewest: int = 1


@dataclasses.dataclass(kw_only=True)
class Progress:
    """Where the run stands, for the screen."""

    round: int
    group: Group
    replicates_done: int
    replicates_left: int
    seconds_left: float


class End(enum.Enum):
    """Why the rounds ended."""

    COMPLETE = "every planned replicate is measured"
    BUDGET = "the budget ended"


@dataclasses.dataclass(kw_only=True)
class Standing:
    """How far a group is.

    Complete replicates by variant, failures, what a replicate takes, and how many arms fit into
    memory together.
    """

    done: dict[str, int] = dataclasses.field(default_factory=dict)
    failed: set[str] = dataclasses.field(default_factory=set)
    next_replicate: int = 0
    most_arms: int = sys.maxsize
    seconds_an_arm: float | None = None


def run_rounds(
    bench: Bench,
    groups: Sequence[Group],
    policy: Policy,
    *,
    standings: MutableMapping[tuple[str, str], Standing],
    is_settled: Callable[[Group, Variant], bool],
    deadline: float | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> End:
    """Measure until every variant has its replicates or the budget ends.

    Ends with the budget when the next round would end after ``deadline`` (of ``clock.now``).
    ``standings``, by ``Group.key``, says where a run goes on, and is kept up to date.
    """
    for group in groups:
        standings.setdefault(group.key, Standing())

    def next_variants(group: Group) -> list[Variant]:
        return wanted(group, policy, standings[group.key], is_settled)

    def seconds(group: Group, variants: Sequence[Variant]) -> float:
        return expected_seconds(bench.pace, group, variants, standings[group.key].seconds_an_arm)

    def done(group: Group) -> int:
        """How many replicates of the group are complete: the baseline takes part in each."""
        return standings[group.key].done.get(group.variants[0].name, 0)

    def rounds(plans: Sequence[tuple[Group, list[Variant]]]) -> int:
        return min(done(group) for group, _ in plans)

    measured = 0
    while True:
        plans = [(group, variants) for group in groups if (variants := next_variants(group))]
        if not plans:
            return End.COMPLETE
        if deadline is not None and rounds(plans) > 0:
            seconds_for_fewest = sum(
                max(0, policy.fewest - done(group)) * seconds(group, variants)
                for group, variants in plans
            )
            if clock.now() + seconds_for_fewest > deadline:
                plans = [pair for plan in plans if (pair := _primary_pair(*plan))]
                if not plans:
                    return End.BUDGET
        number = rounds(plans)
        current = [(group, variants) for group, variants in plans if done(group) == number]
        whole_round = sum(seconds(*plan) for plan in current)
        if deadline is not None and number > 0 and clock.now() + whole_round > deadline:
            return End.BUDGET
        for group, variants in current:
            if deadline is not None and clock.now() + seconds(group, variants) > deadline:
                return End.BUDGET
            left = [
                (other, count)
                for other in groups
                if (count := replicates_left(other, policy, standings[other.key])) > 0
            ]
            on_progress(
                Progress(
                    round=number + 1,
                    group=group,
                    replicates_done=measured,
                    replicates_left=max(1, sum(count for _, count in left)),
                    seconds_left=sum(
                        remaining_seconds(bench.pace, other, policy, standings[other.key])
                        for other, _ in left
                    ),
                )
            )
            _measure_one(bench, group, variants, standings[group.key])
            measured += 1


def _primary_pair(group: Group, variants: Sequence[Variant]) -> tuple[Group, list[Variant]] | None:
    """What is left of a replicate when only a tip's primary pair counts."""
    baseline, *others = variants
    pair = [baseline, *(variant for variant in others if variant.recommended)]
    is_first = group.workload is group.tip.workloads[0]
    return (group, pair) if is_first and len(pair) == 2 else None


def wanted(
    group: Group,
    policy: Policy,
    standing: Standing,
    is_settled: Callable[[Group, Variant], bool],
) -> list[Variant]:
    """The variants of the group's next replicate, the baseline first; empty when it is finished.

    The rule looks at counts and at the interval's width, never at an effect's sign.
    """
    baseline, *others = group.variants
    if baseline.name in standing.failed:
        return []
    unfinished = []
    for variant in others:
        done = standing.done.get(variant.name, 0)
        if variant.name in standing.failed or done >= max(
            policy.most, _least(group, variant, policy)
        ):
            continue
        if done < _least(group, variant, policy) or not is_settled(group, variant):
            unfinished.append(variant)
    return [baseline, *unfinished] if unfinished else []


def replicates_left(group: Group, policy: Policy, standing: Standing) -> int:
    """How many replicates the group needs at least."""
    if group.variants[0].name in standing.failed:
        return 0
    return max(
        (
            _least(group, variant, policy) - standing.done.get(variant.name, 0)
            for variant in group.variants[1:]
            if variant.name not in standing.failed
        ),
        default=0,
    )


def remaining_seconds(pace: Pace, group: Group, policy: Policy, standing: Standing) -> float:
    """What the group's remaining replicates will take at least."""
    total = 0.0
    for number in range(replicates_left(group, policy, standing)):
        variants = [
            variant
            for position, variant in enumerate(group.variants)
            if position == 0
            or standing.done.get(variant.name, 0) + number < _least(group, variant, policy)
        ]
        total += expected_seconds(pace, group, variants, standing.seconds_an_arm)
    return total


def expected_seconds(
    pace: Pace, group: Group, variants: Sequence[Variant], seconds_an_arm: float | None
) -> float:
    """What one replicate of these variants takes, from the last one where there was one."""
    if seconds_an_arm is not None:
        return seconds_an_arm * len(variants)
    turn = pace.turn_seconds_of(group.workload)
    turns = pace.blocks_of(group.workload) * (turn + _BETWEEN_TURNS_SECONDS)
    memory = _MEMORY_SECONDS * len(group.workload.memory_scales)
    return sum(
        pace.start_seconds
        + (_MORE_FOR_FRESH_SECONDS if variant.fresh else 0.0)
        + pace.warm_up_seconds
        + turns
        + memory
        for variant in variants
    )


def _measure_one(
    bench: Bench, group: Group, variants: Sequence[Variant], standing: Standing
) -> None:
    start = clock.now()
    measured = measure(
        bench, group, standing.next_replicate, variants, most_arms=standing.most_arms
    )
    standing.seconds_an_arm = (clock.now() - start) / len(variants)
    standing.next_replicate += measured.numbers_used
    standing.most_arms = measured.most_arms
    standing.failed |= measured.failed
    if group.variants[0].name in measured.failed:
        return
    for variant in variants:
        if variant.name not in measured.failed:
            standing.done[variant.name] = standing.done.get(variant.name, 0) + 1


def _least(group: Group, variant: Variant, policy: Policy) -> int:
    is_primary = variant.recommended and group.workload is group.tip.workloads[0]
    return policy.primary if is_primary else policy.others
