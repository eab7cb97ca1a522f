"""Handwritten digits, carried by scikit-learn: what accuracy is measured on, and how surely.

Every replicate draws its own digits to learn from and to hold out, so that the interval over
replicates knows of both. It is one for these 1,797 digits: replicates share most of what they
learn from, so other handwriting may differ by more. What one set of held-out digits can tell stands
in the evidence: the interval of one accuracy, and of the difference between two models on the same
digits.
"""

import dataclasses
import hashlib
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.errors import UserError
from bench.workloads.corpus import installed_file
from bench.workloads.work import Context

SIDE = 8
CLASSES = 10
LEARNT = 1000
"""Of the 1,797 digits; the other 797 are held out."""
_WHITE = 16
_TWO_SIDED = statistics.NormalDist().inv_cdf(0.975)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits:
    """``images`` (count, 1, 8, 8), float32 from 0 to 1, and ``labels`` (count,) from 0 to 9."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: Tensor) -> "Digits":
        """The digits at the positions ``chosen``."""
        return Digits(images=self.images[chosen], labels=self.labels[chosen])


def seed_of(context: Context) -> int:
    """The seed of a replicate's digits, initial weights and batches: another on each machine.

    Machines that drew the same would agree in everything but rounding.
    """
    drawn = f"{context.seed}/{context.machine_id}/{context.replicate}"
    return int.from_bytes(hashlib.sha256(drawn.encode()).digest()[:4])


def split(seed: int) -> tuple[Digits, Digits]:
    """LEARNT digits to learn from and the others held out, drawn by ``seed``."""
    digits = _load()
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))
    return digits.take(order[:LEARNT]), digits.take(order[LEARNT:])


def recognised(model: Callable[[Tensor], Tensor], digits: Digits) -> Tensor:
    """Which of ``digits`` the model names right: (count,), bool."""
    with torch.inference_mode():
        return model(digits.images).argmax(1) == digits.labels


def percent(right: Tensor) -> float:
    """The accuracy in percent."""
    return 100 * right.float().mean().item()


def accuracy_evidence(right: Tensor) -> dict[str, Any]:
    """A model's accuracy with the interval that the number of held-out digits leaves it."""
    low, high = wilson_interval(int(right.sum()), len(right))
    return {
        "held_out_digits": len(right),
        "accuracy_percent": round(percent(right), 2),
        "accuracy_interval_percent": [round(100 * low, 2), round(100 * high, 2)],
    }


def difference_evidence(right: Tensor, before: Tensor, *, name: str) -> dict[str, Any]:
    """How accuracy differs from that of another model, ``name``, on the same digits.

    Says whether the difference is within its uncertainty: the 95 % interval holds 0.
    """
    gained, lost = int((right & ~before).sum()), int((before & ~right).sum())
    low, high = paired_interval(gained, lost, len(right))
    verdict = "within" if low <= 0 <= high else "beyond"
    return {
        f"accuracy_against_{name}_points": round(100 * (gained - lost) / len(right), 2),
        "difference_interval_points": [round(100 * low, 2), round(100 * high, 2)],
        "difference": f"{verdict} its uncertainty",
    }


def wilson_interval(successes: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion (J. Am. Stat. Assoc. 22, 1927).

    statsmodels has it too and takes two seconds to import, in every arm; a test holds them equal.
    """
    z_squared = _TWO_SIDED**2
    middle = (successes + z_squared / 2) / (total + z_squared)
    within = successes * (total - successes) / total + z_squared / 4
    half_width = _TWO_SIDED * math.sqrt(within) / (total + z_squared)
    return max(0.0, middle - half_width), min(1.0, middle + half_width)


def paired_interval(gained: int, lost: int, total: int) -> tuple[float, float]:
    """The 95 % interval of the difference of two proportions on the same samples.

    One sample more of each kind keeps it honest where nothing differs (Bonett and Price,
    J. Educ. Behav. Stat. 37, 2012).
    """
    more, less, count = (gained + 1) / (total + 2), (lost + 1) / (total + 2), total + 2
    half_width = _TWO_SIDED * math.sqrt((more + less - (more - less) ** 2) / count)
    return more - less - half_width, more - less + half_width


def _load() -> Digits:
    path = installed_file("sklearn", "datasets/data/digits.csv.gz")
    if path is None:
        raise UserError(
            "The digits of scikit-learn are not installed.", "Install it: pip install scikit-learn"
        )
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    images = torch.from_numpy(table[:, :-1] / _WHITE)
    return Digits(
        images=images.reshape(-1, 1, SIDE, SIDE), labels=torch.from_numpy(table[:, -1]).long()
    )
