"""Loaders: one order for all, real workers, and evidence that says so."""

import dataclasses
import gc
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from small_images import make_context
from torch.utils.data import Dataset

from bench.workloads import loaders, resized, streams
from bench.workloads.derived import build_once
from bench.workloads.loaders import Batch, Batches, Sample
from bench.workloads.work import Context, TreatmentNotApplied, WorkFailed

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path)


def drawn(context: Context, count: int, num_workers: int) -> list[Batch]:
    batches = loaders.usual_batches(context, num_workers=num_workers)
    try:
        return [batches.next() for _ in range(count)]
    finally:
        batches.close()


def assert_same(these: list[Batch], those: list[Batch]) -> None:
    for one, other in zip(these, those, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
        assert one.encoded_bytes == other.encoded_bytes


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_forked_workers_give_the_batches_of_the_training_process(
    context: Context, num_workers: int
) -> None:
    assert_same(drawn(context, 7, num_workers), drawn(context, 7, 0))


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_workers_of_the_other_start_methods_give_the_same_batches(
    context: Context, start_method: str
) -> None:
    other = dataclasses.replace(context, start_method=start_method)
    assert_same(drawn(other, 3, 1), drawn(context, 3, 0))


def test_another_seed_gives_another_order_and_other_crops(context: Context) -> None:
    first, second = (drawn(dataclasses.replace(context, seed=seed), 1, 0)[0] for seed in (0, 1))
    assert not torch.equal(first.images, second.images)


def test_batches_never_run_dry_and_are_whole_when_the_data_is_smaller(context: Context) -> None:
    large = dataclasses.replace(context, batch_size=2 * len(context.images.paths) + 1)
    assert all(len(batch.labels) == large.batch_size for batch in drawn(large, 3, 1))


def test_one_pass_draws_every_image_once(context: Context) -> None:
    images = loaders.shuffled(context.images, 5)
    assert sorted(images.paths) == sorted(context.images.paths)
    assert images.paths != context.images.paths
    label_of = dict(zip(context.images.paths, context.images.labels, strict=True))
    assert images.labels == tuple(label_of[path] for path in images.paths)


def test_an_uneven_sample_is_the_same_sample(context: Context) -> None:
    make = loaders.SampleMaker(transform=loaders.usual_transform(32), seed=0)
    decoded: list[int] = []

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Counting(loaders.SampleMaker):
        def __call__(self, encoded: bytes, label: int, position: int, decodes: int = 1) -> Sample:
            decoded.append(decodes)
            return make(encoded, label, position, decodes)

    uneven = loaders.JpegFiles(
        context.images, Counting(transform=make.transform, seed=0), (1, 1, 5)
    )
    even = loaders.JpegFiles(context.images, make)
    for position in range(6):
        assert torch.equal(uneven[position].image, even[position].image)
    assert decoded == [1, 1, 5, 1, 1, 5]


def test_work_starts_its_workers_with_the_first_step_and_close_ends_them(context: Context) -> None:
    batches = loaders.usual_batches(context, num_workers=2)
    work = loaders.loading_work(batches, lambda: batches.evidence(num_workers=2))
    assert multiprocessing.active_children() == []
    assert [work.step() for _ in range(2)] == [4, 4]
    assert len(multiprocessing.active_children()) == 2
    assert work.period == 2
    work.close()
    gc.collect()
    assert multiprocessing.active_children() == []


def test_evidence_holds_the_worker_ids_and_the_batches_ordered_ahead(context: Context) -> None:
    batches = loaders.usual_batches(context, num_workers=2)
    for _ in range(3):
        batches.next()
    evidence = batches.evidence(num_workers=2, prefetch_factor=2)
    batches.close()
    assert evidence["worker_ids"] == [0, 1]
    assert evidence["worker_processes"] == 2
    assert evidence["batches_ahead"] == 4
    assert evidence["images"] == "torch.float32 [4, 3, 32, 32]"


@pytest.mark.parametrize(("asked", "real"), [(2, 0), (2, 1), (0, 1), (1, 2)])
def test_other_workers_than_asked_for_are_found(context: Context, asked: int, real: int) -> None:
    batches = loaders.usual_batches(context, num_workers=real)
    for _ in range(3):
        batches.next()
    with pytest.raises(TreatmentNotApplied, match=f"num_workers={asked}"):
        batches.evidence(num_workers=asked)
    batches.close()


def test_another_prefetch_factor_than_asked_for_is_found(context: Context) -> None:
    dataset = loaders.JpegFiles(context.images, usual_make())
    batches = Batches(dataset, context, num_workers=1, prefetch_factor=3)
    batches.next()
    assert batches.evidence(num_workers=1, prefetch_factor=3)["batches_ahead"] == 3
    with pytest.raises(TreatmentNotApplied, match="prefetch_factor=2"):
        batches.evidence(num_workers=1, prefetch_factor=2)
    batches.close()


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
def test_pinning_that_pins_nothing_is_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: False)
    batches = loaders.usual_batches(context, num_workers=0, pin_memory=True)
    batches.next()
    with pytest.raises(TreatmentNotApplied, match="pin_memory=True"):
        batches.evidence(num_workers=0, pin_memory=True)


class Threads(Dataset[Sample]):
    """Each sample says how many threads torch uses where it was made."""

    def __getitem__(self, position: int) -> Sample:
        return Sample(torch.zeros(1), torch.get_num_threads(), 0)


def test_workers_use_one_thread_each(context: Context) -> None:
    batches = Batches(Threads(), context, num_workers=1)
    assert batches.next().labels.tolist() == [1, 1, 1, 1]
    batches.close()


class Hanging(Dataset[Sample]):
    """A sample that comes later than anybody waits for it."""

    def __getitem__(self, position: int) -> Sample:
        time.sleep(1)
        raise AssertionError


def test_a_worker_that_hangs_is_an_error(context: Context) -> None:
    batches = Batches(Hanging(), context, num_workers=1, timeout_seconds=0.1)
    with pytest.raises(RuntimeError, match="timed out"):
        batches.next()
    batches.close()


def test_a_batch_that_is_not_whole_fails(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaders.Positions, "__iter__", lambda positions: iter(range(6)))
    batches = loaders.usual_batches(context, num_workers=0)
    batches.next()
    with pytest.raises(WorkFailed, match="2 samples, 4 were asked for"):
        batches.next()


def every_dataset(context: Context) -> dict[str, Dataset[Sample]]:
    make = usual_make()
    images = context.images
    return {
        "files": loaders.JpegFiles(images, make),
        "memory": streams.InMemory(images, make),
        "stream": streams.FileStream(images, make),
        "shards": streams.ShardStream(streams.shards(images, context), len(images.paths), make),
    }


def usual_make() -> loaders.SampleMaker:
    return loaders.SampleMaker(transform=loaders.usual_transform(32), seed=0)


def test_every_source_gives_the_same_samples_beyond_one_pass(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "IMAGES_A_SHARD", 5)
    found: dict[str, list[Batch]] = {}
    for name, dataset in every_dataset(context).items():
        batches = Batches(dataset, context, num_workers=0)
        found[name] = [batches.next() for _ in range(7)]
    for name in ("memory", "stream", "shards"):
        assert_same(found[name], found["files"])
    assert len(streams.shards(context.images, context)) == 3


def test_only_the_set_in_memory_holds_bytes_and_only_from_its_first_sample(
    context: Context,
) -> None:
    dataset = streams.InMemory(context.images, usual_make())
    assert dataset.resident_bytes == 0
    dataset[0]
    assert dataset.resident_bytes == context.images.total_bytes


@pytest.mark.parametrize(("scale", "count"), [(0.25, 3), (0.75, 9), (1.0, 12), (0.0001, 1)])
def test_a_part_of_the_images_knows_its_bytes(context: Context, scale: float, count: int) -> None:
    part = streams.leading_part(context.images, scale)
    assert part.paths == context.images.paths[:count]
    assert len(part.labels) == count
    sizes = [(part.folder / path).stat().st_size for path in part.paths]
    assert part.total_bytes == sum(sizes)


def test_a_resized_copy_is_smaller_keeps_its_shape_and_is_built_once(tmp_path: Path) -> None:
    seconds: list[float] = []

    def stopwatch(build: Any) -> float:
        build()
        seconds.append(1.5)
        return 1.5

    context = make_context(tmp_path, stopwatch=stopwatch)
    for _ in range(2):
        copy, build_seconds = resized.resized_copy(context.images, context, 36)
        assert build_seconds == 1.5
    assert seconds == [1.5]
    assert copy.labels == context.images.labels
    assert copy.total_bytes < context.images.total_bytes / 2
    make = usual_make()
    assert loaders.JpegFiles(copy, make)[0].image.shape == (3, 32, 32)
    from PIL import Image

    with Image.open(copy.folder / copy.paths[5]) as image:
        assert image.size == (39, 36)


def test_a_build_that_breaks_off_leaves_nothing_and_the_next_one_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "derived" / "one"

    def broken(partial: Path) -> None:
        (partial / "half").write_text("half")
        raise KeyboardInterrupt

    def whole(partial: Path) -> None:
        (partial / "all").write_text("all")

    with pytest.raises(KeyboardInterrupt):
        build_once(folder, broken, None)
    assert not folder.exists()
    assert build_once(folder, whole, None) is None
    assert sorted(path.name for path in folder.iterdir()) == ["all", "built.json"]


def test_a_changed_image_list_gets_a_copy_of_its_own(context: Context) -> None:
    copy, _ = resized.resized_copy(context.images, context, 36)
    other = dataclasses.replace(context.images, paths=context.images.paths[:3], labels=(0, 1, 0))
    assert resized.resized_copy(other, context, 36)[0].folder != copy.folder
    assert os.path.commonpath([copy.folder, context.cache]) == str(context.cache)
