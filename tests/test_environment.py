"""The questions about the machine: pure judgements of facts, and a look at the real machine."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from small_images import make_context

from bench.records import machine
from bench.tips import environment
from bench.workloads import disks, surroundings
from bench.workloads.surroundings import (
    judge_architecture,
    judge_cores,
    judge_cudnn,
    judge_disk,
    judge_driver,
    judge_governor,
    judge_isolation,
    judge_open_files,
    judge_pillow,
    judge_power,
    judge_release,
    judge_shared_memory,
)


def test_every_question_that_can_be_asked_is_answered_with_its_remedy(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    tip = environment.tip(context)
    asked = 0
    for variant in tip.variants:
        if any(need(context) for need in variant.needs):
            continue
        asked += 1
        answer = environment.check(variant.settings, context)
        assert answer.verdict in ("pass", "warn", "fail")
        assert len(answer.reason) > 3
        assert str(Path.home()) + "/" not in str(answer)
    assert asked >= 6
    assert set(environment.NEEDS) <= set(surroundings.QUESTIONS)


@pytest.mark.parametrize(
    ("in_environment", "conda", "container", "verdict"),
    [
        (True, None, False, "pass"),
        (False, "tips", False, "pass"),
        (False, "base", False, "warn"),
        (False, "base", True, "pass"),
        (False, None, True, "pass"),
        (False, None, False, "warn"),
    ],
)
def test_isolation(in_environment: bool, conda: str | None, container: bool, verdict: str) -> None:
    answer = judge_isolation(
        in_environment=in_environment, conda_name=conda, in_container=container
    )
    assert answer.verdict == verdict


@pytest.mark.parametrize(
    ("built_for", "supports", "cuda_reason", "verdict", "told"),
    [
        ("12.8", (12, 8), None, "pass", "12.8"),
        ("12.8", (13, 0), None, "pass", "12.8"),
        ("12.8", (12, 4), None, "warn", "newer than the 12.4"),
        ("13.0", (12, 8), "CUDA cannot be used", "fail", "supports CUDA up to 12.8"),
        ("12.8", (12, 8), "CUDA cannot be used: no device", "fail", "no device"),
        ("12.8", None, None, "pass", "12.8"),
        (None, (12, 8), "built without", "fail", "without CUDA"),
    ],
)
def test_driver(
    built_for: str | None,
    supports: tuple[int, int] | None,
    cuda_reason: str | None,
    verdict: str,
    told: str,
) -> None:
    answer = judge_driver(
        built_for=built_for, driver="570.1", driver_supports=supports, cuda_reason=cuda_reason
    )
    assert answer.verdict == verdict
    assert told in answer.reason


@pytest.mark.parametrize(
    ("capability", "built_for", "verdict"),
    [
        ((9, 0), ["sm_80", "sm_90"], "pass"),
        ((8, 9), ["sm_75", "sm_86", "sm_90"], "pass"),
        ((8, 0), ["sm_86", "sm_90"], "fail"),
        ((12, 0), ["sm_90", "sm_120"], "pass"),
        ((10, 0), ["sm_90", "compute_90"], "warn"),
        ((10, 0), ["sm_90a", "compute_90a"], "fail"),
        ((9, 0), ["sm_90a"], "pass"),
        ((7, 0), ["sm_75", "compute_90"], "fail"),
        ((9, 0), [], "fail"),
        ((9, 0), ["gfx90a"], "fail"),
    ],
)
def test_architecture(capability: tuple[int, int], built_for: list[str], verdict: str) -> None:
    assert judge_architecture(capability=capability, built_for=built_for).verdict == verdict


def test_cudnn_must_have_run() -> None:
    assert judge_cudnn(version=91002, convolved=None).verdict == "pass"
    assert judge_cudnn(version=None, convolved=None).verdict == "fail"
    broken = judge_cudnn(version=91002, convolved="RuntimeError: CUDNN_STATUS_NOT_INITIALIZED")
    assert broken.verdict == "fail"
    assert "NOT_INITIALIZED" in broken.reason


@pytest.mark.parametrize(
    ("torch", "torchvision", "required", "operator", "verdict"),
    [
        ("2.9.0", "0.24.0", "torch==2.9.0", None, "pass"),
        ("2.9.0+cu128", "0.24.0+cu128", "torch==2.9.0", None, "pass"),
        ("2.9.0+cu128", "0.24.0+cpu", "torch==2.9.0", None, "warn"),
        ("2.10.0", "0.24.0", "torch==2.9.0", None, "fail"),
        ("2.14.1", "0.29.1", "torch (>=2.14.0)", None, "pass"),
        ("2.11.0", "0.24.0", None, None, "warn"),
        ("2.11.0a0+vendor", "0.26.0a0", None, None, "pass"),
        ("2.9.0", "0.24.0", "torch==2.9.0", "operator torchvision::nms does not exist", "fail"),
        ("2.9.0", None, None, None, "fail"),
        ("3.0.0", "1.0.0", None, None, "pass"),
    ],
)
def test_release(
    torch: str, torchvision: str | None, required: str | None, operator: str | None, verdict: str
) -> None:
    answer = judge_release(
        torch=torch, torchvision=torchvision, required=required, operator=operator
    )
    assert answer.verdict == verdict, answer.reason
    assert ("pip install" in answer.reason) == (verdict != "pass")


@pytest.mark.parametrize(
    ("imported", "pillow", "simd", "turbo", "verdict"),
    [
        ("12.0.0", "12.0.0", None, True, "pass"),
        ("9.5.0.post2", None, "9.5.0.post2", True, "pass"),
        ("9.5.0.post2", "12.0.0", "9.5.0.post2", True, "fail"),
        ("12.0.0", "12.0.0", "9.5.0.post2", True, "fail"),
        ("9.5.0.post2", None, "9.5.0.post1", True, "fail"),
        ("11.0.0", "12.0.0", None, True, "fail"),
        ("12.0.0", "12.0.0", None, False, "warn"),
    ],
)
def test_pillow(
    imported: str, pillow: str | None, simd: str | None, turbo: bool, verdict: str
) -> None:
    answer = judge_pillow(imported=imported, pillow=pillow, pillow_simd=simd, turbo=turbo)
    assert answer.verdict == verdict, answer.reason


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/box\n", {"box/cpu.max": "150000 100000\n"}, 2),
        ("0::/box\n", {"box/cpu.max": "max 100000\n"}, 64),
        ("0::/box/in\n", {"box/cpu.max": "400000 100000\n", "box/in/cpu.max": "max 100000\n"}, 4),
        ("0::/\n", {}, 64),
        (
            "4:memory:/a\n3:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "300000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        (
            "3:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            64,
        ),
    ],
)
def test_a_containers_quota_bounds_the_cores(
    groups: str,
    files: Mapping[str, str],
    cores: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own").write_text(groups)
    for name, content in files.items():
        path = tmp_path / "all" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "all")
    monkeypatch.setattr(machine, "core_ids", lambda: tuple(range(64)))
    assert machine.usable_cores() == cores


def test_cores_inside_a_quota_are_a_warning() -> None:
    assert judge_cores(usable=8, counted=8).verdict == "pass"
    answer = judge_cores(usable=2, counted=64)
    assert answer.verdict == "warn"
    assert "says 64" in answer.reason


@pytest.mark.parametrize(("free", "verdict"), [(63, "fail"), (64, "warn"), (128, "pass")])
def test_shared_memory(free: int, verdict: str) -> None:
    mib = 1 << 20
    answer = judge_shared_memory(total=256 * mib, free=free * mib, needed=64 * mib)
    assert answer.verdict == verdict
    assert f"{free} of 256 MiB" in answer.reason.replace(" MiB of", " of")


@pytest.mark.parametrize(
    ("soft", "hard", "verdict"),
    [(128, 4096, "fail"), (300, None, "warn"), (1024, 1024, "pass"), (None, None, "pass")],
)
def test_open_files(soft: int | None, hard: int | None, verdict: str) -> None:
    answer = judge_open_files(soft=soft, hard=hard, needed=200)
    assert answer.verdict == verdict
    assert ("ulimit" in answer.reason) == (verdict != "pass")


def test_a_docker_default_of_64_mib_is_too_small_for_a_large_batch(tmp_path: Path) -> None:
    context = make_context(tmp_path, cores=16, batch_size=64, image_size=224)
    needed, files = surroundings.loader_needs(context)
    assert judge_shared_memory(total=64 << 20, free=64 << 20, needed=needed).verdict == "fail"
    assert 128 < files < 1024


@pytest.mark.parametrize(
    ("governors", "preferences", "verdict"),
    [
        (["performance"] * 2, [], "pass"),
        (["schedutil"] * 2, [], "pass"),
        (["powersave"] * 2, [], "warn"),
        (["powersave"] * 2, ["balance_performance"] * 2, "pass"),
        (["powersave"] * 2, ["power"] * 2, "warn"),
        (["performance", "schedutil"], [], "warn"),
    ],
)
def test_governor(governors: list[str], preferences: list[str], verdict: str) -> None:
    assert judge_governor(governors=governors, preferences=preferences).verdict == verdict


def test_governors_of_the_usable_cores_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surroundings, "SYS", tmp_path)
    monkeypatch.setattr(surroundings.os, "sched_getaffinity", lambda _: {0, 2}, raising=False)
    context = make_context(tmp_path)
    assert surroundings.needs_governor(context)
    for core, name in enumerate(("performance", "powersave", "schedutil")):
        folder = tmp_path / "devices" / "system" / "cpu" / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
    assert surroundings.needs_governor(context) is None
    answer = surroundings.governor(context)
    assert answer.evidence["governors"] == ["performance", "schedutil"]


@pytest.mark.parametrize(
    ("has_battery", "on_battery", "verdict"),
    [
        (True, True, "warn"),
        (True, False, "pass"),
        (True, None, "warn"),
        (False, None, "pass"),
    ],
)
def test_power(has_battery: bool, on_battery: bool | None, verdict: str) -> None:
    answer = judge_power(has_battery=has_battery, on_battery=on_battery)
    assert answer.verdict == verdict


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (disks.NVME, "pass"),
        (disks.RAM, "pass"),
        (disks.VIRTUAL, "pass"),
        (disks.ROTATING, "warn"),
        (disks.NETWORK, "warn"),
    ],
)
def test_disk(kind: str, verdict: str) -> None:
    assert judge_disk(kind=kind).verdict == verdict


def test_the_data_folder_is_the_images_or_where_they_will_be(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    assert surroundings.data_folder(context) == context.images.folder
    none = dataclasses.replace(context.images, paths=())
    later = dataclasses.replace(context, images=none, cache=tmp_path / "cache" / "not" / "yet")
    assert surroundings.data_folder(later) == tmp_path / "cache"


def test_without_a_driver_no_question_about_a_gpu_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(tmp_path)
    monkeypatch.setattr(surroundings, "NVIDIA_MARKS", ())
    assert surroundings.needs_nvidia(context)
    monkeypatch.setattr(surroundings, "NVIDIA_MARKS", (tmp_path,))
    assert surroundings.needs_nvidia(context) is None


@pytest.mark.cuda
def test_the_gpu_passes_its_questions(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    context = make_context(tmp_path, device="cuda")
    for question in ("CUDA build and driver", "GPU architecture", "cuDNN"):
        answer = surroundings.QUESTIONS[question](context)
        assert answer.verdict in ("pass", "warn"), answer.reason
