"""The models that are trained: a small one where there is no GPU, ResNet-50 where there is.

The user's own comes by the name of one of torchvision's, as ``module:function`` or as
``path/to/file.py:function``; ``build_model`` is the one door to all of them.
"""

import difflib
import importlib
import importlib.util
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import UserError
from bench.workloads.work import Context, WorkFailed

if TYPE_CHECKING:
    from torch import nn

SMALL_CNN = "small_cnn"
DEFAULT_MODELS = {"cpu": SMALL_CNN, "cuda": "resnet50"}
CLASSES = 1000
_HOW_TO_NAME = "Give a classification model of torchvision's, module:function or file.py:function."


def model_name(context: Context) -> str:
    """The model that a run trains: the user's, or the default one of the device."""
    return context.model or DEFAULT_MODELS[context.device.partition(":")[0]]


def model_label(name: str) -> str:
    """``name`` as records show it: a file's name without the folders that it lies in."""
    module, _, function = name.rpartition(":")
    return f"{Path(module).name}:{function}" if module.endswith(".py") else name


def with_absolute_path(name: str) -> str:
    """``name`` so that it means the same file in a process that runs in another folder."""
    module, _, function = name.rpartition(":")
    return f"{Path(module).absolute()}:{function}" if module.endswith(".py") else name


def folder_of_model(model: str | None) -> list[Path]:
    """The folder of a model that is given as path/to/file.py:function."""
    path = Path((model or "").rpartition(":")[0])
    return [path.parent] if path.suffix == ".py" and path.parent.name else []


def build_model(name: str) -> "nn.Module":
    """The model with random weights, for (batch, 3, size, size) images and (batch, classes) logits.

    ``name`` is SMALL_CNN, a classification model of torchvision's, ``module:function`` or
    ``path/to/file.py:function``; the function takes nothing and returns an ``nn.Module``.
    UserError where there is no such model, WorkFailed where the function returns something else.
    """
    from torch import nn

    if name == SMALL_CNN:
        return _small_cnn()
    if ":" not in name:
        from torchvision import models

        _check_torchvision(name)
        return models.get_model(name, weights=None)
    model = _function(name)()
    if not isinstance(model, nn.Module):
        raise WorkFailed(f"{model_label(name)} returned a {type(model).__name__}, not an nn.Module")
    return model


def check_model(name: str) -> None:
    """Raise UserError where there is no such model; it imports what it looks for."""
    if ":" in name:
        _function(name)
    elif name != SMALL_CNN:
        _check_torchvision(name)


def _check_torchvision(name: str) -> None:
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(f"There is no model {name!r} in torchvision.{meant}", _HOW_TO_NAME)


def _function(name: str) -> Any:
    """The user's function; UserError where the file, the module or the function is missing."""
    module_name, _, function_name = name.rpartition(":")
    try:
        if module_name.endswith(".py"):
            module = _from_file(Path(module_name))
        else:
            module = importlib.import_module(module_name)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"--model {model_label(name)}: the import ended with {type(error).__name__}: {error}",
            _HOW_TO_NAME,
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UserError(
            f"--model {model_label(name)}: there is no function {function_name!r} in it.",
            _HOW_TO_NAME,
        )
    return function


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"--model: there is no file {path}.", _HOW_TO_NAME)
    spec = importlib.util.spec_from_file_location(f"_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As for a script: its neighbours can be imported, and its dataclasses find their module.
    sys.path.append(str(path.parent))
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _small_cnn() -> "nn.Module":
    """Four strided convolutions: a training step of 16 images takes 50 ms on two slow cores."""
    from torch import nn

    channels = (3, 24, 48, 96, 192)
    layers: list[nn.Module] = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(channels)):
        kernel, stride = (7, 4) if index == 0 else (3, 2)
        layers += [
            nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], CLASSES)
    )
