"""Watching a machine while it trains: what each look reads, and the thread that looks."""

import csv
import subprocess
import threading
from collections.abc import Callable, Mapping

Look = Callable[[], Mapping[str, float]]
"""One look at the machine: what was read, by name."""

SMI_FIELDS = ("utilization.gpu", "memory.used", "temperature.gpu", "power.draw")


class Watcher:
    """Looks every ``period_seconds`` while a turn goes on, the first time after half of that.

    A turn of n periods then holds n looks. Between turns nothing waits: a timer would run on while
    the process is stopped, and the next turn would pay for a look that is overdue.
    """

    def __init__(self, look: Look, period_seconds: float) -> None:
        self._look = look
        self._period = period_seconds
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.looks = 0
        self.last: Mapping[str, float] = {}

    def start(self) -> None:
        """Begin to look, and to count the looks."""
        self.stop()
        self.looks, self.last = 0, {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(self._stopped,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End looking; returns when the last look has ended."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self, stopped: threading.Event) -> None:
        delay = self._period / 2
        while not stopped.wait(delay):
            delay = self._period
            self.last = self._look()
            self.looks += 1


def counters(gpu_uuid: str | None) -> Look:
    """Reads what psutil knows of CPU, memory and disks, and NVML of the GPU with this UUID."""
    import psutil

    look_at_gpu = None if gpu_uuid is None else _nvml(gpu_uuid)

    def look() -> Mapping[str, float]:
        seen = {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
        }
        # None in a container that shows no disks.
        if (disks := psutil.disk_io_counters()) is not None:
            seen |= {"disk_read_bytes": disks.read_bytes, "disk_write_bytes": disks.write_bytes}
        return seen if look_at_gpu is None else {**seen, **look_at_gpu()}

    return look


def smi() -> Look:
    """Starts nvidia-smi for each look, as ``watch -n 1 nvidia-smi`` does."""
    command = ["nvidia-smi", f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits"]

    def look() -> Mapping[str, float]:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return parse_smi(answer)

    return look


def parse_smi(answer: str) -> dict[str, float]:
    """The first GPU's line of nvidia-smi's CSV; fields that it doesn't support are left out."""
    line = next(csv.reader(answer.splitlines()), [])
    seen = {}
    for name, field in zip(SMI_FIELDS, line, strict=False):
        try:
            seen[name] = float(field)
        except ValueError:
            continue
    return seen


def _nvml(uuid: str) -> Look | None:
    """Reads the GPU's counters; None where NVML or the GPU can't be reached (WSL, Jetson)."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None
    reads: Mapping[str, Callable[[], float]] = {
        "gpu_utilization_percent": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "gpu_memory_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used,
        "gpu_temperature_celsius": lambda: pynvml.nvmlDeviceGetTemperature(
            handle, pynvml.NVML_TEMPERATURE_GPU
        ),
        "gpu_power_watts": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
    }

    def look() -> Mapping[str, float]:
        seen = {}
        for name, read in reads.items():
            try:
                seen[name] = float(read())
            except pynvml.NVMLError:
                continue
        return seen

    return look
