"""Inside a rank: its replica of the model, and the loop that does what the arm asks."""

import itertools
import json
import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from bench.workloads.models import build_model, model_name
from bench.workloads.precision import set_tf32
from bench.workloads.ranks import stores
from bench.workloads.ranks.job import Job
from bench.workloads.training import TrainingStep, random_batch
from bench.workloads.work import Context, TreatmentNotApplied, WorkFailed

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_COLLECTIVE_PATIENCE = timedelta(seconds=60)
_UNTIL_KILLED_SECONDS = 10.0


def order_key(number: int) -> str:
    """Where the arm puts its order, JSON with ``do`` and what that needs."""
    return f"order/{number}"


def answer_key(number: int, rank: int) -> str:
    """Where a rank puts its answer, JSON."""
    return f"answer/{number}/{rank}"


def serve(job: Job, context: Context, host: str, port: int) -> None:
    """What the launcher runs as each rank: do the arm's orders until it says ``end``."""
    # A forked rank has its arm's and its launcher's handlers, which would keep it from ending.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    rank = int(os.environ["RANK"])
    store = stores.join_store(host, port, stores.WAIT_FOR_EVER)
    try:
        _obey(Replica(job, context), rank, store)
    except Exception as error:
        traceback.print_exc()
        is_known = isinstance(error, WorkFailed | TreatmentNotApplied)
        kind = "" if is_known else f"{type(error).__name__}: "
        first_line = str(error).strip().partition("\n")[0]
        stores.say_once(store, stores.FAILED, f"rank {rank}: {kind}{first_line}")
        # When another rank was killed, the launcher must see that one's end before this one's.
        stores.heard(store, ["nothing"], _UNTIL_KILLED_SECONDS)
        raise


def _obey(replica: "Replica", rank: int, store: distributed.TCPStore) -> None:
    doings: dict[str, Callable[..., Any]] = {
        "work alone": replica.work_alone,
        "join": replica.join,
        "prepare": replica.prepare,
        "work": replica.work,
        "read": replica.read,
        "show": replica.show,
    }
    for number in itertools.count():
        order = json.loads(store.get(order_key(number)))
        do = order.pop("do")
        if do == "end":
            replica.leave()
            return
        store.set(answer_key(number, rank), json.dumps(doings[do](**order)))


class Replica:
    """One rank's share of a job: its model, wrapped, and its part of the global batch."""

    def __init__(self, job: Job, context: Context) -> None:
        self.job = job
        self.rank = int(os.environ["RANK"])
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.set_num_threads(job.threads_a_rank)
        self.devices = [
            f"cuda:{local_rank + number}" if job.kind == "cuda" else "cpu"
            for number in range(job.replicas_a_rank)
        ]
        if job.kind == "cuda":
            torch.cuda.set_device(self.devices[0])
        self.context = job.context(context, device=self.devices[0], batch_size=job.rank_batch)
        everything = job.context(context, device="cpu", batch_size=job.global_batch)
        images, labels = random_batch(everything)
        part = slice(self.rank * job.rank_batch, (self.rank + 1) * job.rank_batch)
        self.images = images[part].to(self.devices[0])
        self.labels = labels[part].to(self.devices[0])
        self.seen: Counter[str] = Counter()
        """Samples that went into a replica since ``prepare``, by its device."""
        self.train: TrainingStep
        self._alone: TrainingStep | None = None

    def work_alone(self, steps: int) -> int:
        """Do so many steps of one replica on the first rank, which no other takes part in."""
        if self.rank > 0:
            return 0
        self._alone = self._alone or TrainingStep(self._model(), self.devices[0])
        images = self.images[: self.job.replica_batch]
        labels = self.labels[: self.job.replica_batch]
        samples = sum(self._alone(images, labels) for _ in range(steps))
        self._wait_for_devices()
        return samples

    def join(self) -> None:
        """Build the model anew and make it one with those of the other ranks."""
        self._alone = None
        model = self._model().to(self.devices[0])
        model.register_forward_pre_hook(self._count)
        gpus = [torch.device(d) for d in self.devices] if self.job.kind == "cuda" else None
        match self.job.wrap:
            case "DistributedDataParallel":
                self._join_group()
                model = DistributedDataParallel(model, device_ids=gpus)
            case "DataParallel":
                model = DataParallel(model, device_ids=gpus)
        self.train = TrainingStep(model, self.devices[0])

    def prepare(self, steps: int) -> None:
        """Count samples and peak memory from here on."""
        self.seen.clear()
        self.train.prepare(steps)
        if self.job.kind == "cuda":
            for device in self.devices:
                torch.cuda.reset_peak_memory_stats(device)

    def work(self, steps: int) -> int:
        """Do so many steps; returns the samples that went into the replicas here."""
        before = self.seen.total()
        for _ in range(steps):
            self.train(self.images, self.labels)
        self._wait_for_devices()
        return self.seen.total() - before

    def read(self) -> dict[str, Any]:
        """The last loss of this rank's batches, and the peak memory of each of its GPUs."""
        return {**self.train.readings(), "peak_gpu_bytes": self._peaks()}

    def show(self) -> dict[str, Any]:
        """What was seen here: the evidence of this rank."""
        is_joined = distributed.is_initialized()
        return {
            **self.train.evidence(),
            "wrap": type(self.train.model).__name__,
            "world_size": distributed.get_world_size() if is_joined else 1,
            "backend": distributed.get_backend() if is_joined else None,
            "samples": self.seen.total(),
            "samples_by_device": dict(self.seen),
            "threads": torch.get_num_threads(),
            "peak_gpu_bytes": self._peaks(),
            "weights": sum(p.double().sum().item() for p in self.train.model.parameters()),
        }

    def leave(self) -> None:
        """Leave the group of ranks."""
        if distributed.is_initialized():
            distributed.destroy_process_group()

    def _peaks(self) -> dict[str, int]:
        if self.job.kind == "cpu":
            return {}
        return {device: torch.cuda.max_memory_allocated(device) for device in self.devices}

    def _model(self) -> nn.Module:
        set_tf32(convolutions=True, matmuls=False)
        torch.manual_seed(self.job.seed)
        return build_model(model_name(self.context))

    def _join_group(self) -> None:
        is_cuda = self.job.kind == "cuda"
        distributed.init_process_group(
            BACKENDS[self.job.kind],
            timeout=_COLLECTIVE_PATIENCE,
            device_id=torch.device(self.devices[0]) if is_cuda else None,
        )

    def _count(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        # DataParallel's threads each write their own device's count.
        self.seen[str(inputs[0].device)] += len(inputs[0])

    def _wait_for_devices(self) -> None:
        if self.job.kind == "cuda":
            for device in self.devices:
                torch.cuda.synchronize(device)
