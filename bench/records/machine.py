"""Which machine and which software a run was made on, without anything that names a person.

Nothing here imports torch: versions come from the installed packages' metadata.
"""

import importlib.metadata
import math
import os
import platform
import re
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from bench.errors import UserError

PACKAGES = (
    "torch",
    "torchvision",
    "torchcodec",
    "pillow",
    "pillow-simd",
    "PyTurboJPEG",
    "jpeg4py",
    "simplejpeg",
    "opencv-python-headless",
    "opencv-python",
    "numpy",
    "pandas",
    "scipy",
    "statsmodels",
    "matplotlib",
    "pytest",
    "pytest-benchmark",
    "scikit-image",
    "scikit-learn",
    "nvidia-ml-py",
    "onnx",
    "onnxruntime",
)


def cache_folder() -> Path:
    """The user's cache folder for this suite: the corpus, derived files, the machine's id."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "torch-tips-bench"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "torch-tips-bench"
    return Path.home() / ".cache" / "torch-tips-bench"


def core_ids() -> tuple[int, ...]:
    """The logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """How many cores' worth of time this process may use: affinity and cgroup quota, at least 1."""
    quota = min(_cgroup_quotas(), default=math.inf)
    return max(1, min(len(core_ids()), math.ceil(quota) if quota < math.inf else len(core_ids())))


def physical_cores() -> int:
    """How many physical cores lie behind the usable ones."""
    topology = Path("/sys/devices/system/cpu")
    cores = set()
    for core in core_ids():
        try:
            folder = topology / f"cpu{core}" / "topology"
            package = (folder / "physical_package_id").read_text().strip()
            cores.add((package, (folder / "core_id").read_text().strip()))
        except OSError:
            physical = psutil.cpu_count(logical=False) or usable_cores()
            return min(physical, usable_cores())
    return min(len(cores), usable_cores())


def cpu_model() -> str | None:
    """The processor's name as the machine tells it."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    match = re.search(r"^(?:model name|Processor|Hardware)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match.group(1).strip() if match else platform.machine()


def machine_name(gpu_model: str | None = None) -> str:
    """A name from the hardware, never from the host: ``nvidia-h200``, ``amd-epyc-2c``."""
    if gpu_model:
        return _slug(gpu_model)
    model = re.sub(r"\b\d+-Core\b|\bProcessor\b|\bCPU\b|@.*|\bwith\b.*", "", cpu_model() or "cpu")
    return f"{_slug(model)}-{usable_cores()}c"


def machine_id() -> str:
    """A random id, made once and kept in the user's cache folder."""
    path = cache_folder() / "machine_id"
    try:
        known = path.read_text(encoding="ascii").strip()
        if known:
            return known
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(
            f"The cache folder cannot be read: {error.strerror} ({path.parent}).",
            "Set XDG_CACHE_HOME to a folder that you may read and write.",
        ) from error
    new = uuid.uuid4().hex[:12]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new + "\n", encoding="ascii")
    except OSError as error:
        raise UserError(
            f"The cache folder cannot be written: {error.strerror} ({path.parent}).",
            "Set XDG_CACHE_HOME to a folder that you may read and write.",
        ) from error
    return new


def environment(device: Mapping[str, Any]) -> dict[str, Any]:
    """The machine and the software, for ``environment.json`` and the columns of ``effects.csv``.

    ``device`` is what a process that may import torch saw (``bench.workloads.device.probe``).
    """
    packages = {}
    for package in PACKAGES:
        try:
            packages[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    gpu_model = device.get("gpu_model")
    return {
        "machine_id": machine_id(),
        "machine_name": machine_name(gpu_model),
        "cpu_model": cpu_model(),
        "usable_cores": usable_cores(),
        "physical_cores": physical_cores(),
        "logical_cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": _system(),
        "kernel": platform.release(),
        "python_version": platform.python_version(),
        "torch_version": packages.get("torch"),
        "torchvision_version": packages.get("torchvision"),
        "packages": packages,
        **device,
    }


_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def _cgroup_quotas() -> list[float]:
    """CPU quotas, in cores, of this process's control groups and their parents."""
    quotas = []
    try:
        groups = _OWN_GROUPS.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    for group in groups:
        _, controllers, path = group.split(":", 2)
        root = _GROUPS / ("cpu" if "cpu" in controllers.split(",") else "")
        folder = root / path.lstrip("/")
        for level in (folder, *folder.parents):
            if (quota := _quota(level)) is not None:
                quotas.append(quota)
            if level == root:
                break
    return quotas


def _quota(folder: Path) -> float | None:
    try:
        if (v2 := folder / "cpu.max").exists():
            quota, period = v2.read_text(encoding="ascii").split()
        elif (v1 := folder / "cpu.cfs_quota_us").exists():
            quota = v1.read_text(encoding="ascii")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii")
        else:
            return None
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):
        return None


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return f"{platform.system()} {platform.mac_ver()[0] or platform.release()}".strip()


def _slug(name: str) -> str:
    name = re.sub(r"\((?:R|TM|C)\)", "", name, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
