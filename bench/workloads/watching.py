"""Watching a machine while it trains: what each look reads, and the thread that looks."""

import csv
import dataclasses
import subprocess
import threading
from collections.abc import Callable, Mapping

from bench.workloads.nvml import Gpu

Look = Callable[[], Mapping[str, float]]
"""One look at the machine: what was read, by name."""

SMI_FIELDS = ("utilization.gpu", "memory.used", "temperature.gpu", "power.draw")


class Watcher:
    """Looks every ``period_seconds`` while a turn goes on, the first time after a quarter of that.

    A turn of n periods then holds n looks, also when it ends somewhat early. Between turns nothing
    waits: a timer would run on while the process is stopped, and the next turn would pay for a look
    that is overdue.
    """

    def __init__(self, look: Look, period_seconds: float) -> None:
        self._look = look
        self._period = period_seconds
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.looks = 0
        self.last: Mapping[str, float] = {}
        self._error: Exception | None = None

    def start(self) -> None:
        """Begin to look, and to count the looks."""
        self.stop()
        self.looks, self.last = 0, {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(self._stopped,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End looking; returns when the last look has ended, and raises what a look raised."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _watch(self, stopped: threading.Event) -> None:
        delay = self._period / 4
        while not stopped.wait(delay):
            delay = self._period
            try:
                self.last = self._look()
            except Exception as error:
                self._error = error
                return
            self.looks += 1


def counters(gpu_uuid: str | None) -> Look:
    """Reads what psutil knows of CPU, memory and disks, and NVML of the GPU with this UUID."""
    import psutil

    gpu = Gpu.find(gpu_uuid)

    def look() -> Mapping[str, float]:
        seen = {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
        }
        # None in a container that shows no disks.
        if (disks := psutil.disk_io_counters()) is not None:
            seen |= {"disk_read_bytes": disks.read_bytes, "disk_write_bytes": disks.write_bytes}
        if gpu is not None:
            reading = dataclasses.asdict(gpu.read())
            seen |= {name: its for name, its in reading.items() if isinstance(its, float | int)}
        return seen

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
