"""Export: files that are written, read back, and answered from by the runtime asked for."""

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.tips import export
from bench.workloads import exported as files
from bench.workloads.work import Context, Images, TreatmentNotApplied, WorkFailed

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")
IMAGES = Images(name="", folder=Path(), paths=(), labels=(), total_bytes=0)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """One cache for all tests, and two threads: the model is exported once."""
    torch.set_num_threads(2)
    yield Context(images=IMAGES, cache=tmp_path_factory.mktemp("cache"), image_size=32)
    torch.set_num_threads(1)


def needs_onnx(context: Context) -> None:
    if reason := export.needs_onnx_runtime(context):
        pytest.skip(reason)


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())


def seen(runtime: str, context: Context, *, workload: int = 0) -> dict[str, Any]:
    tip = export.tip(context)
    work = tip.workloads[workload].build({"runtime": runtime}, context)
    assert work.step() == (1, 32)[workload]
    return {**work.evidence(), **work.readings()}


def test_the_tip_has_its_card_and_survives_pickling_without_torch(context: Context) -> None:
    tip = export.tip(context)
    assert tip.id == "export"
    assert tip.card
    assert [variant.name for variant in tip.variants if variant.recommended] == ["ONNX Runtime"]
    assert pickle.loads(pickle.dumps(tip)).workloads == tip.workloads
    code = "import sys, bench.tips.export; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_onnx_file_is_read_back_and_run_by_onnx_runtime(context: Context) -> None:
    needs_onnx(context)
    facts = seen("onnx", context)
    assert facts["execution_provider"] == "CPUExecutionProvider"
    assert facts["runtime"].startswith("ONNX Runtime")
    assert facts["runtime_threads"] == facts["threads"] == 2
    assert facts["opset"] is None or facts["opset"] >= 17
    assert 0 < facts["largest_output_difference"] < 1e-3
    assert facts["output_difference"] == facts["largest_output_difference"]
    assert facts["model"] == "small_cnn"
    # Weights in a second file count too: the parameters alone take four bytes each.
    parameters = seen("eager", context)["file_bytes"]
    assert facts["file_bytes"] == pytest.approx(parameters, rel=0.1)


@pytest.mark.parametrize("runtime", ["eager", "onnx", "torchscript"])
def test_batches_of_32_are_answered_too(runtime: str, context: Context) -> None:
    if runtime == "onnx":
        needs_onnx(context)
    assert seen(runtime, context, workload=1)["output_difference"] < 1e-3


def test_torchscript_is_frozen_and_eager_is_what_it_was(context: Context) -> None:
    facts = seen("torchscript", context)
    assert facts["frozen"]
    assert facts["files"][0].startswith("model.pt: ")
    assert seen("eager", context)["output_difference"] == 0


def test_a_script_that_is_not_frozen_is_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.jit, "freeze", lambda script: script)
    with pytest.raises(TreatmentNotApplied, match="parameters are left"):
        files.exported("torchscript", small_model(), torch.zeros(1, 3, 8, 8), context)


def test_a_model_is_exported_once_and_another_one_anew(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write, read = files._RUNTIMES["eager"]

    def watch(model: nn.Module, inputs: Tensor, folder: Path) -> None:
        written.append(folder.name)
        write(model, inputs, folder)

    monkeypatch.setitem(files._RUNTIMES, "eager", (watch, read))
    inputs, model = torch.ones(1, 3, 8, 8), small_model()
    files.exported("eager", model, inputs, context)
    files.exported("eager", model, inputs, context)
    assert len(written) == 1
    with torch.no_grad():
        next(model.parameters()).add_(0.5)
    assert files.exported("eager", model, inputs, context).difference == 0
    assert len(written) == 2
    files.exported("eager", model, inputs.repeat(2, 1, 1, 1), context)
    assert len(written) == 3


def test_every_file_of_a_model_counts(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = files._RUNTIMES["eager"]

    def with_a_second_file(model: nn.Module, inputs: Tensor, folder: Path) -> None:
        write(model, inputs, folder)
        (folder / "weights.data").write_bytes(bytes(1000))

    inputs = torch.full((1, 3, 8, 8), 2.0)
    one = files.exported("eager", small_model(), inputs, context)
    monkeypatch.setitem(files._RUNTIMES, "eager", (with_a_second_file, read))
    two = files.exported("eager", small_model(), inputs + 1, context)
    assert two.file_bytes == one.file_bytes + 1000
    assert len(two.facts["files"]) == 2


def test_other_answers_than_the_models_fail(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, _ = files._RUNTIMES["eager"]
    monkeypatch.setitem(
        files._RUNTIMES, "eager", (write, lambda model, folder: (lambda x: 1.01 * model(x), {}))
    )
    with pytest.raises(WorkFailed, match="the answers read back differ"):
        files.exported("eager", small_model(), torch.ones(1, 3, 8, 8), context)


def test_the_users_model_is_what_runs(tmp_path: Path, context: Context) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 7))\n"
    )
    users = dataclasses.replace(context, model=f"{path}:make")
    work = export.tip(users).workloads[0].build({"runtime": "torchscript"}, users)
    work.step()
    assert work.evidence()["model"] == "mine.py:make"


def test_a_model_that_answers_with_no_tensor_fails(context: Context) -> None:
    class Pair(nn.Module):
        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            return images, images

    with pytest.raises(WorkFailed, match="answers with a tuple"):
        files.exported("eager", Pair(), torch.zeros(1, 3, 8, 8), context)


def test_what_is_missing_is_named(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "onnxruntime" in (export.needs_onnx_runtime(context) or "")

    def gone(*_: object) -> None:
        raise RuntimeError("torch.jit was removed")

    assert export.needs_torchscript(context) is None
    monkeypatch.setattr(torch.jit, "trace", gone)
    assert "TorchScript no longer" in (export.needs_torchscript(context) or "")
