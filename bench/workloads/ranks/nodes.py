"""Several machines: the first one measures, the others take part in its jobs.

Imported by the runner, so torch is imported only where a function needs it.
"""

import time
from datetime import timedelta

from bench.workloads.ranks import stores
from bench.workloads.ranks.job import Job
from bench.workloads.work import Context, WorkFailed

OVER = "over"
"""What stands in a job's place when the first machine is done."""
_LOOK_SECONDS = 5.0
_IDLE_LOOKS = 360
_BETWEEN_JOBS_SECONDS = 0.2
_GOODBYE_SECONDS = 10.0


def serve(context: Context, node_rank: int) -> int:
    """Take part in the first machine's jobs until it is done; returns how many there were.

    WorkFailed when it isn't heard of for half an hour, or its name doesn't resolve.
    """
    from bench.workloads.ranks.launcher import Launcher

    assert context.rdzv_endpoint is not None
    host, port = stores.host_and_port(context.rdzv_endpoint)
    served: list[str] = []
    while True:
        launcher = Launcher()
        try:
            found = _next_job(host, port, served, node_rank)
            if found is None:
                return len(served)
            launcher.launch(found, context, host, port)
            launcher.wait()
            served.append(found.id)
        finally:
            launcher.end(patience=0.0)


def dismiss(context: Context) -> None:
    """Tell the other machines that the first one is done, and wait shortly for their answers."""
    assert context.rdzv_endpoint is not None
    host, port = stores.host_and_port(context.rdzv_endpoint)
    store = stores.open_store(host, port)
    store.set(stores.JOB, OVER)
    goodbyes = [_goodbye(rank) for rank in range(1, context.nnodes)]
    stores.heard(store, goodbyes, _GOODBYE_SECONDS)


def _goodbye(node_rank: int) -> str:
    return f"goodbye/{node_rank}"


def _next_job(host: str, port: int, served: list[str], node_rank: int) -> Job | None:
    """The next job that this machine hasn't served, or None when there will be no more."""
    stores.own_address(host, port)
    for _ in range(_IDLE_LOOKS):
        try:
            store = stores.join_store(host, port, timedelta(seconds=_LOOK_SECONDS))
            text = store.get(stores.JOB).decode()
        except RuntimeError:
            # Between two jobs nobody listens.
            time.sleep(_BETWEEN_JOBS_SECONDS)
            continue
        if text == OVER:
            store.set(_goodbye(node_rank), "")
            return None
        job = Job.from_json(text)
        if job.id not in served:
            return job
        time.sleep(_BETWEEN_JOBS_SECONDS)
    minutes = _IDLE_LOOKS * _LOOK_SECONDS / 60
    raise WorkFailed(f"nothing was heard of the first node at {host}:{port} in {minutes:.0f} min")
