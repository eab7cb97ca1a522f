"""Small models that recognise digits, trained once for each replicate and kept in the cache."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.workloads.derived import build_once, digest
from bench.workloads.digits import CLASSES, SIDE, Digits, recognised, seed_of, split
from bench.workloads.work import Context, WorkFailed

CNN = "digits_cnn"
MLP = "digits_mlp"
STUDENT = "digits_student"
_CHANNELS = 64
_WIDTH = 1024
_STUDENT_WIDTH = 32
_FILE = "trained.pt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained: Adam, the rate rising and falling over ``steps`` batches."""

    steps: int
    batch: int
    rate: float


RECIPES: Mapping[str, Recipe] = {
    CNN: Recipe(steps=100, batch=20, rate=2e-3),
    MLP: Recipe(steps=60, batch=50, rate=1e-3),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """A model in evaluation mode, its digits, and which held-out ones it named right: ``right``."""

    model: nn.Module
    learnt: Digits
    held_out: Digits
    right: Tensor


def new_model(name: str, seed: int) -> nn.Module:
    """The untrained model for (batch, 1, 8, 8) digits; ``seed`` draws its weights."""
    torch.manual_seed(seed)
    match name:
        case "digits_cnn":
            return nn.Sequential(
                nn.Conv2d(1, _CHANNELS, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(_CHANNELS, 2 * _CHANNELS, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(2 * _CHANNELS, 2 * _CHANNELS, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(2 * _CHANNELS * (SIDE // 2) ** 2, CLASSES),
            )
        case "digits_mlp":
            return _perceptron(_WIDTH, _WIDTH, _WIDTH)
        case "digits_student":
            return _perceptron(_STUDENT_WIDTH)
    raise ValueError(f"There is no model {name!r} for digits.")


def trained(name: str, context: Context) -> Trained:
    """The model of this replicate; trained where the cache doesn't hold it yet."""
    seed = seed_of(context)
    model, recipe = new_model(name, seed), RECIPES[name]
    learnt, held_out = split(seed)

    def build() -> dict[str, Any]:
        train(model, learnt, recipe, seed=seed)
        return {"weights": model.state_dict(), "right": recognised(model.eval(), held_out)}

    kept = kept_once(context, name, build, model, recipe, seed)
    model.load_state_dict(kept["weights"])
    return Trained(model=model.eval(), learnt=learnt, held_out=held_out, right=kept["right"])


def kept_once(
    context: Context, name: str, build: Callable[[], dict[str, Any]], *parts: object
) -> dict[str, Any]:
    """What ``build`` returns, read from the cache where it was built from the same ``parts``."""

    def write(folder: Path) -> None:
        torch.save(build(), folder / _FILE)

    folder = context.cache / "digits" / f"{name}-{digest(*parts, torch.__version__)}"
    build_once(folder, write, context.stopwatch)
    kept: dict[str, Any] = torch.load(folder / _FILE, weights_only=True)
    return kept


def train(
    model: nn.Module,
    digits: Digits,
    recipe: Recipe,
    *,
    seed: int,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> None:
    """Train ``model`` on batches that ``seed`` draws; WorkFailed when the loss isn't finite.

    ``loss(outputs, chosen)`` takes the positions of the batch's digits; without it, it is the
    cross-entropy with their labels.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=recipe.rate, total_steps=recipe.steps
    )
    model.train()
    for _ in range(recipe.steps):
        chosen = torch.randint(len(digits), (recipe.batch,), generator=generator)
        optimizer.zero_grad(set_to_none=True)
        outputs = model(digits.images[chosen])
        if loss is None:
            value = nn.functional.cross_entropy(outputs, digits.labels[chosen])
        else:
            value = loss(outputs, chosen)
        value.backward()
        optimizer.step()
        rates.step()
    if not torch.isfinite(value):
        raise WorkFailed(f"the loss became {value.item()} while a model of digits was trained")


def _perceptron(*widths: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = SIDE * SIDE
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, CLASSES))
