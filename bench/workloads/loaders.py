"""Batches as people load them: JPEG files, Pillow, torchvision's v2 transforms, a DataLoader.

Everything a sample depends on (its file, its random crop, its extra cost) is a function of its
position in one endless walk over the images. So two loaders that draw the same number of batches
have done the same work in the same order, whatever their workers, and neither ever runs dry.
"""

import dataclasses
import itertools
import os
import random
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import PIL
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    default_collate,
    get_worker_info,
)
from torchvision.transforms import v2

from bench.workloads.work import Context, Images, TreatmentNotApplied, Work, WorkFailed

WORKER_TIMEOUT_SECONDS = 120
"""A worker that is silent for so long hangs. Starting one under spawn or forkserver imports torch
and torchvision, which takes 4 to 7 s on a slow machine."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Transform = Callable[[Image.Image], Tensor]


class Sample(NamedTuple):
    """One training sample: float32 image of shape (3, size, size), label, encoded bytes read."""

    image: Tensor
    label: int
    encoded_bytes: int


class Batch(NamedTuple):
    """A batch and who made it: images (batch, 3, size, size), labels (batch,) int64.

    ``worker`` is the DataLoader worker's id, None in the training process; ``process`` its pid.
    """

    images: Tensor
    labels: Tensor
    encoded_bytes: int
    worker: int | None
    process: int


def usual_transform(image_size: int) -> Transform:
    """Random crop to ``image_size``, flip, float32, normalised: the common training recipe."""
    return v2.Compose(
        [v2.RandomResizedCrop(image_size), v2.RandomHorizontalFlip(), *_to_normalized_tensor()]
    )


def heavy_transform(image_size: int) -> Transform:
    """The usual recipe with colour jitter, rotation and blur, as contrastive training uses."""
    return v2.Compose(
        [
            v2.RandomResizedCrop(image_size),
            v2.RandomHorizontalFlip(),
            v2.RandomRotation(15),
            v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
            v2.GaussianBlur(kernel_size=9),
            *_to_normalized_tensor(),
        ]
    )


def _to_normalized_tensor() -> list[Any]:
    return [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
    ]


def shuffled(images: Images, seed: int) -> Images:
    """The same images in the order that ``seed`` draws; every variant walks this one order."""
    order = random.Random(seed).sample(range(len(images.paths)), len(images.paths))
    return dataclasses.replace(
        images,
        paths=tuple(images.paths[index] for index in order),
        labels=tuple(images.labels[index] for index in order),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleMaker:
    """Turns a JPEG's bytes into a sample: decoded, transformed with the position's own seed."""

    transform: Transform
    seed: int

    def __call__(self, encoded: bytes, label: int, position: int, decodes: int = 1) -> Sample:
        """Decode ``encoded`` (``decodes`` times, for a sample that costs more) and transform it."""
        for _ in range(decodes):
            # convert() makes Pillow decode; open() reads the header only.
            image = Image.open(BytesIO(encoded)).convert("RGB")
        # The transforms draw from torch's CPU generator. torch.manual_seed would reach for CUDA
        # too, which a forked worker must not touch.
        torch.default_generator.manual_seed(self.seed * 1_000_003 + position)
        return Sample(self.transform(image), label, len(encoded))


class JpegFiles(Dataset[Sample]):
    """Map-style: the sample at any position of the endless walk over ``images``, from its file.

    ``decodes``: how often the samples at successive positions are decoded, over and over.
    """

    def __init__(self, images: Images, make: SampleMaker, decodes: tuple[int, ...] = (1,)) -> None:
        self.images = images
        self.make = make
        self.decodes = decodes

    def path(self, position: int) -> Path:
        """The file of the sample at ``position``."""
        return self.images.folder / self.images.paths[self._index(position)]

    def __getitem__(self, position: int) -> Sample:
        """Read, decode and transform the sample at ``position``."""
        encoded = self.path(position).read_bytes()
        label = self.images.labels[self._index(position)]
        return self.make(encoded, label, position, self.decodes[position % len(self.decodes)])

    def _index(self, position: int) -> int:
        return position % len(self.images.paths)


class Positions(Sampler[int]):
    """0, 1, 2, … without end, and how many were drawn: a loader draws ahead of what it gives."""

    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self) -> Iterator[int]:
        for position in itertools.count():
            self.drawn = position + 1
            yield position


def collate(samples: list[Sample]) -> Batch:
    """Make a batch, in the process that made the samples."""
    worker = get_worker_info()
    return Batch(
        # default_collate lets a worker write straight into shared memory; torch.stack would copy.
        images=default_collate([sample.image for sample in samples]),
        labels=torch.tensor([sample.label for sample in samples]),
        encoded_bytes=sum(sample.encoded_bytes for sample in samples),
        worker=None if worker is None else worker.id,
        process=os.getpid(),
    )


class Batches:
    """An endless stream of batches, with what was seen of them.

    Workers start with the first batch, so the time to it holds their start. RuntimeError where a
    worker is silent for WORKER_TIMEOUT_SECONDS.
    """

    def __init__(
        self,
        dataset: Dataset[Sample],
        context: Context,
        *,
        num_workers: int,
        pin_memory: bool = False,
        prefetch_factor: int | None = None,
        timeout_seconds: float = WORKER_TIMEOUT_SECONDS,
    ) -> None:
        self.batch_size = context.batch_size
        self.delivered = 0
        self.encoded_bytes = 0
        self._seen: dict[str, set[Any]] = {"worker": set(), "process": set(), "pinned": set()}
        self._shape: tuple[int, ...] = ()
        self._dtype = ""
        self._positions = Positions()
        self._iterator: Iterator[Batch] | None = None
        self.loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_size=context.batch_size,
            sampler=None if isinstance(dataset, IterableDataset) else self._positions,
            collate_fn=collate,
            num_workers=num_workers,
            pin_memory=pin_memory,
            prefetch_factor=prefetch_factor,
            timeout=timeout_seconds if num_workers else 0,
            multiprocessing_context=context.start_method if num_workers else None,
        )

    def next(self) -> Batch:
        """The next batch; WorkFailed where it is not a whole one."""
        if self._iterator is None:
            self._iterator = iter(self.loader)
        batch: Batch = next(self._iterator)
        if len(batch.labels) != self.batch_size:
            raise WorkFailed(
                f"a batch held {len(batch.labels)} samples, {self.batch_size} were asked for"
            )
        self.delivered += 1
        self.encoded_bytes += batch.encoded_bytes
        self._seen["worker"].add(batch.worker)
        self._seen["process"].add(batch.process)
        self._seen["pinned"].add(batch.images.is_pinned())
        self._shape = tuple(batch.images.shape)
        self._dtype = str(batch.images.dtype)
        return batch

    def evidence(
        self, *, num_workers: int, pin_memory: bool = False, prefetch_factor: int | None = None
    ) -> dict[str, Any]:
        """What the batches showed; TreatmentNotApplied where that is not what was asked for.

        To be called after at least ``num_workers`` batches. ``batches_ahead`` are those that
        were ordered from the workers and not delivered yet.
        """
        workers = self._seen["worker"]
        processes = self._seen["process"]
        wanted: set[int | None] = set(range(num_workers)) if num_workers else {None}
        if workers != wanted:
            raise TreatmentNotApplied(
                f"num_workers={num_workers} was asked for; "
                f"batches came from the workers {_ids(workers)}"
            )
        if num_workers and (len(processes) != num_workers or os.getpid() in processes):
            raise TreatmentNotApplied(
                f"{num_workers} workers made their batches in {len(processes)} processes"
            )
        if self._seen["pinned"] != {pin_memory}:
            raise TreatmentNotApplied(
                f"pin_memory={pin_memory} was asked for; is_pinned() said {not pin_memory}"
            )
        ahead = max(0, self._positions.drawn // self.batch_size - self.delivered)
        if prefetch_factor is not None and ahead != prefetch_factor * num_workers:
            raise TreatmentNotApplied(
                f"prefetch_factor={prefetch_factor} with {num_workers} workers orders "
                f"{prefetch_factor * num_workers} batches ahead; {ahead} were"
            )
        return {
            "worker_ids": _ids(workers),
            "worker_processes": len(processes - {os.getpid()}),
            "batches_ahead": ahead,
            "pinned": pin_memory,
            "images": f"{self._dtype} {list(self._shape)}",
            "decoder": f"Pillow {PIL.__version__}",
        }

    def close(self) -> None:
        """End the workers."""
        # A DataLoader's iterator ends its workers when the last reference to it goes.
        self._iterator = None


def _ids(workers: set[int | None]) -> list[int]:
    return sorted(worker for worker in workers if worker is not None)


def usual_batches(context: Context, *, num_workers: int, pin_memory: bool = False) -> Batches:
    """The context's images in its seed's order, from files, with the usual transform."""
    make = SampleMaker(transform=usual_transform(context.image_size), seed=context.seed)
    dataset = JpegFiles(shuffled(context.images, context.seed), make)
    return Batches(dataset, context, num_workers=num_workers, pin_memory=pin_memory)


def loading_work(batches: Batches, evidence: Callable[[], dict[str, Any]]) -> Work:
    """Drawing batches and nothing else; one step is one batch.

    The workers' batches come out in bursts of one a worker, so that many steps are one period.
    """

    def step() -> int:
        return len(batches.next().labels)

    return Work(
        step=step,
        evidence=evidence,
        period=max(1, batches.loader.num_workers),
        stops_workers=True,
        close=batches.close,
    )
