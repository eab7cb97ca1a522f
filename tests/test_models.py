"""--model: torchvision's, a module's, a file's; and what is wrong with one is said."""

import dataclasses
from pathlib import Path

import planted
import pytest
import torch
from planted import CONTEXT
from small_images import make_context
from test_run import finish
from torch import nn

from bench.engine import arm
from bench.engine.replicate import Group, measure
from bench.errors import UserError
from bench.options import Options
from bench.session import Session
from bench.tips import aa_training
from bench.workloads import training
from bench.workloads.models import (
    build_model,
    check_model,
    model_label,
    with_absolute_path,
)
from bench.workloads.training import TrainingStep
from bench.workloads.work import WorkFailed

MODEL = """
import dataclasses
import neighbour
from torch import nn

@dataclasses.dataclass
class Size:
    classes: int = neighbour.CLASSES

def build():
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, Size().classes))

def build_a_list():
    return []

def demand_224_pixels():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build()
        def forward(self, images):
            if images.shape[-1] != 224:
                raise ValueError(f"expected 224 px, got {images.shape[-1]}")
            return self.inner(images)
    return Picky()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "neighbour.py").write_text("CLASSES = 7\n")
    path = folder / "mine.py"
    path.write_text(MODEL)
    return path


def test_a_function_in_a_file_makes_the_model(file: Path) -> None:
    name = f"{file}:build"
    check_model(name)
    assert build_model(name)(torch.zeros(2, 3, 8, 8)).shape == (2, 7)
    assert model_label(name) == "mine.py:build"


def test_a_relative_file_is_found_from_another_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    name = with_absolute_path("mine.py:build")
    monkeypatch.chdir(tmp_path)
    assert build_model(name)(torch.zeros(1, 3, 8, 8)).shape == (1, 7)


def test_a_function_of_a_module_makes_the_model() -> None:
    assert isinstance(build_model("torchvision.models:squeezenet1_1"), nn.Module)
    for name in ("torchvision.models:squeezenet1_1", "resnet18"):
        assert with_absolute_path(name) == model_label(name) == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("resnet51", "There is no model 'resnet51' in torchvision. Did you mean 'resnet"),
        ("fcn_resnet50", "There is no model 'fcn_resnet50'"),
        ("{folder}/missing.py:build", "there is no file"),
        ("{folder}/mine.py:biuld", "--model mine.py:biuld: there is no function 'biuld'"),
        ("{folder}/broken.py:build", "the import ended with ZeroDivisionError"),
        ("no.such.module:build", "the import ended with ModuleNotFoundError"),
        ("torchvision.models:__name__", "there is no function"),
    ],
)
def test_a_model_that_there_is_not_is_a_users_error(name: str, problem: str, file: Path) -> None:
    (file.parent / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UserError) as raised:
        check_model(name.format(folder=file.parent))
    assert problem in raised.value.problem
    assert "torchvision" in raised.value.fix


def test_a_function_that_returns_no_module_fails(file: Path) -> None:
    with pytest.raises(WorkFailed, match=r"mine.py:build_a_list returned a list"):
        build_model(f"{file}:build_a_list")


class TwoHeads(nn.Module):
    """Puts out a main and an auxiliary head, as Inception does in training."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 3)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.head(images.flatten(1))
        return logits, logits


def test_the_first_of_several_heads_is_trained() -> None:
    train = TrainingStep(TwoHeads(), "cpu")
    assert train(torch.ones(2, 3, 2, 2), torch.tensor([0, 1])) == 2
    assert train.readings()["loss"] > 0


def test_outputs_that_are_no_classes_fail_and_say_their_shape() -> None:
    train = TrainingStep(nn.Conv2d(3, 5, 1), "cpu")
    with pytest.raises(WorkFailed, match=r"put out \[2, 5, 2, 2\].*\[2, number of classes\]"):
        train(torch.ones(2, 3, 2, 2), torch.tensor([0, 1]))


def test_the_training_workload_runs_the_users_model(file: Path, tmp_path: Path) -> None:
    context = make_context(tmp_path, model=f"{file}:build")
    work = training.training_work(context)
    assert work.step() == 4
    assert work.evidence()["parameters"] == 3 * 7 + 7


def test_what_only_running_shows_costs_the_tip_a_failed_row_with_the_reason(file: Path) -> None:
    tip = aa_training.tip(CONTEXT)
    group = Group(tip=tip, workload=tip.workloads[0], variants=tip.variants)
    with planted.bench() as (bench, turns):
        bench.context = dataclasses.replace(
            CONTEXT, model=f"{file}:demand_224_pixels", image_size=32
        )
        measure(bench, group, 0, tip.variants[:1])
    assert [turn.status for turn in turns] == ["failed"]
    assert turns[0].reason == "ValueError: expected 224 px, got 32"


def test_a_batch_that_does_not_fit_into_memory_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as raised:
        training.random_batch(make_context(tmp_path, batch_size=10**9))
    failed = arm._failure(raised.value)
    assert failed.kind == "memory"
    assert "memory" in failed.reason


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--model", "{tmp}/none.py:build"), "there is no file"),
        (("--batch-size", "0"), "--batch-size 0 is below 1."),
    ],
)
def test_what_can_be_seen_before_the_run_ends_it_with_exit_code_2(
    arguments: tuple[str, str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code, output = finish("run", arguments[0], arguments[1].format(tmp=tmp_path))
    assert code == 2, output
    assert problem in output.strip().splitlines()[-2]
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("device", "problem"),
    [("tpu", "tpu"), ("mps", "mps is neither cpu nor a device of CUDA's"), ("cuda:99", "")],
)
def test_a_device_that_there_is_not_is_a_users_error(
    device: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(Options(device=device))
    monkeypatch.setattr(session.processes, "call", lambda function, *given, cores: function(*given))
    with pytest.raises(UserError, match=f"^--device {device}: CUDA cannot be used: .*{problem}"):
        session.context  # noqa: B018


def test_the_users_choices_reach_the_arms(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(device="cpu", model=f"{file}:build", image_size=64, batch_size=8)
    session = Session(options)
    monkeypatch.setattr(session.processes, "call", lambda function, *given, cores: function(*given))
    context = session.context
    assert (context.device, context.image_size, context.batch_size) == ("cpu", 64, 8)
    assert context.model == f"{file}:build"
    plan = session.new_plan([], {})
    assert plan.model == "mine.py:build"
    assert str(file.parent) not in str(plan)
