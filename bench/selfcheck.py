"""The suite measures itself: are its verdicts right where the truth is known?

A/A: the same variant twice. Planted: every 20th or 10th item is done twice, so the true ratio is
1 / 1.05 or 1 / 1.1. Overhead: the suite against a bare loop of the same work. Freezing: a loader
in short turns, frozen between them or not, against the same loader in one long turn.
"""

import contextlib
import dataclasses
import math
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.table import Table

from bench import live
from bench.analysis.effects import effects
from bench.analysis.intervals import Interval, student_interval
from bench.bare_loop import Order
from bench.engine import tree
from bench.engine.arm import Build, Run, WarmUp
from bench.engine.processes import Arm, Processes
from bench.engine.replicate import Group, Pace
from bench.engine.rounds import Policy, run_rounds
from bench.options import Options
from bench.records import machine
from bench.records.cells import write_rows
from bench.records.effects import Effect, write_effects
from bench.records.measurements import MeasurementWriter, read_measurements
from bench.records.run_folder import ROOT
from bench.session import Session, planned_tip
from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload
from bench.workloads.known import LOADER_WORKERS, decoding, loading, training
from bench.workloads.work import Context

PACE = Pace(blocks=20, turn_seconds=0.02, warm_up_seconds=0.05)
"""A machine's speed drifts within tenths of a second: many short turns meet it more equally than
few long ones of the same work, and a planted pass of 20 items is whole after 20 turns."""
REPLICATES = 7
OVERHEAD_BLOCKS = 40
"""Starting a bare loop takes seconds, so more turns of it cost little."""
SLOW_DOWNS = {"5 % slower": 20, "10 % slower": 10}
OVERHEAD_MARGIN = 0.02
FREEZING_MARGIN = 0.03


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of ``selfcheck.csv``: a figure, what it must be, and whether it is."""

    check: str
    workload: str
    figure: str
    value: float
    ci_low: float | None = None
    ci_high: float | None = None
    trials: int
    required: str = ""
    holds: bool | None = None


WORKLOADS = (
    Workload(name="decoding", build=decoding, metrics=(THROUGHPUT,), pinned=True),
    # A few batches a turn, so that those half made at its ends are a small part of it.
    Workload(name="loading", build=loading, metrics=(THROUGHPUT,), turn_seconds=0.03),
    Workload(name="training step", build=training, metrics=(THROUGHPUT,), pinned=True),
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}


def check(*, trials: int, repeats: int, out: Path, seed: int, console: Console) -> int:
    """Run all four checks, print and write their figures; 1 when one doesn't hold, else 0.

    ``trials`` a workload for A/A and planted, ``repeats`` replicates for overhead and freezing.
    ``out`` gets the findings, ``<out>_trials.csv`` beside it every trial's effect.
    """
    with Session(Options(seed=seed)) as session:
        session.context = dataclasses.replace(session.context, images=session.images())
        console.print(
            f"{trials} trials of {REPLICATES} replicates a workload, each of {PACE.blocks} blocks; "
            f"{repeats} replicates of overhead and freezing"
        )
        own = []
        for workload in WORKLOADS:
            console.print(f"overhead: {workload.name}")
            own.append(_overhead(session, workload, repeats, seed))
        console.print("freezing")
        own += _freezing(session.context, session.cores, repeats, seed)
        # Already now: the trials take most of the time.
        write_rows(out, Finding, own)
        rows = _trials(session, trials, console)
        findings = [finding for name in BY_NAME for finding in judge_trials(name, rows, trials)]
        findings += own
    write_rows(out, Finding, findings)
    write_effects(out.with_name(f"{out.stem}_trials.csv"), rows)
    console.print(_table(findings))
    return 0 if all(finding.holds is not False for finding in findings) else 1


def judge_trials(workload: str, rows: Sequence[Effect], trials: int) -> Iterator[Finding]:
    """What the trials of one workload say: false verdicts, coverage, how much is found."""
    of_workload = [row for row in rows if row.workload == workload and not row.is_baseline]
    again = [row for row in of_workload if row.variant == "again"]
    false = [row for row in again if row.verdict not in ("no difference", "inconclusive")]
    most = math.ceil(0.1 * trials)
    yield Finding(
        check="A/A",
        workload=workload,
        figure="false verdicts",
        value=len(false),
        trials=len(again),
        required=f"at most {most}",
        holds=len(again) == trials and len(false) <= most,
    )
    widths = sorted((row.ci_high or 1) / (row.ci_low or 1) for row in again)
    yield Finding(
        check="A/A",
        workload=workload,
        figure="median half-width of the interval, %",
        value=50 * math.log(widths[len(widths) // 2]) if widths else math.nan,
        trials=len(again),
    )
    for (name, every), share in zip(SLOW_DOWNS.items(), (0.6, 0.9), strict=True):
        truth = every / (every + 1)
        planted = [row for row in of_workload if row.variant == name]
        covered = sum((row.ci_low or 0) <= truth <= (row.ci_high or 0) for row in planted)
        found = sum((row.ci_high or 1) < 1 for row in planted)
        least = math.floor(53 / 60 * trials)
        yield Finding(
            check=f"planted, {name}",
            workload=workload,
            figure="intervals that hold the true ratio",
            value=covered,
            trials=len(planted),
            required=f"at least {least}",
            holds=covered >= least,
        )
        yield Finding(
            check=f"planted, {name}",
            workload=workload,
            figure="found (interval below 1)",
            value=found,
            trials=len(planted),
            required=f"at least {share:.0%}",
            holds=found >= share * trials,
        )


def _trials(session: Session, trials: int, console: Console) -> list[Effect]:
    """Measure every trial as a tip of its own, through the whole of the engine and the analysis."""
    variants = (
        Variant(name="first"),
        Variant(name="again", recommended=True),
        *(Variant(name=name, settings={"twice_every": n}) for name, n in SLOW_DOWNS.items()),
    )
    tips = [
        Tip(
            id=f"{workload.name} {number}",
            section="A/A",
            order=number,
            claim="",
            card="",
            variants=variants,
            workloads=(workload,),
        )
        for number in range(trials)
        for workload in WORKLOADS
    ]
    groups = [Group(tip=tip, workload=tip.workloads[0], variants=variants) for tip in tips]
    plan = dataclasses.replace(
        session.new_plan([], {}),
        tips=tuple(planned_tip(tip, {}, PACE) for tip in tips),
        primary_replicates=REPLICATES,
        other_replicates=REPLICATES,
        blocks=PACE.blocks,
    )
    path = session.processes.scratch / "measurements.csv"
    writer = MeasurementWriter(path)
    bench = dataclasses.replace(session.bench(plan.run_id, writer.append), pace=PACE)
    with live.progress(console) as on_progress:
        run_rounds(
            bench,
            groups,
            Policy(primary=REPLICATES, others=REPLICATES, most=0),
            standings={},
            is_settled=lambda group, variant: True,
            on_progress=on_progress,
        )
    writer.close()
    return effects(read_measurements(path), plan, machine.environment(session.device))


def _overhead(session: Session, workload: Workload, repeats: int, seed: int) -> Finding:
    """The suite's throughput against a bare loop's, in turns, a fresh pair each replicate."""
    drawn = random.Random(seed)
    ratios = []
    for number in range(repeats):
        cores = session.cores
        if workload.pinned:
            cores = (cores[number % len(cores)],)
        order = Order(
            build=workload.build,
            context=session.context,
            cores=cores,
            threads=len(cores),
            layout=f"{seed}/{number}",
        )
        with contextlib.ExitStack() as stack:
            # In a drawn order, as arms do: who starts first can be slower for good.
            for name in drawn.sample(("suite", "bare"), 2):
                if name == "suite":
                    suite = stack.enter_context(_SuiteLoop(session.processes, order))
                else:
                    bare = stack.enter_context(_BareLoop(session.processes, order))
                    bare.warm_up()
            steps = max(1, round(PACE.turn_seconds_of(workload) / suite.seconds_a_step))
            turns = {"suite": suite.turn, "bare": bare.turn}
            totals = dict.fromkeys(turns, 0.0)
            for _ in range(OVERHEAD_BLOCKS):
                for name in drawn.sample(tuple(turns), len(turns)):
                    totals[name] += turns[name](steps)
        ratios.append(math.log(totals["bare"] / totals["suite"]))
    interval = student_interval(ratios)
    return _ratio_finding(
        check="overhead",
        workload=workload.name,
        figure="throughput in the suite / in a bare loop",
        interval=interval,
        trials=repeats,
        required="interval inside ±2 %",
        holds=max(abs(interval.low), abs(interval.high)) < math.log1p(OVERHEAD_MARGIN),
    )


class _SuiteLoop:
    """An arm that does the work, warmed up."""

    def __init__(self, processes: Processes, order: Order) -> None:
        self._processes = processes
        self._arm = processes.start(cores=order.cores, threads=order.threads, layout=order.layout)
        self._arm.ask(Build(build=order.build, settings={}, context=order.context))
        warmed_up = self._arm.ask(WarmUp(seconds=PACE.warm_up_seconds))
        self.seconds_a_step = warmed_up.period_seconds / warmed_up.period_steps

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.end(self._arm)

    def turn(self, steps: int) -> float:
        """One turn of ``steps``; its seconds."""
        return float(self._arm.ask(Run(steps=steps)).seconds)


class _BareLoop:
    """A loop of the work in a process that the engine doesn't run.

    It is stopped while it waits, or its loader would fetch batches ahead during the arm's turns.
    """

    def __init__(self, processes: Processes, order: Order) -> None:
        self._members: list[int] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.bare_loop"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            # So that it ends with the selfcheck, however that ends.
            env=processes.environment_of_arms({}),
        )
        self._send(pickle.dumps(order))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        tree.thaw(self._members)
        self._process.communicate()

    def warm_up(self) -> None:
        """Do one step, then as many as take as long as an arm's warm-up."""
        self.turn(1)
        seconds = 0.0
        while seconds < PACE.warm_up_seconds:
            seconds += self.turn(1)

    def turn(self, steps: int) -> float:
        """Loop for ``steps``; the seconds that the loop itself took."""
        assert self._process.stdout is not None
        self._send(f"{steps}\n".encode())
        tree.thaw([self._process.pid])
        _, seconds = self._process.stdout.readline().split()
        self._members = tree.freeze(self._process.pid)
        return float(seconds)

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(content)
        self._process.stdin.flush()


def _freezing(
    context: Context, cores: tuple[int, ...], repeats: int, seed: int
) -> Iterator[Finding]:
    """A loader in slices against one long turn: equal when frozen between, too fast when not.

    Two loaders take their slices in turns, as in a run, and each also its long turn: so a loader
    is compared with itself. The one that isn't frozen takes turns with one that is.
    """
    slices, steps, passes = 10, 4 * LOADER_WORKERS, 2
    order = random.Random(seed)
    gains: dict[str, list[float]] = {"frozen": [], "unfrozen": []}
    with Processes() as freezing, Processes(freezes=False) as not_freezing:

        def start(processes: Processes, number: int) -> Arm:
            arm = processes.start(cores=cores, threads=len(cores), layout=f"{seed}/{number}")
            arm.ask(Build(build=loading, settings={}, context=context))
            arm.ask(WarmUp(seconds=0.2))
            return arm

        def in_one_turn(arm: Arm) -> float:
            return float(arm.ask(Run(steps=slices * steps)).seconds)

        def in_slices(first: Arm, second: Arm, *, freezes: bool = True) -> tuple[float, float]:
            its = others = 0.0
            for _ in range(slices):
                its += first.ask(Run(steps=steps)).seconds
                others += second.ask(Run(steps=steps, freezes=freezes)).seconds
            return its, others

        for number in range(repeats):
            pair = start(freezing, number), start(freezing, number)
            continuous = frozen = unfrozen = 0.0
            for _ in range(passes):
                for name in order.sample(("continuous", "frozen"), 2):
                    if name == "continuous":
                        continuous += sum(in_one_turn(arm) for arm in pair)
                    else:
                        frozen += sum(in_slices(*pair))
            # Started last: what it fetches while others have their turn would slow them down.
            free = start(not_freezing, number)
            for _ in range(passes):
                unfrozen += len(pair) * in_slices(pair[0], free, freezes=False)[1]
            not_freezing.end(free)
            for arm in pair:
                freezing.end(arm)
            gains["frozen"].append(math.log(continuous / frozen))
            gains["unfrozen"].append(math.log(continuous / unfrozen))
    for name, its in gains.items():
        interval, margin = student_interval(its), math.log1p(FREEZING_MARGIN)
        is_equal = max(abs(interval.low), abs(interval.high)) < margin
        yield _ratio_finding(
            check="freezing",
            workload="loading",
            figure=f"throughput in {name} slices / in one turn",
            interval=interval,
            trials=repeats,
            required="interval inside ±3 %" if name == "frozen" else "interval above +3 %",
            holds=is_equal if name == "frozen" else interval.low > margin,
        )


def _ratio_finding(*, interval: Interval, **fields: Any) -> Finding:
    return Finding(
        value=math.exp(interval.mean),
        ci_low=math.exp(interval.low),
        ci_high=math.exp(interval.high),
        **fields,
    )


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Check", "Workload", "Figure", "Seen", "Of", "Required", ""):
        table.add_column(heading)
    for finding in findings:
        seen = f"{finding.value:.4g}"
        if finding.ci_low is not None:
            seen += f" [{finding.ci_low:.3f}, {finding.ci_high:.3f}]"
        holds = {True: "[green]holds[/green]", False: "[red]doesn't hold[/red]", None: ""}
        table.add_row(
            finding.check,
            finding.workload,
            finding.figure,
            seen,
            str(finding.trials),
            finding.required,
            holds[finding.holds],
        )
    return table
