"""scripts/gpu_check.sh, with interpreters that lack things or only seem to measure."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LACKS_EVERYTHING = '#!/bin/sh\nexec {python} -S "$@"\n'

# What the script asks of an interpreter is answered by the true one, but for the measuring.
SEEMS_TO_MEASURE = """#!/bin/bash
case "$*" in
    "-m bench run"*)
        [[ "$*" == *"--budget 30s"* ]] || exit 9
        mkdir -p "${{@: -1}}"
        cp {effects} "${{@: -1}}/effects.csv"
        exit {run_ends_with} ;;
    "-m pytest"*) echo "1 passed, 9 deselected in 0.10s"; exit {tests_end_with} ;;
esac
[[ $1 == - && $# == 1 ]] || exec {python} "$@"
program=$(cat)
[[ $program == *cuda* ]] || exec {python} - <<<"$program"
"""

EFFECTS = """tip,variant,is_baseline,is_primary,is_recommended,effect,ci_low,ci_high,verdict,reason
amp,FP32,True,True,False,,,,,
amp,FP16 + GradScaler,False,True,True,1.912,1.899,1.925,helps,
amp,BF16,False,True,False,1.95,1.9,2.0,helps,
pruning,L1 unstructured 50 %,False,True,True,,,,failed,the planted reason
"""


def interpreter(folder: Path, text: str, **values: object) -> str:
    path = folder / "python3"
    path.write_text(text.format(python=sys.executable, **values), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def check(python: str, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ROOT / "scripts" / "gpu_check.sh", *arguments],
        env=os.environ | {"PYTHON": python, "OUT": str(out)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def seeming(folder: Path, run_ends_with: int = 0, tests_end_with: int = 0) -> str:
    effects = folder / "effects.csv"
    effects.write_text(EFFECTS, encoding="utf-8")
    return interpreter(
        folder,
        SEEMS_TO_MEASURE,
        effects=effects,
        run_ends_with=run_ends_with,
        tests_end_with=tests_end_with,
    )


def test_two_lines_name_the_packages_that_are_missing(tmp_path: Path) -> None:
    ended = check(interpreter(tmp_path, LACKS_EVERYTHING), tmp_path / "out")
    assert ended.returncode == 2
    first, second = ended.stderr.splitlines()
    assert "torch" in first
    assert "pytest-benchmark" in first
    assert "scikit-image" in first
    assert "WHEELS=DIR" in second


def test_wheels_give_what_is_missing(tmp_path: Path) -> None:
    """A wheel of typer: everything else is still missing, typer no longer."""
    from zipfile import ZipFile

    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with ZipFile(wheels / "typer-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("typer/__init__.py", "")
        wheel.writestr("typer-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: typer\n")
    os.environ["WHEELS"] = str(wheels)
    try:
        ended = check(interpreter(tmp_path, LACKS_EVERYTHING), tmp_path / "out")
    finally:
        del os.environ["WHEELS"]
    assert ended.returncode == 2
    first = ended.stderr.splitlines()[0]
    assert "torch" in first
    assert "typer" not in first


def test_a_run_leaves_an_archive_and_ends_with_a_short_table(tmp_path: Path) -> None:
    ended = check(seeming(tmp_path), tmp_path / "out", "--budget", "30s")
    assert ended.returncode == 0, ended.stderr
    *_, amp, pruning, failed, _, tests, archive = ended.stdout.splitlines()
    assert amp.split() == ["amp", "FP16", "+", "GradScaler", "1.912", "[1.899,", "1.925]", "helps"]
    assert pruning.split()[-1] == "failed"
    assert "the planted reason" in failed
    assert tests == "1 passed, 9 deselected in 0.10s"
    assert Path(archive).parent == tmp_path / "out"
    with tarfile.open(archive) as packed:
        assert {"run/effects.csv", "run/cuda-tests.txt"} <= set(packed.getnames())


@pytest.mark.parametrize(("run", "tests", "code"), [(1, 0, 1), (0, 1, 1), (0, 5, 0)])
def test_a_failure_of_the_run_or_of_a_test_is_the_exit_code(
    tmp_path: Path, run: int, tests: int, code: int
) -> None:
    """5 is pytest's code for no test at all, which is none that failed."""
    ended = check(seeming(tmp_path, run, tests), tmp_path / "out", "--budget", "30s")
    assert ended.returncode == code
    assert ended.stdout.splitlines()[-1].endswith(".tar.gz")


def test_other_options_are_the_runs(tmp_path: Path) -> None:
    python = seeming(tmp_path)
    script = Path(python).read_text(encoding="utf-8")
    Path(python).write_text(script.replace("30s", "30s --tips amp --seed 1"), encoding="utf-8")
    asked = ("--tips", "amp", "--budget", "30s", "--seed", "1")
    assert check(python, tmp_path / "out", *asked).returncode == 0
