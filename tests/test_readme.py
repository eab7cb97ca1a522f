"""Every command of the README is run, and its example of a tip is measured.

In a copy of the checkout, by the shell that a reader would type into. What takes too long, or
needs other machines or GPUs, is stood in for; STAND_INS says by what, for each command. The runs
``before``, ``now`` and ``other``, which are compared, are the one that the README shows.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from small_images import make_images
from test_project import files_of_the_project

from bench.cli import app
from bench.reporting.readme import published_folder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

AS_TYPED = ""
FIRST = (
    "python -m bench run --profile smoke --budget 8m --tips inference_mode "
    "--out results/local/MACHINE/TIME"
)
"""Measures the README's own tip, and leaves the run that other commands read."""
OWN = (
    "python -m bench run --profile smoke --tips aa_loading,aa_training "
    "--data ~/photos --model net.py:build --image-size 32 --batch-size 8"
)
"""What users bring, in one run that reads the images and trains the model."""
PYTEST = (
    "pytest --benchmark-only -k inference_mode --bench-profile smoke --bench-tips inference_mode "
    "--benchmark-json out.json"
)
NODES = "python -m bench run --help"
"""Two nodes on one machine meet in tests/test_ranks.py; here the options are looked at only."""

PUBLISH = (
    "cp -r before results/local/MACHINE/ANOTHER && "
    "python -m bench publish results/local/MACHINE/ANOTHER"
)
"""A smoke run claims no verdicts and is not published; a copy of the quick one is."""

STAND_INS = {
    # The README's command, and what is run for it.
    "make setup": "make -n setup",
    "make bench": "make -n bench",
    "make bench PROFILE=smoke": "make -n bench PROFILE=smoke",
    'make bench BUDGET=8m ARGS="--tips amp"': 'make -n bench BUDGET=8m ARGS="--tips amp"',
    "make test": "make -n test",
    "make lint": "make -n lint",
    "make compare A=results/local/MACHINE/TIME B=other/effects.csv": (
        "make -n compare A=results/local/MACHINE/TIME B=other/effects.csv"
    ),
    # As it is typed in tests/test_run.py.
    "python -m bench tips": "python -m bench tips --help",
    # It exits 1 where something would spoil results.
    "python -m bench env": "python -m bench env || test $? = 1",
    "python -m bench run --tips jpeg_decoder,num_workers": FIRST,
    "python -m bench run --budget 8m": FIRST,
    "python -m bench run --profile full": FIRST,
    "python -m bench run --resume results/local/MACHINE/TIME": AS_TYPED,
    "python -m bench report results/local/MACHINE/TIME": AS_TYPED,
    "python -m bench profile": "python -m bench profile --data ~/photos --model net.py:build",
    "python -m bench run --data ~/photos": OWN,
    "python -m bench run --model resnet18 --image-size 160": OWN,
    "python -m bench run --model net.py:build --batch-size 8": OWN,
    "python -m bench run --tips storage --storage /mnt/disk --storage /mnt/nvme": FIRST,
    "pytest --benchmark-only -k jpeg_decoder": PYTEST,
    "pytest --benchmark-only --bench-profile smoke --benchmark-json out.json": PYTEST,
    "pytest-benchmark compare out.json": AS_TYPED,
    "python -m bench compare results/local/MACHINE/TIME other/effects.csv": AS_TYPED,
    "python -m bench run --tips num_workers,jpeg_decoder --out now": FIRST,
    "python -m bench compare before/effects.csv now --fail-if-slower 5%": AS_TYPED,
    "CUDA_VISIBLE_DEVICES=0,1 python -m bench run --tips data_parallel,visible_devices": NODES,
    "python -m bench run --tips ddp_cpu --nnodes 2 --node-rank 0 --rdzv-endpoint node0:29400": (
        NODES
    ),
    "python -m bench run --tips ddp_cpu --nnodes 2 --node-rank 1 --rdzv-endpoint node0:29400": (
        NODES
    ),
    "scripts/gpu_check.sh --budget 8m": "scripts/gpu_check.sh --help",
    "python -m bench publish results/local/MACHINE/TIME": PUBLISH,
    "python -m bench publish --check": AS_TYPED,
    "python -m bench selfcheck --quick": "python -m bench selfcheck --help",
    "python -m bench run --tips inference_mode": FIRST,
}


def fenced(language: str) -> list[str]:
    """The README's code blocks of this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Each command of the README without its comment."""
    lines = [line for block in fenced("sh") for line in block.splitlines() if line.strip()]
    return [re.sub(r"\s+# .*$", "", line).strip() for line in lines]


class Shell:
    """Runs command lines in the copy, each at most once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ended: dict[str, subprocess.CompletedProcess[str]] = {}

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        if line not in self._ended:
            programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            home = {"HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(self.folder / "cache")}
            self._ended[line] = subprocess.run(
                ["bash", "-c", line],
                cwd=self.folder / "checkout",
                env={**os.environ, **home, "PATH": programs, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
        return self._ended[line]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A copy of the checkout with the README's tip, a model, photographs, and one run."""
    folder = tmp_path_factory.mktemp("readme")
    checkout = folder / "checkout"
    for path in files_of_the_project():
        # pytest would import the suite's own tests to find that none is asked for.
        if not path.is_symlink() and ROOT / "tests" not in path.parents:
            copy = checkout / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    (example,) = fenced("python")
    (checkout / "bench" / "tips" / "inference_mode.py").write_text(example, encoding="utf-8")
    (checkout / "net.py").write_text(
        "import torch\n\n\ndef build():\n    return torch.nn.Sequential(\n"
        "        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 10)\n"
        "    )\n",
        encoding="utf-8",
    )
    make_images(folder / "home" / "photos", count=16)
    shell = Shell(folder)
    published = checkout / published_folder(README)
    for name in ("other", "before", "now"):
        shutil.copytree(published, checkout / name)
    ran = shell.run(FIRST)
    assert ran.returncode == 0, ran.stdout
    return shell


def test_every_command_is_in_the_table_and_none_is_left_over() -> None:
    found = commands()
    assert len(found) > 25
    assert sorted(set(found)) == sorted(STAND_INS)


@pytest.mark.parametrize("command", [line for line in commands() if " -m bench " in line])
def test_a_commands_options_exist_as_they_are_typed(command: str) -> None:
    """Read by the command line's own parser; nothing is run."""
    words = shlex.split(command)
    name, *arguments = words[words.index("bench") + 1 :]
    group = typer.main.get_command(app)
    sub = group.commands[name]  # type: ignore[attr-defined]
    sub.make_context(name, arguments)


@pytest.mark.parametrize("command", commands())
def test_a_command_does_what_the_readme_says(command: str, shell: Shell) -> None:
    ran = shell.run(STAND_INS[command] or command)
    assert ran.returncode == 0, ran.stdout


def test_the_example_tip_is_measured_with_its_evidence(shell: Shell) -> None:
    ran = shell.run(FIRST)
    assert "inference_mode" in ran.stdout
    run = shell.folder / "checkout" / "results" / "local" / "MACHINE" / "TIME"
    report = (run / "report.md").read_text(encoding="utf-8")
    assert "is_inference: `True`" in report
    assert "is_inference: `False`" in report
    assert "Without recording gradients, a model answers faster." in report


def test_published_runs_are_shown_and_current(shell: Shell) -> None:
    refused = shell.run("python -m bench publish results/local/MACHINE/TIME")
    assert refused.returncode == 2
    assert "claims no verdicts" in refused.stdout
    assert shell.run(PUBLISH).returncode == 0
    readme = (shell.folder / "checkout" / "README.md").read_text(encoding="utf-8")
    assert published_folder(readme).endswith("/ANOTHER")
    assert shell.run("python -m bench publish --check").returncode == 0


def test_what_the_readme_names_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 4
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert missing == []
