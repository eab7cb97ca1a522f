"""Make ``.venv`` with all that the suite uses; ``make setup`` runs it once.

Needs no package itself. What can't be had is named with its fix, and the rest goes on. It can be
run again at any time, also after an interruption, and does only what is still missing. As root
(a container, CI) it installs system packages with apt-get; otherwise it prints the command.
"""

import ctypes.util
import importlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VENV = ROOT / ".venv"
PYTHON = str(VENV / "bin" / "python")
STAMP = VENV / "setup.done"
"""Newer than pyproject.toml when there is nothing to do; the Makefile looks at it."""

PILLOW_SIMD = VENV / "pillow-simd"
"""A folder of its own that only its arm sees, since pillow-simd shares the name PIL with Pillow."""
BUILD = VENV / "pillow-simd.build"
BUILD_LOG = VENV / "pillow-simd.log"

INSTALLERS = {
    "apt-get": "apt-get install -y --no-install-recommends",
    "dnf": "dnf install -y",
    "brew": "brew install",
}
SYSTEM_PACKAGES = {
    "venv": {"apt-get": "python{version}-venv"},
    "turbojpeg": {"apt-get": "libturbojpeg0", "dnf": "turbojpeg", "brew": "jpeg-turbo"},
    "compiler": {"apt-get": "gcc libc6-dev", "dnf": "gcc"},
    "jpeglib.h": {"apt-get": "libjpeg-dev", "dnf": "libjpeg-turbo-devel", "brew": "jpeg-turbo"},
    "zlib.h": {"apt-get": "zlib1g-dev", "dnf": "zlib-devel", "brew": "zlib"},
    "Python.h": {"apt-get": "python{version}-dev", "dnf": "python3-devel"},
}


class Part(NamedTuple):
    """Something that the suite can do without: code that fails where it is missing, and the fix."""

    name: str
    code: str
    fix: str


def main() -> None:
    """Set up what is missing, and print what is there and what is not."""
    make_venv()
    if ctypes.util.find_library("turbojpeg") is None:
        install_system("turbojpeg")
    build = start_pillow_simd()
    try:
        install_packages()
        if build:
            finish_pillow_simd(build)
    finally:
        if build and build.poll() is None:
            os.killpg(build.pid, signal.SIGTERM)
            build.wait()
    summarise()
    STAMP.touch()


def make_venv() -> None:
    """Make ``.venv``, over the packages of the python3 in use where that has torch."""
    if Path(PYTHON).exists() and succeeds([PYTHON, "-m", "pip", "--version"]):
        return
    if not has_module("ensurepip"):
        install_system("venv")
    if not has_module("ensurepip"):
        stop(f"{sys.executable} can't make a virtual environment.", how_to_install("venv"))
    torch = torch_versions(sys.executable).get("torch")
    below = f" over the packages of {sys.prefix}, torch {torch} among them" if torch else ""
    say(f"Making .venv with Python {platform.python_version()}{below}.")
    is_nested = sys.prefix != sys.base_prefix
    flags = ["--system-site-packages"] if torch and not is_nested else []
    subprocess.run([sys.executable, "-m", "venv", "--clear", *flags, str(VENV)], check=True)
    if torch and is_nested:
        lay_over_venv()


def lay_over_venv() -> None:
    """Let ``.venv`` see the packages of the virtual environment whose Python made it.

    ``--system-site-packages`` would show those of the Python below both instead.
    """
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
    own = output([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    (Path(own) / "packages_below.pth").write_text("".join(lines), encoding="utf-8")


def install_packages() -> None:
    """Install what pyproject.toml lists; a torch that is there already stays as it is."""
    kept = torch_versions(PYTHON)
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("".join(f"{name}=={kept[name]}\n" for name in kept))
        pip_install = [PYTHON, "-m", "pip", "install", "-c", str(constraints)]
        if "torch" not in kept:
            say("Installing the packages: minutes, and about 6 GB where torch comes with CUDA.")
        if subprocess.run([*pip_install, *PROJECT["dependencies"]]).returncode:
            stop("Not all packages can be installed: pip says why above.", "Then: make setup")
        groups = PROJECT["optional-dependencies"].values()
        optional = [requirement for group in groups for requirement in group]
        if subprocess.run([*pip_install, *optional]).returncode:
            say("Not every optional package can be had: trying them one by one.")
            for requirement in optional:
                subprocess.run([*pip_install, requirement])


def start_pillow_simd() -> subprocess.Popen[bytes] | None:
    """Start building pillow-simd beside the other installations; None when there is no need."""
    if PILLOW_SIMD.exists() or not is_x86():
        return None
    install_system(*missing_for_build())
    if missing_for_build():
        return None
    say("Building pillow-simd beside the rest, which takes about 3 minutes.")
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir()
    compiler = f"{find_compiler()} -mavx2" if has_avx2() else find_compiler()
    # pip's cache knows a build by its source only: one made elsewhere may not fit this processor.
    command = "-m pip install --no-cache-dir --no-deps --target finished pillow-simd"
    with BUILD_LOG.open("w") as log:
        return subprocess.Popen(
            [PYTHON, *command.split()],
            cwd=BUILD,
            env={**os.environ, "CC": str(compiler), "TMPDIR": str(BUILD)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def finish_pillow_simd(build: subprocess.Popen[bytes]) -> None:
    """Wait for the build and put it into its place when it is whole."""
    if build.poll() is None:
        say("Waiting for pillow-simd.")
    if build.wait() == 0:
        (BUILD / "finished").rename(PILLOW_SIMD)
    shutil.rmtree(BUILD, ignore_errors=True)


def pillow_simd_fix() -> str:
    """What to do where pillow-simd is missing."""
    if not is_x86():
        return "it needs an x86-64 processor"
    if missing_for_build():
        return f"{how_to_install(*missing_for_build())}; then: make -B setup"
    return f"{BUILD_LOG.relative_to(ROOT)} says why the build failed"


def missing_for_build() -> list[str]:
    """Which of the compiler and the headers that pillow-simd needs are missing."""
    compiler = find_compiler()
    if compiler is None:
        return ["compiler", "jpeglib.h", "zlib.h", "Python.h"]
    preprocess = [compiler, "-E", "-x", "c", "-I", sysconfig.get_path("include"), "-"]
    return [
        header
        for header in ("jpeglib.h", "zlib.h", "Python.h")
        if not succeeds(preprocess, text=f"#include <stdio.h>\n#include <{header}>\n")
    ]


def find_compiler() -> str | None:
    """The C compiler's path, or None."""
    names = (os.environ.get("CC", "cc"), "cc", "gcc", "clang")
    return next((path for path in map(shutil.which, names) if path), None)


def is_x86() -> bool:
    """Whether the processor is one that pillow-simd is written for."""
    return platform.machine() in ("x86_64", "AMD64")


def has_avx2() -> bool:
    """Whether the processor is known to have AVX2; without it pillow-simd uses SSE4."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and re.search(r"\bavx2\b", cpuinfo.read_text()) is not None


def summarise() -> None:
    """Print which parts are there, and each missing one with its fix."""
    torch = torch_versions(PYTHON)
    if len(torch) < 2:
        stop(
            f"{PYTHON} can't import a torch and a torchvision that fit together.",
            "Remove .venv, mend those of python3 or choose another with PYTHON=, then: make setup",
        )
    retry = "pip says why above; then: make -B setup"
    find_library = (
        "import ctypes.util as util; "
        "assert util.find_library('turbojpeg') or __import__('turbojpeg').TurboJPEG()"
    )
    library = how_to_install("turbojpeg")
    torchcodec = "its README names the release that fits your torch; then pip install that one"
    simd = f"import sys; sys.path.insert(0, {str(PILLOW_SIMD)!r}); import PIL._imaging"
    parts = (
        Part("libturbojpeg", find_library, library),
        Part("PyTurboJPEG", "import turbojpeg", retry),
        Part("jpeg4py", "import jpeg4py", retry),
        Part("pillow-simd", f"{simd}; assert 'post' in PIL.__version__", pillow_simd_fix()),
        Part("OpenCV", "import cv2", retry),
        Part("simplejpeg", "import simplejpeg", retry),
        Part("TorchCodec", "from torchcodec.decoders import decode_jpeg", torchcodec),
        Part("NVML for Python", "import pynvml", retry),
        Part("ONNX Runtime", "import onnxruntime", retry),
        Part("ONNX export", "import onnxscript", retry),
        Part("TensorBoard", "from torch.utils.tensorboard import SummaryWriter", retry),
    )
    missing = [part for part in parts if not succeeds([PYTHON, "-c", part.code])]
    there = [f"{name} {version}" for name, version in torch.items()]
    there += [part.name for part in parts if part not in missing]
    say(f"There: {', '.join(there)}.")
    for part in missing:
        say(f"Missing: {part.name} ({part.fix}).")
    if missing:
        say("The suite runs without what is missing, and says so where it would be measured.")


def torch_versions(python: str) -> dict[str, str]:
    """The torch and torchvision that ``python`` can import; empty without a recent enough torch."""
    found = {}
    for name in ("torch", "torchvision"):
        # pip compares with the package's version; __version__ may carry "+cu130" beside it.
        code = f"import {name}, importlib.metadata; print(importlib.metadata.version({name!r}))"
        if version := output([python, "-c", code]):
            found[name] = version
    oldest = next(each for each in PROJECT["dependencies"] if each.startswith("torch>="))
    return found if release(found.get("torch", "0")) >= release(oldest) else {}


def release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version or a requirement."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def install_system(*needs: str) -> None:
    """Install system packages where that is ours to do: as root, with apt-get."""
    if not needs or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    command = how_to_install(*needs)
    say(f"Running {command}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for each in ("apt-get update", command):
        subprocess.run([*shlex.split(each), "-qq"], env=environment, stdin=subprocess.DEVNULL)


def how_to_install(*needs: str) -> str:
    """The command that installs system packages here, or their names where none is known."""
    installer = next((name for name in INSTALLERS if shutil.which(name)), None)
    known = [SYSTEM_PACKAGES[need].get(installer or "") for need in needs]
    if installer is None or None in known:
        return f"install {', '.join(needs)} with your system's package manager"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = " ".join(filter(None, known)).format(version=version)
    if installer == "apt-get" and platform.freedesktop_os_release().get("ID") == "ubuntu":
        packages = packages.replace("libturbojpeg0", "libturbojpeg")
    sudo = "" if installer == "brew" or os.geteuid() == 0 else "sudo "
    return f"{sudo}{INSTALLERS[installer]} {packages}"


def has_module(name: str) -> bool:
    """Whether this Python can import ``name``, also one that was installed a moment ago."""
    importlib.invalidate_caches()
    return importlib.util.find_spec(name) is not None


def succeeds(command: list[str], text: str = "") -> bool:
    """Whether a command, given ``text`` as its input, ends with 0."""
    return subprocess.run(command, input=text, text=True, capture_output=True).returncode == 0


def output(command: list[str]) -> str:
    """What a command prints, or nothing when it fails."""
    result = subprocess.run(command, text=True, capture_output=True)
    return result.stdout.strip() if result.returncode == 0 else ""


def say(line: str) -> None:
    """Print a line at once, so that it stands before what a command prints."""
    print(line, flush=True)


def stop(problem: str, fix: str) -> NoReturn:
    """End with the problem and its fix."""
    sys.exit(f"{problem}\n{fix}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted; make setup goes on from here.")
