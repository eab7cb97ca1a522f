"""Inside an arm: the preamble, and the loop that answers the runner.

The same loop serves arms that were forked from the nursery and arms with an interpreter of their
own (``python -m bench.engine.arm FD``). The first message is the runner's ``sys.path``, so that
all others can be unpickled; then come the messages below, each answered by one reply or by
``Failed``, after which the arm ends.
"""

import dataclasses
import importlib
import math
import multiprocessing
import os
import signal
import statistics
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from bench.engine import clock, tree
from bench.errors import UserError
from bench.records.measurements import READINGS
from bench.workloads import heap
from bench.workloads.work import Context, TreatmentNotApplied, Work, WorkFailed

FEWEST_FOR_P99 = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settle:
    """The preamble: bind to ``cores``, use ``threads`` threads, log to ``log``.

    ``threads``: None leaves torch's own default. ``layout`` draws how memory lies; None leaves
    it alone, where memory is what is read.
    """

    cores: tuple[int, ...]
    threads: int | None
    log: str
    layout: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Build:
    """Build the work of a variant with these settings."""

    build: Callable[[Mapping[str, Any], Context], Work]
    settings: Mapping[str, Any]
    context: Context


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Do one step, then whole periods for at least ``seconds``; all of it is discarded.

    Longer where the work itself asks for more steps of warm-up.
    """

    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One turn of ``steps`` steps. ``freezes``: workers stand still as soon as the clock stops."""

    steps: int
    freezes: bool = True
    with_evidence: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """Call a function that has no place in the runner, because it imports or may crash."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Close:
    """End the work's own processes and files; the arm is killed after the answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmedUp:
    """How the work goes: its first step (start-up), and its fastest period of the warm-up."""

    startup_seconds: float | None
    period_seconds: float
    period_steps: int
    period_samples: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """What a turn did. Peak bytes are those of the turn, None without CUDA."""

    samples: int
    seconds: float
    readings: Mapping[str, float | int]
    evidence: Mapping[str, Any] | None
    peak_gpu_allocated_bytes: int | None
    peak_gpu_reserved_bytes: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failed:
    """Why the arm cannot go on. ``kind`` "memory": it may run with fewer siblings."""

    reason: str
    kind: Literal["treatment", "work", "memory", "error"]


def serve(connection: Connection) -> None:
    """Answer the runner until it closes the connection or an answer is ``Failed``."""
    sys.path.extend(path for path in connection.recv() if path not in sys.path)
    work: Work | None = None
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        try:
            reply: object = None
            if not (isinstance(message, Run) and work and work.stops_workers):
                tree.thaw(_children())
            match message, work:
                case Settle(), _:
                    _settle(message)
                case Call(), _:
                    reply = _answer(message)
                case Build(), _:
                    _choose_gpu(message.context.device)
                    work = message.build(message.settings, message.context)
                case WarmUp(), Work():
                    reply = _warm_up(work, message.seconds)
                case Run(), Work():
                    reply = _turn(work, message)
                case Close(), Work():
                    work.close()
            connection.send(reply)
        except Exception as error:
            connection.send(_failure(error))
            return


def _children() -> list[int]:
    """All descendants of this process; frozen while the arm waited."""
    return tree.tree(os.getpid())[1:]


def _answer(call: Call) -> Any:
    """What the call returns, or the UserError that it raises."""
    try:
        return call.function(*call.arguments)
    except UserError as error:
        return error


def _settle(settle: Settle) -> None:
    # A session of its own keeps the terminal's Ctrl-C away; the runner decides when an arm ends.
    if os.getpid() != os.getsid(0):
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = os.open(settle.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(settle.environment)
    heap.settle()
    if settle.layout is not None:
        heap.shuffle(settle.layout)
    # Affinity comes first: torch sizes its thread pool by what it finds here.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, settle.cores)
    multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)
    if settle.threads is not None and (torch := sys.modules.get("torch")):
        torch.set_num_threads(settle.threads)


def _choose_gpu(device: str) -> None:
    """Make ``cuda:1`` what libraries take that are told just ``cuda``."""
    if ":" in device:
        importlib.import_module("torch").cuda.set_device(device)


def _warm_up(work: Work, seconds: float) -> WarmedUp:
    work.prepare(1)
    _, startup = clock.timed(work.step, work.device)
    periods: list[float] = []
    while not periods or sum(periods) < seconds or len(periods) * work.period < work.warm_up_steps:
        work.prepare(work.period)
        samples, period_seconds = clock.timed(lambda: _steps(work, work.period), work.device)
        periods.append(period_seconds)
    if samples < 1:
        raise WorkFailed(f"did {samples} samples in {work.period} steps")
    return WarmedUp(
        startup_seconds=startup,
        # What disturbs a period only makes it longer, and turns are as long as this says.
        period_seconds=min(periods),
        period_steps=work.period,
        period_samples=samples,
    )


def _turn(work: Work, run: Run) -> Ran:
    cuda = sys.modules["torch"].cuda if work.device.startswith("cuda") else None
    work.prepare(run.steps)
    if cuda:
        cuda.reset_peak_memory_stats(work.device)
    # What they did before the clock starts or after it stops would be had for free.
    workers = _children() if work.stops_workers else []
    tree.thaw(workers)
    if work.times_steps:
        samples, seconds, latencies = _timed_steps(work, run.steps)
    else:
        samples, seconds = clock.timed(lambda: _steps(work, run.steps), work.device)
        latencies = {}
    if run.freezes:
        tree.stop(workers)
    allocated = cuda.max_memory_allocated(work.device) if cuda else None
    reserved = cuda.max_memory_reserved(work.device) if cuda else None
    readings = {**work.readings(), **latencies}
    if unknown := set(readings) - set(READINGS):
        raise WorkFailed(f"readings without a column: {', '.join(sorted(unknown))}")
    return Ran(
        samples=samples,
        seconds=seconds,
        readings=readings,
        evidence=work.evidence() if run.with_evidence else None,
        peak_gpu_allocated_bytes=allocated,
        peak_gpu_reserved_bytes=reserved,
    )


def _timed_steps(work: Work, count: int) -> tuple[int, float, dict[str, float]]:
    """Samples, seconds and the steps' latencies, each step timed by itself."""
    timed = [clock.timed(work.step, work.device) for _ in range(count)]
    seconds = sorted(seconds for _, seconds in timed)
    latencies = {"latency_p50_seconds": statistics.median(seconds)}
    # Of fewer calls it would be the slowest, which is another thing the fewer there are.
    if count >= FEWEST_FOR_P99:
        latencies["latency_p99_seconds"] = seconds[math.ceil(0.99 * count) - 1]
    return sum(samples for samples, _ in timed), sum(seconds), latencies


def _steps(work: Work, count: int) -> int:
    if work.steps is not None:
        return work.steps(count)
    step = work.step
    samples = 0
    for _ in range(count):
        samples += step()
    return samples


def _failure(error: Exception) -> Failed:
    traceback.print_exc()
    match error:
        case TreatmentNotApplied():
            return Failed(reason=f"the treatment was not applied: {error}", kind="treatment")
        case WorkFailed():
            return Failed(reason=str(error), kind="work")
        case UserError():
            return Failed(reason=f"{error.problem} {error.fix}", kind="work")
        case StopIteration():
            return Failed(reason="the work ran dry: fewer samples than asked for", kind="work")
    first_line = str(error).strip().partition("\n")[0]
    reason = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    out_of_memory = isinstance(error, MemoryError) or any(
        sign in first_line.lower() for sign in ("out of memory", "can't allocate memory")
    )
    return Failed(reason=reason, kind="memory" if out_of_memory else "error")


def main(descriptor: int) -> None:
    """Serve the connection that the runner left open as ``descriptor``."""
    serve(Connection(descriptor))


if __name__ == "__main__":
    # Messages are unpickled by module name, so that name must be this module.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    importlib.import_module("bench.engine.arm").main(int(sys.argv[1]))
