"""The TCPStore on which agents meet and ranks wait: opened in the arm, joined from elsewhere."""

import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from bench.workloads.ranks.job import Job
from bench.workloads.work import Context, WorkFailed

if TYPE_CHECKING:
    from torch.distributed import TCPStore

JOB = "job"
FAILED = "failed"
"""Why a rank or a launcher gave up, the first of them."""
KILLED = "killed"
"""Which rank was killed: the cause, where others fail because it is gone."""

LOOPBACK = "127.0.0.1"
CONNECT = timedelta(seconds=20)
WAIT_FOR_EVER = timedelta(days=7)
"""A rank's patience with its arm, which may be frozen for long; a dead arm ends the connection."""
_ATTEMPTS = 10
_BETWEEN_ATTEMPTS_SECONDS = 0.5


def host_and_port(endpoint: str) -> tuple[str, int]:
    """The parts of HOST:PORT; ValueError for anything else."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"{endpoint!r} is not HOST:PORT")
    return host, int(port)


def address_of(job: Job, context: Context) -> tuple[str, int]:
    """Where the job's store listens; port 0 is any free one."""
    if job.nodes == 1:
        return LOOPBACK, 0
    assert context.rdzv_endpoint is not None
    return host_and_port(context.rdzv_endpoint)


def own_address(host: str, port: int) -> str:
    """This machine's address as ``host`` sees it; WorkFailed for a name that doesn't resolve."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        raise WorkFailed(f"the host name {host!r} does not resolve: {error.strerror}") from None
    with socket.socket(family, kind) as probe:
        try:
            probe.connect(address)
        except OSError as error:
            raise WorkFailed(f"there is no way to {host}: {error.strerror}") from None
        return str(probe.getsockname()[0])


def open_store(host: str, port: int) -> "TCPStore":
    """A store that listens on ``port``. A busy port is tried again for some seconds, then fails."""
    from torch.distributed import TCPStore

    own_address(host, port)
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_BETWEEN_ATTEMPTS_SECONDS)
        try:
            return TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=CONNECT)
        except RuntimeError as error:
            problem = str(error).partition("\n")[0]
            if "EADDRINUSE" not in problem and "in use" not in problem:
                break
    raise WorkFailed(f"the ranks cannot meet at {host}:{port}: {problem}")


def join_store(host: str, port: int, timeout: timedelta = CONNECT) -> "TCPStore":
    """The store that listens at ``host``:``port``; RuntimeError when there is none in time."""
    from torch.distributed import TCPStore

    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)


def say_once(store: "TCPStore", key: str, text: str) -> None:
    """Set ``key`` unless another was first."""
    store.compare_set(key, "", text)


def heard(store: "TCPStore", keys: list[str], seconds: float) -> bool:
    """Whether all ``keys`` are there within ``seconds``; returns as soon as they are."""
    from torch.distributed import DistStoreError

    try:
        store.wait(keys, timedelta(seconds=seconds))
    except DistStoreError:
        return False
    return True
