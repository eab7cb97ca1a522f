"""What the machine did during a turn: the arm's own CPU time and what others used beside it.

All readings are taken while the arm is frozen, before and after its turn, so that they cost the
turn nothing. Without /proc (macOS) the values are None.
"""

import dataclasses
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.engine import clock
from bench.engine.tree import HAS_PROC
from bench.workloads.nvml import Gpu, GpuReading

FOREIGN_CPU_PERCENT = 20.0
"""Turns during which others used more of a core than this are flagged, never dropped."""

_TICK = os.sysconf("SC_CLK_TCK")
_SURE_TICKS = 2.5
"""The kernel counts in ticks of 10 ms: in a short turn one or two of them prove nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counters at one moment, all of them growing: seconds, bytes."""

    now: float
    own_cpu_seconds: float
    runner_cpu_seconds: float
    busy_seconds: float
    run_delay_seconds: float
    disk_read_bytes: int
    gpu: GpuReading | None


class Monitor:
    """Reads one arm's tree on its cores, and the GPU where there is one."""

    def __init__(self, cores: Sequence[int], gpu: Gpu | None = None) -> None:
        self._cores = tuple(cores)
        self._gpu = gpu

    def gpu_processes(self) -> int | None:
        """How many processes compute on the GPU now; None where that isn't known."""
        return self._gpu.read().compute_processes if self._gpu else None

    def snapshot(self, members: Sequence[int]) -> Snapshot | None:
        """The counters of these processes now; None without /proc."""
        if not HAS_PROC:
            return None
        # The runner's own work around a turn is not foreign.
        runner = time.process_time()
        cpu = delay = 0.0
        read = 0
        for position, pid in enumerate(members):
            cpu += _cpu_seconds(pid, with_children=position == 0)
            delay += _run_delay_seconds(pid)
            read += _read_bytes(pid)
        return Snapshot(
            now=clock.now(),
            own_cpu_seconds=cpu,
            runner_cpu_seconds=runner,
            busy_seconds=_busy_seconds(self._cores),
            run_delay_seconds=delay,
            disk_read_bytes=read,
            gpu=self._gpu.read() if self._gpu else None,
        )


def between(
    before: Snapshot | None, after: Snapshot | None, *, own_gpu_processes: int | None
) -> dict[str, Any]:
    """The monitors' columns of ``measurements.csv`` for the turn between two snapshots.

    ``own_gpu_processes``: how many processes of all living arms are on the GPU; one with more of
    them than that serves others too (NVML's process ids are the host's, so only counts compare).
    """
    if before is None or after is None:
        return {}
    elapsed = after.now - before.now
    own = after.own_cpu_seconds - before.own_cpu_seconds
    runner = after.runner_cpu_seconds - before.runner_cpu_seconds
    foreign = max(0.0, after.busy_seconds - before.busy_seconds - own - runner)
    columns: dict[str, Any] = {
        "cpu_percent": 100 * own / elapsed,
        "foreign_cpu_percent": 100 * foreign / elapsed,
        "run_delay_seconds": max(0.0, after.run_delay_seconds - before.run_delay_seconds),
        "disk_read_bytes": max(0, after.disk_read_bytes - before.disk_read_bytes),
    }
    flags = []
    if columns["foreign_cpu_percent"] > FOREIGN_CPU_PERCENT and foreign > _SURE_TICKS / _TICK:
        flags.append("other processes used the CPU")
    if after.gpu:
        columns |= _gpu_columns(before.gpu, after.gpu)
        if after.gpu.throttle_reasons:
            flags.append("the GPU was throttled")
        seen = after.gpu.compute_processes
        if seen is not None and own_gpu_processes is not None and seen > own_gpu_processes:
            flags.append("other processes used the GPU")
    return columns | {"flags": "; ".join(flags) or None}


def pss_bytes(members: Sequence[int]) -> int | None:
    """Proportional set size of these processes together: memory that they share counts once.

    Only memory of their own and shared memory count. Mapped files (torch's libraries) do not:
    their share of a process changes when any other process on the machine maps them.
    """
    total = 0
    for pid in members:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_bytes()
        except OSError:
            continue
        for line in rollup.splitlines():
            if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                total += 1024 * int(line.split()[1])
    return total or None


def _gpu_columns(before: GpuReading | None, after: GpuReading) -> dict[str, Any]:
    energy = None
    if before and before.energy_joules is not None and after.energy_joules is not None:
        energy = after.energy_joules - before.energy_joules
    reasons = after.throttle_reasons
    return {
        "gpu_utilization_percent": after.utilization_percent,
        "gpu_power_watts": after.power_watts,
        "gpu_temperature_celsius": after.temperature_celsius,
        "gpu_sm_clock_mhz": after.sm_clock_mhz,
        "gpu_throttle_reasons": None if reasons is None else ", ".join(reasons) or "none",
        "energy_joules": energy,
    }


def _cpu_seconds(pid: int, *, with_children: bool) -> float:
    """User and system time of a process; with that of its ended children for the root."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0.0
    fields = stat[stat.rindex(b")") + 2 :].split()
    return sum(int(field) for field in fields[11 : 15 if with_children else 13]) / _TICK


def _run_delay_seconds(pid: int) -> float:
    """Time that the threads of a process were ready to run and waited for a core."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - called around each turn
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_bytes().split()[1])
    except (OSError, IndexError):
        pass
    return total / 1e9


def _read_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_bytes().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(b"read_bytes:")), 0)


def _busy_seconds(cores: Sequence[int]) -> float:
    """Time that these cores ran anything, the hypervisor's other guests (steal) included."""
    wanted = {f"cpu{core}".encode() for core in cores}
    total = 0
    for line in Path("/proc/stat").read_bytes().splitlines():
        name, *fields = line.split()
        if name in wanted:
            user, nice, system, _idle, _iowait, irq, softirq, steal = (
                int(field) for field in fields[:8]
            )
            total += user + nice + system + irq + softirq + steal
    return total / _TICK
