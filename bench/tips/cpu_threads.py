"""On the CPU, a thread for each physical core; more threads only get in each other's way.

Torch splits an operator among its threads and waits for the last one. Two threads on one physical
core share its arithmetic units and caches, and threads beyond the cores take turns: the operator
waits for one that has no core just then, and each change of turns costs time.

**Matters when** torch's default is wrong: in a container whose quota is smaller than the machine,
with several training processes side by side (each takes all cores), under a launcher that sets
`OMP_NUM_THREADS=1`.

**Doesn't matter when** torch's default is the number of physical cores already, as it is on many
machines, or on a GPU, where the CPU only hands out work.

**How to apply it**

```python
torch.set_num_threads(psutil.cpu_count(logical=False))   # in a container: its quota
```

**How it is measured** A training step on the CPU, whatever device the other tips use, and the
context switches of its process. Where torch's default is the number of physical cores, the tip is
followed by doing nothing, and what it warns of is the baseline: twice as many threads as cores.
"""

import dataclasses
import resource
from collections.abc import Mapping
from typing import Any

from bench.records.plan import Metric
from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload
from bench.workloads.work import Context, TreatmentNotApplied, Work

LARGEST_BATCH = 16
"""Of the CPU's training step also where the run's batches are a GPU's."""


def _switches(column: str) -> Metric:
    return Metric(
        name=f"{column}_per_second",
        unit="switches/s",
        column=column,
        aggregate="rate",
        higher_is_better=False,
    )


def tip(context: Context) -> Tip:
    """The tip, with the numbers of threads that this machine gives."""
    default, physical = context.torch_threads, context.physical_cores
    is_followed = default == physical
    followed = (
        "Here torch's default is that already: the tip is followed by doing nothing, and it is "
        "compared with what it warns of."
        if is_followed
        else "Here torch's default is another number."
    )
    return Tip(
        id="cpu_threads",
        section="Environment",
        order=4,
        claim=(
            "torch.set_num_threads(physical cores) is the fastest on the CPU; more threads only "
            "cost context switches."
        ),
        card=__doc__ or "",
        note=(
            f"{_counted(physical, 'physical core')}, {_counted(context.cores, 'usable core')}, and "
            f"torch starts {_counted(default, 'thread')} by itself. {followed}"
        ),
        is_followed=is_followed,
        variants=variants(context),
        workloads=(
            Workload(
                name="training step on the CPU",
                build=build,
                metrics=(
                    THROUGHPUT,
                    _switches("involuntary_context_switches"),
                    _switches("voluntary_context_switches"),
                ),
            ),
        ),
    )


def variants(context: Context) -> tuple[Variant, ...]:
    """Torch's default, physical cores (recommended), 1, twice the cores; each number once.

    Where the default is the physical cores, twice the cores is the baseline.
    """
    default, physical, twice = context.torch_threads, context.physical_cores, 2 * context.cores
    is_followed = default == physical
    recommended = Variant(
        name=f"physical cores{', as by default' if is_followed else ''} ({physical})",
        settings={"threads": physical},
        recommended=True,
        # The default is only seen where nobody has set a number; its neighbours start like it.
        fresh=not is_followed,
    )
    too_many, single = (
        Variant(name=name, settings={"threads": threads}, fresh=not is_followed)
        for name, threads in ((f"2 × cores ({twice})", twice), ("1", 1))
    )
    if is_followed:
        return (too_many, recommended, *([single] if physical != 1 else []))
    by_default = Variant(
        name=f"torch's default ({default})", settings={"threads": None}, fresh=True
    )
    others = [v for v in (single, too_many) if v.settings["threads"] not in (default, physical)]
    return (by_default, recommended, *others)


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """The training step on the CPU with so many threads; None leaves torch's default."""
    import torch

    from bench.workloads.training import training_work

    wanted = settings["threads"]
    if wanted is not None:
        torch.set_num_threads(wanted)
    on_cpu = dataclasses.replace(
        context, device="cpu", batch_size=min(LARGEST_BATCH, context.batch_size)
    )
    work = training_work(on_cpu)
    before = resource.getrusage(resource.RUSAGE_SELF)

    def prepare(steps: int) -> None:
        nonlocal before
        work.prepare(steps)
        before = resource.getrusage(resource.RUSAGE_SELF)

    def readings() -> Mapping[str, float | int]:
        after = resource.getrusage(resource.RUSAGE_SELF)
        return {
            **work.readings(),
            "voluntary_context_switches": after.ru_nvcsw - before.ru_nvcsw,
            "involuntary_context_switches": after.ru_nivcsw - before.ru_nivcsw,
        }

    def evidence() -> dict[str, Any]:
        found = torch.get_num_threads()
        if found != (wanted or context.torch_threads):
            raise TreatmentNotApplied(
                f"{wanted or context.torch_threads} threads were expected; "
                f"torch.get_num_threads() said {found}"
            )
        return {"threads": found, **work.evidence()}

    return dataclasses.replace(work, prepare=prepare, readings=readings, evidence=evidence)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
