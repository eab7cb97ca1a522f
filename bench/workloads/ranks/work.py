"""The arm's side: the ranks as one ``Work``, with their samples added up and their evidence."""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.workloads.ranks import stores
from bench.workloads.ranks.job import Job
from bench.workloads.ranks.launcher import Launcher
from bench.workloads.ranks.rank import answer_key, order_key
from bench.workloads.work import Context, TreatmentNotApplied, Work, WorkFailed

_PATIENCE_SECONDS = 100.0
"""Less than an arm has for its answer, so that a silent rank is a failure with a reason."""
_LOOK_SECONDS = 0.5
_CAUSE_SECONDS = 2.0
_ENDING_SECONDS = 1.0
_ALONE_STEPS = 3


class Ranks:
    """The ranks of a job, started by the launcher, and waiting on the store for orders."""

    def __init__(self, job: Job, context: Context) -> None:
        self.job = job
        self._orders = 0
        self._launcher = Launcher()
        try:
            host, port = stores.address_of(job, context)
            self._store = stores.open_store(host, port)
            self._store.set(stores.JOB, job.to_json())
            self._launcher.launch(job, context, host, self._store.port)
        except Exception:
            self._launcher.end(patience=0.0)
            raise

    def ask(self, do: str, **more: int) -> list[Any]:
        """Let every rank do something; their answers by rank.

        WorkFailed when one doesn't, or MemoryError when memory is why; then all ranks are ended.
        """
        try:
            return self._answers(do, more)
        except Exception:
            self._launcher.end(patience=0.0)
            raise

    def close(self) -> None:
        """End the ranks and their launcher."""
        self._order("end", {})
        # Forked ranks on this machine leave nothing behind that they would have to clean up.
        can_be_killed = self.job.kind == "cpu" and self.job.nodes == 1
        self._launcher.end(patience=0.0 if can_be_killed else _ENDING_SECONDS)

    def _answers(self, do: str, more: Mapping[str, int]) -> list[Any]:
        number = self._order(do, more)
        keys = [answer_key(number, rank) for rank in range(self.job.ranks)]
        for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)):
            if stores.heard(self._store, keys, _LOOK_SECONDS):
                return [json.loads(answer) for answer in self._store.multi_get(keys)]
            self._raise_failure()
        others = f"; are all {self.job.nodes} nodes started?" if self.job.nodes > 1 else ""
        raise WorkFailed(f"no answer from every rank within {_PATIENCE_SECONDS:.0f} s{others}")

    def _order(self, do: str, more: Mapping[str, int]) -> int:
        number = self._orders
        self._orders += 1
        self._store.set(order_key(number), json.dumps({"do": do, **more}))
        return number

    def _raise_failure(self) -> None:
        """Raise what went wrong, if anything did: the cause where others fail as its result."""
        launcher_was_alive = self._launcher.is_alive
        if self._store.check([stores.FAILED]):
            stores.heard(self._store, [stores.KILLED], _CAUSE_SECONDS)
        for key in (stores.KILLED, stores.FAILED):
            if self._store.check([key]):
                reason = self._store.get(key).decode()
                if "out of memory" in reason.lower():
                    raise MemoryError(reason)
                raise WorkFailed(reason)
        if not launcher_was_alive:
            raise WorkFailed("the launcher of the ranks ended without a word")


def ranks_work(job: Job, context: Context) -> Work:
    """Training steps of ``job``; one step is one global batch. The ranks wait for their devices.

    Where ``context`` has a stopwatch and there are several replicas, ``scaling_efficiency`` is
    read: the turn's samples a second over those of one replica that works alone, times their
    number.
    """
    ranks = Ranks(job, context)
    alone = _samples_per_second_alone(ranks, context) if job.replicas > 1 else None
    ranks.ask("join")
    samples_per_second = math.nan

    def steps(count: int) -> int:
        nonlocal samples_per_second
        samples, seconds = _timed(lambda: sum(ranks.ask("work", steps=count)), context)
        if samples != count * job.global_batch:
            raise WorkFailed(
                f"the ranks did {samples} samples in {count} steps of {job.global_batch}"
            )
        samples_per_second = samples / seconds
        return samples

    def readings() -> dict[str, float | int]:
        answers = ranks.ask("read")
        found = {"loss": statistics.fmean(answer["loss"] for answer in answers)}
        if peaks := [peak for answer in answers for peak in answer["peak_gpu_bytes"].values()]:
            found["peak_bytes_a_gpu"] = max(peaks)
        if alone is not None:
            found["scaling_efficiency"] = samples_per_second / (alone * job.replicas)
        return found

    def prepare(count: int) -> None:
        ranks.ask("prepare", steps=count)

    return Work(
        step=lambda: steps(1),
        steps=steps,
        evidence=lambda: evidence(job, ranks.ask("show")),
        prepare=prepare,
        readings=readings,
        close=ranks.close,
    )


def _timed(work: Callable[[], int], context: Context) -> tuple[int, float]:
    """What ``work`` returns, and its seconds by the context's stopwatch, NaN without one."""
    if context.stopwatch is None:
        return work(), math.nan
    done: list[int] = []
    seconds = context.stopwatch(lambda: done.append(work()))
    return done[0], seconds


def _samples_per_second_alone(ranks: Ranks, context: Context) -> float | None:
    """What one replica does while the others rest; None without a stopwatch."""
    if context.stopwatch is None:
        return None
    ranks.ask("work alone", steps=_ALONE_STEPS)
    samples, seconds = _timed(lambda: sum(ranks.ask("work alone", steps=_ALONE_STEPS)), context)
    return samples / seconds


def evidence(job: Job, shown: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the ranks saw of a turn, as one; TreatmentNotApplied where the job is another.

    ``shown``: the answers to "show" by rank.
    """
    for rank, seen in enumerate(shown):
        if seen["world_size"] != job.ranks:
            raise TreatmentNotApplied(
                f"rank {rank} is one of {seen['world_size']}, not of {job.ranks}"
            )
        if job.wrap != "plain" and seen["wrap"] != job.wrap:
            raise TreatmentNotApplied(f"rank {rank} trains a {seen['wrap']}, not a {job.wrap}")
        if seen["threads"] != job.threads_a_rank:
            raise TreatmentNotApplied(
                f"rank {rank} computes with {seen['threads']} threads, not {job.threads_a_rank}"
            )
        devices = seen["samples_by_device"]
        kinds = {device.partition(":")[0] for device in devices}
        shares = set(devices.values())
        wanted = 1 if job.kind == "cpu" else job.replicas_a_rank
        if kinds != {job.kind} or len(devices) != wanted or len(shares) != 1:
            raise TreatmentNotApplied(
                f"rank {rank} should train {wanted} equal shares on {job.kind}: {devices}"
            )
    counts = [seen["samples"] for seen in shown]
    if len(set(counts)) != 1:
        raise TreatmentNotApplied(f"the ranks did {counts} samples instead of equal shares")
    weights = [seen["weights"] for seen in shown]
    if not all(math.isclose(weight, weights[0], rel_tol=1e-6) for weight in weights):
        raise TreatmentNotApplied(f"the ranks' weights went apart: their sums are {weights}")
    first = shown[0]
    return {
        "launcher": "torch.distributed elastic launcher",
        "nodes": job.nodes,
        "world_size": first["world_size"],
        "backend": first["backend"],
        "wrap": first["wrap"],
        "global_batch": job.global_batch,
        "samples": sum(counts),
        "samples_by_rank": counts,
        "samples_by_device": [seen["samples_by_device"] for seen in shown],
        "threads_by_rank": [seen["threads"] for seen in shown],
        "equal_weights": True,
        "peak_gpu_bytes": [seen["peak_gpu_bytes"] for seen in shown],
        "tf32_convolutions": first["tf32_convolutions"],
        "tf32_matmuls": first["tf32_matmuls"],
    }
