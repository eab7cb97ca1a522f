"""NVML's readings of one GPU, each field guarded: what is not supported is None, never 0."""

import dataclasses
from collections.abc import Callable
from typing import Any

THROTTLE_REASONS = {
    0x0000000000000004: "software power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons that mean that the GPU was held back."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuReading:
    """One look at a GPU. ``energy_joules`` counts from the driver's start."""

    utilization_percent: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    energy_joules: float | None = None
    compute_processes: int | None = None


class Gpu:
    """The GPU with this UUID. CUDA's order of devices is not NVML's, so the UUID decides."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def find(cls, uuid: str | None) -> "Gpu | None":
        """The GPU, or None where NVML or the GPU cannot be reached (WSL, Jetson, no driver)."""
        if uuid is None:
            return None
        try:
            import pynvml

            pynvml.nvmlInit()
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(with_prefix(uuid)))
        except Exception:
            return None

    def read(self) -> GpuReading:
        """What NVML tells now."""
        nvml, handle = self._library, self._handle
        reasons = _guarded(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle), 0, 2**64)
        return GpuReading(
            utilization_percent=_guarded(
                lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu, 0, 100
            ),
            power_watts=_guarded(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, 0, 5_000),
            temperature_celsius=_guarded(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU), -50, 150
            ),
            sm_clock_mhz=_guarded(
                lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM), 1, 10_000
            ),
            throttle_reasons=None if reasons is None else throttle_reasons(int(reasons)),
            energy_joules=_guarded(
                lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3, 0, 1e15
            ),
            compute_processes=_count(
                lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
            ),
        )

    def driver_version(self) -> str | None:
        """The driver's version."""
        try:
            version = self._library.nvmlSystemGetDriverVersion()
        except Exception:
            return None
        return version.decode() if isinstance(version, bytes) else str(version)


def with_prefix(uuid: str) -> str:
    """A UUID as NVML and CUDA_VISIBLE_DEVICES write it; torch leaves ``GPU-`` out."""
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """The reasons in NVML's bit field that mean throttling; idling and set clocks don't."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def _guarded(read: Callable[[], float], lowest: float, highest: float) -> float | None:
    """The value, or None when the field is not supported or its value is absurd."""
    try:
        value = read()
    except Exception:
        return None
    return value if lowest <= value <= highest else None


def _count(read: Callable[[], int]) -> int | None:
    value = _guarded(read, 0, 1_000_000)
    return None if value is None else int(value)
