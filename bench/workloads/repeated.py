"""Training twice from one seed: are the two runs equal bit for bit?"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.workloads.training import random_batch, training_step
from bench.workloads.work import Context, Work


def run_from_seed(context: Context, steps: int) -> list[Tensor]:
    """Train a fresh model from the context's seed; every loss, then every weight and buffer."""
    train = training_step(context)
    images, labels = random_batch(context)
    for _ in range(steps):
        train(images, labels)
    return [*train.take_losses(), *train.model.state_dict().values()]


def are_equal(one: list[Tensor], other: list[Tensor]) -> bool:
    """Whether two runs agree in every bit; not-a-number equals itself here."""
    return len(one) == len(other) and all(
        first.shape == second.shape
        and first.dtype == second.dtype
        and torch.equal(_bits(first), _bits(second))
        for first, second in zip(one, other, strict=True)
    )


def paired_runs(context: Context, steps: int, evidence: Callable[[], dict[str, Any]]) -> Work:
    """Two runs of ``steps`` steps from one seed and their comparison are one step of this work."""
    pairs = equal = 0

    def prepare(_: int) -> None:
        nonlocal pairs, equal
        pairs = equal = 0

    def step() -> int:
        nonlocal pairs, equal
        pairs += 1
        equal += are_equal(run_from_seed(context, steps), run_from_seed(context, steps))
        return 2 * steps * context.batch_size

    return Work(
        step=step,
        evidence=lambda: {"pairs": pairs, "equal_pairs": equal, "steps_a_run": steps, **evidence()},
        device=context.device,
        prepare=prepare,
        readings=lambda: {"equal_runs": equal / pairs},
    )


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().reshape(-1).view(torch.uint8)
