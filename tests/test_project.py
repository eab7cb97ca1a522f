"""The project's files: what README and Makefile promise, the layers at run time, the set-up."""

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections import defaultdict
from pathlib import Path

import pytest

import bench
import bench.tips
from scripts import setup

ROOT = Path(__file__).resolve().parent.parent


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def make(*arguments: str) -> str:
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("MAKE")}
    result = subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout


def files_of_the_project() -> list[Path]:
    """What git tracks or would track; every file outside a git checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        found = [ROOT / name for name in result.stdout.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return [path for path in found if path.is_file()]


def test_make_alone_lists_every_target() -> None:
    listed = re.findall(r"^make ([a-z]+) ", make(), re.MULTILINE)
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony
    assert sorted(listed) == sorted(phony[1].split())


def test_readme_names_only_targets_that_exist() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", fenced_code((ROOT / "README.md").read_text())))
    assert {"bench"} <= named <= set(re.findall(r"^make ([a-z]+) ", make(), re.MULTILINE))


def fenced_code(markdown: str) -> str:
    return "\n".join(re.findall(r"^```.*?\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL))


def test_make_bench_passes_its_options_on() -> None:
    plan = make("-n", "bench", "PROFILE=smoke", "BUDGET=8m", "ARGS=--tips storage")
    assert "-m bench run --profile smoke --budget 8m --tips storage" in plan
    assert re.search(r"-m bench run --profile quick *$", make("-n", "bench"), re.MULTILINE)


def test_make_test_leaves_the_catalogue_alone() -> None:
    assert re.search(r"-m pytest -n 2 --dist loadfile -rs tests$", make("-n", "test"), re.MULTILINE)


def test_the_version_is_stated_once() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert content["project"]["dynamic"] == ["version"]
    assert content["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "bench.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", bench.__version__)


def test_every_file_of_the_package_is_installed_with_it() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = content["tool"]["setuptools"]["package-data"]
    installed = {
        path
        for package, its in patterns.items()
        for pattern in its
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    inside = {path for path in files_of_the_project() if ROOT / "bench" in path.parents}
    assert {path for path in inside if path.suffix != ".py"} == installed
    assert ROOT / "bench" / "reporting" / "bench.mplstyle" in installed


def test_no_file_names_a_home_folder_or_this_checkout() -> None:
    personal = [rb"/(?:home|Users)/(?!somebody\b)\w"]
    if len(ROOT.parts) > 2:
        personal.append(re.escape(os.fsencode(ROOT)))
    pattern = re.compile(b"|".join(personal))
    files = files_of_the_project()
    assert ROOT / "pyproject.toml" in files
    assert [str(path) for path in files if pattern.search(path.read_bytes())] == []


def test_help_imports_no_torch() -> None:
    code = """
import runpy, sys
sys.argv = ["bench", "--help"]
try:
    runpy.run_module("bench", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
heavy = {"torch", "torchvision", "pandas", "matplotlib", "scipy"} & set(sys.modules)
assert not heavy, heavy
"""
    assert "run" in run_python(code)


def test_the_catalogue_and_the_plugin_import_no_torch() -> None:
    run_python("""
import importlib, pkgutil, sys
import bench.pytest_plugin, bench.tips
for module in pkgutil.iter_modules(bench.tips.__path__):
    importlib.import_module(f"bench.tips.{module.name}")
assert "torch" not in sys.modules
""")


def cards() -> dict[str, str]:
    """The docstring of each tip that can be followed, by the tip's id."""
    found = {}
    for module in pkgutil.iter_modules(bench.tips.__path__):
        if module.name != "tip" and not module.name.startswith("aa_"):
            found[module.name] = importlib.import_module(f"bench.tips.{module.name}").__doc__ or ""
    return found


OPTIONAL = defaultdict(list, environment=["Doesn't matter when"])
"""What a tip has no use for: a sound environment matters always."""


@pytest.mark.parametrize(("tip", "card"), cards().items())
def test_every_card_says_why_when_and_how(tip: str, card: str) -> None:
    parts = re.split(r"^\*\*(.+?)\*\*", card, flags=re.MULTILINE)
    lead, told = parts[0], dict(zip(parts[1::2], parts[2::2], strict=True))
    assert len(lead.split()) > 20
    assert {"Matters when", "Doesn't matter when", "How to apply it"} <= {*told, *OPTIONAL[tip]}
    assert any(part.startswith("How it is ") for part in told)
    assert re.search(r"```(?:python|sh)\n.+\n```", told["How to apply it"], re.DOTALL)


@pytest.mark.parametrize(
    ("tip", "deprecated", "instead"),
    [
        ("amp", "torch.cuda.amp", "torch.amp"),
        ("export", "torch.jit", "torch.export"),
        ("quantization", "torch.ao.quantization", "torchao"),
        ("jpeg_decoder", "torchvision.io", "TorchCodec"),
        ("profiler", "torch-tb-profiler", "Perfetto"),
        ("data_parallel", "torch.distributed.launch", "torchrun"),
    ],
)
def test_cards_name_what_is_deprecated_and_what_to_use(
    tip: str, deprecated: str, instead: str
) -> None:
    paragraphs = cards()[tip].split("\n\n")
    (told,) = [part for part in paragraphs if "deprecated" in part]
    assert deprecated in told
    assert instead in told


def test_results_are_read_without_torch() -> None:
    run_python("""
import importlib, pkgutil, sys
sys.modules["torch"] = sys.modules["torchvision"] = None
import bench.analysis, bench.records, bench.reporting
for package in (bench.analysis, bench.records, bench.reporting):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
""")


def on_machine(
    monkeypatch: pytest.MonkeyPatch, *, installer: str | None, system: str, root: bool
) -> None:
    monkeypatch.setattr(setup.shutil, "which", lambda name: name if name == installer else None)
    monkeypatch.setattr(setup.platform, "freedesktop_os_release", lambda: {"ID": system})
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0 if root else 1000)


@pytest.mark.parametrize(
    ("installer", "system", "root", "command"),
    [
        (
            "apt-get",
            "debian",
            False,
            "sudo apt-get install -y --no-install-recommends libturbojpeg0",
        ),
        ("apt-get", "ubuntu", True, "apt-get install -y --no-install-recommends libturbojpeg"),
        ("dnf", "fedora", False, "sudo dnf install -y turbojpeg"),
        ("brew", "", False, "brew install jpeg-turbo"),
        (None, "arch", False, "install turbojpeg with your system's package manager"),
    ],
)
def test_a_missing_library_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, installer: str | None, system: str, root: bool, command: str
) -> None:
    on_machine(monkeypatch, installer=installer, system=system, root=root)
    assert setup.how_to_install("turbojpeg") == command


@pytest.mark.parametrize(("root", "runs"), [(True, 2), (False, 0)])
def test_only_root_installs_system_packages(
    monkeypatch: pytest.MonkeyPatch, root: bool, runs: int
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(setup.subprocess, "run", lambda command, **_: ran.append(command))
    on_machine(monkeypatch, installer="apt-get", system="debian", root=root)
    setup.install_system("compiler", "zlib.h")
    assert len(ran) == runs
    assert all(command[0] == "apt-get" for command in ran)


def test_without_a_compiler_all_that_the_build_needs_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_machine(monkeypatch, installer="apt-get", system="debian", root=False)
    monkeypatch.setattr(setup.platform, "machine", lambda: "x86_64")
    fix = setup.pillow_simd_fix()
    assert {"gcc", "libjpeg-dev", "zlib1g-dev"} <= set(fix.split())


def test_a_processor_without_sse_gets_no_pillow_simd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(setup, "PILLOW_SIMD", Path("not there"))
    assert setup.start_pillow_simd() is None
    assert "x86-64" in setup.pillow_simd_fix()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_headers_are_looked_for_with_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: "/nowhere")
    monkeypatch.setattr(
        setup, "succeeds", lambda command, text: "zlib.h" not in text and "/nowhere" in command
    )
    assert setup.missing_for_build() == ["zlib.h"]


@pytest.mark.parametrize(
    ("torch", "kept"), [("2.9.0", True), ("2.14.1", True), ("3.0", True), ("2.8.0", False)]
)
def test_a_torch_that_is_recent_enough_stays(
    monkeypatch: pytest.MonkeyPatch, torch: str, kept: bool
) -> None:
    monkeypatch.setattr(
        setup, "output", lambda command: "0.24" if "torchvision" in command[2] else torch
    )
    expected = {"torch": torch, "torchvision": "0.24"} if kept else {}
    assert setup.torch_versions("python3") == expected


def test_a_venv_laid_over_another_sees_its_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packages = tmp_path / "below" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "package_below.py").write_text("")
    venv.create(tmp_path / "over", symlinks=True)
    python = str(tmp_path / "over" / "bin" / "python")
    monkeypatch.setattr(setup, "PYTHON", python)
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    assert not setup.succeeds([python, "-c", "import package_below"])
    setup.lay_over_venv()
    assert setup.succeeds([python, "-c", "import package_below"])


def test_a_missing_venv_module_is_named_with_its_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_machine(monkeypatch, installer="apt-get", system="debian", root=False)
    monkeypatch.setattr(setup, "PYTHON", str(tmp_path / "python"))
    monkeypatch.setattr(setup, "has_module", lambda name: False)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(SystemExit, match=rf"\nsudo apt-get install .* python{version}-venv$"):
        setup.make_venv()


def test_what_is_published_is_what_its_measurements_give() -> None:
    """The README's numbers too; each sentence that is found ends with the command that mends it."""
    from bench.publishing import stale

    assert stale() == []
