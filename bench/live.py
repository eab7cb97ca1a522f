"""What a run shows while it goes on: the plan before it measures, then the progress."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from bench.engine import rounds
from bench.records import machine
from bench.records.measurements import Turn
from bench.records.plan import Plan
from bench.reporting.screen import STYLES
from bench.tips.tip import Tip


def print_machine(console: Console, machine: Mapping[str, Any]) -> None:
    """What people are told to print before they train: versions and devices."""
    console.print(
        f"[bold]{machine['cpu_model']}[/bold], usable cores: {machine['usable_cores']}, "
        f"{machine['gpu_model'] or 'no GPU'}"
    )
    names = (
        *("python_version", "torch_version", "torchvision_version"),
        *("cuda_version", "cudnn_version", "driver_version"),
    )
    versions = (
        f"{name.removesuffix('_version')} {machine[name]}" for name in names if machine[name]
    )
    why = f" ({machine['cuda_reason']})" if machine["cuda_reason"] else ""
    console.print(f"{', '.join(versions)}; torch computes on: {machine['device']}{why}\n")


def print_json(machine: Mapping[str, Any], answers: Sequence[Turn]) -> None:
    """Machine and answers as one JSON object on standard output."""
    content = {
        "machine": dict(machine),
        "answers": [
            {
                "question": answer.variant,
                "verdict": answer.verdict or answer.status,
                "reason": answer.reason,
                "evidence": answer.evidence,
            }
            for answer in answers
        ],
    }
    print(json.dumps(content, ensure_ascii=False, indent=1))


def print_plan(
    console: Console,
    plan: Plan,
    device: Mapping[str, Any],
    expected_seconds: float,
    *,
    gpu_processes: int | None,
) -> None:
    """The machine, what will be measured, what can't be and why, and how long it will take.

    ``gpu_processes``: how many processes of others are on the GPU; None where nobody knows.
    """
    gpu = device["gpu_model"] or f"no GPU ({device['cuda_reason']})"
    console.print(
        f"[bold]{machine.cpu_model()}[/bold], {machine.usable_cores()} usable cores, {gpu}"
    )
    if gpu_processes:
        console.print(
            f"[bold yellow]Others use the GPU now: {gpu_processes} "
            f"{'process' if gpu_processes == 1 else 'processes'}. What they do takes from what is "
            "measured.[/bold yellow]"
        )
    images = plan.images
    console.print(
        f"{images['count']} images ({images['name']}, {images['total_bytes'] / 2**20:.0f} MiB)"
        + "".join(f"; left out: {len(names)} {kind}" for kind, names in images["left_out"].items())
    )
    checks = [tip for tip in plan.tips if tip.is_check]
    compared = [tip for tip in plan.tips if not tip.is_check]
    measurable = sum(v.reason is None for tip in compared for v in tip.variants)
    asked = sum(v.reason is None for tip in checks for v in tip.variants)
    console.print(
        f"Profile {plan.profile}: {measurable} variants of {len(compared)} tips, "
        + (f"{asked} questions of {len(checks)} checks, " if checks else "")
        + f"about {format_minutes(expected_seconds)}"
    )
    for tip in plan.tips:
        for reason, names in _by_reason(tip.variants).items():
            all_of_it = len(names) == len(tip.variants)
            which = tip.id if all_of_it else f"{tip.id}: {', '.join(names)}"
            console.print(f"  [dim]not measurable here: {which}: {reason}[/dim]")
        for workload in tip.workloads:
            if workload.reason is not None:
                which = f"{tip.id}, {workload.name}"
                console.print(f"  [dim]not measurable here: {which}: {workload.reason}[/dim]")


def print_answers(console: Console, answers: Sequence[Turn]) -> None:
    """A check's questions with their answers and remedies."""
    for answer in answers:
        verdict = answer.verdict or answer.status
        console.print(
            Text.assemble((f"{verdict:20}", STYLES.get(verdict, "dim")), (answer.variant, "bold"))
        )
        console.print(Padding(Text(answer.reason or ""), (0, 0, 0, 20)))


@contextmanager
def progress(console: Console) -> Iterator[Callable[[rounds.Progress], None]]:
    """A progress line with the time left; on a screen that is no terminal, a line a round."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
        refresh_per_second=2,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("starting", total=None, left="")
        announced = 0

        def show(now: rounds.Progress) -> None:
            nonlocal announced
            tip, workload = now.group.key
            left = f"about {format_minutes(now.seconds_left)} left"
            bar.update(
                task,
                description=f"round {now.round} · {tip} · {workload}",
                completed=now.replicates_done,
                total=now.replicates_done + now.replicates_left,
                left=left,
            )
            if not console.is_terminal and now.round != announced:
                announced = now.round
                console.print(f"round {now.round}, {left}")

        yield show


def print_catalogue(
    console: Console, tips: Sequence[Tip], unmet: Mapping[tuple[str, str], str]
) -> None:
    """Every tip in the article's order: measurable, or why not, with its variants."""
    section = None
    for tip in tips:
        if tip.section != section:
            section = tip.section
            console.print(f"\n[bold]{section}[/bold]")
        names = [variant.name for variant in tip.variants]
        missing = [name for name in names if (tip.id, name) in unmet]
        if len(missing) == len(names):
            state = f"not measurable here: {unmet[tip.id, missing[-1]]}"
        else:
            state = "measurable"
        console.print(f"  [bold]{tip.id}[/bold]  {state}")
        console.print(f"    [dim]{tip.claim}[/dim]")
        for name in names:
            reason = unmet.get((tip.id, name))
            console.print(f"    · {name}" + (f"  [dim]not here: {reason}[/dim]" if reason else ""))
        for workload in tip.workloads:
            if reason := unmet.get((tip.id, workload.name)):
                console.print(f"    [dim]not here, on “{workload.name}”: {reason}[/dim]")


def format_minutes(seconds: float) -> str:
    """``40 s``, ``4 min``, ``1 h 20 min``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _by_reason(variants: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for variant in variants:
        if variant.reason is not None:
            found.setdefault(variant.reason, []).append(variant.name)
    return found
