"""Whole runs in processes of their own: what they leave, how they end, how they go on."""

import csv
import getpass
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import planted
import pytest
import torch

from bench import session
from bench.engine import keeper
from bench.records.effects import read_effects
from bench.records.measurements import read_measurements

ROOT = Path(__file__).parents[1]

PROGRAM = """
import sys
sys.path[:0] = {paths!r}
import planted
import bench.options, bench.session
from bench.cli import main
from bench.tips.tip import Tip
def catalogue(context):
    return tuple(
        planted.renamed(planted.tip(*variants), name) for name, variants in TIPS.items()
    )
v = planted.variant
TIPS = {tips}
bench.session.catalogue = bench.options.catalogue = catalogue
bench.options.PROFILES["quick"] = __import__("dataclasses").replace(
    bench.options.PROFILES["quick"], pace=planted.PACE, images=8
)
main()
"""

GOOD = """{
    "one": [v("plain"), v("treated", twice_every=2, period=2)],
    "two": [v("plain"), v("treated"), v("third", loads=True)],
}"""

LONG = f"""{{**{GOOD}, **{{f"more {{n}}": [v("plain"), v("treated")] for n in range(8)}}}}"""
"""Long enough to be stopped before it ends, however fast the machine is."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def start(*arguments: str | Path, tips: str = GOOD) -> subprocess.Popen[str]:
    """``python -m bench`` with planted tips instead of the catalogue."""
    program = PROGRAM.format(paths=[str(ROOT / "tests"), str(ROOT)], tips=tips)
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*arguments: str | Path, tips: str = GOOD) -> tuple[int, str]:
    """Run to the end: exit code and what was printed."""
    process = start(*arguments, tips=tips)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def rows(folder: Path) -> list[dict[str, str]]:
    """The rows of ``measurements.csv`` that are finished."""
    path = folder / "measurements.csv"
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))


def wait_for(condition: object, process: subprocess.Popen[str], seconds: float = 90) -> None:
    """Until ``condition()`` is true; fails when the process ended before."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def tokens() -> set[str]:
    """The run tokens of all processes that live now."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            match = re.search(rf"{keeper.TOKEN}=(\w+)".encode(), path.read_bytes())
        except OSError:
            continue
        if match:
            found.add(match[1].decode())
    return found


class Left:
    """What is on the machine that was not there before: a run's processes and shared memory."""

    def __init__(self) -> None:
        self._tokens, self._memory = tokens(), set(Path("/dev/shm").iterdir())

    def tokens(self) -> set[str]:
        return tokens() - self._tokens

    def memory(self) -> set[Path]:
        return set(Path("/dev/shm").iterdir()) - self._memory

    def check(self) -> None:
        """Nothing, once the keeper is done; what other tests name there for a moment goes too."""
        deadline = time.monotonic() + 20
        while (self.tokens() or self.memory()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.tokens() == set()
        assert self.memory() == set()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    folder = tmp_path_factory.mktemp("run") / "finished"
    code, output = finish("run", "--out", folder)
    return folder, code, output


def test_a_run_leaves_every_file_and_exits_0(finished: tuple[Path, int, str]) -> None:
    folder, code, output = finished
    assert code == 0, output
    names = (
        "plan.json measurements.csv effects.csv environment.json benchmark.json report.html "
        "report.md"
    )
    assert {path.name for path in folder.iterdir()} == {*names.split(), "figures"}
    assert (folder / "figures" / "overview.png").stat().st_size > 1000
    assert (folder / "figures" / "one.svg").stat().st_size > 1000


def test_every_planned_variant_has_a_row_and_the_planted_effect_is_found(
    finished: tuple[Path, int, str],
) -> None:
    effects = pd.DataFrame(read_effects(finished[0] / "effects.csv"))
    main = effects[effects["metric"] == "samples_per_second"]
    assert list(zip(main["tip"], main["variant"], strict=True)) == [
        ("one", "plain"),
        ("one", "treated"),
        ("two", "plain"),
        ("two", "treated"),
        ("two", "third"),
    ]
    treated = main[(main["tip"] == "one") & (main["variant"] == "treated")].iloc[0]
    assert treated["effect"] == pytest.approx(1 / 1.5, rel=0.1)
    assert treated["verdict"] == "hurts"
    assert treated["replicates"] == 5


def test_benchmark_json_holds_a_row_a_variant_in_the_arms_time(
    finished: tuple[Path, int, str],
) -> None:
    folder = finished[0]
    content = json.loads((folder / "benchmark.json").read_text())
    names = {row["name"] for row in content["benchmarks"]}
    assert names == {
        f"test_variant[{name}]"
        for name in (
            "one-burning-plain",
            "one-burning-treated",
            "two-burning-plain",
            "two-burning-treated",
            "two-burning-third",
        )
    }
    turns = read_measurements(folder / "measurements.csv")
    for row in content["benchmarks"]:
        info = row["extra_info"]
        own = turns[(turns["tip"] == info["tip"]) & (turns["variant"] == info["variant"])]
        expected = (own["seconds"] / own["samples"]).dropna()
        assert row["stats"]["data"] == pytest.approx(list(expected))
        assert row["group"] == f"{info['tip']}: burning"
    assert "node" not in content["machine_info"]


def test_pytest_benchmark_compares_what_a_run_leaves(
    finished: tuple[Path, int, str], tmp_path: Path
) -> None:
    path = finished[0] / "benchmark.json"
    other = tmp_path / "other.json"
    shutil.copy(path, other)
    result = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", path, other],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "one-burning-treated" in result.stdout + result.stderr


def test_nothing_in_a_run_folder_names_the_host_the_user_or_a_path(
    finished: tuple[Path, int, str],
) -> None:
    forbidden = [str(Path.home()) + "/", str(ROOT), sys.prefix, f"/{getpass.getuser()}/"]
    host = socket.gethostname()
    for path in finished[0].rglob("*"):
        if path.is_file() and path.suffix != ".png":
            content = path.read_text(encoding="utf-8", errors="replace")
            assert [word for word in forbidden if word in content] == [], path
            assert not re.search(rf"\b{re.escape(host)}\b", content), path


def test_a_treatment_that_is_not_applied_fails_the_variant_and_the_run(tmp_path: Path) -> None:
    tips = '{"one": [v("plain"), v("treated", misbehave="ignore the treatment"), v("third")]}'
    code, output = finish("run", "--out", tmp_path / "run", tips=tips)
    assert code == 1
    effects = pd.DataFrame(read_effects(tmp_path / "run" / "effects.csv")).set_index("variant")
    treated = effects.loc["treated"]
    assert treated["verdict"] == "failed"
    assert "is_pinned() is False" in treated["reason"]
    assert pd.isna(treated["effect"])
    third = effects.loc[["third"]].iloc[0]
    assert third["replicates"] == 3
    assert "failed" in output


def test_interrupted_after_two_rounds_it_reports_two_replicates(tmp_path: Path) -> None:
    """Interrupted as the third round begins; its last tips are not reached any more."""
    names = [f"tip {number}" for number in range(12)]
    tips = f'{{name: [v("plain"), v("treated", loads=name == "tip 0")] for name in {names}}}'
    folder, left = tmp_path / "run", Left()
    process = start("run", "--out", folder, tips=tips)
    wait_for(lambda: any(row["replicate"] == "2" for row in rows(folder)), process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2, output
    left.check()
    effects = pd.DataFrame(read_effects(folder / "effects.csv"))
    main = effects[(effects["metric"] == "samples_per_second") & ~effects["is_baseline"]]
    assert list(main["tip"]) == names
    assert set(main["replicates"]) <= {2, 3}
    last = main.iloc[-1]
    assert last["replicates"] == 2
    assert last["verdict"] == "inconclusive"
    assert "2 of 5 replicates" in last["reason"]
    assert (folder / "report.md").exists()
    assert (folder / "benchmark.json").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_before_it_measures_a_run_leaves_nothing(
    tmp_path: Path, how: signal.Signals
) -> None:
    left = Left()
    process = start("run", "--out", tmp_path / "run")
    wait_for(left.tokens, process)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert rows(tmp_path / "run") == []
    left.check()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_stopped_run_loses_nothing_leaves_nothing_and_goes_on(
    tmp_path: Path, how: signal.Signals
) -> None:
    folder, left = tmp_path / "run", Left()
    process = start("run", "--out", folder, tips=LONG)
    wait_for(lambda: len(rows(folder)) > 20, process)
    process.send_signal(how)
    process.communicate(timeout=60)
    left.check()
    kept = rows(folder)
    assert len(kept) > 20

    code, output = finish("run", "--resume", folder, tips=LONG)
    assert code == 0, output
    assert re.search(r"[1-9]\d* finished replicates are kept", output)
    after = rows(folder)
    assert after[: len(kept)] == kept
    blocks = Counter(
        (row["tip"], row["variant"], row["replicate"]) for row in after if row["block"]
    )
    complete = Counter((tip, variant) for (tip, variant, _), count in blocks.items() if count == 3)
    assert complete["one", "treated"] == 5
    assert complete["two", "third"] == 3
    effects = pd.DataFrame(read_effects(folder / "effects.csv"))
    main = effects[effects["metric"] == "samples_per_second"]
    assert set(main.loc[main["variant"] == "treated", "replicates"]) == {5}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["run", "--tips", "nonsense"], "There is no tip 'nonsense'."),
        (["run", "--tips", "thwo"], "Did you mean 'two'?"),
        (["run", "--budget", "0"], "--budget '0' is not a time above 0."),
        (["run", "--budget", "soon"], "--budget 'soon' is not a time above 0."),
        (["run", "--profile", "long"], "There is no profile 'long'."),
        (["run", "--data", "{tmp}/nowhere"], "nowhere"),
        (["run", "--data", "{tmp}/full"], "full holds no file named .jpg or .jpeg."),
        (["run", "--data", "{tmp}/empty"], "empty holds no file named .jpg or .jpeg."),
        (["run", "--resume", "{tmp}"], "is not a run folder"),
        (["run", "--out", "{tmp}/full"], "holds files already"),
        (["report", "{tmp}"], "is not a run folder"),
    ],
)
def test_bad_input_is_two_lines_and_exit_code_2(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("keep me")
    (tmp_path / "empty").mkdir()
    code, output = finish(*(argument.format(tmp=tmp_path) for argument in arguments))
    lines = output.strip().splitlines()
    assert code == 2, output
    assert len(lines) == 2, output
    assert problem in lines[0]
    assert "Traceback" not in output
    assert (full / "letter.txt").read_text() == "keep me"


def test_a_cache_folder_that_cannot_be_made_is_two_lines_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    code, output = finish("run", "--out", tmp_path / "out")
    lines = output.strip().splitlines()
    assert code == 2, output
    assert len(lines) == 2, output
    assert "cache folder" in lines[0]
    assert "XDG_CACHE_HOME" in lines[1]


def test_a_baseline_alone_has_nothing_to_compare_with() -> None:
    tip = planted.tip(planted.variant("plain"))
    told = session._without_partner(tip, {})
    assert told == {"plain": "only the baseline was chosen: nothing to compare"}
    assert session._without_partner(tip, {"plain": "needs CUDA"}) == {"plain": "needs CUDA"}


def test_shared_memory_that_a_killed_worker_had_named_is_removed() -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("this system has no /dev/shm")
    dead, living = folder / "torch_4190001_1_0", folder / "torch_4190002_1_0"
    try:
        for path in (dead, living):
            path.touch()
        keeper._remove_shared_memory({4190001})
        assert (dead.exists(), living.exists()) == (False, True)
    finally:
        for path in (dead, living):
            path.unlink(missing_ok=True)


def test_help_does_not_import_torch() -> None:
    program = "import sys; sys.argv[1:] = ['--help']\ntry:\n import bench.__main__\n"
    program += "except SystemExit: print('torch' in sys.modules, 'pandas' in sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout
    assert output.strip().endswith("False False")


ARTICLE = [
    "environment",
    "cudnn_benchmark",
    "cudnn_deterministic",
    "cpu_threads",
    "monitoring",
    "num_workers",
    "pin_memory",
    "prefetch_factor",
    "jpeg_decoder",
    "jpeg_to_crop",
    "streaming",
    "parallel_preprocessing",
    "storage",
    "amp",
    "data_parallel",
    "ddp_cpu",
    "visible_devices",
    "profiler",
    "quantization",
    "pruning",
    "distillation",
    "export",
]
NEED_CUDA_OR_A_DISK = {
    "cudnn_benchmark",
    "pin_memory",
    "data_parallel",
    "visible_devices",
    "storage",
}


def test_the_catalogue_lists_the_articles_22_tips_and_why_not_each_is_measurable() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bench", "tips"], capture_output=True, text=True, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    states = dict(re.findall(r"^  ([a-z_]+)  (\S.*)$", result.stdout, re.MULTILINE))
    assert [name for name in states if not name.startswith("aa_")] == ARTICLE
    silent = {name for name, state in states.items() if state != "measurable"}
    if not torch.cuda.is_available():
        assert silent <= NEED_CUDA_OR_A_DISK
    assert "cannot be seen" not in result.stdout
    for state in states.values():
        assert state == "measurable" or state.startswith("not measurable here: ")
