"""The same seed, the same model: what it costs to have every bit repeat itself.

Some of cuDNN's algorithms, mostly backward ones, add numbers in an order that changes from run to
run, and floating-point sums depend on their order. `cudnn.deterministic = True` leaves those
algorithms out. `torch.use_deterministic_algorithms(True)` does so for all of torch, and raises an
error where an operation has no deterministic way.

**Matters when** a result must be repeated exactly: debugging, tests, audits.

**Doesn't matter when** runs are compared over several seeds anyway. On a CPU the flags change
nothing: with the same number of threads the results are the same without them. No flag makes runs
equal across kinds of GPU or versions of torch, and unseeded workers undo all of it.

**How to apply it**

```python
torch.manual_seed(0)
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False  # it may choose another algorithm in the next run
```

For `torch.use_deterministic_algorithms(True)` set `CUBLAS_WORKSPACE_CONFIG=:4096:8` before the
program starts.

**How it is measured** The training step on one fixed batch. Beside it, on a CPU too, a few steps
are trained twice from one seed, and losses and weights are compared bit for bit.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bench.records.plan import Metric
from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload, needs_cuda
from bench.workloads.work import Context, TreatmentNotApplied, Work

CUBLAS_WORKSPACE_CONFIG = "CUBLAS_WORKSPACE_CONFIG"
EQUAL_RUNS = Metric(
    name="equal_runs",
    unit="share of pairs",
    column="equal_runs",
    aggregate="mean",
    kind="difference",
    margin=0.05,
)
STEPS_A_RUN = 3


def tip(context: Context) -> Tip:
    """The tip; its timing needs CUDA, comparing two runs doesn't."""
    return Tip(
        id="cudnn_deterministic",
        section="Environment",
        order=3,
        claim="cudnn.deterministic = True makes runs repeat themselves.",
        card=__doc__ or "",
        is_price=True,
        variants=(
            Variant(name="off", settings={"cudnn": False, "everything": False}),
            Variant(
                name="cudnn.deterministic",
                settings={"cudnn": True, "everything": False},
                recommended=True,
            ),
            Variant(
                name="use_deterministic_algorithms",
                settings={"cudnn": True, "everything": True},
                fresh=context.device != "cpu",
                environment={CUBLAS_WORKSPACE_CONFIG: ":4096:8"},
            ),
        ),
        workloads=(
            Workload(name="training step", build=build, metrics=(THROUGHPUT,), needs=(needs_cuda,)),
            Workload(
                name="two runs from one seed", build=build_pair, metrics=(EQUAL_RUNS,), blocks=2
            ),
        ),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """The training step on one fixed batch."""
    from bench.workloads import training

    set_flags(settings)
    work = training.training_work(context)
    return dataclasses.replace(work, evidence=lambda: work.evidence() | flags(settings))


def build_pair(settings: Mapping[str, Any], context: Context) -> Work:
    """A few steps, twice from one seed; one step of this work is such a pair."""
    from bench.workloads import repeated

    set_flags(settings)
    return repeated.paired_runs(context, STEPS_A_RUN, lambda: flags(settings))


def set_flags(settings: Mapping[str, Any]) -> None:
    """Set every flag in one direction or the other, whatever torch's defaults are."""
    import torch

    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = settings["cudnn"]
    torch.use_deterministic_algorithms(settings["everything"])


def flags(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The flags read back; TreatmentNotApplied where one is not as asked."""
    import torch

    found = {
        "cudnn": torch.backends.cudnn.deterministic,
        "everything": torch.are_deterministic_algorithms_enabled(),
    }
    if found != dict(settings):
        raise TreatmentNotApplied(f"asked for {dict(settings)}; the flags are {found}")
    workspace = os.environ.get(CUBLAS_WORKSPACE_CONFIG)
    if settings["everything"] and workspace is None:
        raise TreatmentNotApplied(f"{CUBLAS_WORKSPACE_CONFIG} is not set")
    return {
        "cudnn_deterministic": found["cudnn"],
        "deterministic_algorithms": found["everything"],
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cublas_workspace_config": workspace,
    }
