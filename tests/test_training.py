"""The training step: it learns, on the device that was asked for, with a loss that is finite."""

import dataclasses
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from small_images import make_context
from torch import nn

from bench.errors import UserError
from bench.workloads import loaders, training
from bench.workloads.models import CLASSES, SMALL_CNN, build_model, model_name
from bench.workloads.precision import set_tf32
from bench.workloads.training import TrainingStep
from bench.workloads.work import Context, WorkFailed


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path)


def test_steps_lower_the_loss_of_a_fixed_batch(context: Context) -> None:
    work = training.training_work(context)
    assert work.step() == 4
    first = work.readings()["loss"]
    for _ in range(30):
        work.step()
    assert work.readings()["loss"] < first / 2


def test_the_same_seed_trains_the_same_model(context: Context) -> None:
    losses = []
    for _ in range(2):
        work = training.training_work(context)
        work.step()
        work.step()
        losses.append(work.readings()["loss"])
    assert losses[0] == losses[1]


def test_evidence_names_device_precision_and_size(context: Context) -> None:
    work = training.training_work(context)
    work.step()
    evidence = work.evidence()
    assert evidence["device"] == "cpu"
    assert evidence["output_dtype"] == "torch.float32"
    assert evidence["parameters"] > 100_000


def test_a_non_finite_loss_in_the_middle_of_a_turn_fails() -> None:
    train = TrainingStep(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "cpu")
    train.optimizer.param_groups[0]["lr"] = 0.0
    good, labels = torch.ones(2, 3, 2, 2), torch.zeros(2, dtype=torch.long)
    train(good, labels)
    assert "loss" in train.readings()
    for images in (good, torch.full_like(good, float("inf")), good):
        train(images, labels)
    with pytest.raises(WorkFailed, match="loss became nan"):
        train.readings()


def test_a_step_that_is_no_longer_used_frees_its_model_at_once() -> None:
    """What it holds would count as the memory of what comes after it."""
    train = TrainingStep(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "cpu")
    train(torch.zeros(2, 3, 2, 2), torch.tensor([0, 1]))
    model = weakref.ref(train.model)
    gc.disable()
    try:
        del train
        assert model() is None
    finally:
        gc.enable()


def test_another_device_than_asked_for_fails() -> None:
    train = TrainingStep(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "cpu")
    train(torch.ones(2, 3, 2, 2), torch.zeros(2, dtype=torch.long))
    train.device = "cuda"
    with pytest.raises(WorkFailed, match="ran on cpu, not on cuda"):
        train.readings()


def test_labels_beyond_the_models_classes_are_learnt_too() -> None:
    train = TrainingStep(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "cpu")
    train(torch.ones(2, 3, 2, 2), torch.tensor([2, 7000]))
    assert train.readings()["loss"] > 0


def test_loaded_batches_are_trained_on_and_both_give_evidence(context: Context) -> None:
    batches = loaders.usual_batches(context, num_workers=1)
    work = training.loaded_training_work(batches, context, lambda: batches.evidence(num_workers=1))
    assert work.step() == 4
    assert work.evidence()["worker_ids"] == [0]
    assert work.evidence()["device"] == "cpu"
    assert work.readings()["loss"] > 0
    work.close()


@pytest.mark.parametrize(("convolutions", "matmuls"), [(True, False), (False, False), (True, True)])
def test_tf32_is_set_in_both_directions(convolutions: bool, matmuls: bool) -> None:
    set_tf32(convolutions=convolutions, matmuls=matmuls)
    assert torch.backends.cudnn.allow_tf32 == convolutions
    cudnn: Any = torch.backends.cudnn
    assert (cudnn.conv.fp32_precision == "tf32") == convolutions
    assert (torch.backends.cuda.matmul.fp32_precision == "tf32") == matmuls
    with torch.backends.cudnn.flags(enabled=True):
        pass
    set_tf32(convolutions=True, matmuls=False)


def test_the_default_model_goes_with_the_device_and_the_users_comes_first(
    context: Context,
) -> None:
    assert model_name(context) == SMALL_CNN
    assert model_name(dataclasses.replace(context, device="cuda:0")) == "resnet50"
    assert model_name(dataclasses.replace(context, model="resnet18")) == "resnet18"


@pytest.mark.parametrize("name", [SMALL_CNN, "squeezenet1_1"])
def test_models_classify_images(name: str) -> None:
    assert build_model(name)(torch.zeros(2, 3, 64, 64)).shape == (2, CLASSES)


def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(UserError, match=r"'resnet51'.*Did you mean 'resnet"):
        build_model("resnet51")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_step_on_the_gpu_runs_there(context: Context) -> None:
    work = training.training_work(dataclasses.replace(context, device="cuda", image_size=64))
    work.step()
    assert work.readings()["loss"] > 0
    assert work.evidence()["device"] == "cuda:0"
