"""``python -m bench profile``: where the time of the loader and the training step goes."""

import csv
import dataclasses
import functools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.engine import clock
from bench.engine.processes import ArmFailed
from bench.errors import UserError
from bench.options import Options
from bench.records.privacy import scrub
from bench.records.run_folder import RESULTS, RunFolder, unused_folder
from bench.session import Session
from bench.workloads.work import Context
from bench.workloads.workers import usual_workers

PHASES = ("data_wait", "copy", "compute")
STEPS = 20
"""Timed steps: enough for the batches that the workers had ready to be a small part."""
COSTLIEST = 10
_SECONDS = 600.0
_TABLE = ("operator", "calls", "self_cpu_seconds", "self_device_seconds", "share")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator in the recorded steps, without the operators that it called.

    ``share`` is its part of all operators' time, on the device where that is a GPU.
    """

    name: str
    calls: int
    self_cpu_seconds: float
    self_device_seconds: float | None
    share: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profiled:
    """What was found: seconds a step by phase, the costliest operators, what could be written."""

    seconds_a_step: Mapping[str, float]
    operators: Sequence[Operator]
    has_scalars: bool

    @property
    def shares(self) -> dict[str, float]:
        """Each phase's part of a step; together they are 1."""
        whole = sum(self.seconds_a_step.values())
        return {phase: seconds / whole for phase, seconds in self.seconds_a_step.items()}


def profile(options: Options, console: Console) -> None:
    """Profile the training that ``options`` describe and leave the files in its folder.

    Raises UserError where the model or the batch cannot be trained.
    """
    with Session(options) as session:
        context = dataclasses.replace(session.context, images=session.images())
        name = session.environment["machine_name"]
        place = options.out or unused_folder(RESULTS / "local" / name, "profile-")
        folder = RunFolder.new(place, results=RESULTS, machine_name=name).path
        try:
            found: Profiled = session.processes.call(
                record, context, folder.absolute(), cores=session.cores, timeout=_SECONDS
            )
        except ArmFailed as failure:
            raise UserError(
                f"The training cannot be profiled: {scrub(failure.reason)}",
                "Try another --model, --image-size or --batch-size.",
            ) from failure
    show(console, found, folder)


def record(context: Context, folder: Path) -> Profiled:
    """Inside an arm: time the phases of a step, record the article's recipe, write the files."""
    from bench.workloads import loaders, profiled, training

    on_cuda = context.device.startswith("cuda")
    batches = loaders.usual_batches(context, num_workers=usual_workers(context), pin_memory=on_cuda)
    train = training.training_step(context)
    try:
        seconds = _phases(batches, train, context.device)
        train.readings()
        operators: list[Operator] = []

        def on_trace(running: Any) -> None:
            running.export_chrome_trace(str(folder / "trace.json"))
            operators.extend(costliest(running.key_averages(), on_cuda=on_cuda))

        recipe = profiled.RECIPE
        with profiled.profiler(recipe, context.device, on_trace) as running:
            for _ in range(recipe.cycle):
                _marked_step(batches, train, context.device)
                running.step()
    finally:
        batches.close()
    held = profiled.trace_contents(folder / "trace.json")
    profiled.check_contents(held, recipe, context.device)
    log = folder / "tensorboard"
    log.mkdir()
    # The name that TensorBoard's profiler page looks for.
    shutil.copyfile(folder / "trace.json", log / "training.pt.trace.json")
    found = Profiled(seconds_a_step=seconds, operators=operators, has_scalars=False)
    _write(folder / "operators.csv", _TABLE, map(dataclasses.astuple, operators))
    _write(
        folder / "shares.csv",
        ("phase", "seconds_a_step", "share"),
        ((phase, seconds[phase], share) for phase, share in found.shares.items()),
    )
    return dataclasses.replace(found, has_scalars=write_scalars(log, found.shares))


def costliest(averages: Iterable[Any], *, on_cuda: bool) -> list[Operator]:
    """The ten operators with the most time of their own, from torch's ``key_averages``."""
    # Autograd's own nodes only call operators, and annotations have no namespace. Kernels are
    # rows of their own, of the device, and their time is that of the operators that began them.
    kept = [
        entry
        for entry in averages
        if "::" in entry.key
        and not entry.key.startswith("autograd::engine")
        and entry.device_type.name == "CPU"
    ]

    def own(entry: Any) -> float:
        return float(entry.self_device_time_total if on_cuda else entry.self_cpu_time_total)

    whole = sum(map(own, kept))
    return [
        Operator(
            name=entry.key,
            calls=entry.count,
            self_cpu_seconds=entry.self_cpu_time_total / 1e6,
            self_device_seconds=entry.self_device_time_total / 1e6 if on_cuda else None,
            share=own(entry) / whole if whole else 0.0,
        )
        for entry in sorted(kept, key=own, reverse=True)[:COSTLIEST]
    ]


def write_scalars(log: Path, shares: Mapping[str, float]) -> bool:
    """Write the shares as TensorBoard scalars ``step_share/…``; False without tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return False
    with SummaryWriter(log_dir=str(log)) as writer:
        for phase, share in shares.items():
            writer.add_scalar(f"step_share/{phase}", share, global_step=0)
    for path in log.glob("events.out.tfevents.*"):
        # The name that tensorboard gives it holds the host's.
        path.rename(log / "events.out.tfevents.shares")
    return True


def show(console: Console, found: Profiled, folder: Path) -> None:
    """Print the shares, the operators and where the files are."""
    console.print("[bold]A step[/bold], each part waited for, so that nothing overlaps")
    for phase, share in found.shares.items():
        seconds = found.seconds_a_step[phase]
        console.print(f"  {phase.replace('_', ' '):10} {share:6.1%}  {seconds * 1e3:8.1f} ms")
    table = Table(title="The costliest operators", title_justify="left", title_style="bold")
    table.add_column("operator")
    has_gpu = any(row.self_device_seconds is not None for row in found.operators)
    for name in ("calls", "own CPU ms", *(["own GPU ms"] if has_gpu else []), "share"):
        table.add_column(name, justify="right")
    for row in found.operators:
        device = row.self_device_seconds
        table.add_row(
            row.name,
            str(row.calls),
            f"{row.self_cpu_seconds * 1e3:.1f}",
            *([] if device is None else [f"{device * 1e3:.1f}"]),
            f"{row.share:.1%}",
        )
    console.print(table)
    console.print(f"Trace: {folder / 'trace.json'} (open it at https://ui.perfetto.dev)")
    console.print(f"TensorBoard: tensorboard --logdir {folder / 'tensorboard'}")
    console.print("The trace names this host and its files: think before you publish it.")
    if not found.has_scalars:
        console.print(
            "The shares are not in it as scalars: tensorboard isn't installed. "
            "Install it: .venv/bin/python -m pip install tensorboard"
        )


def _phases(batches: Any, train: Any, device: str) -> dict[str, float]:
    """Mean seconds a step that pass in each phase, without a profiler, after a warm-up."""
    warm_up = 2 + 2 * batches.loader.num_workers
    totals = dict.fromkeys(PHASES, 0.0)
    for number in range(warm_up + STEPS):
        batch, waited = clock.timed(batches.next, device)
        moved, copied = clock.timed(functools.partial(_copy, batch, device), device)
        _, computed = clock.timed(functools.partial(train, *moved), device)
        if number >= warm_up:
            for phase, seconds in zip(PHASES, (waited, copied, computed), strict=True):
                totals[phase] += seconds / STEPS
    return totals


def _marked_step(batches: Any, train: Any, device: str) -> None:
    """A step whose phases have their names in the trace."""
    from torch.profiler import record_function

    with record_function("data_wait"):
        batch = batches.next()
    with record_function("copy"):
        moved = _copy(batch, device)
    with record_function("compute"):
        train(*moved)


def _copy(batch: Any, device: str) -> tuple[Any, Any]:
    return (
        batch.images.to(device, non_blocking=True),
        batch.labels.to(device, non_blocking=True),
    )


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
