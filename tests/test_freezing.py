"""What freezing is for: workers that wait make no batches, and unfrozen ones do."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from planted import CONTEXT

from bench.engine import tree
from bench.engine.arm import Build, Call, Run, WarmUp
from bench.engine.processes import ArmFailed, Processes
from bench.workloads.work import Context, Work

PREFETCHED = 20
WORKERS = 2


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """A loader whose workers write down each sample that they make."""
    from counted import Counted
    from torch.utils.data import DataLoader

    loader = DataLoader(
        Counted(settings["log"]),
        batch_size=1,
        num_workers=WORKERS,
        prefetch_factor=PREFETCHED // WORKERS,
    )
    batches = iter(loader)

    def step() -> int:
        return len(next(batches))

    return Work(step=step, evidence=dict, stops_workers=True)


def made(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


@pytest.mark.parametrize("freezes", [True, False])
def test_only_unfrozen_workers_make_batches_while_their_arm_waits(
    tmp_path: Path, freezes: bool
) -> None:
    log = tmp_path / "made"
    with Processes(preload=["torch.utils.data"], freezes=freezes) as processes:
        arm = processes.start(cores=(0,), threads=1)
        arm.ask(Build(build=build, settings={"log": str(log)}, context=CONTEXT))
        arm.ask(WarmUp(seconds=0.0))
        arm.ask(Run(steps=2, freezes=freezes))
        before = made(log)
        assert before < PREFETCHED
        deadline = time.monotonic() + (0.5 if freezes else 20)
        while made(log) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (made(log) == before) is freezes


@pytest.mark.parametrize("freezes", [True, False])
def test_workers_stand_still_with_the_clock_and_not_only_when_the_arm_is_frozen(
    tmp_path: Path, freezes: bool
) -> None:
    """Between the two, a millisecond, they would go on for free. Nothing else freezes here."""
    with Processes(preload=["torch.utils.data"], freezes=False) as processes:
        arm = processes.start(cores=(0,), threads=1)
        arm.ask(Build(build=build, settings={"log": str(tmp_path / "made")}, context=CONTEXT))
        arm.ask(WarmUp(seconds=0.0))
        for _ in range(2):
            arm.ask(Run(steps=PREFETCHED, freezes=freezes))
            root, *workers = (psutil.Process(pid) for pid in arm.tree())
            deadline = time.monotonic() + 20
            while (states(workers) == {"stopped"}) != freezes and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(workers) == WORKERS
            assert (states(workers) == {"stopped"}) is freezes
            assert states([root]) != {"stopped"}


def states(processes: list[psutil.Process]) -> set[str]:
    return {process.status() for process in processes}


def test_an_arm_that_cannot_be_stopped_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with Processes(preload=[]) as processes:
        arm, other = (processes.start(cores=(0,), threads=None) for _ in range(2))
        with monkeypatch.context() as stubborn:
            stubborn.setattr(tree, "PATIENCE_SECONDS", 0.05)
            stubborn.setattr(tree, "_stands_still", lambda pid: False)
            with pytest.raises(ArmFailed, match=r"did not stop within .*; the arm was killed"):
                arm.ask(Call(function=abs, arguments=(-1,)))
        assert other.ask(Call(function=abs, arguments=(-1,))) == 1
