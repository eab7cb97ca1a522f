"""What about a machine and its software would spoil a training run, or a measurement of one.

Each question is a pair: a function that judges facts, pure and tested, and above it, in
``QUESTIONS``, one that reads them from the system.
"""

import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bench.workloads import disks
from bench.workloads.work import CheckResult, Context
from bench.workloads.workers import MOST_WORKERS, PREFETCH_FACTORS, usual_workers

SYS = Path("/sys")
SHARED_MEMORY = Path("/dev/shm")
NVIDIA_MARKS = (
    Path("/proc/driver/nvidia/version"),
    Path("/dev/nvidiactl"),
    Path("/usr/lib/wsl/lib/libcuda.so.1"),
)
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

Version = tuple[int, int]


def judge_isolation(
    *, in_environment: bool, conda_name: str | None, in_container: bool
) -> CheckResult:
    """Whether what is installed for this project can break another, or be broken by it."""
    evidence = {"virtual": in_environment, "conda": conda_name, "container": in_container}
    if conda_name == "base" and not in_container:
        return _warn(
            "conda's base environment is active, which every project shares",
            "Make one for this project: conda create -n tips python, conda activate tips",
            evidence,
        )
    if conda_name or in_environment:
        kind = f"the conda environment {conda_name}" if conda_name else "a virtual environment"
        return _pass(f"{kind} is active", evidence)
    if in_container:
        return _pass("no virtual environment, but a container of its own", evidence)
    return _warn(
        "packages come from the system's Python, which other programs change too",
        "python3 -m venv .venv && . .venv/bin/activate",
        evidence,
    )


def judge_driver(
    *,
    built_for: str | None,
    driver: str | None,
    driver_supports: Version | None,
    cuda_reason: str | None,
) -> CheckResult:
    """Whether torch's CUDA build runs on the installed driver.

    ``built_for``: torch.version.cuda, "12.8"; ``driver_supports``: the newest CUDA that the driver
    knows; ``cuda_reason``: why CUDA doesn't start, None where it does. A driver runs every CUDA of
    its own major version, and all older ones.
    """
    evidence = {"torch_cuda": built_for, "driver": driver, "driver_cuda": _dotted(driver_supports)}
    if built_for is None:
        return _fail(
            "there is an NVIDIA GPU, and this torch is built without CUDA",
            "Install torch for CUDA: pytorch.org/get-started names the command.",
            evidence,
        )
    wanted = _version(built_for)
    if driver_supports and wanted and wanted[0] > driver_supports[0]:
        return _fail(
            f"torch is built for CUDA {built_for}, and driver {driver} supports CUDA up to "
            f"{_dotted(driver_supports)}",
            "Install a newer driver, or torch for that CUDA.",
            evidence,
        )
    if cuda_reason is not None:
        return _fail(
            cuda_reason,
            "Look at nvidia-smi: it must list the GPU; in a container, start it with --gpus all.",
            evidence,
        )
    if driver_supports and wanted and wanted > driver_supports:
        return _warn(
            f"torch is built for CUDA {built_for}, newer than the {_dotted(driver_supports)} of "
            f"driver {driver}: it runs, but kernels that are compiled at run time may not",
            "Install a newer driver.",
            evidence,
        )
    return _pass(f"CUDA {built_for} starts with driver {driver or 'unknown'}", evidence)


def judge_architecture(*, capability: Version, built_for: Sequence[str]) -> CheckResult:
    """Whether torch holds code for a GPU of this compute capability.

    ``built_for``: torch.cuda.get_arch_list(). Machine code (``sm_80``) runs on its own major
    version from its minor version on, an ``a`` at its end on that very one; intermediate code
    (``compute_90``) is compiled for any newer GPU at the first start.
    """
    evidence = {"gpu": f"sm_{capability[0]}{capability[1]}", "torch": list(built_for)}
    name = evidence["gpu"]
    found = [match for arch in built_for if (match := _ARCHITECTURE.fullmatch(arch))]
    for match in found:
        has = (int(match["major"]), int(match["minor"]))
        is_its_own = has == capability
        runs = has[0] == capability[0] and has[1] <= capability[1] and match["exact"] != "a"
        if match["kind"] == "sm" and (is_its_own or runs):
            return _pass(f"torch holds code for {name}", evidence)
    for match in found:
        has = (int(match["major"]), int(match["minor"]))
        if match["kind"] == "compute" and has <= capability and match["exact"] != "a":
            return _warn(
                f"torch holds no code for {name}; the driver compiles it at the first start",
                "Install a torch that lists this GPU's architecture.",
                evidence,
            )
    return _fail(
        f"torch holds no code for {name}, only {', '.join(built_for) or 'none at all'}",
        "Install a torch that lists this GPU's architecture, an older or a newer one.",
        evidence,
    )


_ARCHITECTURE = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<exact>[af]?)")


def judge_cudnn(*, version: int | None, convolved: str | None) -> CheckResult:
    """Whether convolutions run on cuDNN; ``convolved``: why one didn't, None where it did."""
    evidence = {"cudnn": version}
    if version is None or convolved is not None:
        return _fail(
            convolved or "torch finds no cuDNN",
            "Install torch with its own cuDNN (the wheels of pytorch.org), and unset "
            "LD_LIBRARY_PATH where it names another.",
            evidence,
        )
    return _pass(f"a convolution ran with cuDNN {version}", evidence)


def judge_release(
    *, torch: str, torchvision: str | None, required: str | None, operator: str | None
) -> CheckResult:
    """Whether torch and torchvision are of one release.

    ``required``: what torchvision's package demands of torch ("torch==2.9.0"); ``operator``: why
    a compiled operator of torchvision's failed, None where it worked.
    """
    evidence = {"torch": torch, "torchvision": torchvision, "torchvision_requires": required}
    remedy = "Install both with one command: pip install --upgrade torch torchvision"
    if torchvision is None:
        return _fail("torchvision is not installed", remedy, evidence)
    pair = f"torch {torch} and torchvision {torchvision}"
    if operator is not None:
        return _fail(f"{pair} don't work together: {operator}", remedy, evidence)
    if required is not None and not _satisfies(torch, required):
        return _fail(f"{pair}: the latter wants {required}", remedy, evidence)
    expected = _partner(torch)
    if expected and expected != _version(torchvision):
        return _warn(
            f"{pair}: torch's release has torchvision {_dotted(expected)}", remedy, evidence
        )
    builds = [version.partition("+")[2] for version in (torch, torchvision)]
    if all(builds) and builds[0] != builds[1]:
        return _warn(f"{pair} are built for different platforms", remedy, evidence)
    return _pass(f"{pair} are of one release", evidence)


def judge_pillow(
    *, imported: str, pillow: str | None, pillow_simd: str | None, turbo: bool
) -> CheckResult:
    """Which of Pillow and pillow-simd is imported; ``pillow*``: the installed versions.

    Both are called PIL, and installing one over the other leaves both listed and one broken.
    """
    is_simd = ".post" in imported
    name = f"{'pillow-simd' if is_simd else 'Pillow'} {imported}"
    evidence = {"imported": imported, "pillow": pillow, "pillow-simd": pillow_simd, "turbo": turbo}
    remedy = "pip uninstall -y pillow pillow-simd, then install one of them."
    if pillow and pillow_simd:
        return _fail(f"Pillow and pillow-simd are both installed; {name} is used", remedy, evidence)
    listed = pillow_simd if is_simd else pillow
    if listed is not None and listed != imported:
        return _fail(
            f"{name} is imported, and the installed package is {pillow_simd or pillow}",
            remedy,
            evidence,
        )
    if not turbo:
        return _warn(
            f"{name} is built without libjpeg-turbo and decodes slowly",
            "Install the wheel: pip install --force-reinstall --only-binary :all: pillow",
            evidence,
        )
    return _pass(f"{name}, with libjpeg-turbo", evidence)


def judge_cores(*, usable: int, counted: int) -> CheckResult:
    """Whether programs that ask ``os.cpu_count()`` take more than this process may use."""
    evidence = {"usable": usable, "os.cpu_count": counted}
    if usable < counted:
        return _warn(
            f"usable cores: {usable}, and os.cpu_count() says {counted}: what trusts it starts too "
            "many threads and workers",
            "Set OMP_NUM_THREADS and num_workers by hand, or widen the container's quota.",
            evidence,
        )
    return _pass(f"all cores are usable: {usable}", evidence)


def judge_shared_memory(*, total: int, free: int, needed: int) -> CheckResult:
    """Whether the batches that loader workers hand over fit into /dev/shm; all in bytes."""
    evidence = {"total_bytes": total, "free_bytes": free, "needed_bytes": needed}
    told = f"{_mib(free)} of {_mib(total)} are free, the loaders need up to {_mib(needed)}"
    remedy = "In a container: docker run --ipc=host or --shm-size=8g; else mount /dev/shm larger."
    if free < needed:
        return _fail(told, remedy, evidence)
    if free < 2 * needed:
        return _warn(told, remedy, evidence)
    return _pass(told, evidence)


def judge_open_files(*, soft: int | None, hard: int | None, needed: int) -> CheckResult:
    """Whether loaders stay below the limit of open files; None is no limit.

    Each tensor that a worker hands over is an open file until it is freed.
    """
    evidence = {"soft": soft, "hard": hard, "needed": needed}
    if soft is None:
        return _pass("there is no limit", evidence)
    most = "unlimited" if hard is None else hard
    told = f"{soft} files may be open, the loaders need up to {needed}"
    if soft < needed:
        return _fail(told, f"ulimit -n {most}", evidence)
    if soft < 2 * needed:
        return _warn(told, f"ulimit -n {most}", evidence)
    return _pass(told, evidence)


def judge_governor(*, governors: Sequence[str], preferences: Sequence[str]) -> CheckResult:
    """How the clock of the usable cores is chosen.

    ``preferences``: the energy preferences of processors that choose their clock themselves; for
    these "powersave" only means that they may.
    """
    names, wishes = sorted(set(governors)), sorted(set(preferences))
    evidence = {"governors": names, "energy_preferences": wishes}
    told = ", ".join(names) + (f" ({', '.join(wishes)})" if wishes else "")
    remedy = "sudo cpupower frequency-set -g performance"
    saves = "power" in wishes or (not wishes and "powersave" in names)
    if saves:
        return _warn(f"{told}: the cores save power and run slowly", remedy, evidence)
    if len(names) > 1:
        return _warn(f"{told}: cores differ in speed", remedy, evidence)
    if names == ["performance"]:
        return _pass(told, evidence)
    return _pass(f"{told}: the clock follows the load; steadier is: {remedy}", evidence)


def judge_power(*, has_battery: bool, on_battery: bool | None) -> CheckResult:
    """Whether the machine runs on mains; ``on_battery`` is None where it doesn't tell."""
    evidence = {"has_battery": has_battery, "on_battery": on_battery}
    if has_battery and on_battery is None:
        return _warn(
            "a battery that doesn't tell whether it is charged or used",
            "See that the machine is plugged in.",
            evidence,
        )
    if on_battery:
        return _warn(
            "on battery: CPU and GPU are held back", "Plug the machine in, and wait.", evidence
        )
    return _pass("mains" if has_battery else "mains, no battery", evidence)


def judge_disk(*, kind: str) -> CheckResult:
    """Whether the disk under the data keeps up with the loaders."""
    evidence = {"kind": kind}
    if kind in (disks.ROTATING, disks.NETWORK):
        return _warn(
            f"the data is on a {kind}: the first epoch waits for it",
            "Copy it to a local SSD, or pack it into shards that are read from end to end.",
            evidence,
        )
    if kind == disks.VIRTUAL:
        return _pass(f"a {kind}: what is behind it is not told, `storage` measures it", evidence)
    return _pass(kind, evidence)


def needs_nvidia(context: Context) -> str | None:
    """The need of what is asked about an NVIDIA GPU, whether torch can use it or not."""
    if context.device.startswith("cuda") or any(mark.exists() for mark in NVIDIA_MARKS):
        return None
    return "no NVIDIA GPU or driver is seen"


def needs_capability(context: Context) -> str | None:
    """The need of a GPU that torch sees, even one that it has no code for."""
    import torch

    if unmet := needs_nvidia(context):
        return unmet
    try:
        torch.cuda.get_device_capability()
    except Exception as error:
        return f"CUDA doesn't start: {_first_line(error)}"
    return None


def needs_governor(context: Context) -> str | None:
    """The need of a system that tells how its clock is chosen."""
    if _cpufreq("scaling_governor"):
        return None
    return "this system doesn't tell its CPU governor (as virtual machines don't)"


def needs_shared_memory(context: Context) -> str | None:
    """The need of a system that hands tensors over in /dev/shm."""
    return None if SHARED_MEMORY.is_dir() else "this system has no /dev/shm"


def needs_known_disk(context: Context) -> str | None:
    """The need of a system that tells what disk the data is on."""
    if disks.disk_kind(data_folder(context)) == disks.UNKNOWN:
        return "the system doesn't tell what disk the data is on"
    return None


def data_folder(context: Context) -> Path:
    """Where the images lie, or will lie where they are not prepared yet."""
    folder = context.images.folder if context.images.paths else context.cache
    return next(place for place in (folder, *folder.parents) if place.exists())


def loader_needs(context: Context) -> tuple[int, int]:
    """What loaders of the catalogue take: bytes of /dev/shm, and open files of the largest.

    The loaders of a tip's variants are there at one time.
    """
    usual, largest = usual_workers(context), min(MOST_WORKERS, 2 * context.cores)
    numbers = {usual, 1, 2, min(MOST_WORKERS, context.cores), largest}
    prefetched = PREFETCH_FACTORS[0]
    shared = max(prefetched * sum(numbers), usual * sum(PREFETCH_FACTORS))
    batch_bytes = context.batch_size * 3 * context.image_size**2 * 4
    batches = prefetched * largest + 1
    # A batch is two tensors; a worker has three pipes and queues; the program itself some files.
    return shared * batch_bytes, 2 * batches + 6 * largest + 64


def isolation(context: Context) -> CheckResult:
    """A virtual environment, conda's, or a container."""
    prefix = Path(sys.prefix)
    conda_name = "base" if (prefix / "condabin").is_dir() else prefix.name
    return judge_isolation(
        in_environment=sys.prefix != sys.base_prefix,
        conda_name=conda_name if (prefix / "conda-meta").is_dir() else None,
        in_container=any(mark.exists() for mark in CONTAINER_MARKS),
    )


def driver(context: Context) -> CheckResult:
    """Torch's CUDA build against the NVIDIA driver."""
    import torch

    from bench.workloads.device import probe

    version, supports = _nvidia_driver()
    return judge_driver(
        built_for=torch.version.cuda,
        driver=version,
        driver_supports=supports,
        cuda_reason=probe()["cuda_reason"],
    )


def architecture(context: Context) -> CheckResult:
    """The first GPU's architecture against those in torch."""
    import torch

    return judge_architecture(
        capability=torch.cuda.get_device_capability(), built_for=torch.cuda.get_arch_list()
    )


def cudnn(context: Context) -> CheckResult:
    """A convolution on the GPU, with cuDNN."""
    import torch

    convolved = None
    try:
        images = torch.randn(2, 3, 32, 32, device="cuda")
        if not torch.backends.cudnn.is_acceptable(images):
            convolved = "torch does not use cuDNN for a tensor on the GPU"
        torch.nn.functional.conv2d(images, torch.randn(4, 3, 3, 3, device="cuda")).sum().item()
    except RuntimeError as error:
        convolved = _first_line(error)
    return judge_cudnn(version=torch.backends.cudnn.version(), convolved=convolved)


def release(context: Context) -> CheckResult:
    """The versions of torch and torchvision: the versions, and whether their compiled parts fit."""
    import torch

    version = _installed("torchvision")
    required = operator = None
    if version is not None:
        wanted = importlib.metadata.requires("torchvision") or ()
        required = next((line for line in wanted if re.match(r"torch\s*[(=<>!~]", line)), None)
        try:
            from torchvision.ops import nms

            nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)
        except Exception as error:
            operator = _first_line(error)
    return judge_release(
        torch=torch.__version__, torchvision=version, required=required, operator=operator
    )


def pillow(context: Context) -> CheckResult:
    """Which PIL is imported, and how its JPEG decoder was built."""
    import PIL
    from PIL import features

    return judge_pillow(
        imported=PIL.__version__,
        pillow=_installed("pillow"),
        pillow_simd=_installed("pillow-simd"),
        turbo=bool(features.check_feature("libjpeg_turbo")),
    )


def cores(context: Context) -> CheckResult:
    """Affinity and quota against what ``os.cpu_count()`` says."""
    return judge_cores(usable=context.cores, counted=os.cpu_count() or context.cores)


def shared_memory(context: Context) -> CheckResult:
    """/dev/shm against what the loaders hand over."""
    place = os.statvfs(SHARED_MEMORY)
    return judge_shared_memory(
        total=place.f_blocks * place.f_frsize,
        free=place.f_bavail * place.f_frsize,
        needed=loader_needs(context)[0],
    )


def open_files(context: Context) -> CheckResult:
    """The limit of open files against what the loaders open."""
    import resource

    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    return judge_open_files(soft=soft, hard=hard, needed=loader_needs(context)[1])


def governor(context: Context) -> CheckResult:
    """The CPU governors of the usable cores."""
    return judge_governor(
        governors=_cpufreq("scaling_governor"),
        preferences=_cpufreq("energy_performance_preference"),
    )


def power(context: Context) -> CheckResult:
    """Mains or battery."""
    import psutil

    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    plugged = None if battery is None else battery.power_plugged
    return judge_power(
        has_battery=battery is not None, on_battery=None if plugged is None else not plugged
    )


def disk(context: Context) -> CheckResult:
    """The kind of disk under the data."""
    return judge_disk(kind=disks.disk_kind(data_folder(context)))


QUESTIONS: Mapping[str, Callable[[Context], CheckResult]] = {
    "virtual environment": isolation,
    "CUDA build and driver": driver,
    "GPU architecture": architecture,
    "cuDNN": cudnn,
    "torch and torchvision": release,
    "Pillow": pillow,
    "usable cores": cores,
    "shared memory": shared_memory,
    "open files": open_files,
    "CPU governor": governor,
    "power source": power,
    "disk of the data": disk,
}


def _pass(seen: str, evidence: Mapping[str, Any]) -> CheckResult:
    return CheckResult(verdict="pass", reason=seen, evidence=evidence)


def _warn(seen: str, remedy: str, evidence: Mapping[str, Any]) -> CheckResult:
    return _found("warn", seen, remedy, evidence)


def _fail(seen: str, remedy: str, evidence: Mapping[str, Any]) -> CheckResult:
    return _found("fail", seen, remedy, evidence)


def _found(
    verdict: Literal["warn", "fail"], seen: str, remedy: str, evidence: Mapping[str, Any]
) -> CheckResult:
    return CheckResult(verdict=verdict, reason=f"{seen}. {remedy}", evidence=evidence)


def _nvidia_driver() -> tuple[str | None, Version | None]:
    """The driver's version, and the newest CUDA that it supports."""
    try:
        import pynvml

        pynvml.nvmlInit()
        version, supports = pynvml.nvmlSystemGetDriverVersion(), _cuda_of(pynvml)
    except Exception:
        return None, None
    return version.decode() if isinstance(version, bytes) else version, supports


def _cuda_of(pynvml: Any) -> Version | None:
    number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    return (number // 1000, number % 1000 // 10) if number > 0 else None


def _cpufreq(name: str) -> list[str]:
    """A frequency setting of each core that this process may use, where the system tells it."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    found = []
    for core in sorted(allowed):
        path = SYS / "devices" / "system" / "cpu" / f"cpu{core}" / "cpufreq" / name
        try:
            found.append(path.read_text(encoding="ascii").strip())
        except OSError:
            continue
    return found


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _satisfies(version: str, requirement: str) -> bool:
    from packaging.requirements import Requirement
    from packaging.version import Version as Parsed

    # "2.9.0+cu128" is 2.9.0 for one that asks for it, and so is a vendor's "2.9.0a0".
    return Requirement(requirement).specifier.contains(Parsed(version).base_version)


def _partner(torch: str) -> Version | None:
    """The torchvision that belongs to a torch: 0.15 came with 2.0, and both have moved together."""
    version = _version(torch)
    return (0, version[1] + 15) if version and version[0] == 2 else None


def _version(text: str) -> Version | None:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _dotted(version: Version | None) -> str | None:
    return None if version is None else f"{version[0]}.{version[1]}"


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
