"""What makes a model smaller: pruned weights, and a student in the place of its teacher."""

import dataclasses
import io
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from bench.workloads.digit_models import (
    CNN,
    RECIPES,
    STUDENT,
    Recipe,
    Trained,
    kept_once,
    new_model,
    train,
    trained,
)
from bench.workloads.digits import Digits, recognised, seed_of
from bench.workloads.inference import file_of
from bench.workloads.work import Context, TreatmentNotApplied

FINE_TUNING = Recipe(steps=30, batch=20, rate=1e-3)
STUDENTS = 5
LABELLED = 100
STUDYING = Recipe(steps=150, batch=50, rate=1e-2)
TEMPERATURE = 4.0
SOFT_SHARE = 0.9
"""Of the loss; the rest is the cross-entropy with the labels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pruned:
    """A fine-tuned model whose masks are gone.

    ``untuned``: which held-out digits it named right before it was fine-tuned.
    ``bytes_with_masks``: the size of its file before ``prune.remove``.
    """

    model: nn.Module
    untuned: Tensor
    bytes_with_masks: int


def pruned(context: Context, *, method: str, amount: float) -> Pruned:
    """The replicate's CNN with ``amount`` of each hidden layer's weights pruned, then fine-tuned.

    ``method``: "l1_unstructured" takes single weights, "ln_structured" whole output channels, the
    smallest first. The last layer stays: each of its rows is a class.
    """
    start = trained(CNN, context)
    seed, model = seed_of(context), start.model

    def build() -> dict[str, Any]:
        for layer in hidden_layers(model):
            if method == "ln_structured":
                prune.ln_structured(layer, "weight", amount=amount, n=2, dim=0)
            else:
                prune.l1_unstructured(layer, "weight", amount=amount)
        untuned = recognised(model.eval(), start.held_out)
        train(model, start.learnt, FINE_TUNING, seed=seed)
        bytes_with_masks = len(file_of(model))
        for layer in hidden_layers(model):
            prune.remove(layer, "weight")
        return {
            "weights": model.state_dict(),
            "untuned": untuned,
            "bytes_with_masks": bytes_with_masks,
        }

    parts = (model, RECIPES[CNN], FINE_TUNING, seed, method, amount)
    kept = kept_once(context, f"{CNN}-{method}-{amount}", build, *parts)
    return Pruned(
        model=_model_of(kept["weights"], seed),
        untuned=kept["untuned"],
        bytes_with_masks=kept["bytes_with_masks"],
    )


def dense(context: Context) -> nn.Module:
    """The replicate's CNN with all its weights, fine-tuned as long as a pruned one is."""
    start, seed = trained(CNN, context), seed_of(context)
    model = start.model

    def build() -> dict[str, Any]:
        train(model, start.learnt, FINE_TUNING, seed=seed)
        return {"weights": model.state_dict()}

    kept = kept_once(context, f"{CNN}-dense", build, model, RECIPES[CNN], FINE_TUNING, seed)
    return _model_of(kept["weights"], seed)


def _model_of(weights: Mapping[str, Tensor], seed: int) -> nn.Module:
    """A CNN without masks or other traces of pruning, holding ``weights``."""
    model = new_model(CNN, seed)
    model.load_state_dict(weights)
    return model.eval()


def hidden_layers(model: nn.Module) -> Sequence[nn.Module]:
    """The layers with weights, the last one left out."""
    return [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)][:-1]


def sparsity_evidence(file: bytes, *, amount: float) -> dict[str, Any]:
    """The zeros that a model's file holds; TreatmentNotApplied where they or masks are amiss."""
    state: Mapping[str, Tensor] = torch.load(io.BytesIO(file), weights_only=True)
    if masks := [name for name in state if name.endswith(("_mask", "_orig"))]:
        raise TreatmentNotApplied(f"masks are left: {', '.join(masks)}")
    weights = [tensor for name, tensor in state.items() if name.endswith("weight")][:-1]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    sparsity = zeros / sum(weight.numel() for weight in weights)
    if abs(sparsity - amount) > 0.01:
        raise TreatmentNotApplied(
            f"{sparsity:.1%} of the pruned layers' weights are 0, {amount:.0%} were asked for"
        )
    channels = [(weight == 0).flatten(1).all(1) for weight in weights]
    return {
        "sparsity_of_pruned_layers": sparsity,
        "empty_channels": sum(int(empty.sum()) for empty in channels),
        "channels": sum(map(len, channels)),
        "masks_left": 0,
    }


def compressed_bytes(file: bytes) -> int:
    """The size of ``file`` as zip and gzip would store it."""
    return len(zlib.compress(file))


class SoftLoss:
    """The loss of a student that learns from labels and from a teacher's softened answers.

    The teacher's share is the divergence at TEMPERATURE, times its square so that its gradients
    keep their size (Hinton, Vinyals and Dean, arXiv:1503.02531). ``steps`` counts its uses.
    """

    def __init__(self, digits: Digits, teacher: nn.Module) -> None:
        self.steps = 0
        self._labels = digits.labels
        with torch.no_grad():
            self._soft = (teacher(digits.images) / TEMPERATURE).softmax(1)

    def __call__(self, outputs: Tensor, chosen: Tensor) -> Tensor:
        """The loss of ``outputs`` (batch, classes) for the digits at positions ``chosen``."""
        self.steps += 1
        hard = nn.functional.cross_entropy(outputs, self._labels[chosen])
        own = (outputs / TEMPERATURE).log_softmax(1)
        soft = nn.functional.kl_div(own, self._soft[chosen], reduction="batchmean")
        return SOFT_SHARE * TEMPERATURE**2 * soft + (1 - SOFT_SHARE) * hard


@dataclasses.dataclass(frozen=True, kw_only=True)
class Students:
    """The students of one replicate, in evaluation mode.

    ``right`` (students, held-out digits): what each named right. ``soft_steps``: how many of
    their training steps had soft labels in the loss.
    """

    models: tuple[nn.Module, ...]
    right: Tensor
    soft_steps: int


def students(teacher: Trained, *, seed: int, soft: bool) -> Students:
    """STUDENTS students, each with LABELLED digits, initial weights and batches of its own.

    With soft labels or without, these are the same. The soft labels are for the same few digits.
    """
    models, right, soft_steps = [], [], 0
    for number in range(STUDENTS):
        own_seed = STUDENTS * seed + number
        generator = torch.Generator().manual_seed(own_seed)
        order = torch.randperm(len(teacher.learnt), generator=generator)
        digits = teacher.learnt.take(order[:LABELLED])
        student = new_model(STUDENT, own_seed)
        loss = SoftLoss(digits, teacher.model) if soft else None
        train(student, digits, STUDYING, seed=own_seed, loss=loss)
        models.append(student.eval())
        right.append(recognised(student, teacher.held_out))
        soft_steps += loss.steps if loss else 0
    return Students(models=tuple(models), right=torch.stack(right), soft_steps=soft_steps)
