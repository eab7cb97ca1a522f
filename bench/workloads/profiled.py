"""Steps under torch.profiler, with the schedules that people use, and what the traces hold."""

import dataclasses
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from bench.workloads.work import TreatmentNotApplied, Work


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording:
    """Which steps of a cycle are recorded, and how much of them."""

    wait: int = 0
    warm_up: int = 0
    active: int
    shapes_and_stacks: bool = False

    @property
    def cycle(self) -> int:
        """Steps from one trace to the next."""
        return self.wait + self.warm_up + self.active


RECIPE = Recording(wait=1, warm_up=1, active=3, shapes_and_stacks=True)
"""The article's recipe."""


def profiler(
    recording: Recording, device: str, on_trace: Callable[[Any], None], *, skip_first: int = 0
) -> torch.profiler.profile:
    """A profiler that calls ``on_trace`` at each cycle's end; CUDA is recorded on CUDA."""
    on_cuda = [ProfilerActivity.CUDA] if device.startswith("cuda") else []
    return torch.profiler.profile(
        activities=[ProfilerActivity.CPU, *on_cuda],
        schedule=torch.profiler.schedule(
            wait=recording.wait,
            warmup=recording.warm_up,
            active=recording.active,
            skip_first=skip_first,
        ),
        record_shapes=recording.shapes_and_stacks,
        with_stack=recording.shapes_and_stacks,
        on_trace_ready=on_trace,
    )


def profiled(work: Work, recording: Recording) -> Work:
    """``work`` with every step recorded as ``recording`` says, and a trace written each cycle.

    The first step, the start-up, belongs to no cycle, so that turns are whole cycles.
    """
    traces = _Traces()
    running = profiler(recording, work.device, traces.write, skip_first=1)
    running.start()

    def step() -> int:
        samples = work.step()
        running.step()
        return samples

    def prepare(steps: int) -> None:
        work.prepare(steps)
        traces.forget()

    def readings() -> Mapping[str, float | int]:
        return {**work.readings(), "trace_bytes": traces.bytes_a_trace()}

    def evidence() -> dict[str, Any]:
        held = trace_contents(traces.last())
        check_contents(held, recording, work.device)
        return work.evidence() | {"last_trace": held}

    def close() -> None:
        running.stop()
        traces.close()
        work.close()

    return dataclasses.replace(
        work,
        step=step,
        prepare=prepare,
        readings=readings,
        evidence=evidence,
        close=close,
        period=recording.cycle,
    )


def trace_contents(trace: Path) -> dict[str, int]:
    """How many events of which kind a Chrome trace holds, and how many of them have shapes."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    kinds = Counter(event.get("cat", "") for event in events)
    return {
        "events": len(events),
        "operators": kinds["cpu_op"],
        "python_frames": kinds["python_function"],
        "cuda_kernels": kinds["kernel"],
        "with_shapes": sum("Input Dims" in event.get("args", {}) for event in events),
    }


def check_contents(held: Mapping[str, int], recording: Recording, device: str) -> None:
    """TreatmentNotApplied where a trace lacks what was asked for."""
    wanted = ["operators"]
    if recording.shapes_and_stacks:
        wanted += ["python_frames", "with_shapes"]
    if device.startswith("cuda"):
        wanted.append("cuda_kernels")
    if missing := [kind for kind in wanted if not held[kind]]:
        raise TreatmentNotApplied(f"the trace holds no {', no '.join(missing)}")


class _Traces:
    """The traces of a turn, in a folder that goes with the arm."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="torch-tips-bench-traces-")
        self._paths: list[Path] = []

    def write(self, running: torch.profiler.profile) -> None:
        path = Path(self._folder.name) / f"{len(self._paths)}.json"
        running.export_chrome_trace(str(path))
        self._paths.append(path)

    def bytes_a_trace(self) -> int:
        if not self._paths:
            raise TreatmentNotApplied("the profiler wrote no trace in a whole turn")
        return round(sum(path.stat().st_size for path in self._paths) / len(self._paths))

    def last(self) -> Path:
        return self._paths[-1]

    def forget(self) -> None:
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._paths.clear()

    def close(self) -> None:
        self._folder.cleanup()
