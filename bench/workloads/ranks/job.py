"""What a set of ranks trains, and how it is spread over processes and devices."""

import dataclasses
import json
import uuid
from typing import Literal

from bench.workloads.work import Context

Wrap = Literal["plain", "DataParallel", "DistributedDataParallel"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A training job of ``ranks`` processes, which every machine that takes part is told.

    ``wrap``: what makes one model of the replicas; "plain" for a single one. A rank holds one
    replica, with DataParallel one a device. ``replica_batch``: samples a step of each replica;
    the batch is global, so a step of the whole job has ``global_batch`` samples. Every rank
    computes with ``threads_a_rank`` threads. ``kind``: "cpu" or "cuda".
    """

    wrap: Wrap
    kind: Literal["cpu", "cuda"]
    ranks_a_node: int = 1
    nodes: int = 1
    replicas_a_rank: int = 1
    replica_batch: int
    threads_a_rank: int
    image_size: int
    model: str | None = None
    seed: int = 0
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def ranks(self) -> int:
        """Processes in all, on all machines: the world size."""
        return self.ranks_a_node * self.nodes

    @property
    def replicas(self) -> int:
        """Copies of the model in all."""
        return self.ranks * self.replicas_a_rank

    @property
    def rank_batch(self) -> int:
        """Samples a step of one rank."""
        return self.replica_batch * self.replicas_a_rank

    @property
    def global_batch(self) -> int:
        """Samples a step of all ranks together."""
        return self.replica_batch * self.replicas

    def context(self, own: Context, *, device: str, batch_size: int) -> Context:
        """``own``, the context of this machine, with what the job says."""
        return dataclasses.replace(
            own,
            device=device,
            batch_size=batch_size,
            threads=self.threads_a_rank,
            image_size=self.image_size,
            model=self.model,
            seed=self.seed,
        )

    def to_json(self) -> str:
        """The job as another machine reads it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """The job that another machine wrote."""
        return cls(**json.loads(text))
