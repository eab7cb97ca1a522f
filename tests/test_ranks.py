"""Ranks that torch's launcher starts: equal work, honest counts, failures with a reason."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import planted
import psutil
import pytest
import torch

from bench.engine import clock
from bench.engine.arm import Build, Call, Ran, Run, WarmedUp, WarmUp
from bench.engine.processes import PRELOAD, Arm, ArmFailed, Processes
from bench.engine.replicate import Bench, Pace, measure
from bench.errors import UserError
from bench.options import Options
from bench.records import machine
from bench.records.measurements import Turn, read_turns
from bench.records.run_folder import ROOT
from bench.session import Session
from bench.tips import data_parallel, ddp_cpu
from bench.workloads.ranks import nodes, stores
from bench.workloads.ranks.job import Job
from bench.workloads.ranks.work import evidence
from bench.workloads.work import Context, TreatmentNotApplied, WorkFailed

CONTEXT = dataclasses.replace(
    planted.CONTEXT,
    batch_size=8,
    image_size=32,
    threads=2,
    cores=2,
    stopwatch=clock.stopwatch,
)
TWO = Job(
    wrap="DistributedDataParallel",
    kind="cpu",
    ranks_a_node=2,
    replica_batch=4,
    threads_a_rank=1,
    image_size=32,
)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(preload=[name for name in PRELOAD if name != "bench.tips"]) as started:
        yield started


@pytest.fixture
def start(processes: Processes) -> Iterator[Callable[[], Arm]]:
    """Starts arms as the engine does; they are ended with the test."""
    arms: list[Arm] = []

    def start() -> Arm:
        arms.append(processes.start(cores=machine.core_ids(), threads=2))
        return arms[-1]

    yield start
    for arm in arms:
        if arm in processes.living:
            processes.end(arm)


def two(context: Context = CONTEXT) -> Build:
    """Builds the work of two processes: on one node, or one on each of the context's."""
    (variant,) = (v for v in ddp_cpu.tip(context).variants if v.recommended)
    return Build(build=ddp_cpu.build, settings=variant.settings, context=context)


def turn(arm: Arm, steps: int = 3) -> Ran:
    ran: Ran = arm.ask(Run(steps=steps, with_evidence=True))
    return ran


def ranks_of(arm: Arm) -> list[psutil.Process]:
    """The arm's ranks in their order: what its launcher has forked."""
    (launcher,) = psutil.Process(arm.pid).children()
    forked = [p for p in launcher.children() if "resource_tracker" not in str(p.cmdline())]
    return sorted(forked, key=lambda process: process.pid)


def test_one_and_two_processes_do_equal_work_and_each_rank_counts_its_own(
    processes: Processes,
) -> None:
    tip = ddp_cpu.tip(CONTEXT)
    turns: list[Turn] = []
    bench = Bench(
        processes=processes,
        context=CONTEXT,
        cores=machine.core_ids(),
        pace=Pace(blocks=2, turn_seconds=0.05, warm_up_seconds=0.0),
        run_id="run",
        machine_id="machine",
        record=turns.append,
    )
    measure(bench, planted.group(tip), 0, tip.variants)
    assert [turn.reason for turn in turns if turn.status != "ok"] == []
    assert len(turns) == 4
    assert len({turn.samples for turn in turns}) == 1
    seen = {turn.variant: turn.evidence for turn in turns if turn.evidence}
    one, two = seen["1 process"], seen["2 processes"]
    assert (one["world_size"], one["threads_by_rank"]) == (1, [2])
    assert (two["world_size"], two["threads_by_rank"], two["backend"]) == (2, [1, 1], "gloo")
    assert one["samples"] == two["samples"] == turns[0].samples
    assert two["samples_by_rank"] == [two["samples"] // 2] * 2
    assert two["samples_by_device"] == [{"cpu": two["samples"] // 2}] * 2
    assert two["wrap"] == "DistributedDataParallel"
    for turn in turns:
        assert (turn.scaling_efficiency or 0) > 0 or turn.variant == "1 process"
        assert turn.loss is not None


def test_the_whole_tree_is_frozen_while_it_waits_and_gone_when_it_is_closed(
    start: Callable[[], Arm], processes: Processes
) -> None:
    arm = start()
    arm.ask(two())
    ranks = ranks_of(arm)
    assert len(ranks) == 2
    assert {p.pid for p in ranks} <= set(arm.members)
    assert {psutil.Process(pid).status() for pid in arm.members} == {psutil.STATUS_STOPPED}
    warmed_up: WarmedUp = arm.ask(WarmUp(seconds=0.0))
    assert warmed_up.period_samples == TWO.global_batch
    assert turn(arm).samples == 3 * TWO.global_batch
    processes.end(arm)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in ranks)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_is_named(start: Callable[[], Arm], victim: int) -> None:
    arm = start()
    arm.ask(two())
    os.kill(ranks_of(arm)[victim].pid, signal.SIGKILL)
    with pytest.raises(ArmFailed, match=rf"rank {victim} was killed by SIGKILL"):
        turn(arm, 50)


def test_a_loss_that_is_not_finite_fails_with_its_rank(
    start: Callable[[], Arm], tmp_path: Path
) -> None:
    source = """
from torch import nn
class Overflows(nn.Linear):
    def forward(self, images):
        return super().forward(images.flatten(1)) * float("inf")
def model():
    return Overflows(3 * 32 * 32, 10)
"""
    (tmp_path / "own.py").write_text(source, encoding="utf-8")
    arm = start()
    arm.ask(two(dataclasses.replace(CONTEXT, model=f"{tmp_path / 'own.py'}:model")))
    with pytest.raises(ArmFailed, match=r"^rank \d: the loss became nan") as failure:
        turn(arm)
    assert failure.value.kind == "work"


def test_an_error_inside_a_rank_is_the_reason(start: Callable[[], Arm]) -> None:
    context = dataclasses.replace(CONTEXT, model="no_such_model")
    with pytest.raises(ArmFailed, match=r"^rank \d: .*no_such_model"):
        start().ask(two(context))


def test_a_host_name_that_does_not_resolve_is_the_reason(start: Callable[[], Arm]) -> None:
    context = dataclasses.replace(CONTEXT, nnodes=2, rdzv_endpoint="nowhere.invalid:29400")
    with pytest.raises(ArmFailed, match=r"host name 'nowhere\.invalid' does not resolve"):
        start().ask(two(context))


def test_a_busy_port_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        monkeypatch.setattr(time, "sleep", lambda seconds: busy.close())
        assert stores.open_store("127.0.0.1", port).port == port


def test_a_port_that_stays_busy_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []
    monkeypatch.setattr(time, "sleep", tries.append)
    with (
        socket.create_server(("127.0.0.1", 0)) as busy,
        pytest.raises(WorkFailed, match=r"cannot meet at 127\.0\.0\.1:\d+: .*EADDRINUSE"),
    ):
        stores.open_store("127.0.0.1", busy.getsockname()[1])
    assert len(tries) > 3


@pytest.mark.slow
def test_two_agents_on_the_loopback_address_see_what_one_with_two_ranks_sees(
    start: Callable[[], Arm], processes: Processes
) -> None:
    """The second agent is an arm of its own that serves, as ``--node-rank 1`` does."""
    alone = start()
    alone.ask(two())
    expected = turn(alone)

    context = dataclasses.replace(CONTEXT, nnodes=2, rdzv_endpoint=f"127.0.0.1:{free_port()}")
    other, first, last = start(), start(), start()
    served: list[int] = []
    call = Call(function=nodes.serve, arguments=(context, 1))
    node = threading.Thread(target=lambda: served.append(other.ask(call)))
    node.start()
    for _ in range(2):
        first.ask(two(context))
        found = turn(first)
        assert found.samples == expected.samples
        assert found.evidence is not None
        assert expected.evidence is not None
        assert {**found.evidence, "nodes": 1} == expected.evidence
        assert found.evidence["nodes"] == 2
        processes.end(first)
        first = start()
    last.ask(Call(function=nodes.dismiss, arguments=(context,)))
    node.join(timeout=30)
    assert served == [2]


@pytest.mark.slow
def test_the_same_command_on_two_machines_ends_on_both(tmp_path: Path) -> None:
    """Both on the loopback address, typed as the README says."""
    command = [sys.executable, "-m", "bench", "run", "--tips", "ddp_cpu", "--profile", "smoke"]
    command += ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    agents = [
        subprocess.Popen(
            [*command, "--node-rank", str(rank), "--out", str(tmp_path / str(rank))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    told = [agent.communicate(timeout=120)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], told
    assert "Node 0 is done and has the results; 1 job ran here too." in told[1]
    assert not (tmp_path / "1").exists()
    rows = read_turns(tmp_path / "0" / "measurements.csv")
    (seen,) = (row.evidence for row in rows if row.evidence and not row.is_baseline)
    assert (seen["nodes"], seen["world_size"]) == (2, 2)
    assert seen["samples_by_rank"] == [seen["samples"] // 2] * 2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


SHOWN = {
    "world_size": 2,
    "wrap": "DistributedDataParallel",
    "backend": "gloo",
    "threads": 1,
    "samples": 12,
    "samples_by_device": {"cpu": 12},
    "weights": 1.25,
    "peak_gpu_bytes": {},
    "tf32_convolutions": True,
    "tf32_matmuls": False,
}


def test_evidence_adds_the_ranks_samples_up_once() -> None:
    assert evidence(TWO, [SHOWN, SHOWN])["samples"] == 24


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"world_size": 1}, "rank 1 is one of 1, not of 2"),
        ({"wrap": "Sequential"}, "trains a Sequential, not a DistributedDataParallel"),
        ({"threads": 8}, "computes with 8 threads, not 1"),
        ({"samples": 24, "samples_by_device": {"cpu": 24}}, "instead of equal shares"),
        ({"samples_by_device": {"cuda:0": 12}}, "equal shares on cpu"),
        ({"weights": 1.5}, "weights went apart"),
    ],
)
def test_evidence_of_another_job_is_a_treatment_that_was_not_applied(
    second: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(TreatmentNotApplied, match=reason):
        evidence(TWO, [SHOWN, {**SHOWN, **second}])


def test_dataparallel_must_give_every_gpu_an_equal_share() -> None:
    job = Job(
        wrap="DataParallel",
        kind="cuda",
        replicas_a_rank=2,
        replica_batch=64,
        threads_a_rank=4,
        image_size=224,
    )
    assert (job.ranks, job.replicas, job.rank_batch, job.global_batch) == (1, 2, 128, 128)
    shown = {**SHOWN, "wrap": "DataParallel", "world_size": 1, "threads": 4}
    both = {**shown, "samples": 24, "samples_by_device": {"cuda:0": 12, "cuda:1": 12}}
    assert evidence(job, [both])["samples_by_device"] == [{"cuda:0": 12, "cuda:1": 12}]
    with pytest.raises(TreatmentNotApplied, match="2 equal shares on cuda"):
        evidence(job, [{**shown, "samples_by_device": {"cuda:0": 12}}])


def test_all_variants_have_the_same_threads_and_the_same_global_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where neither can be divided by the number of processes."""
    jobs: list[Job] = []
    monkeypatch.setattr("bench.workloads.ranks.work.ranks_work", lambda job, _: jobs.append(job))
    context = dataclasses.replace(CONTEXT, threads=7, batch_size=17)
    for variant in ddp_cpu.tip(context).variants:
        ddp_cpu.build(variant.settings, context)
    assert [(j.ranks, j.threads_a_rank * j.ranks, j.global_batch) for j in jobs] == [
        (1, 6, 16),
        (2, 6, 16),
    ]
    jobs.clear()
    context = dataclasses.replace(context, device="cuda", gpus=4, threads=16, batch_size=64)
    for variant in data_parallel.tip(context).variants:
        data_parallel.build(variant.settings, context)
    assert [(j.wrap, j.ranks, j.replicas, j.global_batch) for j in jobs] == [
        ("DataParallel", 1, 4, 256),
        ("DistributedDataParallel", 4, 4, 256),
        ("plain", 1, 1, 64),
        ("DistributedDataParallel", 2, 2, 128),
    ]


def test_jobs_travel_between_machines() -> None:
    assert Job.from_json(TWO.to_json()) == TWO


@pytest.mark.parametrize(
    ("device", "gpus", "reason"),
    [
        ("cpu", 0, "needs CUDA, and this run's device is cpu"),
        ("cuda", 1, "needs 2 CUDA GPUs or more; seen: 1"),
    ],
)
def test_data_parallel_says_how_many_gpus_were_seen(device: str, gpus: int, reason: str) -> None:
    context = dataclasses.replace(CONTEXT, device=device, gpus=gpus)
    for variant in data_parallel.tip(context).variants:
        reasons = (need(context) for need in variant.needs)
        assert next(found for found in reasons if found) == reason


def test_one_core_is_not_enough_for_two_processes() -> None:
    context = dataclasses.replace(CONTEXT, threads=1)
    variant = ddp_cpu.tip(context).variants[0]
    reasons = [reason for need in variant.needs if (reason := need(context))]
    assert reasons == ["needs 2 usable cores, one a process; seen: 1"]


@pytest.mark.parametrize("endpoint", ["", "host", "host:", ":29400", "host:0", "host:x"])
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        stores.host_and_port(endpoint)


@pytest.mark.parametrize(
    "options",
    [
        Options(nnodes=2),
        Options(nnodes=2, rdzv_endpoint="host"),
        Options(nnodes=1, rdzv_endpoint="host:29400"),
        Options(nnodes=2, node_rank=2, rdzv_endpoint="host:29400"),
        Options(nnodes=0),
    ],
)
def test_nodes_without_a_place_to_meet_are_an_error(options: Options) -> None:
    with pytest.raises(UserError, match="node"):
        Session(options)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_rank_on_a_gpu_trains_there_with_nccl(start: Callable[[], Arm]) -> None:
    context = dataclasses.replace(CONTEXT, device="cuda", model="resnet18")
    settings = {"wrap": "DistributedDataParallel", "gpus": 1, "nodes": 1}
    arm = start()
    arm.ask(Build(build=data_parallel.build, settings=settings, context=context))
    ran = turn(arm)
    assert ran.evidence is not None
    assert ran.evidence["backend"] == "nccl"
    assert ran.evidence["samples_by_device"] == [{"cuda:0": 24}]
    assert ran.readings["peak_bytes_a_gpu"] > 0
