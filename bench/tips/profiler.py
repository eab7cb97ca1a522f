"""See which operator, which copy or which wait takes the time, instead of guessing.

torch.profiler records every operator and every kernel of some steps, and TensorBoard or Perfetto
show them on a time line: gaps in which the GPU waits for data, kernels that dominate, copies that
nobody meant.

**Matters when** training is slower than it should be and you don't know why. It costs time while it
records, so record a few steps, read them, and switch it off again.

**Doesn't matter when** you want to know how fast training is: times taken under a profiler are not
those without it. Shapes and Python stacks are what makes it dear, most of all where a step is many
small operators, and a profiler that is left on writes megabytes every few steps.

**How to apply it**

```python
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
    on_trace_ready=tensorboard_trace_handler("log"),
    record_shapes=True,
    with_stack=True,
) as profiler:
    for images, labels in loader:
        train(images, labels)
        profiler.step()
```

TensorBoard's page for these traces (`torch-tb-profiler`) is deprecated: open the trace file in
Perfetto (https://ui.perfetto.dev) instead. `python -m bench profile` does all this with the
training workload and reads the result for you.

**How it is measured** The training step on one fixed batch, over whole cycles of the schedule, over
and over, the writing of a trace at each cycle's end included. “Always on” records every step and
writes a trace every five. The last trace is opened, and must hold what was asked for.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.records.plan import Metric
from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload
from bench.workloads.work import Context, Work

TRACE_BYTES = Metric(
    name="trace_bytes",
    unit="bytes",
    column="trace_bytes",
    aggregate="mean",
    higher_is_better=False,
    kind="difference",
    margin=100_000,
)
SCHEDULE = {"wait": 1, "warm_up": 1, "active": 3}


def tip(context: Context) -> Tip:
    """The tip."""
    return Tip(
        id="profiler",
        section="Profiling",
        order=1,
        claim="torch.profiler and TensorBoard find what slows training down.",
        card=__doc__ or "",
        is_price=True,
        variants=(
            Variant(name="off"),
            Variant(
                name="3 of 5 steps, shapes + stacks",
                settings={**SCHEDULE, "shapes_and_stacks": True},
                recommended=True,
            ),
            Variant(name="3 of 5 steps", settings=SCHEDULE),
            Variant(
                name="every step, shapes + stacks",
                settings={"active": 5, "shapes_and_stacks": True},
            ),
        ),
        workloads=(Workload(name="training step", build=build, metrics=(THROUGHPUT, TRACE_BYTES)),),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """The training step on one fixed batch; without settings no profiler is there."""
    from bench.workloads import profiled, training

    work = training.training_work(context)
    if settings:
        return profiled.profiled(work, profiled.Recording(**settings))
    return dataclasses.replace(
        work,
        period=profiled.RECIPE.cycle,
        readings=lambda: {**work.readings(), "trace_bytes": 0},
    )
