"""pytest as the runner: ``pytest --benchmark-only`` measures the catalogue, then reports it.

Two phases. After collection the selected variants are measured in rounds, with a live progress;
then the tests run, and each hands its variant's recorded durations to its ``benchmark`` fixture,
fails, or is skipped with the variant's reason. A check's question passes, with a warning where its
answer is a warning, and is an expected failure where the machine fails it: that is a finding.
"""

import dataclasses
import os
import signal
import sys
import warnings
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bench import live
from bench.engine.rounds import End
from bench.errors import UserError
from bench.options import Options, parse_budget
from bench.records.measurements import CHECK, Turn
from bench.reporting import screen
from bench.session import Session

CATALOGUE = Path(__file__).with_name("test_tips.py")
_UNTIMED = pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all")
_NOT_MEASURING = ("collectonly", "setuponly", "setupplan", "setupshow", "benchmark_skip")


class Replay:
    """A timer for pytest-benchmark that plays back what an arm's clock measured.

    pytest-benchmark reads it before and after each call of ``turn``, and sees the recorded
    duration between the two.
    """

    def __init__(self) -> None:
        self._time = 0.0
        self._durations: list[float] = []

    def load(self, durations: Sequence[float]) -> int:
        """Set what is played back, in seconds; returns how many durations there are."""
        self._durations = list(durations)
        return len(self._durations)

    def turn(self) -> None:
        """Let the next recorded duration pass."""
        if self._durations:
            self._time += self._durations.pop(0)

    def __call__(self) -> float:
        """Seconds that have been played back so far."""
        return self._time

    def __repr__(self) -> str:
        return "the arm's own clock"


@dataclasses.dataclass(kw_only=True)
class Entry:
    """A test of the catalogue: what it stands for and, after measuring, what came out."""

    tip: str
    workload: str
    variant: str
    replay: Replay = dataclasses.field(default_factory=Replay)
    status: str = "not measurable here"
    verdict: str | None = None
    """A check's answer."""
    reason: str = "it was not measured: measuring was switched off"
    durations: list[float] = dataclasses.field(default_factory=list)
    extra_info: dict[str, Any] = dataclasses.field(default_factory=dict)

    def take(self, turns: Sequence[Turn], reason: str | None, unreached: str) -> None:
        """Fill in what was recorded; ``reason``: why the plan has it as not measurable."""
        timed = [turn for turn in turns if turn.seconds is not None and turn.samples]
        answered = [turn for turn in turns if turn.verdict is not None]
        failures = [turn for turn in turns if turn.status == "failed"]
        if failures:
            self.status, self.reason = "failed", failures[0].reason or "failed"
        elif reason is not None:
            self.status, self.reason = "not measurable here", reason
        elif answered:
            self.status, self.verdict = "answered", answered[-1].verdict
            self.reason = answered[-1].reason or ""
        elif not timed:
            self.status, self.reason = "not measurable here", unreached
        else:
            self.status, self.reason = "ok", ""
            self.durations = [turn.seconds / turn.samples for turn in timed]  # type: ignore[operator]
            self.extra_info = {
                "tip": self.tip,
                "workload": self.workload,
                "variant": self.variant,
                "replicates": len({turn.replicate for turn in timed}),
                "unit": "seconds a sample",
                "samples": sum(turn.samples or 0 for turn in timed),
            }


class _RunFile(os.PathLike[str]):
    """``benchmark.json`` in the run folder, whose place is known only when a run has started."""

    def __init__(self, runner: "Runner") -> None:
        self._runner = runner

    def __fspath__(self) -> str:
        return str(self._runner.session.folder.benchmark)

    def __str__(self) -> str:
        return self.__fspath__()


class Runner:
    """The plugin's state in one pytest session."""

    def __init__(self, config: pytest.Config) -> None:
        self.console = screen.console()
        self.session = Session(_options(config))
        self.entries: list[Entry] = []
        self._collected: list[Entry] | None = None
        self._is_open = False

    def open(self) -> Session:
        """The session, its processes started at the first call."""
        if not self._is_open:
            self.session.__enter__()
            self._is_open = True
        return self.session

    def close(self) -> None:
        """End every process of the run."""
        if self._is_open:
            self._is_open = False
            self.session.__exit__()

    def collected(self) -> list[Entry]:
        """An entry for each tip, workload and variant on this machine, and for each question."""
        if self._collected is None:
            self._collected = [
                Entry(tip=tip.id, workload=workload, variant=variant.name)
                for tip in self.open().tips
                for workload in [w.name for w in tip.workloads] or [CHECK]
                for variant in tip.variants
            ]
        return self._collected

    def measure(self) -> bool:
        """Measure the selected entries and write the report; False when it was interrupted."""
        session = self.session
        if session.options.node_rank > 0:
            return self._serve()
        try:
            plan = session.prepare({(entry.tip, entry.variant) for entry in self.entries})
            live.print_plan(
                self.console,
                plan,
                session.device,
                session.expected_seconds,
                gpu_processes=session.gpu.read().compute_processes if session.gpu else None,
            )
            if session.resumed_replicates:
                self.console.print(
                    f"Going on: {session.resumed_replicates} finished replicates are kept and "
                    "not measured again."
                )
            with live.progress(self.console) as on_progress:
                session.measure(on_progress)
        except KeyboardInterrupt:
            if not session.is_prepared:
                raise
            self.console.print(
                "Interrupted: the report holds what was finished until now. Go on with it: "
                f"python -m bench run --resume {session.folder.path}"
            )
        finally:
            self.close()
        self._fill_entries()
        effects = session.conclude()
        screen.print_verdicts(self.console, effects, session.folder)
        return session.end is not None

    def _serve(self) -> bool:
        """Take part as another node than the first, which has the results."""
        rank, nnodes = self.session.options.node_rank, self.session.options.nnodes
        self.console.print(f"Node {rank} of {nnodes} (from 0): taking part until node 0 is done.")
        try:
            jobs = self.session.serve()
        finally:
            self.close()
        told = "1 job" if jobs == 1 else f"{jobs} jobs"
        self.console.print(f"Node 0 is done and has the results; {told} ran here too.")
        for entry in self.entries:
            entry.reason = "node 0 has the results"
        return True

    def _fill_entries(self) -> None:
        session = self.session
        reasons = {
            (tip.id, part.name): part.reason for tip in session.plan.tips for part in tip.parts
        }
        unreached = "it was not measured: " + (
            "the budget ended before" if session.end is End.BUDGET else "the run was stopped before"
        )
        for entry in self.entries:
            entry.take(
                session.turns(entry.tip, entry.workload, entry.variant),
                reasons.get((entry.tip, entry.variant)) or reasons.get((entry.tip, entry.workload)),
                unreached,
            )


_RUNNER = pytest.StashKey[Runner]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a run; ``python -m bench run`` has the same."""
    group = parser.getgroup("bench", "what each PyTorch training tip is worth on this machine")
    group.addoption("--bench-tips", metavar="IDS", help="only these tips, with commas")
    group.addoption("--bench-profile", default="quick", metavar="NAME", help="smoke, quick or full")
    group.addoption("--bench-budget", metavar="TIME", help="end after this time, e.g. 8m")
    group.addoption("--bench-seed", type=int, default=0, help="seed of orders and images")
    group.addoption("--bench-margin", type=float, default=0.03, help="effects below it are none")
    group.addoption("--bench-data", type=Path, metavar="DIR", help="your own folder of images")
    group.addoption("--bench-out", type=Path, metavar="DIR", help="the run's folder")
    group.addoption("--bench-resume", type=Path, metavar="DIR", help="go on with this run")
    group.addoption("--bench-model", metavar="NAME", help="torchvision's, or file.py:function")
    group.addoption("--bench-image-size", type=int, default=224, help="side in pixels")
    group.addoption("--bench-batch-size", type=int, help="32 on CUDA, 8 on the CPU by default")
    group.addoption("--bench-device", metavar="NAME", help="cpu, cuda or cuda:1")
    group.addoption("--bench-nnodes", type=int, default=1, help="machines that take part")
    group.addoption("--bench-node-rank", type=int, default=0, help="which one this is")
    group.addoption("--bench-rdzv-endpoint", metavar="HOST:PORT", help="where they meet")
    group.addoption(
        "--bench-storage",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a place to compare in `storage`, the baseline first; may be repeated",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read the options; refuse xdist, which would measure tips beside each other."""
    if not config.getoption("benchmark_only"):
        return
    if config.getoption("numprocesses", None):
        raise pytest.UsageError("Tips are measured one after the other: leave out -n (xdist).")
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        # Nothing else in this project is a benchmark, and to collect it all takes a while.
        config.args[:] = [str(CATALOGUE)]
    try:
        runner = Runner(config)
    except UserError as error:
        _stop(error, config)
    config.stash[_RUNNER] = runner
    if config.getoption("benchmark_json") is None:
        config.option.benchmark_json = _RunFile(runner)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Find out what is on this machine before tests are collected.

    An error that is raised while they are is a broken test file to pytest.
    """
    if runner := session.config.stash.get(_RUNNER, None):
        try:
            runner.collected()
        except UserError as error:
            _stop(error, session.config)
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no process behind, however the session ended."""
    if runner := config.stash.get(_RUNNER, None):
        runner.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each entry, named ``tip-workload-variant`` and grouped by tip and workload."""
    if "entry" not in metafunc.fixturenames:
        return
    runner = metafunc.config.stash.get(_RUNNER, None)
    metafunc.parametrize(
        "entry",
        [
            pytest.param(
                entry,
                id=f"{entry.tip}-{entry.workload}-{entry.variant}",
                marks=(
                    pytest.mark.benchmark(
                        group=f"{entry.tip}: {entry.workload}", timer=entry.replay
                    ),
                    # A question has no duration, so it gets no row from pytest-benchmark.
                    *([_UNTIMED] if entry.workload == CHECK else []),
                ),
            )
            for entry in (runner.collected() if runner else [])
        ],
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A run that goes on measures what its plan holds, nothing else."""
    runner = config.stash.get(_RUNNER, None)
    if runner is None or (plan := runner.session.resumed_plan) is None:
        return
    planned = {(tip.id, variant.name) for tip in plan.tips for variant in tip.variants}
    kept = [item for item in items if (e := _entry(item)) is None or (e.tip, e.variant) in planned]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Measure before the tests run."""
    runner = session.config.stash.get(_RUNNER, None)
    if runner is not None:
        runner.entries = [entry for item in session.items if (entry := _entry(item))]
    if runner is None or not runner.entries or _measuring_is_off(session.config):
        return (yield)
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    capture = session.config.pluginmanager.getplugin("capturemanager")
    if capture:
        capture.suspend_global_capture(in_=True)
    try:
        complete = runner.measure()
    except UserError as error:
        _stop(error, session.config)
    finally:
        if capture:
            capture.resume_global_capture()
        signal.signal(signal.SIGTERM, previous)
    if not any(entry.status == "ok" for entry in runner.entries):
        _expect_no_benchmarks()
    result = yield
    if not complete:
        pytest.exit("measuring was interrupted", returncode=2)
    return result


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Take the host's name out of what people publish."""
    machine_info.pop("node", None)


def pytest_benchmark_update_commit_info(commit_info: dict[str, Any]) -> None:
    """Take out the names of the checkout's folder and branch, which are the user's own."""
    for name in ("project", "branch"):
        commit_info.pop(name, None)


def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Keep ``benchmark.json`` in the run folder too when the user asked for it elsewhere."""
    runner = config.stash.get(_RUNNER, None)
    if runner is None or not runner.session.is_prepared:
        return
    if not isinstance(config.getoption("benchmark_json"), _RunFile):
        from pytest_benchmark.utils import safe_dumps

        runner.session.folder.benchmark.write_text(
            safe_dumps(output_json, ensure_ascii=True, indent=4), encoding="utf-8"
        )


def _stop(error: UserError, config: pytest.Config) -> NoReturn:
    """End pytest with the error's two lines and exit code 2."""
    if capture := config.pluginmanager.getplugin("capturemanager"):
        capture.suspend_global_capture(in_=True)
    print(error, file=sys.stderr)
    _expect_no_benchmarks()
    pytest.exit("nothing was measured", returncode=2)


def _expect_no_benchmarks() -> None:
    """What pytest-benchmark would say of a run without timed turns has been said better."""
    warnings.filterwarnings("ignore", "Not saving anything, no benchmarks have been run!")


def _measuring_is_off(config: pytest.Config) -> bool:
    return any(config.getoption(name, False) for name in _NOT_MEASURING)


def _entry(item: pytest.Item) -> Entry | None:
    if not isinstance(item, pytest.Function) or item.path != CATALOGUE:
        return None
    entry = item.callspec.params.get("entry") if hasattr(item, "callspec") else None
    return entry if isinstance(entry, Entry) else None


def _options(config: pytest.Config) -> Options:
    budget = config.getoption("bench_budget")
    return Options(
        profile=config.getoption("bench_profile"),
        budget_seconds=None if budget is None else parse_budget(budget),
        seed=config.getoption("bench_seed"),
        margin=config.getoption("bench_margin"),
        data=config.getoption("bench_data"),
        out=config.getoption("bench_out"),
        resume=config.getoption("bench_resume"),
        storage=tuple(config.getoption("bench_storage")),
        model=config.getoption("bench_model"),
        image_size=config.getoption("bench_image_size"),
        batch_size=config.getoption("bench_batch_size"),
        device=config.getoption("bench_device"),
        nnodes=config.getoption("bench_nnodes"),
        node_rank=config.getoption("bench_node_rank"),
        rdzv_endpoint=config.getoption("bench_rdzv_endpoint"),
        tips=tuple(tips.split(",")) if (tips := config.getoption("bench_tips")) else (),
    )
