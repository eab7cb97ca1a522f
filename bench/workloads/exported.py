"""A model written to a file and read back by the runtime that answers from it."""

import dataclasses
import importlib.util
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.workloads.derived import build_once, digest
from bench.workloads.inference import Predict
from bench.workloads.work import Context, TreatmentNotApplied, WorkFailed

LARGEST_DIFFERENCE = 1e-3
"""Of the largest output: float32 sums in another order differ by about 1e-6 of it."""
_ONNX = "model.onnx"
_TORCH = "model.pt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """How a runtime answers, and what is known of it and of the files that it was read from."""

    predict: Predict
    facts: dict[str, Any]
    file_bytes: int
    difference: float
    """The largest difference of its outputs from the model's own."""


def exported(runtime: str, model: nn.Module, inputs: Tensor, context: Context) -> Exported:
    """Write ``model`` for ``runtime``, read it back, and compare its answers to ``inputs``.

    ``runtime``: "eager", "onnx" or "torchscript". Files are kept in the cache under what the
    model answers, so that each model is exported once. WorkFailed when the answers read back
    are others.
    """
    write, read = _RUNTIMES[runtime]
    model = model.eval()
    with torch.inference_mode():
        expected = model(inputs)
    if not isinstance(expected, Tensor):
        raise WorkFailed(f"the model answers with a {type(expected).__name__}, no tensor")

    def build(folder: Path) -> None:
        # A folder of its own, since files that lie beside it are no part of the model.
        (folder / "model").mkdir()
        with warnings.catch_warnings(), torch.no_grad():
            # The tip's card says what of this is deprecated, and what replaces it.
            warnings.simplefilter("ignore")
            write(model, inputs, folder / "model")

    answers = expected.numpy().tobytes()
    key = digest(runtime, repr(model), tuple(inputs.shape), answers, torch.__version__, exporter())
    folder = context.cache / "exported" / f"{runtime}-{key}"
    build_once(folder, build, context.stopwatch)
    files = sorted((folder / "model").iterdir())
    predict, facts = read(model, folder / "model")
    with torch.inference_mode():
        outputs = predict(inputs)
    difference = (outputs - expected).abs().max().item()
    if not difference <= LARGEST_DIFFERENCE * expected.abs().max().item():
        raise WorkFailed(f"the answers read back differ by {difference:.3g} from the model's own")
    return Exported(
        predict=predict,
        facts={**facts, "files": [f"{file.name}: {file.stat().st_size} bytes" for file in files]},
        file_bytes=sum(file.stat().st_size for file in files),
        difference=difference,
    )


def exporter() -> str:
    """How torch writes ONNX here: through torch.export with onnxscript, else by tracing."""
    return "torch.export" if importlib.util.find_spec("onnxscript") else "TorchScript"


def trial_problem() -> str | None:
    """Why torch cannot write ONNX without onnxscript, seen by trying, or None."""
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            path = Path(folder) / _ONNX
            torch.onnx.export(nn.ReLU().eval(), (torch.zeros(1),), path, dynamo=False)
    except Exception as error:
        return f"this torch writes ONNX with onnxscript only: pip install onnxscript ({error})"
    return None


def _write_eager(model: nn.Module, inputs: Tensor, folder: Path) -> None:
    torch.save(model.state_dict(), folder / _TORCH)


def _read_eager(model: nn.Module, folder: Path) -> tuple[Predict, dict[str, Any]]:
    model.load_state_dict(torch.load(folder / _TORCH, weights_only=True))
    return model, {"runtime": f"torch {torch.__version__}, eager"}


def _write_onnx(model: nn.Module, inputs: Tensor, folder: Path) -> None:
    torch.onnx.export(
        model, (inputs,), folder / _ONNX, dynamo=exporter() == "torch.export", verbose=False
    )


def _read_onnx(model: nn.Module, folder: Path) -> tuple[Predict, dict[str, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        folder / _ONNX, options, providers=["CPUExecutionProvider"]
    )
    (provider,) = session.get_providers()
    (name,) = (each.name for each in session.get_inputs())

    def predict(inputs: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {name: inputs.numpy()})[0])

    return predict, {
        "runtime": f"ONNX Runtime {onnxruntime.__version__}",
        "execution_provider": provider,
        "runtime_threads": session.get_session_options().intra_op_num_threads,
        "exporter": exporter(),
        "opset": _opset(folder / _ONNX),
    }


def _opset(path: Path) -> int | None:
    """The operator set that the file says it uses; None where the package onnx is missing."""
    if importlib.util.find_spec("onnx") is None:
        return None
    import onnx

    written = onnx.load(path, load_external_data=False).opset_import
    return next((opset.version for opset in written if opset.domain in ("", "ai.onnx")), None)


def _write_torchscript(model: nn.Module, inputs: Tensor, folder: Path) -> None:
    torch.jit.freeze(torch.jit.trace(model, inputs)).save(folder / _TORCH)


def _read_torchscript(model: nn.Module, folder: Path) -> tuple[Predict, dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.load(folder / _TORCH)
    if parameters := len(list(script.parameters())):
        raise TreatmentNotApplied(f"{parameters} parameters are left, the graph is not frozen")
    return script, {"runtime": f"torch {torch.__version__}, TorchScript", "frozen": True}


_RUNTIMES: dict[
    str,
    tuple[
        Callable[[nn.Module, Tensor, Path], None],
        Callable[[nn.Module, Path], tuple[Predict, dict[str, Any]]],
    ],
] = {
    "eager": (_write_eager, _read_eager),
    "onnx": (_write_onnx, _read_onnx),
    "torchscript": (_write_torchscript, _read_torchscript),
}
