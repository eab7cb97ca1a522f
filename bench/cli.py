"""The command line. It imports nothing heavy before a command needs it."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from bench.errors import UserError

app = typer.Typer(
    name="python -m bench",
    help="Measures what each well-known PyTorch training tip is worth on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ProfileOption = Annotated[str, typer.Option(help="smoke, quick or full.")]
DataOption = Annotated[
    Path | None, typer.Option(help="Your own folder of images, flat or a folder a class.")
]
StorageOption = Annotated[
    list[Path] | None,
    typer.Option(help="A place to compare in the tip `storage`, the baseline first; repeatable."),
]

ModelOption = Annotated[
    str | None,
    typer.Option(
        help="A classification model of torchvision's, module:function or path/to/file.py:function."
    ),
]
ImageSizeOption = Annotated[int, typer.Option(help="Side of the images in pixels.")]
BatchSizeOption = Annotated[
    int | None, typer.Option(help="Images a batch; 32 on CUDA, 8 on the CPU by default.")
]
DeviceOption = Annotated[
    str | None, typer.Option(help="cpu, cuda or cuda:1; the GPU where there is one by default.")
]


@app.command()
def run(
    tips: Annotated[str | None, typer.Option(help="Only these tips: ids, with commas.")] = None,
    profile: ProfileOption = "quick",
    budget: Annotated[str | None, typer.Option(help="End after this time: 90s, 8m, 1h.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run folder; its own options count.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of turns and images.")] = 0,
    margin: Annotated[float, typer.Option(help="Effects smaller than this are none.")] = 0.03,
    data: DataOption = None,
    storage: StorageOption = None,
    model: ModelOption = None,
    image_size: ImageSizeOption = 224,
    batch_size: BatchSizeOption = None,
    device: DeviceOption = None,
    nnodes: Annotated[int, typer.Option(help="Machines that take part, in DDP tips.")] = 1,
    node_rank: Annotated[
        int, typer.Option(help="Which one this is; 0 measures, the others take part.")
    ] = 0,
    rdzv_endpoint: Annotated[
        str | None, typer.Option(help="Where they meet: HOST:PORT of node 0.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; results/local/… by default.")
    ] = None,
) -> None:
    """Measure the tips and write the report. Exits 1 when something failed."""
    import pytest

    from bench.options import Options, parse_budget
    from bench.pytest_plugin import CATALOGUE
    from bench.session import Session

    Session(
        Options(
            profile=profile,
            budget_seconds=None if budget is None else parse_budget(budget),
            seed=seed,
            margin=margin,
            data=data,
            out=out,
            resume=resume,
            storage=tuple(storage or ()),
            model=model,
            image_size=image_size,
            batch_size=batch_size,
            device=device,
            nnodes=nnodes,
            node_rank=node_rank,
            rdzv_endpoint=rdzv_endpoint,
            tips=tuple(tips.split(",")) if tips is not None else (),
        )
    )
    chosen = {
        "tips": tips,
        "profile": profile,
        "budget": budget,
        "resume": resume,
        "seed": seed,
        "margin": margin,
        "data": data,
        "model": model,
        "image-size": image_size,
        "batch-size": batch_size,
        "device": device,
        "nnodes": nnodes,
        "node-rank": node_rank,
        "rdzv-endpoint": rdzv_endpoint,
        "out": out,
    }
    arguments = [f"--bench-{name}={value}" for name, value in chosen.items() if value is not None]
    arguments += [f"--bench-storage={place}" for place in storage or ()]
    # The verdict table stands for pytest's dots and for pytest-benchmark's table.
    quiet = ["-p", "no:terminal", "-p", "no:cacheprovider", "--benchmark-quiet"]
    code = pytest.main(
        [str(CATALOGUE), "--benchmark-only", "-p", "bench.pytest_plugin", *quiet, *arguments]
    )
    raise typer.Exit(int(code))


@app.command()
def tips(storage: StorageOption = None, device: DeviceOption = None) -> None:
    """List the catalogue: what is measurable here, and why the rest isn't."""
    from bench import live
    from bench.options import Options
    from bench.reporting import screen
    from bench.session import Session

    options = Options(profile="smoke", storage=tuple(storage or ()), device=device)
    with Session(options) as session:
        # Some needs are only seen by trying: a cold read takes files.
        session.context = dataclasses.replace(session.context, images=session.images())
        unmet = session.unmet_needs(session.tips) | session.unmet_workloads(session.tips)
        live.print_catalogue(screen.console(), session.tips, unmet)


@app.command()
def env(
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")] = False,
) -> None:
    """Ask what about this machine would spoil results. Exits 1 when something would."""
    from bench import live
    from bench.options import Options
    from bench.reporting import screen
    from bench.session import Session

    with Session(Options(tips=("environment",))) as session:
        answers = session.answers(session.tips[0])
        machine = session.environment
    if as_json:
        live.print_json(machine, answers)
    else:
        console = screen.console()
        live.print_machine(console, machine)
        live.print_answers(console, answers)
    spoilt = any(answer.verdict == "fail" or answer.status == "failed" for answer in answers)
    raise typer.Exit(int(spoilt))


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Write effects.csv, report.html, report.md and the figures of a run anew."""
    from bench import reporting
    from bench.records.run_folder import RunFolder
    from bench.reporting import screen

    folder = RunFolder.existing(run)
    screen.print_verdicts(screen.console(), reporting.conclude(folder), folder)


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders or effects.csv files, the reference first.")
    ],
    fail_if_slower: Annotated[
        str | None,
        typer.Option(metavar="5%", help="Exit 1 when a tip is worth less, or slower, by more."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Its folder; results/local/compare-… by default.")
    ] = None,
) -> None:
    """Compare runs, of one machine or of thousands: where do the effects themselves differ?"""
    from bench import comparing
    from bench.reporting import screen

    raise typer.Exit(
        comparing.compare_runs(runs, out=out, slower=fail_if_slower, console=screen.console())
    )


@app.command()
def publish(
    run: Annotated[
        Path | None,
        typer.Argument(help="A run folder below results/local/, or one that is published."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether what is published is current.")
    ] = False,
) -> None:
    """Copy a run to results/<machine>/ and show it in the README; --check exits 1 when stale."""
    from bench import publishing

    if check:
        problems = publishing.stale()
        print("\n".join(problems) or "What is published is what its measurements give.")
        raise typer.Exit(int(bool(problems)))
    if run is None:
        raise UserError("publish needs a run folder.", "python -m bench publish results/local/…")
    print(publishing.publish(run))


@app.command()
def profile(
    out: Annotated[
        Path | None, typer.Option(help="Its folder; results/local/…/profile-… by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the images' order and crops.")] = 0,
    data: DataOption = None,
    model: ModelOption = None,
    image_size: ImageSizeOption = 224,
    batch_size: BatchSizeOption = None,
    device: DeviceOption = None,
) -> None:
    """Show where a training step's time goes: a trace, the costliest operators, the shares."""
    from bench import profile_command
    from bench.options import Options
    from bench.reporting import screen

    options = Options(
        seed=seed,
        data=data,
        out=out,
        model=model,
        image_size=image_size,
        batch_size=batch_size,
        device=device,
    )
    profile_command.profile(options, screen.console())


@app.command()
def selfcheck(
    quick: Annotated[bool, typer.Option("--quick", help="Minutes instead of about 100.")] = False,
    trials: Annotated[
        int | None, typer.Option(min=2, help="Trials a workload: 60, with --quick 4.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where its figures go.")] = Path("selfcheck.csv"),
    seed: Annotated[int, typer.Option(help="Seed of the order of turns.")] = 0,
) -> None:
    """Measure the suite itself: false verdicts, planted slow-downs, overhead, freezing."""
    from bench.reporting import screen
    from bench.selfcheck import check

    usual, repeats = (4, 6) if quick else (60, 80)
    console = screen.console()
    raise typer.Exit(
        check(trials=trials or usual, repeats=repeats, out=out, seed=seed, console=console)
    )


def main() -> None:
    """Run the command line; a UserError ends it with two lines and exit code 2."""
    try:
        app()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
