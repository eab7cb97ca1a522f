"""Several processes train one model: each takes a part of the batch, and gradients are averaged.

DistributedDataParallel starts a process for each part of the batch. Each computes its gradients,
and while the backward pass still runs, the finished ones are averaged over all processes. `gloo`
does that on CPUs, as NCCL does on GPUs.

**Matters when** one process can't keep the machine busy: several sockets (NUMA), or several
machines.

**Doesn't matter when** one process with as many threads keeps all cores busy already, as with
large convolutions. Averaging moves every gradient once more, and each process holds the model and
its optimizer anew. Batch normalisation sees a part of the batch only.

**How to apply it**

```python
# OMP_NUM_THREADS=4 torchrun --standalone --nproc-per-node=2 train.py
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
sampler = torch.utils.data.distributed.DistributedSampler(dataset)
```

Each process gets its part of the batch: divide the batch size by the number of processes. Without
OMP_NUM_THREADS, torchrun gives each process a single thread.

**How it is measured** The training step on one fixed global batch, the same for all variants, with
the same number of threads in all. torch's elastic launcher, which torchrun is, starts the
processes, the single one of the baseline too. With `--nnodes` the processes are spread over that
many machines. The scaling efficiency is the samples a second over those of one process that works
alone on its part, times the number of processes.
"""

import functools
from collections.abc import Mapping
from typing import Any

from bench.records.plan import Metric
from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload
from bench.workloads.ranks.job import Job
from bench.workloads.work import Context, Work

SCALING_EFFICIENCY = Metric(
    name="scaling_efficiency", unit="of 1", column="scaling_efficiency", aggregate="mean"
)


def tip(context: Context) -> Tip:
    """The tip: one process against two, or against one on each machine."""
    processes = max(2, context.nnodes)
    where = f" on {context.nnodes} nodes" if context.nnodes > 1 else ""
    needs = (needs_gloo, functools.partial(needs_parts, processes))
    return Tip(
        id="ddp_cpu",
        section="Training",
        order=3,
        claim="DistributedDataParallel trains faster with several processes, also on CPUs.",
        card=__doc__ or "",
        variants=(
            Variant(name="1 process", settings={"processes": 1, "nodes": 1}, needs=needs),
            Variant(
                name=f"{processes} processes{where}",
                settings={"processes": processes, "nodes": context.nnodes},
                needs=needs,
                recommended=True,
            ),
        ),
        workloads=(
            Workload(name="training step", build=build, metrics=(THROUGHPUT, SCALING_EFFICIENCY)),
        ),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Training steps on the CPU in so many processes, with the same threads and batch in all."""
    from bench.workloads.ranks.work import ranks_work

    processes, most = settings["processes"], max(2, context.nnodes)
    job = Job(
        wrap="plain" if processes == 1 else "DistributedDataParallel",
        kind="cpu",
        ranks_a_node=processes // settings["nodes"],
        nodes=settings["nodes"],
        replica_batch=context.batch_size // most * most // processes,
        threads_a_rank=context.threads // most * most // processes,
        image_size=context.image_size,
        model=context.model,
        seed=context.seed,
    )
    return ranks_work(job, context)


def needs_gloo(context: Context) -> str | None:
    """The need of ranks on a CPU."""
    from torch import distributed

    if distributed.is_available() and distributed.is_gloo_available():
        return None
    return "this torch is built without torch.distributed's gloo"


def needs_parts(processes: int, context: Context) -> str | None:
    """A thread and a sample for each process."""
    if context.threads < processes:
        return f"needs {processes} usable cores, one a process; seen: {context.threads}"
    if context.batch_size < processes:
        return f"needs --batch-size {processes} or more, a sample for each process"
    return None
