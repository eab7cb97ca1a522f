"""The profiler tip and ``python -m bench profile``: real traces, and shares that add up."""

import csv
import dataclasses
import io
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small_images import make_context

from bench import profile_command
from bench.profile_command import PHASES, Profiled, costliest, record, show, write_scalars
from bench.tips import profiler
from bench.workloads import profiled
from bench.workloads.profiled import RECIPE, Recording
from bench.workloads.work import Context, TreatmentNotApplied, Work

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup"),
    pytest.mark.filterwarnings("ignore:Warning. Profiler clears events"),
]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path)


def turn(work: Work, cycles: int = 1) -> float:
    """A turn of whole cycles, after a first step: bytes a trace."""
    work.prepare(cycles * work.period)
    for _ in range(cycles * work.period):
        work.step()
    return work.readings()["trace_bytes"]


def test_stacks_and_shapes_are_in_the_trace_just_where_they_were_asked_for(
    context: Context,
) -> None:
    sizes, held = {}, {}
    for variant in profiler.tip(context).variants:
        work = profiler.build(variant.settings, context)
        work.prepare(1)
        work.step()
        assert work.period == 5
        sizes[variant.name] = turn(work)
        held[variant.name] = work.evidence().get("last_trace", {})
        work.close()
    off, recipe, plain, always = sizes
    assert sizes[off] == 0
    assert held[off] == {}
    assert sizes[always] > sizes[recipe] > sizes[plain] > 0
    assert held[plain]["python_frames"] == held[plain]["with_shapes"] == 0
    assert held[recipe]["python_frames"] > 0
    assert held[recipe]["with_shapes"] > 0
    # Five steps are recorded instead of three.
    assert held[always]["operators"] > 1.5 * held[recipe]["operators"]
    assert profiled.Recording(**profiler.tip(context).recommended.settings) == RECIPE


def test_every_cycle_of_a_turn_leaves_a_trace_and_none_is_kept(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(profiled.tempfile, "tempdir", str(folder))
    work = profiler.build(profiler.SCHEDULE, context)
    work.prepare(1)
    work.step()
    for _ in range(2):
        # A whole number, as its column holds it.
        assert isinstance(bytes_a_trace := turn(work, cycles=2), int)
        assert bytes_a_trace > 0
        assert len(list(folder.rglob("*.json"))) == 2
    work.close()
    assert list(folder.iterdir()) == []


def test_a_turn_without_a_trace_is_found(context: Context) -> None:
    work = profiler.build(profiler.SCHEDULE, context)
    work.prepare(2)
    work.step()
    work.step()
    with pytest.raises(TreatmentNotApplied, match="wrote no trace"):
        work.readings()
    work.close()


@pytest.mark.parametrize(
    ("lacking", "device", "shapes_and_stacks", "missing"),
    [
        ("operators", "cpu", False, "no operators"),
        ("python_frames", "cpu", True, "no python_frames"),
        ("with_shapes", "cpu", True, "no with_shapes"),
        ("cuda_kernels", "cuda:0", False, "no cuda_kernels"),
        ("cuda_kernels", "cpu", True, None),
        ("python_frames", "cuda", False, None),
    ],
)
def test_a_trace_that_lacks_what_was_asked_for_is_found(
    lacking: str, device: str, shapes_and_stacks: bool, missing: str | None
) -> None:
    full = dict.fromkeys(("operators", "python_frames", "with_shapes", "cuda_kernels"), 9)
    recording = Recording(active=1, shapes_and_stacks=shapes_and_stacks)
    if missing is None:
        profiled.check_contents(full | {lacking: 0}, recording, device)
    else:
        with pytest.raises(TreatmentNotApplied, match=missing):
            profiled.check_contents(full | {lacking: 0}, recording, device)


@pytest.fixture
def found(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiled:
    monkeypatch.setattr(profile_command, "STEPS", 3)
    (tmp_path / "out").mkdir()
    return record(context, tmp_path / "out")


def test_the_command_leaves_a_trace_tables_and_scalars(found: Profiled, tmp_path: Path) -> None:
    out = tmp_path / "out"
    trace = json.loads((out / "trace.json").read_text(encoding="utf-8"))
    assert isinstance(trace["traceEvents"], list)
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {*PHASES, "aten::convolution"} <= names
    assert (out / "tensorboard" / "training.pt.trace.json").stat().st_size > 1000

    assert set(found.shares) == set(PHASES)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares["data_wait"] > 0
    assert found.shares["compute"] > 0
    with (out / "shares.csv").open() as file:
        shares = {row["phase"]: float(row["share"]) for row in csv.DictReader(file)}
    assert shares == found.shares

    with (out / "operators.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found.operators) == profile_command.COSTLIEST
    times = [float(row["self_cpu_seconds"]) for row in rows]
    assert times == sorted(times, reverse=True)
    assert any("convolution" in row["operator"] for row in rows)
    assert 0.5 < sum(float(row["share"]) for row in rows) <= 1


def test_tensorboard_reads_the_shares_back(found: Profiled, tmp_path: Path) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    assert found.has_scalars
    log = tmp_path / "out" / "tensorboard"
    reader = accumulators.EventAccumulator(str(log))
    reader.Reload()
    read = {tag: reader.Scalars(tag)[-1].value for tag in reader.Tags()["scalars"]}
    assert read == {
        f"step_share/{phase}": pytest.approx(share) for phase, share in found.shares.items()
    }
    assert {path.name for path in log.iterdir()} == {
        "events.out.tfevents.shares",
        "training.pt.trace.json",
    }


def test_without_tensorboard_the_rest_is_there_and_the_way_to_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    shares = {"data_wait": 0.25, "copy": 0.0, "compute": 0.75}
    assert not write_scalars(tmp_path, shares)
    screen = io.StringIO()
    console = Console(file=screen, width=200)
    show(console, Profiled(seconds_a_step=shares, operators=[], has_scalars=False), tmp_path)
    assert "pip install tensorboard" in screen.getvalue()
    assert "75.0%" in screen.getvalue()


def entry(key: str, cpu: float, device: float, where: str = "CPU") -> Any:
    return types.SimpleNamespace(
        key=key,
        count=2,
        self_cpu_time_total=cpu,
        self_device_time_total=device,
        device_type=types.SimpleNamespace(name=where),
    )


def test_operators_are_ranked_by_the_time_of_the_device() -> None:
    averages = [
        entry("aten::convolution", 9e6, 1e6),
        entry("aten::mm", 1e6, 3e6),
        entry("sm90_gemm_kernel", 0, 3e6, "CUDA"),
        entry("void at::native::vectorized_elementwise_kernel<4>", 0, 1e6, "CUDA"),
        entry("autograd::engine::evaluate_function: MmBackward0", 5e6, 0),
        entry("ProfilerStep*", 8e6, 0),
    ]
    on_gpu = costliest(averages, on_cuda=True)
    assert [(row.name, row.self_device_seconds, row.share) for row in on_gpu] == [
        ("aten::mm", 3.0, 0.75),
        ("aten::convolution", 1.0, 0.25),
    ]
    on_cpu = costliest(averages, on_cuda=False)
    assert [row.name for row in on_cpu] == ["aten::convolution", "aten::mm"]
    assert [row.self_device_seconds for row in on_cpu] == [None, None]


def test_shares_are_parts_of_one() -> None:
    found = Profiled(
        seconds_a_step={"data_wait": 0.2, "copy": 0.1, "compute": 0.7},
        operators=[],
        has_scalars=True,
    )
    assert found.shares == pytest.approx({"data_wait": 0.2, "copy": 0.1, "compute": 0.7})
    assert dataclasses.replace(found, has_scalars=False).shares == found.shares
