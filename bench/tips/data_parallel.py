"""One process for each GPU beats one process for all of them.

DataParallel is one process with a thread a GPU: at each step it copies the model to every GPU,
scatters the batch, gathers the outputs on the first GPU and adds up the gradients there, and
Python's lock lets its threads start kernels one at a time only. DistributedDataParallel is a
process for each GPU with a model that stays there; only gradients travel, while the backward pass
still runs.

**Matters when** the model is large or its kernels are short, and with more than two GPUs.

**Doesn't matter when** there is one GPU, or the GPUs can exchange gradients only slowly: without
NVLink, two GPUs have been seen to train faster with DataParallel.

**How to apply it**

```python
# torchrun --standalone --nproc-per-node=gpu train.py
torch.distributed.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = torch.nn.parallel.DistributedDataParallel(model.to(device), device_ids=[device])
```

`torchrun` replaces `python -m torch.distributed.launch`, which is deprecated. DataParallel is not,
though torch's documentation advises against it.

DataParallel divides the batch among the GPUs; with DistributedDataParallel every process brings
its own, so divide the batch size by their number.

**How it is measured** The training step on fixed images, with the run's batch size on each GPU:
the same global batch for DataParallel and DistributedDataParallel. Each process counts the samples
that went into its replicas. The scaling efficiency is the samples a second over those of one GPU
that works alone, times the number of GPUs.
"""

from collections.abc import Mapping
from typing import Any

from bench.records.plan import Metric
from bench.tips.ddp_cpu import SCALING_EFFICIENCY
from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload, needs_cuda
from bench.workloads.ranks.job import Job, Wrap
from bench.workloads.work import Context, Work

PEAK_BYTES = Metric(
    name="peak_bytes_a_gpu",
    unit="bytes",
    column="peak_bytes_a_gpu",
    aggregate="mean",
    higher_is_better=False,
)


def tip(context: Context) -> Tip:
    """The tip, on all GPUs of this machine, and on fewer for comparison."""
    return Tip(
        id="data_parallel",
        section="Training",
        order=2,
        claim="On several GPUs, DistributedDataParallel trains faster than DataParallel.",
        card=__doc__ or "",
        variants=variants(context),
        workloads=(
            Workload(
                name="training step",
                build=build,
                metrics=(THROUGHPUT, SCALING_EFFICIENCY, PEAK_BYTES),
            ),
        ),
    )


def variants(context: Context) -> tuple[Variant, ...]:
    """DataParallel and DistributedDataParallel on all GPUs; one GPU, and powers of two between."""
    gpus = max(2, context.gpus)
    fewer = [count for count in (2**power for power in range(1, 8)) if count < gpus]
    found = [
        _variant("DataParallel", "DataParallel", gpus),
        _variant("DistributedDataParallel", "DistributedDataParallel", gpus, recommended=True),
        _variant("1 GPU", "plain", 1, exploratory=True),
    ]
    found += [
        _variant(
            f"DistributedDataParallel on {count} GPUs",
            "DistributedDataParallel",
            count,
            exploratory=True,
        )
        for count in fewer
    ]
    if context.nnodes > 1:
        found.append(
            _variant(
                f"DistributedDataParallel on {context.nnodes} nodes",
                "DistributedDataParallel",
                gpus,
                nodes=context.nnodes,
                exploratory=True,
            )
        )
    return tuple(found)


def _variant(
    name: str,
    wrap: Wrap,
    gpus: int,
    *,
    nodes: int = 1,
    recommended: bool = False,
    exploratory: bool = False,
) -> Variant:
    return Variant(
        name=name,
        settings={"wrap": wrap, "gpus": gpus, "nodes": nodes},
        needs=(needs_cuda, needs_two_gpus, needs_nccl),
        recommended=recommended,
        exploratory=exploratory,
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Training steps on so many GPUs, each with the run's batch size."""
    from bench.workloads.ranks.work import ranks_work

    gpus = settings["gpus"]
    in_one_process = settings["wrap"] == "DataParallel"
    job = Job(
        wrap=settings["wrap"],
        kind="cuda",
        ranks_a_node=1 if in_one_process else gpus,
        nodes=settings["nodes"],
        replicas_a_rank=gpus if in_one_process else 1,
        replica_batch=context.batch_size,
        threads_a_rank=context.threads if in_one_process else max(1, context.threads // gpus),
        image_size=context.image_size,
        model=context.model,
        seed=context.seed,
    )
    return ranks_work(job, context)


def needs_two_gpus(context: Context) -> str | None:
    """The need of a comparison between GPUs."""
    if context.gpus >= 2:
        return None
    return f"needs 2 CUDA GPUs or more; seen: {context.gpus}"


def needs_nccl(context: Context) -> str | None:
    """The need of ranks on GPUs."""
    from torch import distributed

    if distributed.is_available() and distributed.is_nccl_available():
        return None
    return "this torch is built without NCCL"
