"""A program that should leave a GPU alone must not see it.

CUDA reads `CUDA_VISIBLE_DEVICES` when it starts, and shows the program only the GPUs named there,
numbered from 0. What is hidden can't be touched by mistake: no context, no memory, no work.
`device_ids` (and `cuda:1`) choose among the GPUs that are shown, and libraries may still open a
context on the others.

**Matters when** several people or jobs share a machine, or one job trains on some of its GPUs.

**Doesn't matter when** there is one GPU, or the scheduler gives each job a container with its own.
The variable does nothing once CUDA has started: set it before the program, not in it. CUDA counts
the fastest GPU first, nvidia-smi goes by the PCI bus: set `CUDA_DEVICE_ORDER=PCI_BUS_ID` or name
the GPU by its UUID (`nvidia-smi -L`).

**How to apply it**

```sh
CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 python train.py
CUDA_VISIBLE_DEVICES=GPU-5e2fb8c0 python train.py
```

**How it is answered** Programs are started with the variable set; each takes memory on the GPUs
that it sees and names them. They must be those asked for, and memory on the others must not grow.
"""

from collections.abc import Mapping
from typing import Any

from bench.tips.tip import Tip, Variant, needs_cuda
from bench.workloads import gpus
from bench.workloads.work import CheckResult, Context

QUESTIONS = {
    "all GPUs": "all",
    "one GPU by its number": "index",
    "one GPU by its UUID": "uuid",
    "no GPU": "none",
    "device_ids in the program": "device_ids",
}


def tip(context: Context) -> Tip:
    """The questions; each needs CUDA, and ``device_ids`` a second GPU to leave alone."""
    return Tip(
        id="visible_devices",
        section="Training",
        order=4,
        claim="CUDA_VISIBLE_DEVICES and device_ids limit a program to some GPUs and isolate them.",
        card=__doc__ or "",
        variants=tuple(
            Variant(
                name=name,
                settings={"show": show},
                needs=(
                    needs_cuda,
                    gpus.needs_list_of_gpus,
                    *([gpus.needs_two_gpus] if show == "device_ids" else []),
                ),
            )
            for name, show in QUESTIONS.items()
        ),
        check=check,
    )


def check(settings: Mapping[str, Any], context: Context) -> CheckResult:
    """Answer one question."""
    return gpus.ask(settings, context)
