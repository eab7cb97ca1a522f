"""The engine: arms that misbehave cost one row, work is equal, waiting arms stand still."""

import dataclasses
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from planted import CONTEXT, PACE, bench, build, group, tip, variant

from bench.engine import arm, clock, keeper, tree
from bench.engine.arm import Build, Call, Run, WarmedUp, WarmUp
from bench.engine.processes import ArmFailed, Processes
from bench.engine.replicate import Bench, Pace, measure, samples_a_turn
from bench.records import machine
from bench.records.measurements import Turn
from bench.tips.tip import THROUGHPUT
from bench.workloads.work import Work


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Bench, list[Turn]]]:
    with bench() as (made, turns):
        yield made, turns


@pytest.fixture
def made(shared: tuple[Bench, list[Turn]]) -> tuple[Bench, list[Turn]]:
    shared[1].clear()
    return shared


def test_every_arm_takes_one_turn_a_block_and_does_the_same_work(
    made: tuple[Bench, list[Turn]],
) -> None:
    the_bench, turns = made
    planted = tip(variant("plain"), variant("treated"), variant("third"))
    failed = measure(the_bench, group(planted), 0, planted.variants).failed
    assert not failed
    assert len(turns) == 3 * PACE.blocks
    for block in range(PACE.blocks):
        rows = [turn for turn in turns if turn.block == block]
        assert {turn.variant for turn in rows} == {"plain", "treated", "third"}
        assert sorted(turn.position or 0 for turn in rows) == [0, 1, 2]
    assert len({(turn.steps, turn.samples) for turn in turns}) == 1
    first_turns = [turn for turn in turns if turn.startup_seconds is not None]
    assert len(first_turns) == 3
    assert all(turn.evidence for turn in first_turns)
    assert len({turn.evidence["pid"] for turn in first_turns if turn.evidence}) == 3


def test_the_order_of_turns_is_random_and_follows_the_seed(made: tuple[Bench, list[Turn]]) -> None:
    the_bench, turns = made
    planted = tip(variant("a"), variant("b"), variant("c"))
    orders = []
    for replicate in (0, 0, 1):
        turns.clear()
        measure(the_bench, group(planted), replicate, planted.variants)
        orders.append([turn.variant for turn in turns])
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_a_row_holds_when_its_turn_ended_in_utc_with_milliseconds(
    made: tuple[Bench, list[Turn]],
) -> None:
    the_bench, turns = made
    planted = tip(variant("plain"), variant("treated"))
    measure(the_bench, group(planted), 0, planted.variants)
    ended = [turn.ended_at or "" for turn in turns]
    assert ended == sorted(ended)
    assert {datetime.fromisoformat(text).utcoffset() for text in ended} == {timedelta(0)}
    assert {len(text) for text in ended} == {len("2026-01-31T12:00:00.000+00:00")}


def test_what_a_killed_arm_leaves_in_its_temporary_folder_goes_with_the_run() -> None:
    with Processes(preload=[]) as processes:
        for fresh in (False, True):
            arm = processes.start(cores=machine.core_ids(), threads=None, fresh=fresh)
            path = Path(arm.ask(Call(function=tempfile.mkdtemp, arguments=())))
            assert path.parent == processes.scratch
            os.kill(arm.pid, signal.SIGKILL)
            processes.end(arm)
            assert path.exists()
    assert not path.exists()


def test_pinned_arms_share_a_core_and_the_next_replicate_takes_another(
    made: tuple[Bench, list[Turn]],
) -> None:
    the_bench, turns = made
    planted = tip(variant("plain"), variant("treated"))
    for replicate in (0, 1):
        measure(the_bench, group(planted), replicate, planted.variants)
    cores = {(turn.replicate, tuple(turn.evidence["affinity"])) for turn in turns if turn.evidence}
    count = len(the_bench.cores)
    assert cores == {(0, (the_bench.cores[0],)), (1, (the_bench.cores[1 % count],))}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"misbehave": "die"}, "killed by SIGKILL"),
        ({"misbehave": "die", "after": 4}, "killed by SIGKILL"),
        ({"misbehave": "exit"}, "exit code 7"),
        ({"misbehave": "raise"}, "ValueError: the planted error"),
        ({"misbehave": "allocate"}, "MemoryError"),
        ({"misbehave": "fail to build"}, "ImportError: No module named 'nowhere'"),
        ({"misbehave": "ignore the treatment"}, "not applied: batch.is_pinned() is False"),
        ({"misbehave": "lose the loss"}, "the loss is nan"),
        ({"misbehave": "lose samples"}, "0 samples in"),
        ({"misbehave": "lose samples", "after": 2}, "0 samples in a turn, where plain did"),
        ({"misbehave": "run dry"}, "ran dry"),
    ],
)
def test_an_arm_that_fails_costs_one_row_and_its_neighbours_go_on(
    made: tuple[Bench, list[Turn]], settings: dict[str, Any], reason: str
) -> None:
    the_bench, turns = made
    planted = tip(variant("plain"), variant("treated", **settings), variant("third"))
    failed = measure(the_bench, group(planted), 0, planted.variants).failed
    assert failed == {"treated"}
    rows = [turn for turn in turns if turn.status == "failed"]
    assert [row.variant for row in rows] == ["treated"]
    assert reason in (rows[0].reason or "")
    assert "\n" not in (rows[0].reason or "")
    for name in ("plain", "third"):
        finished = Counter(
            turn.replicate for turn in turns if turn.variant == name and turn.status == "ok"
        )
        assert set(finished.values()) == {PACE.blocks}


def test_arms_that_do_not_fit_together_are_measured_in_sets_that_hold_the_baseline(
    made: tuple[Bench, list[Turn]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU whose memory holds two arms at a time."""
    the_bench, turns = made
    start = the_bench.processes.start

    def start_two(**arguments: Any) -> Any:
        if len(the_bench.processes.living) == 2:
            raise ArmFailed("CUDA out of memory", "memory")
        return start(**arguments)

    monkeypatch.setattr(the_bench.processes, "start", start_two)
    planted = tip(variant("plain"), variant("treated"), variant("third"), variant("fourth"))
    measured = measure(the_bench, group(planted), 5, planted.variants)
    assert (measured.failed, measured.most_arms, measured.numbers_used) == (frozenset(), 2, 3)
    sets = {
        number: {turn.variant for turn in turns if turn.replicate == number} for number in (5, 6, 7)
    }
    assert sets == {5: {"plain", "treated"}, 6: {"plain", "third"}, 7: {"plain", "fourth"}}


def test_an_arm_that_hangs_is_killed_after_its_time_out(made: tuple[Bench, list[Turn]]) -> None:
    processes = made[0].processes
    arm = processes.start(cores=made[0].cores, threads=1)
    with pytest.raises(ArmFailed, match="no answer within 1 s"):
        arm.ask(Call(function=signal.pause, arguments=()), timeout=1)
    assert not Path(f"/proc/{arm.pid}/stat").exists()
    processes.end(arm)


def test_a_failed_baseline_leaves_the_others_measured(made: tuple[Bench, list[Turn]]) -> None:
    the_bench, turns = made
    planted = tip(variant("plain", misbehave="raise"), variant("treated"))
    assert measure(the_bench, group(planted), 0, planted.variants).failed == {"plain"}
    assert sum(turn.variant == "treated" for turn in turns) == PACE.blocks


def test_a_planted_slow_down_comes_out(made: tuple[Bench, list[Turn]]) -> None:
    """Each second step done twice: the true ratio of the speeds is 1 / 1.5."""
    the_bench, turns = made
    planted = tip(variant("plain"), variant("treated", twice_every=2, period=2))
    for replicate in range(5):
        measure(the_bench, group(planted), replicate, planted.variants)

    def seconds(name: str) -> float:
        return sum(turn.seconds or 0 for turn in turns if turn.variant == name)

    assert seconds("treated") / seconds("plain") == pytest.approx(1.5, rel=0.15)


def test_arms_start_in_another_order_each_time(made: tuple[Bench, list[Turn]]) -> None:
    """Who starts first finds files and libraries cold."""
    the_bench, turns = made
    planted = tip(variant("plain"), variant("treated"), variant("third"))
    for replicate in range(6):
        measure(the_bench, group(planted), replicate, planted.variants)
    pids = {(turn.replicate, turn.variant): turn.evidence["pid"] for turn in turns if turn.evidence}
    orders = {
        tuple(sorted(("plain", "treated", "third"), key=lambda name: pids[number, name]))
        for number in range(6)
    }
    assert len({order[0] for order in orders}) > 1


@pytest.mark.parametrize(("device", "at_one_time"), [("cuda", True), ("cpu", False)])
def test_on_a_gpu_the_arms_of_a_tip_are_built_at_one_time(
    made: tuple[Bench, list[Turn]], device: str, at_one_time: bool
) -> None:
    the_bench, turns = made
    on_device = dataclasses.replace(
        the_bench, context=dataclasses.replace(the_bench.context, device=device), reads_memory=False
    )
    planted = tip(variant("plain", build_seconds=0.5), variant("treated", build_seconds=0.5))
    (workload,) = planted.workloads
    planted = dataclasses.replace(
        planted, workloads=(dataclasses.replace(workload, metrics=(THROUGHPUT,)),)
    )
    assert not measure(on_device, group(planted), 0, planted.variants).failed
    (first, first_end), (second, _) = sorted(t.evidence["built"] for t in turns if t.evidence)
    assert first < second
    assert (second < first_end) == at_one_time
    # First steps at one time say nothing of how long one takes.
    assert all((turn.startup_seconds is None) == at_one_time for turn in turns if turn.evidence)


@pytest.mark.parametrize(("calls", "has_p99"), [(99, False), (100, True)])
def test_a_99th_percentile_takes_a_hundred_calls(calls: int, has_p99: bool) -> None:
    work = Work(step=lambda: 1, evidence=dict, times_steps=True)
    _, _, latencies = arm._timed_steps(work, calls)
    assert ("latency_p99_seconds" in latencies) == has_p99


def test_an_arms_turns_together_are_whole_periods() -> None:
    arms = [
        WarmedUp(startup_seconds=1, period_seconds=0.04, period_steps=2, period_samples=4),
        WarmedUp(startup_seconds=1, period_seconds=0.24, period_steps=6, period_samples=6),
    ]
    assert samples_a_turn(arms, 0.24, blocks=5) == 12
    assert samples_a_turn(arms, 0.5, blocks=5) == 24
    assert samples_a_turn(arms, 0.0, blocks=5) == 12


def test_a_workload_may_have_the_profiles_turns_cut_into_shorter_ones() -> None:
    pace = Pace(blocks=6, turn_seconds=0.1, warm_up_seconds=0.1)
    (workload,) = tip(variant("plain")).workloads
    assert (pace.blocks_of(workload), pace.turn_seconds_of(workload)) == (6, 0.1)
    cut = dataclasses.replace(workload, split=4)
    assert (pace.blocks_of(cut), pace.turn_seconds_of(cut)) == (24, 0.025)
    own = dataclasses.replace(workload, split=2, blocks=3, turn_seconds=1.0)
    assert (pace.blocks_of(own), pace.turn_seconds_of(own)) == (6, 0.5)


def test_periods_may_end_with_the_replicate_instead_of_each_turn() -> None:
    """Twelve samples are six steps of two or twelve of one: over six turns, two are enough."""
    arms = [
        WarmedUp(startup_seconds=1, period_seconds=0.04, period_steps=2, period_samples=4),
        WarmedUp(startup_seconds=1, period_seconds=0.24, period_steps=6, period_samples=6),
    ]
    assert samples_a_turn(arms, 0.0, blocks=6) == 2
    assert samples_a_turn(arms, 0.0, blocks=4) == 6


def test_memory_is_read_from_an_arm_alone_above_an_empty_one(
    made: tuple[Bench, list[Turn]],
) -> None:
    the_bench, turns = made
    planted = tip(
        variant("plain", bytes_a_data_byte=1.0),
        variant("treated", bytes_a_data_byte=0.0),
        memory_scales=(0.25, 0.75),
    )
    measure(the_bench, group(planted), 0, planted.variants)
    slopes = {turn.variant: turn.peak_bytes_per_data_byte for turn in turns if turn.block is None}
    assert slopes["plain"] == pytest.approx(1.0, abs=0.1)
    assert slopes["treated"] == pytest.approx(0.0, abs=0.1)


def test_a_waiting_arm_stands_still(made: tuple[Bench, list[Turn]], tmp_path: Path) -> None:
    """A child that counts while its arm waits would go on; frozen, it doesn't."""
    processes = made[0].processes
    arm = processes.start(cores=made[0].cores, threads=1)
    file = tmp_path / "count"
    arm.ask(Call(function=_start_counting, arguments=(str(file),)))
    assert len(arm.members) == 2
    before = file.stat().st_size
    time.sleep(0.3)
    assert file.stat().st_size == before
    tree.thaw(arm.members)
    deadline = time.monotonic() + 10
    while file.stat().st_size == before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert file.stat().st_size > before
    processes.end(arm)


def _start_counting(path: str) -> None:
    program = f"import time\nwhile True:\n open({path!r}, 'a').write('x'); time.sleep(0.01)"
    subprocess.Popen([sys.executable, "-c", program])
    while not Path(path).exists():
        time.sleep(0.01)


def test_the_clock_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake asynchronous device: work is queued, and done only when somebody waits for it."""
    fake = _FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    fake.fake.queue.append(0.05)
    _, seconds = clock.timed(lambda: fake.fake.queue.append(0.02), "fake")
    assert fake.fake.waited == [0.05, 0.02]
    assert seconds >= 0.02
    _, seconds = clock.timed(lambda: fake.fake.queue.append(0.02), "cpu")
    assert fake.fake.queue == [0.02], "work on the CPU must not wait for an accelerator"


class _FakeDevice:
    def __init__(self) -> None:
        self.queue: list[float] = []
        self.waited: list[float] = []

    def synchronize(self) -> None:
        for seconds in self.queue:
            time.sleep(seconds)
        self.waited += self.queue
        self.queue.clear()


class _FakeTorch:
    def __init__(self) -> None:
        self.fake = _FakeDevice()


def test_nothing_is_left_when_the_runner_is_killed(tmp_path: Path) -> None:
    program = f"""
import sys, time
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from planted import *
with Processes(preload=()) as processes:
    arms = [processes.start(cores=(0,), threads=None, fresh=fresh) for fresh in (True, False)]
    print(processes._token, *(arm.pid for arm in arms), flush=True)
    time.sleep(60)
"""
    runner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    token, *pids = runner.stdout.readline().split()
    assert len(pids) == 2
    assert set(map(int, pids)) <= keeper._holders(token)
    runner.kill()
    runner.wait()
    runner.stdout.close()
    deadline = time.monotonic() + 20
    while keeper._holders(token) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert keeper._holders(token) == set()


def test_a_dead_nursery_is_replaced_and_its_arms_go_on() -> None:
    with Processes(preload=()) as processes:
        old = processes.start(cores=(0,), threads=1)
        os.kill(processes.nursery_pid, signal.SIGKILL)
        new = processes.start(cores=(0,), threads=1)
        for arm in (old, new):
            assert arm.ask(Call(function=math.sqrt, arguments=(9,))) == 3


def test_bench_works_in_a_fresh_interpreter_with_its_own_environment() -> None:
    with Processes(preload=()) as processes:
        arm = processes.start(cores=(0,), threads=None, fresh=True, environment={"PLANTED": "yes"})
        assert arm.ask(Call(function=os.getenv, arguments=("PLANTED",))) == "yes"
        assert arm.ask(Call(function=_imported, arguments=("torch",))) is False
        arm.ask(Build(build=build, settings={}, context=CONTEXT))
        arm.ask(WarmUp(seconds=0.0))
        assert arm.ask(Run(steps=3)).samples == 3


def _imported(name: str) -> bool:
    return name in sys.modules
