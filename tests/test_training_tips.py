"""The training tips: precision, cuDNN's flags, and what shows that each was applied."""

import contextlib
import dataclasses
import importlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from planted import PACE
from small_images import make_context
from torch import Tensor, nn

from bench.analysis.effects import unmeasured
from bench.engine.arm import Build, Run, WarmUp
from bench.engine.processes import Processes
from bench.records import machine
from bench.records.measurements import COLUMNS, READINGS
from bench.session import planned_tip
from bench.tips import amp, cudnn_benchmark, cudnn_deterministic
from bench.tips.tip import GPU_MEMORY, Tip, needs_cuda
from bench.workloads import processor, repeated, training
from bench.workloads.precision import Precision
from bench.workloads.training import TrainingStep
from bench.workloads.work import Context, TreatmentNotApplied, Work, WorkFailed

pytestmark = [
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup"),
    pytest.mark.filterwarnings("ignore:Warning. Profiler clears events"),
]

TIPS = ("amp", "cudnn_benchmark", "cudnn_deterministic", "profiler")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path)


@pytest.fixture(autouse=True)
def _flags_as_they_were() -> Any:
    yield
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False
    torch.use_deterministic_algorithms(False)


def tip_of(name: str, context: Context) -> Tip:
    found: Tip = importlib.import_module(f"bench.tips.{name}").tip(context)
    return found


def turn(work: Work, steps: int) -> Mapping[str, float | int]:
    """One turn as the engine takes it."""
    work.prepare(steps)
    for _ in range(steps):
        work.step()
    return work.readings()


@pytest.mark.parametrize("name", TIPS)
def test_every_variant_that_needs_no_gpu_works_and_gives_evidence(
    name: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = tip_of(name, context)
    pairs = [
        (workload, variant)
        for workload in tip.workloads
        for variant in tip.variants
        if not any(need(context) for need in (*variant.needs, *workload.needs))
    ]
    assert pairs or name == "cudnn_benchmark"
    for workload, variant in pairs:
        for key, value in variant.environment.items():
            monkeypatch.setenv(key, value)
        work = workload.build(variant.settings, context)
        work.prepare(1)
        work.step()
        readings = turn(work, work.period)
        evidence = work.evidence()
        work.close()
        assert evidence
        assert str(context.cache.parent) not in str(evidence)
        assert set(readings) <= set(READINGS)


@pytest.mark.parametrize("name", TIPS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_tip_has_its_card_one_recommendation_and_survives_pickling(
    name: str, device: str, context: Context
) -> None:
    tip = tip_of(name, dataclasses.replace(context, device=device))
    assert tip.id == name
    assert len(tip.card.splitlines()[0]) > 20
    assert [variant.recommended for variant in tip.variants].count(True) == 1
    assert not tip.baseline.recommended
    names = [variant.name for variant in tip.variants]
    names += [workload.name for workload in tip.workloads]
    assert len(set(names)) == len(names)
    assert pickle.loads(pickle.dumps(tip)).workloads == tip.workloads


# Precision


def test_bf16_is_seen_inside_the_step_and_learns_what_float32_learns(context: Context) -> None:
    work = amp.build({"compute": "bfloat16"}, context)
    turn(work, 2)
    evidence = work.evidence()
    assert evidence["activation_dtype"] == "torch.bfloat16"
    assert evidence["optimizer_steps_taken"] == 2
    after = evidence["after_fixed_steps"]
    assert after["optimizer_steps_taken"] == after["steps"] == amp.FIXED_STEPS["cpu"]
    assert after["loss"] != after["float32_loss"]
    assert after["loss"] == pytest.approx(after["float32_loss"], rel=0.1)


def test_autocast_that_does_nothing_is_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Precision, "autocast", lambda *_: contextlib.nullcontext)
    work = amp.build({"compute": "bfloat16"}, context)
    turn(work, 1)
    with pytest.raises(TreatmentNotApplied, match=r"bfloat16 was asked for.*float32"):
        work.evidence()


def tiny_step(precision: Precision) -> TrainingStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    return TrainingStep(model, "cpu", precision)


FP16 = Precision(compute="float16", scales_loss=True)


def test_optimizer_steps_that_are_skipped_fail_the_turn() -> None:
    labels = torch.tensor([0, 1])
    train = tiny_step(FP16)
    train.prepare(2)
    weights = train.model[1].weight.detach().clone()  # type: ignore[index,union-attr]
    for _ in range(2):
        # The loss is finite; its gradient, scaled by 65536, is not a float16.
        train(torch.full((2, 3, 2, 2), 500.0), labels)
    assert torch.equal(train.model[1].weight, weights)  # type: ignore[index,union-attr]
    with pytest.raises(WorkFailed, match="2 of 2 optimizer steps were skipped; the loss scale is"):
        train.readings()
    train.prepare(1)
    train(torch.full((2, 3, 2, 2), 0.01), labels)
    assert train.readings()["loss"] > 0
    assert train.steps_taken == 1
    assert train.evidence()["loss_scale"] == 65536 / 4


def test_the_scale_of_the_loss_is_settled_before_the_first_turn(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    monkeypatch.setattr(Precision, "scaler", lambda self, _: large if self.scales_loss else None)
    work = amp.build({"compute": "float16", "scales_loss": True}, context)
    assert "loss" in turn(work, 3)
    evidence = work.evidence()
    assert evidence["after_fixed_steps"]["optimizer_steps_taken"] < amp.FIXED_STEPS["cpu"]
    assert evidence["optimizer_steps_taken"] == 3
    assert evidence["loss_scale"] < 2.0**24


def test_the_variants_follow_the_device(context: Context) -> None:
    assert [variant.name for variant in amp.tip(context).variants] == ["FP32", "BF16"]
    on_cuda = amp.tip(dataclasses.replace(context, device="cuda:0"))
    assert GPU_MEMORY in on_cuda.workloads[0].metrics
    switches = [
        (p.compute, p.tf32_convolutions, p.tf32_matmuls)
        for p in (Precision(**variant.settings) for variant in on_cuda.variants)
    ]
    assert switches == [
        ("float32", True, False),
        ("float16", True, False),
        ("bfloat16", True, False),
        ("float32", False, False),
        ("float32", True, True),
    ]
    assert on_cuda.recommended.settings["scales_loss"]


@pytest.mark.parametrize(
    ("capability", "is_met"), [((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_older_gpus_have_no_tf32(
    capability: tuple[int, int], is_met: bool, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    reason = amp.needs_ampere(dataclasses.replace(context, device="cuda"))
    assert reason is None if is_met else "7.5" in (reason or "")


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("flags\t\t: fpu avx2 avx512f", False),
        ("flags\t\t: fpu avx512_bf16", True),
        ("flags\t\t: fpu amx_bf16 amx_tile", True),
        ("Features\t: fp asimd bf16", True),
    ],
)
def test_a_processor_without_bf16_is_told(
    line: str, has: bool, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\n")
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    assert processor.has_bf16_instructions() is has
    assert ("emulates" in amp.tip(context).note) is not has
    assert amp.tip(dataclasses.replace(context, device="cuda")).note == ""


# cuDNN


def test_shapes_that_vary_are_all_new_and_of_one_area() -> None:
    pairs = cudnn_benchmark.shapes(224, seed=0)
    assert len(set(pairs)) == len(pairs) > 400
    assert len(set(pairs[:20])) == 20
    areas = [height * width for height, width in pairs]
    assert max(areas) < 1.04 * min(areas)
    assert pairs == cudnn_benchmark.shapes(224, seed=0)
    assert cudnn_benchmark.shapes(32, seed=0)


def test_varying_shapes_reach_the_model_and_cpu_work_is_no_evidence(context: Context) -> None:
    work = cudnn_benchmark.build_varying({"benchmark": True}, context)
    assert turn(work, 3)["loss"] > 0
    with pytest.raises(TreatmentNotApplied, match="the first layer ran on cpu"):
        work.evidence()


def test_a_flag_that_was_lost_is_found(context: Context) -> None:
    work = cudnn_benchmark.build_fixed({"benchmark": True}, context)
    turn(work, 1)
    torch.backends.cudnn.benchmark = False
    with pytest.raises(TreatmentNotApplied, match="it is False"):
        work.evidence()


def test_cudnn_benchmark_needs_cuda(context: Context) -> None:
    tip = cudnn_benchmark.tip(context)
    assert all(variant.needs == (needs_cuda,) for variant in tip.variants)
    assert "CUDA" in (needs_cuda(context) or "")


@pytest.mark.parametrize("index", [1, 2])
def test_two_runs_from_one_seed_are_equal_bit_for_bit_with_deterministic_settings(
    index: int, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = cudnn_deterministic.tip(context).variants[index]
    for key, value in variant.environment.items():
        monkeypatch.setenv(key, value)
    cudnn_deterministic.set_flags(variant.settings)
    first, second = (repeated.run_from_seed(context, 3) for _ in range(2))
    assert len(first) > 20
    assert repeated.are_equal(first, second)
    other = repeated.run_from_seed(dataclasses.replace(context, seed=1), 3)
    assert not repeated.are_equal(first, other)


def test_runs_that_differ_in_one_bit_are_told_apart(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = cudnn_deterministic.build_pair({"cudnn": True, "everything": False}, context)
    assert turn(work, 2)["equal_runs"] == 1
    assert work.evidence()["equal_pairs"] == 2

    runs = iter(range(100))

    def unsteady(context: Context, steps: int) -> list[Tensor]:
        # Every other pair's second run differs in the last bit of one number.
        changed = next(runs) % 4 == 3
        values = torch.ones(5)
        return [torch.nextafter(values, values + 1) if changed else values]

    monkeypatch.setattr(repeated, "run_from_seed", unsteady)
    assert turn(work, 2)["equal_runs"] == 0.5


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
        (torch.tensor(0.0), torch.tensor(-0.0), False),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), False),
        (torch.ones(2), torch.ones(1, 2), False),
    ],
)
def test_equal_means_every_bit(one: Tensor, other: Tensor, equal: bool) -> None:
    assert repeated.are_equal([one], [other]) is equal


def test_deterministic_algorithms_need_their_workspace(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(cudnn_deterministic.CUBLAS_WORKSPACE_CONFIG, raising=False)
    variant = cudnn_deterministic.tip(context).variants[2]
    assert cudnn_deterministic.tip(dataclasses.replace(context, device="cuda")).variants[2].fresh
    cudnn_deterministic.set_flags(variant.settings)
    with pytest.raises(TreatmentNotApplied, match="CUBLAS_WORKSPACE_CONFIG is not set"):
        cudnn_deterministic.flags(variant.settings)
    torch.backends.cudnn.deterministic = False
    with pytest.raises(TreatmentNotApplied, match="the flags are"):
        cudnn_deterministic.flags(variant.settings)


def test_without_cuda_only_the_timing_of_determinism_is_missing(context: Context) -> None:
    tip = cudnn_deterministic.tip(context)
    timing, pairs = tip.workloads
    reason = timing.needs[0](context)
    assert "CUDA" in (reason or "")
    assert pairs.needs == ()
    planned = planned_tip(tip, {(tip.id, timing.name): reason or ""}, PACE)
    nothing = pd.DataFrame(columns=list(COLUMNS))
    rows = unmeasured(nothing, planned, planned.workloads[0])
    assert rows == {v.name: ("not measurable here", reason) for v in tip.variants}
    assert unmeasured(nothing, planned, planned.workloads[1]) == {}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["amp", "cudnn_benchmark", "cudnn_deterministic"])
def test_every_variant_works_on_the_gpu(name: str, context: Context) -> None:
    gpu = dataclasses.replace(context, device="cuda", image_size=64, model="resnet18")
    tip = tip_of(name, gpu)
    for workload in tip.workloads:
        for variant in tip.variants:
            if variant.fresh or any(need(gpu) for need in variant.needs):
                continue
            work = workload.build(variant.settings, gpu)
            turn(work, 2)
            assert work.evidence()
    training.set_tf32(convolutions=True, matmuls=False)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_variant_with_an_interpreter_of_its_own_works_on_the_gpu(context: Context) -> None:
    """cuBLAS looks at its variable once a process, at its first use."""
    gpu = dataclasses.replace(context, device="cuda", image_size=64, model="resnet18")
    tip = cudnn_deterministic.tip(gpu)
    (variant,) = (variant for variant in tip.variants if variant.fresh)
    with Processes() as processes:
        for workload in tip.workloads:
            arm = processes.start(
                cores=machine.core_ids(),
                threads=None,
                fresh=True,
                environment=variant.environment,
            )
            arm.ask(Build(build=workload.build, settings=variant.settings, context=gpu))
            arm.ask(WarmUp(seconds=0.0))
            assert arm.ask(Run(steps=2, with_evidence=True)).evidence
            processes.end(arm)
