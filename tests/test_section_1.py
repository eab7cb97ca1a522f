"""CPU threads, monitoring and visible GPUs: variants, work and evidence; NVML with plain fakes."""

import dataclasses
import functools
import io
import os
import pickle
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from small_images import make_context
from synthetic import make_plan

from bench import live
from bench.engine import monitors
from bench.engine.monitors import Snapshot
from bench.engine.processes import ArmFailed
from bench.records.measurements import READINGS
from bench.session import Session
from bench.tips import cpu_threads, monitoring, visible_devices
from bench.workloads import gpus, watching
from bench.workloads.gpus import Seen, visible
from bench.workloads.nvml import Gpu, GpuReading, throttle_reasons
from bench.workloads.work import Context, TreatmentNotApplied, Work

A, B, C = "GPU-aaaa1111", "GPU-aaaa2222", "GPU-cccc3333"
MIG = "MIG-dddd4444"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path)


def turn(work: Work, steps: int) -> Mapping[str, float | int]:
    work.prepare(steps)
    for _ in range(steps):
        work.step()
    return work.readings()


class TestThreads:
    @pytest.mark.parametrize(
        ("default", "physical", "cores", "threads", "recommended"),
        [
            (8, 8, 16, [32, 8, 1], 1),
            (2, 2, 2, [4, 2, 1], 1),
            (1, 1, 1, [2, 1], 1),
            (1, 1, 2, [4, 1], 1),
            (16, 8, 16, [None, 8, 1, 32], 1),
            (1, 4, 4, [None, 4, 8], 1),
            (64, 1, 2, [None, 1, 4], 1),
            (4, 2, 2, [None, 2, 1], 1),
        ],
    )
    def test_each_number_is_compared_once(
        self,
        default: int,
        physical: int,
        cores: int,
        threads: list[int | None],
        recommended: int,
        context: Context,
    ) -> None:
        here = dataclasses.replace(
            context, torch_threads=default, physical_cores=physical, cores=cores
        )
        tip = cpu_threads.tip(here)
        assert [variant.settings["threads"] for variant in tip.variants] == threads
        assert [variant.recommended for variant in tip.variants].index(True) == recommended
        assert [variant.recommended for variant in tip.variants].count(True) == 1
        assert len({variant.name for variant in tip.variants}) == len(threads)
        assert len({variant.fresh for variant in tip.variants}) == 1
        assert ("followed" in tip.note) == tip.is_followed == (default == physical)
        pickle.loads(pickle.dumps(tip))

    @pytest.mark.parametrize("threads", [1, 3])
    def test_the_threads_are_read_back_and_the_switches_counted(
        self, threads: int, context: Context
    ) -> None:
        on_gpu = dataclasses.replace(context, device="cuda")
        work = cpu_threads.build({"threads": threads}, on_gpu)
        readings = turn(work, 2)
        assert work.evidence()["threads"] == threads
        assert work.evidence()["device"] == "cpu"
        assert set(readings) <= set(READINGS)
        assert work.step() == context.batch_size
        torch.set_num_threads(1)

    def test_switches_are_those_of_the_turn(self, context: Context) -> None:
        work = cpu_threads.build({"threads": 1}, context)
        turn(work, 1)
        work.prepare(1)
        for _ in range(50):
            time.sleep(0)
            os.sched_yield()
        for _ in range(20):
            time.sleep(0.0001)
        assert work.readings()["voluntary_context_switches"] >= 20
        assert turn(work, 1)["voluntary_context_switches"] < 20

    def test_another_number_of_threads_is_not_the_treatment(self, context: Context) -> None:
        work = cpu_threads.build({"threads": 2}, context)
        turn(work, 1)
        torch.set_num_threads(1)
        with pytest.raises(TreatmentNotApplied, match="2 threads were expected"):
            work.evidence()

    def test_the_default_is_what_was_seen_before(self, context: Context) -> None:
        here = dataclasses.replace(context, torch_threads=torch.get_num_threads() + 1)
        work = cpu_threads.build({"threads": None}, here)
        turn(work, 1)
        with pytest.raises(TreatmentNotApplied):
            work.evidence()


class TestMonitoring:
    def test_looks_are_taken_during_turns_and_at_no_other_time(self, context: Context) -> None:
        work = monitoring.build({"look": "counters", "period_seconds": 0.02}, context)
        work.prepare(1)
        time.sleep(0.2)
        work.step()
        work.readings()
        evidence = work.evidence()
        assert evidence["looks"] >= 2
        assert {"cpu_percent", "memory_percent"} <= set(evidence["seen"])
        time.sleep(0.1)
        assert work.evidence()["looks"] == evidence["looks"]
        work.close()

    def test_no_look_is_no_treatment(self, context: Context) -> None:
        work = monitoring.build({"look": "counters", "period_seconds": 60.0}, context)
        with pytest.raises(TreatmentNotApplied, match="0 looks"):
            turn(work, 1)
        work.close()

    def test_a_look_that_fails_is_no_look(self) -> None:
        def broken() -> Mapping[str, float]:
            raise OSError("no counters")

        watcher = watching.Watcher(broken, 0.01)
        watcher.start()
        time.sleep(0.1)
        with pytest.raises(OSError, match="no counters"):
            watcher.stop()
        assert watcher.looks == 0
        watcher.stop()

    def test_off_is_the_step_alone(self, context: Context) -> None:
        work = monitoring.build({"look": None}, context)
        turn(work, 1)
        assert "looks" not in work.evidence()

    def test_turns_hold_several_looks(self, context: Context) -> None:
        (workload,) = monitoring.tip(context).workloads
        assert workload.turn_seconds == 2 * monitoring.PERIOD_SECONDS
        assert workload.blocks == 2

    @pytest.mark.parametrize(
        ("answer", "seen"),
        [
            (
                "45, 1024, 61, 250.5\n12, 0, 30, 60.0\n",
                {
                    "utilization.gpu": 45.0,
                    "memory.used": 1024.0,
                    "temperature.gpu": 61.0,
                    "power.draw": 250.5,
                },
            ),
            ("45, 1024, [N/A], [Not Supported]\n", {"utilization.gpu": 45.0, "memory.used": 1024}),
            ("", {}),
        ],
    )
    def test_what_nvidia_smi_says(self, answer: str, seen: dict[str, float]) -> None:
        assert watching.parse_smi(answer) == seen


class TestVisibleDevices:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (None, (A, B, C)),
            ("", ()),
            ("-1", ()),
            ("NoDevFiles", ()),
            ("0", (A,)),
            ("2,0", (C, A)),
            (" 1 , 2 ", (B, C)),
            ("0,-1,1", (A,)),
            ("0,7,1", (A,)),
            ("1,1", ()),
            ("0,", (A,)),
            ("1x", (B,)),
            (C, (C,)),
            ("GPU-cc", (C,)),
            ("GPU-aaaa", ()),
            (f"{B},GPU-unknown,{A}", (B,)),
            (f"{B},{B}", ()),
            (MIG, (MIG,)),
            (f"{MIG},0", (MIG, A)),
            ("MIG-elsewhere", ()),
        ],
    )
    def test_what_cuda_shows(self, value: str | None, shown: tuple[str, ...]) -> None:
        assert visible(value, [A, B, C], [MIG]) == shown

    @pytest.mark.parametrize(
        ("seen", "hidden_bytes", "verdict"),
        [
            ((B,), 0, "pass"),
            ((B,), None, "pass"),
            ((B,), 400 << 20, "warn"),
            ((A,), 0, "fail"),
            ((A, B), 0, "fail"),
            ((), 0, "fail"),
        ],
    )
    def test_a_program_must_see_what_it_was_shown_and_touch_nothing_else(
        self, seen: tuple[str, ...], hidden_bytes: int | None, verdict: str
    ) -> None:
        answer = gpus.judge(
            wanted=[B],
            seen=Seen(uuids=seen, hidden_bytes=hidden_bytes, startup_seconds=2.0),
            how="index",
            evidence={},
        )
        assert answer.verdict == verdict
        assert "GPU-" not in str(answer)

    def test_it_needs_cuda(self, context: Context) -> None:
        tip = visible_devices.tip(context)
        assert tip.is_check
        assert all(variant.needs[0](context) for variant in tip.variants)
        pickle.loads(pickle.dumps(tip))

    @pytest.mark.parametrize(
        ("settings", "value", "wanted"),
        [
            ("all", f"{B},{C}", (B, C)),
            ("index", "2", (C,)),
            ("uuid", C, (C,)),
            ("none", "", ()),
            ("device_ids", f"{B},{C}", (C,)),
        ],
    )
    def test_only_gpus_that_the_job_was_given_are_used(
        self,
        settings: str,
        value: str,
        wanted: tuple[str, ...],
        context: Context,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        asked: list[Any] = []

        def run_program(value: str, only: int | None, hidden: list[str], stopwatch: Any) -> Seen:
            asked.append((value, only, hidden))
            return Seen(uuids=wanted, hidden_bytes=0, startup_seconds=None)

        monkeypatch.setenv(gpus.VARIABLE, "1,2")
        monkeypatch.setattr(gpus, "all_uuids", lambda: [A, B, C])
        monkeypatch.setattr(gpus, "run_program", run_program)
        answer = gpus.ask({"show": settings}, context)
        assert answer.verdict == "pass"
        (found,) = asked
        assert found[0] == value
        assert found[1] == (1 if settings == "device_ids" else None)
        assert set(found[2]) == {A, B, C} - set(wanted)

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
    @pytest.mark.parametrize("question", [*visible_devices.QUESTIONS])
    def test_on_this_machines_gpus(self, question: str, context: Context) -> None:
        here = dataclasses.replace(context, device="cuda")
        tip = visible_devices.tip(here)
        variant = next(variant for variant in tip.variants if variant.name == question)
        if unmet := next((why for need in variant.needs if (why := need(here))), None):
            pytest.skip(unmet)
        answer = visible_devices.check(variant.settings, here)
        assert answer.verdict == "pass", answer.reason


class FakeNvml:
    """NVML of which each reading is a value, or an error that is raised."""

    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1

    def __init__(self, **values: Any) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Any:
        def read(*_: Any) -> Any:
            value = self.values.get(name, RuntimeError("Not Supported"))
            if isinstance(value, Exception):
                raise value
            return value

        return read


def reading(**values: Any) -> GpuReading:
    return Gpu(FakeNvml(**values), "handle").read()


class TestNvml:
    def test_what_is_not_supported_is_none_and_never_0(self) -> None:
        assert reading() == GpuReading()

    def test_values_come_in_the_units_of_their_names(self) -> None:
        found = reading(
            nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=87),
            nvmlDeviceGetPowerUsage=350_500,
            nvmlDeviceGetTemperature=66,
            nvmlDeviceGetClockInfo=1980,
            nvmlDeviceGetCurrentClocksEventReasons=0x1 | 0x4 | 0x40,
            nvmlDeviceGetTotalEnergyConsumption=12_000,
            nvmlDeviceGetComputeRunningProcesses=[1, 2],
        )
        assert found == GpuReading(
            utilization_percent=87,
            power_watts=350.5,
            temperature_celsius=66,
            sm_clock_mhz=1980,
            throttle_reasons=("software power cap", "hardware thermal slowdown"),
            energy_joules=12.0,
            compute_processes=2,
        )

    @pytest.mark.parametrize(
        ("name", "value", "field"),
        [
            ("nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=4_294_967_295), "utilization"),
            ("nvmlDeviceGetPowerUsage", 4_294_967_295, "power"),
            ("nvmlDeviceGetPowerUsage", -1, "power"),
            ("nvmlDeviceGetTemperature", 65_535, "temperature"),
            ("nvmlDeviceGetClockInfo", 0, "sm_clock"),
            ("nvmlDeviceGetTotalEnergyConsumption", 2**64, "energy"),
        ],
    )
    def test_absurd_values_are_not_known(self, name: str, value: Any, field: str) -> None:
        found = dataclasses.asdict(reading(**{name: value}))
        assert [known for key, known in found.items() if key.startswith(field)] == [None]

    @pytest.mark.parametrize(
        ("bits", "reasons"),
        [
            (0, ()),
            (0x1, ()),  # idle
            (0x2, ()),  # clocks that the user set
            (0x100, ()),  # the display's clock
            (0x4, ("software power cap",)),
            (0x8 | 0x80, ("hardware slowdown", "hardware power brake")),
            (0x20, ("software thermal slowdown",)),
        ],
    )
    def test_only_being_held_back_is_throttling(self, bits: int, reasons: tuple[str, ...]) -> None:
        assert throttle_reasons(bits) == reasons

    def test_no_nvml_is_no_gpu(self) -> None:
        assert Gpu.find(None) is None
        assert Gpu.find("GPU-that-is-nowhere") is None

    def test_a_gpu_is_found_by_its_uuid_and_not_by_its_place(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """CUDA's first GPU is NVML's second here."""
        handles = {"GPU-b": "first", "GPU-a": "second"}
        milliwatts = {"first": 1e5, "second": 2e5}
        nvml = SimpleNamespace(
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByUUID=handles.__getitem__,
            nvmlDeviceGetPowerUsage=milliwatts.__getitem__,
        )
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        for uuid, watts in (("a", 200.0), ("GPU-b", 100.0)):
            found = Gpu.find(uuid)
            assert found is not None
            assert found.read().power_watts == watts
        assert Gpu.find("c") is None

    @pytest.mark.parametrize(("answer", "told"), [(b"570.86", "570.86"), ("580.1", "580.1")])
    def test_driver_version(self, answer: bytes | str, told: str) -> None:
        assert Gpu(FakeNvml(nvmlSystemGetDriverVersion=answer), "h").driver_version() == told
        assert Gpu(FakeNvml(), "h").driver_version() is None


def snapshot(now: float, gpu: GpuReading | None) -> Snapshot:
    return Snapshot(
        now=now,
        own_cpu_seconds=now / 2,
        runner_cpu_seconds=0.0,
        busy_seconds=now / 2,
        run_delay_seconds=0.0,
        disk_read_bytes=0,
        gpu=gpu,
    )


def test_without_nvml_the_gpu_is_not_watched_and_the_rest_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "cpu_percent" in watching.counters("GPU-a")()


@pytest.mark.parametrize(
    ("processes", "told"),
    [(2, "Others use the GPU now: 2 processes."), (1, "now: 1 process."), (0, None), (None, None)],
)
def test_a_gpu_that_others_use_is_named_before_anything_runs(
    processes: int | None, told: str | None
) -> None:
    screen = io.StringIO()
    images = {"name": "none", "count": 1, "total_bytes": 9, "left_out": {}}
    live.print_plan(
        Console(file=screen, width=200),
        make_plan(images=images),
        {"gpu_model": "NVIDIA H200"},
        60.0,
        gpu_processes=processes,
    )
    assert ("Others use the GPU" in screen.getvalue()) == (told is not None)
    assert (told or "NVIDIA H200") in screen.getvalue()


def test_a_need_whose_library_crashes_takes_no_other_variant_along() -> None:
    fine = SimpleNamespace(name="fine", needs=(), recommended=True)
    crash = SimpleNamespace(name="crash", needs=(lambda context: os.kill(os.getpid(), 9),))

    def call(function: Any, parts: Any, *_: Any, cores: Any) -> dict[str, str]:
        if any(part.name == "crash" for _, part in parts):
            raise ArmFailed("the arm was killed by SIGKILL")
        return {}

    session: Any = SimpleNamespace(processes=SimpleNamespace(call=call), context=None, cores=())
    session._unmet = functools.partial(Session._unmet, session)
    parts: Any = [("one", fine), ("two", crash), ("three", fine)]
    assert Session._unmet(session, parts) == {
        ("two", "crash"): "its needs cannot be seen: the arm was killed by SIGKILL"
    }


class TestTurnsOnAGpu:
    def between(self, before: GpuReading, after: GpuReading, own: int | None = 1) -> dict[str, Any]:
        return monitors.between(snapshot(1.0, before), snapshot(2.0, after), own_gpu_processes=own)

    def test_energy_is_that_of_the_turn_and_unknown_without_both_ends(self) -> None:
        known = GpuReading(energy_joules=500.0)
        assert self.between(GpuReading(energy_joules=450.0), known)["energy_joules"] == 50.0
        assert self.between(GpuReading(), known)["energy_joules"] is None
        assert self.between(known, GpuReading())["energy_joules"] is None

    def test_what_nvml_does_not_tell_is_unknown_and_flags_nothing(self) -> None:
        columns = self.between(GpuReading(), GpuReading())
        assert columns["flags"] is None
        assert columns["gpu_throttle_reasons"] is None
        assert columns["gpu_power_watts"] is None

    def test_throttling_and_guests_are_flagged_and_the_turn_is_kept(self) -> None:
        held_back = GpuReading(throttle_reasons=("software power cap",), compute_processes=3)
        columns = self.between(GpuReading(), held_back)
        assert columns["flags"] == "the GPU was throttled; other processes used the GPU"
        assert columns["gpu_throttle_reasons"] == "software power cap"
        free = GpuReading(throttle_reasons=(), compute_processes=3)
        assert self.between(GpuReading(), free, own=3)["flags"] is None
        assert self.between(GpuReading(), free, own=3)["gpu_throttle_reasons"] == "none"
        assert self.between(GpuReading(), free, own=None)["flags"] is None

    def test_a_tick_of_the_kernels_clock_in_a_short_turn_flags_nothing(self) -> None:
        def between(foreign: float, seconds: float) -> dict[str, Any]:
            start, end = snapshot(1.0, None), snapshot(1.0 + seconds, None)
            busy = end.own_cpu_seconds + foreign
            end = dataclasses.replace(end, busy_seconds=busy)
            return monitors.between(start, end, own_gpu_processes=None)

        assert between(0.01, 0.025)["foreign_cpu_percent"] == pytest.approx(40)
        assert between(0.01, 0.025)["flags"] is None
        assert between(0.03, 0.1)["flags"] == "other processes used the CPU"
        assert between(0.03, 1.0)["flags"] is None
