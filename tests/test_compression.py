"""Compression: INT8 weights are counted, zeros measured, soft labels used, accuracy compared."""

import dataclasses
import gc
import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from bench.records.measurements import READINGS
from bench.tips import distillation, pruning, quantization
from bench.tips.tip import Tip
from bench.workloads import compression, digit_models, digits, quantized
from bench.workloads.compression import SoftLoss
from bench.workloads.digit_models import CNN, MLP, Recipe, Trained, train, trained
from bench.workloads.inference import Inference, file_of
from bench.workloads.work import Context, Images, TreatmentNotApplied, WorkFailed

TIPS = ("quantization", "pruning", "distillation")
NO_IMAGES = Images(name="", folder=Path(), paths=(), labels=(), total_bytes=0)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """One cache for all tests: the models are trained once."""
    torch.set_num_threads(1)
    return Context(images=NO_IMAGES, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def cnn(context: Context) -> Trained:
    return trained(CNN, context)


@pytest.fixture(scope="module")
def mlp(context: Context) -> Trained:
    return trained(MLP, context)


def tip_of(name: str, context: Context) -> Tip:
    found: Tip = importlib.import_module(f"bench.tips.{name}").tip(context)
    return found


def seen(tip: Tip, variant: str, context: Context, workload: int = 0) -> dict[str, Any]:
    """A variant's evidence and readings after a step."""
    settings = next(v.settings for v in tip.variants if v.name == variant)
    work = tip.workloads[workload].build(settings, context)
    assert work.times_steps
    work.step()
    return {**work.evidence(), **work.readings()}


@pytest.mark.parametrize("name", TIPS)
def test_every_variant_answers_its_batch_and_gives_evidence(name: str, context: Context) -> None:
    tip = tip_of(name, context)
    for workload in tip.workloads:
        for variant in tip.variants:
            work = workload.build(variant.settings, context)
            assert work.step() == int(workload.name.rpartition(" ")[2])
            assert work.evidence()["threads"] == 1
            readings = work.readings()
            assert set(readings) <= set(READINGS)
            columns = {metric.column for metric in workload.metrics}
            latencies = {"latency_p50_seconds", "latency_p99_seconds", "peak_host_pss_bytes"}
            assert columns - latencies <= set(readings)


@pytest.mark.parametrize("name", TIPS)
def test_a_tip_has_its_card_one_recommendation_and_survives_pickling(
    name: str, context: Context
) -> None:
    tip = tip_of(name, context)
    assert tip.id == name
    assert tip.card
    assert [variant.recommended for variant in tip.variants].count(True) == 1
    assert not tip.baseline.recommended
    assert pickle.loads(pickle.dumps(tip)).workloads == tip.workloads


def test_the_tips_import_without_torch() -> None:
    modules = ", ".join(f"bench.tips.{name}" for name in TIPS)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_models_learn_the_digits_and_are_trained_once_a_replicate(
    context: Context, cnn: Trained, mlp: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert digits.percent(cnn.right) > 85
    assert digits.percent(mlp.right) > 85
    assert torch.equal(digits.recognised(cnn.model, cnn.held_out), cnn.right)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(digit_models, "train", refuse)
    again = trained(CNN, context)
    images = cnn.held_out.images[:5]
    assert torch.equal(again.model(images), cnn.model(images))
    with pytest.raises(AssertionError, match="trained again"):
        trained(CNN, dataclasses.replace(context, replicate=1))


def test_training_that_diverges_fails(cnn: Trained) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    recipe = Recipe(steps=3, batch=4, rate=1e-3)
    with pytest.raises(WorkFailed, match="loss became nan"):
        train(model, cnn.learnt, recipe, seed=0, loss=lambda out, _: out.sum() * float("nan"))


def test_int8_weights_are_counted_in_the_modules(context: Context) -> None:
    tip = quantization.tip(context)
    cnn, mlp = 0, 3
    plain = seen(tip, "FP32", context, cnn)
    static = seen(tip, "static INT8", context, cnn)
    dynamic = seen(tip, "dynamic INT8", context, cnn)
    assert (plain["int8_layers"], static["int8_layers"], dynamic["int8_layers"]) == (0, 4, 1)
    assert static["int8_share_of_parameters"] > 0.99
    assert dynamic["int8_share_of_parameters"] < 0.1
    assert static["engine"] == torch.backends.quantized.engine
    assert static["file_bytes"] < plain["file_bytes"] / 3
    assert dynamic["file_bytes"] > plain["file_bytes"] / 1.1
    dynamic = seen(tip, "dynamic INT8", context, mlp)
    assert dynamic["int8_share_of_parameters"] > 0.99
    assert dynamic["file_bytes"] < seen(tip, "FP32", context, mlp)["file_bytes"] / 3


def test_memory_is_read_of_what_is_held_and_after_the_model_was_trained(context: Context) -> None:
    models: list[str] = []
    of_memory = {}
    for workload in quantization.tip(context).workloads:
        model = workload.name.partition(",")[0]
        if workload.memory_scales:
            assert not workload.memory_of_build
            assert model in models
            of_memory[model] = workload
        models.append(model)
    assert set(of_memory) == {CNN, MLP}
    read = of_memory[MLP]

    def large_weights() -> int:
        shapes = [each.shape for each in gc.get_objects() if type(each) is nn.Parameter]
        return shapes.count(torch.Size([1024, 1024]))

    gc.collect()
    before = large_weights()
    for int8, more in ((None, 2), ("static", 0), ("dynamic", 0)):
        work = read.build({"int8": int8}, context)
        assert large_weights() == before + more
        assert work.step() == 1
        del work
        gc.collect()


def test_int8_accuracy_comes_with_its_uncertainty(context: Context, cnn: Trained) -> None:
    static = seen(quantization.tip(context), "static INT8", context)
    assert static["accuracy_percent"] == pytest.approx(digits.percent(cnn.right), abs=3)
    assert static["difference"].endswith("its uncertainty")
    low, high = static["difference_interval_points"]
    assert low <= static["accuracy_against_fp32_points"] <= high


@pytest.mark.parametrize("int8", ["static", "dynamic"])
def test_a_model_that_was_not_quantised_is_found(
    int8: str, cnn: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, f"{int8}_int8", lambda model, *_: model)
    with pytest.raises(TreatmentNotApplied, match="0 of 4 layers"):
        quantization.quantise(cnn, int8)


def test_int8_needs_its_module_and_an_engine(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert quantization.needs_engine(context) is None
    monkeypatch.delitem(sys.modules, "bench.workloads.quantized")
    monkeypatch.setitem(sys.modules, "torch.ao.quantization", None)
    assert "torchao replaces it" in (quantization.needs_engine(context) or "")


def test_sparsity_is_measured_in_the_file_and_no_mask_is_left(context: Context) -> None:
    tip = pruning.tip(context)
    dense, half, most, structured = (seen(tip, v.name, context) for v in tip.variants)
    assert dense["sparsity_of_pruned_layers"] < 0.001
    assert half["sparsity_of_pruned_layers"] == pytest.approx(0.5, abs=0.01)
    assert most["sparsity_of_pruned_layers"] == pytest.approx(0.9, abs=0.01)
    assert structured["sparsity_of_pruned_layers"] == pytest.approx(0.5, abs=0.01)
    assert structured["empty_channels"] == structured["channels"] / 2
    assert half["empty_channels"] < half["channels"] / 10
    assert half["file_bytes"] == pytest.approx(dense["file_bytes"], rel=0.01)
    assert half["file_bytes_with_masks"] > 1.9 * half["file_bytes"]
    assert most["compressed_bytes"] < half["compressed_bytes"] < dense["compressed_bytes"]
    assert half["accuracy_before_fine_tuning_percent"] > 10
    assert half["difference"].endswith("its uncertainty")


def test_masks_that_are_left_and_zeros_that_are_missing_are_found(cnn: Trained) -> None:
    model = digit_models.new_model(CNN, 0)
    with pytest.raises(TreatmentNotApplied, match="50% were asked for"):
        compression.sparsity_evidence(file_of(model), amount=0.5)
    for layer in compression.hidden_layers(model):
        prune.l1_unstructured(layer, "weight", amount=0.5)
    with pytest.raises(TreatmentNotApplied, match="masks are left"):
        compression.sparsity_evidence(file_of(model), amount=0.5)


def test_students_differ_by_nothing_but_the_soft_labels(
    cnn: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Tensor, Tensor, Recipe, int]] = []

    def watch(model: nn.Module, given: digits.Digits, recipe: Recipe, **how: Any) -> None:
        weights = torch.cat([parameter.flatten() for parameter in model.parameters()]).clone()
        calls.append((weights, given.images, recipe, how["seed"]))

    monkeypatch.setattr(compression, "train", watch)
    for soft in (False, True):
        compression.students(cnn, seed=3, soft=soft)
    alone, taught = calls[: compression.STUDENTS], calls[compression.STUDENTS :]
    for one, other in zip(alone, taught, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
        assert one[2:] == other[2:]
    assert len({seed for *_, seed in alone}) == compression.STUDENTS
    assert len(alone[0][1]) == compression.LABELLED


def test_the_soft_loss_is_least_at_the_teachers_answers(cnn: Trained) -> None:
    few = cnn.learnt.take(torch.arange(8))
    loss, chosen = SoftLoss(few, cnn.model), torch.arange(8)
    with torch.no_grad():
        answers = cnn.model(few.images)
    hard = nn.functional.cross_entropy(answers, few.labels)
    share = 1 - compression.SOFT_SHARE
    assert loss(answers, chosen).item() == pytest.approx(share * hard.item(), abs=1e-5)
    assert loss(answers.roll(1, 1), chosen) > loss(answers, chosen)
    assert loss.steps == 3


def test_the_teachers_row_and_the_soft_steps_are_in_the_evidence(context: Context) -> None:
    tip = distillation.tip(context)
    alone, taught, teacher = (seen(tip, v.name, context) for v in tip.variants)
    assert alone["steps_with_soft_labels"] == 0
    assert taught["steps_with_soft_labels"] == taught["training_steps"] == alone["training_steps"]
    assert taught["seed"] == alone["seed"]
    assert taught["teacher_accuracy_percent"] == pytest.approx(
        teacher["accuracy_percent"], abs=0.01
    )
    assert teacher["file_bytes"] > 10 * taught["file_bytes"]
    assert taught["accuracy_percent"] != alone["accuracy_percent"]


def test_students_without_soft_labels_are_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = compression.students

    def forget(teacher: Trained, *, seed: int, soft: bool) -> compression.Students:
        return without(teacher, seed=seed, soft=False)

    monkeypatch.setattr(compression, "students", forget)
    with pytest.raises(TreatmentNotApplied, match="0 of 750 training steps"):
        seen(distillation.tip(context), "student with soft labels", context)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (torch.full((2, 10), float("nan")), "not finite"),
        (torch.zeros(1, 10), "1 answers to 2 inputs"),
        ([1, 2], "no tensor"),
    ],
)
def test_an_answer_that_is_none_fails(answer: Any, reason: str) -> None:
    infer = Inference(lambda inputs: answer, torch.zeros(2, 1, 8, 8))
    infer()
    with pytest.raises(WorkFailed, match=reason):
        infer.check()
