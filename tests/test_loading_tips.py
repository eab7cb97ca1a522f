"""The data-loading tips and the A/A pairs: variants, needs, work and evidence."""

import dataclasses
import importlib
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_images import make_context, make_images
from torch.utils.data import DataLoader

from bench.records.measurements import READINGS
from bench.tips import (
    num_workers,
    parallel_preprocessing,
    pin_memory,
    prefetch_factor,
    storage,
    streaming,
)
from bench.tips.tip import Tip, Variant, Workload
from bench.workloads import disks, loaders, placed
from bench.workloads.work import Context, TreatmentNotApplied, Work, WorkFailed

TIPS = (
    "num_workers",
    "pin_memory",
    "prefetch_factor",
    "streaming",
    "parallel_preprocessing",
    "storage",
    "aa_loading",
    "aa_training",
)


pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path)


def tip_of(name: str, context: Context) -> Tip:
    found: Tip = importlib.import_module(f"bench.tips.{name}").tip(context)
    return found


def reason(variant: Variant, context: Context) -> str | None:
    return next((why for need in variant.needs if (why := need(context))), None)


def turn(work: Work, steps: int) -> Mapping[str, float | int]:
    """One turn as the engine takes it."""
    work.prepare(steps)
    for _ in range(steps):
        work.step()
    return work.readings()


def measurable(name: str, context: Context) -> list[tuple[Workload, Variant]]:
    tip = tip_of(name, context)
    return [
        (workload, variant)
        for workload in tip.workloads
        for variant in tip.variants
        if reason(variant, context) is None
    ]


@pytest.mark.parametrize("name", TIPS)
def test_every_measurable_variant_works_and_gives_evidence(name: str, context: Context) -> None:
    pairs = measurable(name, context)
    assert pairs or name == "pin_memory"
    for workload, variant in pairs:
        work = workload.build(variant.settings, context)
        turn(work, 1)
        readings = turn(work, work.period)
        evidence = work.evidence()
        work.close()
        assert evidence
        assert str(context.cache.parent) not in str(evidence)
        assert set(readings) <= set(READINGS)
        assert multiprocessing.active_children() == []


@pytest.mark.parametrize("name", TIPS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_tip_has_its_card_one_recommendation_and_survives_pickling(
    name: str, device: str, context: Context
) -> None:
    tip = tip_of(name, dataclasses.replace(context, device=device))
    assert tip.id == name
    assert len(tip.card.splitlines()[0]) > 20
    assert tip.claim
    assert [variant.recommended for variant in tip.variants].count(True) == 1
    assert not tip.baseline.recommended
    assert len({variant.name for variant in tip.variants}) == len(tip.variants)
    copy = pickle.loads(pickle.dumps(tip))
    assert [variant.name for variant in copy.variants] == [v.name for v in tip.variants]
    assert copy.workloads == tip.workloads


def test_the_tips_import_without_torch() -> None:
    modules = ", ".join(f"bench.tips.{name}" for name in TIPS)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("cores", "names", "recommended"),
    [
        (1, [0, 1, 2], 1),
        (2, [0, 1, 2, 4], 1),
        (12, [0, 6, 1, 2, 12, 24], 6),
        (64, [0, 32, 1, 2], 32),
    ],
)
def test_worker_numbers_follow_the_cores(
    cores: int, names: list[int], recommended: int, context: Context
) -> None:
    variants = num_workers.variants(dataclasses.replace(context, cores=cores))
    assert [variant.name for variant in variants] == [f"num_workers={name}" for name in names]
    marked = [variant.settings["num_workers"] for variant in variants if variant.recommended]
    assert marked == [recommended]


def test_the_training_step_comes_first_where_there_is_a_gpu(context: Context) -> None:
    gpu = dataclasses.replace(context, device="cuda")
    assert num_workers.tip(context).workloads[0].name == "loader"
    assert num_workers.tip(gpu).workloads[0].name == "loader + training step"


def test_a_loader_that_ignores_its_workers_is_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_workers(*args: Any, **options: Any) -> DataLoader[Any]:
        dropped = {"num_workers": 0, "timeout": 0, "multiprocessing_context": None}
        return DataLoader(*args, **(options | dropped))

    monkeypatch.setattr(loaders, "DataLoader", without_workers)
    work = num_workers.build_loader({"num_workers": 2}, context)
    turn(work, 2)
    with pytest.raises(TreatmentNotApplied, match="num_workers=2"):
        work.evidence()


def test_pinning_needs_cuda_and_says_so(context: Context) -> None:
    tip = pin_memory.tip(context)
    assert all("CUDA" in (reason(variant, context) or "") for variant in tip.variants)
    gpu = dataclasses.replace(context, device="cuda")
    assert all(reason(variant, gpu) is None for variant in tip.variants)


def test_the_copys_evidence_is_its_own_memory(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    work = pin_memory.build_copy({"pin_memory": False, "non_blocking": False}, context)
    assert turn(work, 3) == {"payload_bytes": 3 * 4 * 3 * 32 * 32 * 4}
    assert work.evidence()["pinned"] is False
    work = pin_memory.build_copy({"pin_memory": True, "non_blocking": True}, context)
    with pytest.raises(TreatmentNotApplied, match="pin_memory=True"):
        work.evidence()


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_all_workers_take_turns_at_the_costly_batch(workers: int) -> None:
    size = prefetch_factor.batches_a_round(workers)
    decodes = prefetch_factor.decodes(4, size)
    costs = [sum(decodes[start : start + 4]) for start in range(0, len(decodes), 4)]
    rounds = [costs[start : start + size] for start in range(0, len(costs), size)]
    assert {tuple(sorted(costs_of_one)) for costs_of_one in rounds} == {(4,) * (size - 1) + (8,)}
    costly = [batch for batch, cost in enumerate(costs) if cost == 8]
    assert {batch % workers for batch in costly} == set(range(workers))


@pytest.mark.parametrize(("cores", "period"), [(2, 2), (4, 2), (16, 8)])
def test_each_turn_of_the_uneven_loader_holds_whole_rounds(
    cores: int, period: int, context: Context
) -> None:
    machine = dataclasses.replace(context, cores=cores)
    assert prefetch_factor.build({"prefetch_factor": 2}, machine).period == period


def test_memory_is_read_at_two_scales_of_the_data(context: Context) -> None:
    tip = streaming.tip(context)
    metric = tip.workloads[0].metrics[0]
    assert (metric.kind, metric.higher_is_better) == ("difference", False)
    held = []
    for scale in tip.workloads[0].memory_scales:
        work = streaming.build({**tip.baseline.settings, "scale": scale}, context)
        turn(work, 4)
        held.append(work.evidence()["resident_bytes"])
    sizes = [(context.images.folder / path).stat().st_size for path in context.images.paths]
    shuffled = loaders.shuffled(context.images, context.seed).paths
    by_path = dict(zip(context.images.paths, sizes, strict=True))
    assert held == [sum(by_path[path] for path in shuffled[:count]) for count in (3, 9)]


def test_data_that_stays_on_disk_though_memory_was_asked_for_is_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.workloads import streams

    monkeypatch.setattr(
        streams.InMemory,
        "__getitem__",
        lambda held, position: loaders.JpegFiles(held.images, held.make)[position],
    )
    work = streaming.build({"source": "memory"}, context)
    turn(work, 1)
    with pytest.raises(TreatmentNotApplied, match="held in memory"):
        work.evidence()


def test_the_resized_copy_is_what_was_read(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"num_workers": 0, "resized": True}
    timed = dataclasses.replace(context, stopwatch=build_and_say_2_seconds)
    work = parallel_preprocessing.build(settings, timed)
    assert turn(work, 1) == {"build_seconds": 2.0}
    assert work.evidence()["files_read"] == "resized copy"

    originals = loaders.shuffled(context.images, context.seed)
    monkeypatch.setattr(
        loaders.JpegFiles,
        "path",
        lambda files, position: originals.folder / originals.paths[position],
    )
    work = parallel_preprocessing.build(settings, context)
    turn(work, 1)
    with pytest.raises(TreatmentNotApplied, match="bytes were read"):
        work.evidence()


def build_and_say_2_seconds(build: Any) -> float:
    build()
    return 2.0


@pytest.mark.parametrize(("cores", "workers"), [(1, 2), (2, 2), (12, 12), (64, 32)])
def test_preprocessing_gets_a_worker_a_core(cores: int, workers: int, context: Context) -> None:
    tip = parallel_preprocessing.tip(dataclasses.replace(context, cores=cores))
    assert tip.recommended.settings["num_workers"] == workers


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed, "MOST_FILES", 36)


def storage_variant(name: str, context: Context) -> Variant:
    return next(variant for variant in storage.tip(context).variants if variant.name == name)


def test_storage_with_one_disk_shows_what_it_can_and_says_what_it_cannot(context: Context) -> None:
    tip = storage.tip(context)
    assert [variant.name for variant in tip.variants] == [
        "own disk, cold",
        "NVMe SSD, cold",
        "own disk, warm (page cache)",
        "/dev/shm",
    ]
    assert "--storage PATH" in (reason(tip.recommended, context) or "")
    assert [variant.exploratory for variant in tip.variants[2:]] == [True, True]


@pytest.mark.parametrize("build", [storage.build_read, storage.build_load])
@pytest.mark.parametrize("name", ["own disk, cold", "own disk, warm (page cache)", "/dev/shm"])
def test_cold_reads_come_from_the_device_and_the_others_do_not(
    name: str, build: Any, context: Context
) -> None:
    variant = storage_variant(name, context)
    if why := reason(variant, context):
        pytest.skip(why)
    work = build(variant.settings, context)
    readings = turn(work, 2)
    evidence = work.evidence()
    assert readings["payload_bytes"] == evidence["bytes_asked_for"] > 0
    if name == "own disk, cold":
        assert evidence["bytes_from_device"] >= evidence["bytes_asked_for"]
    else:
        assert evidence["bytes_from_device"] == 0


def test_reads_that_were_not_cold_are_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "drop_from_page_cache", lambda path: None)
    work = storage.build_read({"state": "cold", "place": None}, context)
    with pytest.raises(TreatmentNotApplied, match="cold"):
        turn(work, 2)


def test_reads_that_were_not_warm_are_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(disks, "bytes_from_device", lambda: next(counter))
    work = storage.build_read({"state": "warm", "place": None}, context)
    with pytest.raises(TreatmentNotApplied, match="warm"):
        turn(work, 2)


def test_a_cold_turn_never_comes_round_to_a_file_twice(context: Context) -> None:
    work = storage.build_read({"state": "cold", "place": None}, context)
    work.prepare(2)
    with pytest.raises(WorkFailed, match="48 files over 36"):
        work.prepare(3)


def test_all_places_serve_the_same_samples_in_the_same_order(context: Context) -> None:
    chosen = placed.subset(context.images)
    on_disk = placed.copy_to_disk(chosen, context.cache, "test", context)
    in_ram = placed.copy_to_ram(chosen, storage.SHM)
    originals = [(context.images.folder / path).read_bytes() for path in context.images.paths]
    assert [(in_ram.folder / path).read_bytes() for path in in_ram.paths] == originals
    for start in (0, len(originals)):
        paths = on_disk.paths[start : start + len(originals)]
        assert [(on_disk.folder / path).read_bytes() for path in paths] == originals
    assert on_disk.labels[: len(originals)] == in_ram.labels


def test_files_in_ram_have_no_name_that_could_be_left_behind(context: Context) -> None:
    before = set(storage.SHM.iterdir())
    placed.copy_to_ram(placed.subset(context.images), storage.SHM)
    assert set(storage.SHM.iterdir()) - before == set()


def test_a_subset_keeps_to_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = make_images(tmp_path / "some")
    monkeypatch.setattr(placed, "MOST_BYTES", images.total_bytes)
    chosen = placed.subset(images)
    assert 0 < len(chosen.images.paths) < len(images.paths)
    assert chosen.bytes_on_disk <= images.total_bytes


@pytest.mark.parametrize(
    ("kinds", "names", "recommended"),
    [
        (["rotating disk", "SSD", "NVMe SSD"], ["rotating disk", "SSD", "NVMe SSD"], 2),
        (["rotating disk", "SSD"], ["rotating disk", "SSD"], 1),
        (["NVMe SSD", "NVMe SSD"], ["NVMe SSD 1", "NVMe SSD 2"], 1),
        (["NVMe SSD", "network mount"], ["NVMe SSD", "network mount"], None),
    ],
)
def test_named_places_are_compared_with_the_first(
    kinds: list[str],
    names: list[str],
    recommended: int | None,
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = tuple(Path(f"/place/{index}") for index in range(len(kinds)))
    monkeypatch.setattr(disks, "disk_kind", dict(zip(places, kinds, strict=True)).__getitem__)
    variants = storage.named_places(dataclasses.replace(context, storage=places))
    measured = [variant for variant in variants if variant.settings]
    assert [variant.name for variant in measured] == [f"{name}, cold" for name in names]
    assert [variant.settings["place"] for variant in measured] == list(range(len(kinds)))
    marked = [index for index, variant in enumerate(measured) if variant.recommended]
    if recommended is None:
        assert marked == []
        assert "NVMe" in (reason(variants[1], context) or "")
    else:
        assert marked == [recommended]


def test_a_named_place_is_measured_over_files_of_its_own(context: Context, tmp_path: Path) -> None:
    places = (tmp_path / "slow", tmp_path / "fast")
    for place in places:
        place.mkdir()
    named = dataclasses.replace(context, storage=places)
    if why := disks.why_not_cold(places[0]):
        pytest.skip(why)
    for index, place in enumerate(places):
        work = storage.build_read({"state": "cold", "place": index}, named)
        turn(work, 2)
        assert work.evidence()["bytes_from_device"] > 0
        assert len(list((place / placed.FOLDER).glob("*/*.jpg"))) == 36


def test_ram_has_no_cold_reads_and_a_full_or_missing_place_is_named() -> None:
    assert "RAM" in (disks.why_not_cold(storage.SHM) or "")
    assert "MiB free" in (disks.why_no_room(storage.SHM, 1 << 60) or "")
    assert "can't be written to" in (disks.why_not_cold(Path("/proc/missing")) or "")


@pytest.mark.parametrize(
    ("device", "rotational", "kind"),
    [
        ("nvme0n1/nvme0n1p2", "0", disks.NVME),
        ("sda/sda1", "0", disks.SSD),
        ("sdb", "1", disks.ROTATING),
        ("vda/vda1", "1", disks.VIRTUAL),
    ],
)
def test_the_kind_of_a_disk_is_read_from_the_system(
    device: str, rotational: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_system(tmp_path, monkeypatch, device, rotational)
    assert disks.disk_kind(tmp_path / "my data" / "images") == kind


def test_a_volume_over_several_disks_is_as_slow_as_the_slowest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fake_system(tmp_path, monkeypatch, "dm-0", "0")
    for name, rotational in (("sda", "0"), ("sdb", "1")):
        fake_disk(system / "devices" / name, rotational)
        slave = system / "devices" / "dm-0" / "slaves" / name
        slave.parent.mkdir(exist_ok=True)
        slave.symlink_to(system / "devices" / name)
    assert disks.disk_kind(tmp_path / "my data") == disks.ROTATING


@pytest.mark.parametrize(
    ("file_system", "kind"),
    [("tmpfs", disks.RAM), ("nfs4", disks.NETWORK), ("overlay", disks.UNKNOWN)],
)
def test_a_file_system_without_a_disk_has_a_kind(
    file_system: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:44 / / rw shared:1 - {file_system} server:/export rw\n")
    monkeypatch.setattr(disks, "MOUNTS", mounts)
    assert disks.disk_kind(tmp_path) == kind


def fake_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, rotational: str
) -> Path:
    """A /sys and a mountinfo in which ``folder/my data`` is on ``device``."""
    system = folder / "sys"
    disk, _, partition = device.partition("/")
    fake_disk(system / "devices" / disk, rotational)
    if partition:
        (system / "devices" / device).mkdir()
        (system / "devices" / device / "partition").write_text("1\n")
    links = system / "dev" / "block"
    links.mkdir(parents=True)
    (links / "8:2").symlink_to(system / "devices" / device)
    mounts = folder / "mountinfo"
    point = str(folder / "my data").replace(" ", "\\040")
    mounts.write_text(
        "22 1 0:44 / / rw shared:1 - overlay overlay rw\n"
        f"23 22 8:2 / {point} rw,relatime shared:2 - ext4 /dev/any rw\n"
    )
    monkeypatch.setattr(disks, "MOUNTS", mounts)
    monkeypatch.setattr(disks, "SYS", system)
    return system


def fake_disk(folder: Path, rotational: str) -> None:
    (folder / "queue").mkdir(parents=True)
    (folder / "queue" / "rotational").write_text(f"{rotational}\n")
