"""torch's elastic launcher in a process of its own: it starts the ranks and watches over them."""

import contextlib
import dataclasses
import multiprocessing
import os
from multiprocessing.connection import Connection

import psutil

from bench.workloads.ranks import rank, stores
from bench.workloads.ranks.job import Job
from bench.workloads.work import Context

_STORE_SECONDS = 600
"""The agents' patience with the store: its arm is frozen while it isn't on turn."""


class Launcher:
    """A child of this process, forked before there is any thread, that runs the launcher.

    It starts nothing before ``launch``.
    """

    def __init__(self) -> None:
        self._orders, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_wait_and_launch, args=(theirs, self._orders)
        )
        self._process.start()
        theirs.close()

    def launch(self, job: Job, context: Context, host: str, port: int) -> None:
        """Start this machine's ranks of ``job``; they meet the others at ``host``:``port``."""
        self._orders.send((job, dataclasses.replace(context, stopwatch=None), host, port))

    @property
    def is_alive(self) -> bool:
        """Whether it still watches over ranks, or waits for an order."""
        return self._process.is_alive()

    def wait(self, seconds: float | None = None) -> None:
        """Until it has ended by itself, or for so many seconds."""
        self._process.join(seconds)

    def end(self, patience: float) -> None:
        """Let it end by itself for so many seconds, then kill it and its ranks."""
        self._orders.close()
        self.wait(patience)
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                process.kill()
        self._process.kill()
        self.wait()


def _wait_and_launch(orders: Connection, parents_end: Connection) -> None:
    parents_end.close()
    try:
        job, context, host, port = orders.recv()
    except EOFError:
        return
    try:
        _launch(job, context, host, port)
    except Exception as error:
        key, reason = _why(error)
        stores.say_once(stores.join_store(host, port), key, reason)
        raise


def _launch(job: Job, context: Context, host: str, port: int) -> None:
    # Ranks that are interpreters of their own read it when they import torch.
    os.environ["OMP_NUM_THREADS"] = str(job.threads_a_rank)
    address = stores.own_address(host, port)
    # gloo would look this machine's own name up, which need not resolve to anything.
    if interface := _interface(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if job.kind == "cpu":
        # The launcher looks for accelerators, and CUDA doesn't survive the fork of a rank.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""

    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=job.nodes,
        max_nodes=job.nodes,
        nproc_per_node=job.ranks_a_node,
        run_id=job.id,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{host}:{port}",
        rdzv_configs={"is_host": False, "read_timeout": _STORE_SECONDS},
        local_addr=address,
        max_restarts=0,
        # Forked ranks have torch already; ranks on CUDA are interpreters of their own.
        start_method="fork" if job.kind == "cpu" else "spawn",
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
    )
    elastic_launch(config, rank.serve)(job, context, host, port)


def _interface(address: str) -> str | None:
    """The network interface that has ``address``."""
    interfaces = psutil.net_if_addrs().items()
    return next((n for n, found in interfaces if address in {f.address for f in found}), None)


def _why(error: Exception) -> tuple[str, str]:
    """A launcher's failure in words, with its key in the store."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if not isinstance(error, ChildFailedError):
        first_line = str(error).partition("\n")[0]
        return stores.FAILED, f"the launcher ended with {type(error).__name__}: {first_line}"
    number, failure = error.get_first_failure()
    if failure.exitcode < 0:
        return stores.KILLED, f"rank {number} was killed by {failure.signal_name()}"
    return stores.FAILED, f"rank {number} ended with exit code {failure.exitcode}"
