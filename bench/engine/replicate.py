"""One replicate of one tip's workload: its arms started afresh, then blocks of short turns."""

import dataclasses
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.engine import clock, monitors
from bench.engine.arm import Build, Ran, Run, WarmedUp, WarmUp
from bench.engine.monitors import Monitor
from bench.engine.processes import Arm, ArmFailed, Processes
from bench.records.measurements import Turn
from bench.tips.tip import Tip, Variant, Workload
from bench.workloads.nvml import Gpu
from bench.workloads.work import Context


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The variants of one tip that are measured on one workload, the baseline first."""

    tip: Tip
    workload: Workload
    variants: tuple[Variant, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What names the group in the records."""
        return self.tip.id, self.workload.name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    """How long an arm works in a replicate: ``blocks`` turns of about ``turn_seconds``.

    A workload may have its own numbers. Powers of two let the periods of most loaders (a batch a
    worker) end with the replicate, so that a turn need not be a whole period of the largest one.
    """

    blocks: int
    turn_seconds: float
    warm_up_seconds: float
    start_seconds: float = 0.25
    """About how long an arm takes to start, for the estimate before anything has run."""

    def blocks_of(self, workload: Workload) -> int:
        """How many blocks a replicate of ``workload`` has."""
        blocks = self.blocks if workload.blocks is None else workload.blocks
        return blocks * workload.split

    def turn_seconds_of(self, workload: Workload) -> float:
        """About how long a turn of ``workload`` is."""
        seconds = self.turn_seconds if workload.turn_seconds is None else workload.turn_seconds
        return seconds / workload.split


@dataclasses.dataclass(kw_only=True)
class Bench:
    """What every replicate of a run needs: where arms come from, where turns go."""

    processes: Processes
    context: Context
    cores: tuple[int, ...]
    pace: Pace
    run_id: str
    machine_id: str
    record: Callable[[Turn], None]
    gpu: Gpu | None = None
    reads_memory: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What a replicate came to.

    Which variants failed, how many replicate numbers it used, and how many arms fit into memory
    together, if fewer than there are.
    """

    failed: frozenset[str]
    numbers_used: int
    most_arms: int


def measure(
    bench: Bench,
    group: Group,
    replicate: int,
    variants: Sequence[Variant],
    *,
    most_arms: int = sys.maxsize,
) -> Measured:
    """Measure one replicate and record every turn. ``variants[0]`` is the baseline.

    All arms do the same steps on the same samples. Arms that don't fit into memory together are
    measured in smaller sets, each with the baseline and under a replicate number of its own.
    """
    failed: set[str] = set()
    if bench.reads_memory:
        for variant in variants:
            if not _read_memory(bench, group, replicate, variant):
                failed.add(variant.name)
    number = replicate
    left = list(variants)
    while left:
        together = [v for v in left[:most_arms] if v.name not in failed]
        try:
            failed |= _take_turns(bench, group, number, together)
        except _TooManyArms:
            most_arms = max(2, math.ceil(len(together) / 2))
            continue
        number += 1
        others = left[most_arms:]
        left = [variants[0], *others] if others else []
    return Measured(
        failed=frozenset(failed), numbers_used=max(1, number - replicate), most_arms=most_arms
    )


class _TooManyArms(Exception):
    """An arm ran out of memory while siblings were alive."""


@dataclasses.dataclass(kw_only=True)
class _Seat:
    """An arm with its variant, as it takes its turns."""

    variant: Variant
    arm: Arm
    warmed_up: WarmedUp
    turns: int = 0

    def steps(self, samples: int) -> int:
        """How many of its steps make so many samples."""
        return samples * self.warmed_up.period_steps // self.warmed_up.period_samples


def _take_turns(
    bench: Bench, group: Group, replicate: int, variants: Sequence[Variant]
) -> set[str]:
    """Start the arms, let them take their turns, end them; the names of those that failed."""
    seats: list[_Seat] = []
    failed: set[str] = set()
    cores = _cores(bench, group, replicate)
    monitor = Monitor(cores, bench.gpu if bench.context.device.startswith("cuda") else None)
    order = random.Random(f"{bench.context.seed}/{group.key}/{replicate}")
    others_on_gpu = monitor.gpu_processes()
    try:
        # In another order each time: who is first finds files and libraries cold.
        shuffled = order.sample(variants, len(variants))
        seats, failures = _seats(bench, group, replicate, shuffled, cores)
        seats.sort(key=lambda seat: variants.index(seat.variant))
        if len(variants) > 2 and any(failure.kind == "memory" for _, failure in failures):
            raise _TooManyArms
        for variant, failure in failures:
            _record_failure(bench, group, replicate, variant, failure.reason)
            failed.add(variant.name)
        on_gpu = monitor.gpu_processes()
        own_on_gpu = None if on_gpu is None else on_gpu - (others_on_gpu or 0)
        goal = samples_a_turn(
            [seat.warmed_up for seat in seats],
            bench.pace.turn_seconds_of(group.workload),
            bench.pace.blocks_of(group.workload),
        )
        for block in range(bench.pace.blocks_of(group.workload)):
            samples: dict[str, int] = {}
            for position, seat in enumerate(order.sample(seats, len(seats))):
                try:
                    steps = seat.steps(goal)
                    ran, columns = _turn(seat, steps, monitor, own_on_gpu)
                except ArmFailed as failure:
                    _record_failure(bench, group, replicate, seat.variant, failure.reason)
                    failed.add(seat.variant.name)
                    seats.remove(seat)
                    bench.processes.end(seat.arm)
                    continue
                bench.record(
                    _row(
                        bench,
                        group,
                        seat.variant,
                        replicate=replicate,
                        block=block,
                        position=position,
                        steps=steps,
                        samples=ran.samples,
                        seconds=ran.seconds,
                        samples_per_second=ran.samples / ran.seconds,
                        startup_seconds=seat.warmed_up.startup_seconds if seat.turns == 0 else None,
                        peak_gpu_allocated_bytes=ran.peak_gpu_allocated_bytes,
                        peak_gpu_reserved_bytes=ran.peak_gpu_reserved_bytes,
                        start_method=seat.arm.start_method,
                        evidence=ran.evidence,
                        **columns,
                        **ran.readings,
                    )
                )
                seat.turns += 1
                samples[seat.variant.name] = ran.samples
            for seat in _unequal(seats, samples):
                reason = (
                    f"did {samples[seat.variant.name]} samples in a turn, "
                    f"where {seats[0].variant.name} did {samples[seats[0].variant.name]}"
                )
                _record_failure(bench, group, replicate, seat.variant, reason)
                failed.add(seat.variant.name)
                seats.remove(seat)
                bench.processes.end(seat.arm)
    finally:
        for seat in seats:
            bench.processes.end(seat.arm)
    return failed


def samples_a_turn(arms: Sequence[WarmedUp], turn_seconds: float, blocks: int) -> int:
    """How many samples every arm does in each turn: the same for all, so that the work is equal.

    The geometric mean of the arms' turns lasts about ``turn_seconds``. All turns of an arm
    together, which is what counts, span whole periods of what repeats in the work.
    """
    if not arms:
        return 0
    seconds = statistics.geometric_mean(arm.period_seconds / arm.period_samples for arm in arms)
    step = math.lcm(*(arm.period_samples // arm.period_steps for arm in arms))
    period = math.lcm(*(arm.period_samples for arm in arms)) // step
    least = step * (period // math.gcd(period, blocks))
    return least * max(1, round(turn_seconds / seconds / least))


def _unequal(seats: Sequence[_Seat], samples: Mapping[str, int]) -> list[_Seat]:
    """The arms that did other work than the baseline in this block."""
    if not seats or seats[0].variant.name not in samples:
        return []
    expected = samples[seats[0].variant.name]
    return [seat for seat in seats if samples.get(seat.variant.name, expected) != expected]


def _seats(
    bench: Bench,
    group: Group,
    replicate: int,
    variants: Sequence[Variant],
    cores: tuple[int, ...],
) -> tuple[list[_Seat], list[tuple[Variant, ArmFailed]]]:
    """The arms of ``variants``, built and warmed up, and why others aren't.

    On a GPU an arm mostly waits for seconds until it can work, so there all build at one time, and
    do their first step at one time too where its seconds are not what is measured.
    """
    is_on_gpu = bench.context.device.startswith("cuda")
    takes_first_steps_together = is_on_gpu and not any(
        metric.column == "startup_seconds" for metric in group.workload.metrics
    )
    arms: dict[str, Arm] = {}
    seats: list[_Seat] = []
    failures: list[tuple[Variant, ArmFailed]] = []

    def start(variant: Variant) -> None:
        layout = f"{bench.context.seed}/{replicate}"
        arms[variant.name] = _start(bench, group, variant, cores, layout)

    def begin_to_build(variant: Variant) -> None:
        arms[variant.name].tell(_build(bench, group, replicate, variant))

    def end(variant: Variant) -> None:
        arms[variant.name].hear()

    def warm_up(variant: Variant) -> None:
        arm = arms[variant.name]
        warmed_up: WarmedUp = arm.ask(WarmUp(seconds=bench.pace.warm_up_seconds))
        if takes_first_steps_together:
            warmed_up = dataclasses.replace(warmed_up, startup_seconds=None)
        seats.append(_Seat(variant=variant, arm=arm, warmed_up=warmed_up))

    def begin_first_step(variant: Variant) -> None:
        arms[variant.name].tell(WarmUp(seconds=0.0))

    acts = [start, begin_to_build, end]
    if takes_first_steps_together:
        acts += [begin_first_step, end]
    together = len(variants) if is_on_gpu else 1
    for first in range(0, len(variants), together):
        left = list(variants[first : first + together])
        for act in (*acts, warm_up):
            for variant in tuple(left):
                try:
                    act(variant)
                except ArmFailed as failure:
                    failures.append((variant, failure))
                    left.remove(variant)
                    if variant.name in arms:
                        bench.processes.end(arms[variant.name])
    return seats, failures


def _turn(
    seat: _Seat, steps: int, monitor: Monitor, own_gpu_processes: int | None
) -> tuple[Ran, dict[str, Any]]:
    before = monitor.snapshot(seat.arm.members)
    ran: Ran = seat.arm.ask(Run(steps=steps, with_evidence=seat.turns == 0))
    after = monitor.snapshot(seat.arm.members)
    return ran, monitors.between(before, after, own_gpu_processes=own_gpu_processes)


def _read_memory(bench: Bench, group: Group, replicate: int, variant: Variant) -> bool:
    """Record the variant's peak memory, read from an arm that runs alone; False when it failed.

    The peak is what the arm's tree holds beyond the same arm before it built its work. The
    nursery is counted on both sides, so that pages shared with it are counted once.
    """
    peaks: list[_Peak] = []
    for scale in group.workload.memory_scales:
        settings = {} if len(group.workload.memory_scales) == 1 else {"scale": scale}
        try:
            peaks.append(_peak(bench, group, replicate, variant, settings))
        except ArmFailed as failure:
            _record_failure(bench, group, replicate, variant, failure.reason)
            return False
        except _NoMemoryReadings:
            return True
    if not peaks:
        return True
    slope = None
    if len(peaks) == 2:
        small, large = peaks
        slope = (large.bytes - small.bytes) / (
            large.evidence["data_bytes"] - small.evidence["data_bytes"]
        )
    bench.record(
        _row(
            bench,
            group,
            variant,
            replicate=replicate,
            peak_host_pss_bytes=peaks[-1].bytes,
            peak_bytes_per_data_byte=slope,
            evidence=peaks[-1].evidence,
        )
    )
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Peak:
    """Peak memory above an empty arm, and the evidence of the work that took it."""

    bytes: int
    evidence: Mapping[str, Any]


class _NoMemoryReadings(Exception):
    """This system has no proportional set size (macOS)."""


def _peak(
    bench: Bench, group: Group, replicate: int, variant: Variant, settings: Mapping[str, Any]
) -> _Peak:
    arm = _start(bench, group, variant, bench.cores)
    try:
        empty = _pss(bench, arm)
        readings: list[int] = []

        def ask(message: object) -> Any:
            answer = arm.ask(message, while_waiting=lambda: readings.append(_pss(bench, arm)))
            readings.append(_pss(bench, arm))
            return answer

        ask(_build(bench, group, replicate, variant, settings))
        if not group.workload.memory_of_build:
            readings.clear()
        warmed_up: WarmedUp = ask(WarmUp(seconds=0.0))
        ran: Ran = ask(Run(steps=warmed_up.period_steps, with_evidence=True))
        return _Peak(bytes=max(readings) - empty, evidence=ran.evidence or {})
    finally:
        bench.processes.end(arm)


def _pss(bench: Bench, arm: Arm) -> int:
    pss = monitors.pss_bytes([bench.processes.nursery_pid, *arm.tree()])
    if pss is None:
        raise _NoMemoryReadings
    return pss


def _start(
    bench: Bench,
    group: Group,
    variant: Variant,
    cores: tuple[int, ...],
    layout: str | None = None,
) -> Arm:
    return bench.processes.start(
        cores=cores,
        threads=None if variant.fresh else 1 if group.workload.pinned else bench.context.threads,
        layout=layout,
        fresh=variant.fresh,
        environment=variant.environment,
    )


def _build(
    bench: Bench,
    group: Group,
    replicate: int,
    variant: Variant,
    more: Mapping[str, Any] | None = None,
) -> Build:
    return Build(
        build=group.workload.build,
        settings={**variant.settings, **(more or {})},
        context=dataclasses.replace(bench.context, replicate=replicate),
    )


def _cores(bench: Bench, group: Group, replicate: int) -> tuple[int, ...]:
    """All usable cores, or one for single-threaded work: another in each replicate."""
    if group.workload.pinned:
        return (bench.cores[replicate % len(bench.cores)],)
    return bench.cores


def _record_failure(
    bench: Bench, group: Group, replicate: int, variant: Variant, reason: str
) -> None:
    bench.record(_row(bench, group, variant, replicate=replicate, status="failed", reason=reason))


def _row(bench: Bench, group: Group, variant: Variant, **columns: Any) -> Turn:
    return Turn(
        run_id=bench.run_id,
        machine_id=bench.machine_id,
        tip=group.tip.id,
        workload=group.workload.name,
        variant=variant.name,
        is_baseline=variant.name == group.tip.baseline.name,
        ended_at=clock.date(),
        **columns,
    )
