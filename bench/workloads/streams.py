"""Ways to hold or to stream the encoded images, all in one order: memory, files, tar shards."""

import dataclasses
import functools
import itertools
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from torch.utils.data import Dataset, IterableDataset

from bench.workloads.derived import build_once, fingerprint
from bench.workloads.loaders import Sample, SampleMaker
from bench.workloads.work import Context, Images

IMAGES_A_SHARD = 100


def leading_part(images: Images, scale: float) -> Images:
    """The first ``scale`` of the images, at least one."""
    paths = images.paths[: max(1, round(scale * len(images.paths)))]
    return dataclasses.replace(
        images,
        paths=paths,
        labels=images.labels[: len(paths)],
        total_bytes=sum((images.folder / path).stat().st_size for path in paths),
    )


class InMemory(Dataset[Sample]):
    """Map-style over the encoded bytes of all images, read with the first sample."""

    def __init__(self, images: Images, make: SampleMaker) -> None:
        self.images = images
        self.make = make
        self._encoded: list[bytes] = []

    @property
    def resident_bytes(self) -> int:
        """The encoded bytes that are held."""
        return sum(map(len, self._encoded))

    def __getitem__(self, position: int) -> Sample:
        """Decode and transform the sample at ``position`` of the endless walk."""
        if not self._encoded:
            self._encoded = [(self.images.folder / path).read_bytes() for path in self.images.paths]
        index = position % len(self.images.paths)
        return self.make(self._encoded[index], self.images.labels[index], position)


class FileStream(IterableDataset[Sample]):
    """The samples one after the other from their files, without end, in one process."""

    def __init__(self, images: Images, make: SampleMaker) -> None:
        self.images = images
        self.make = make

    def __iter__(self) -> Iterator[Sample]:
        files = zip(self.images.paths, self.images.labels, strict=True)
        for position, (path, label) in enumerate(itertools.cycle(files)):
            yield self.make((self.images.folder / path).read_bytes(), label, position)


class ShardStream(IterableDataset[Sample]):
    """The samples one after the other from tar shards, without end, in one process.

    ``count``: how many samples, from the first, make one pass.
    """

    def __init__(self, shards: tuple[Path, ...], count: int, make: SampleMaker) -> None:
        self.shards = shards
        self.count = count
        self.make = make

    def __iter__(self) -> Iterator[Sample]:
        positions = itertools.count()
        while True:
            for label, encoded in itertools.islice(self._members(), self.count):
                yield self.make(encoded, label, next(positions))

    def _members(self) -> Iterator[tuple[int, bytes]]:
        for shard in self.shards:
            # Mode "r|" reads strictly forward, in large blocks.
            with tarfile.open(shard, "r|") as archive:
                for member in archive:
                    file = archive.extractfile(member)
                    if file is None:
                        raise ValueError(f"{shard.name} holds {member.name}, which is not a file")
                    yield int(member.name.split(".")[1]), file.read()


def shards(images: Images, context: Context) -> tuple[Path, ...]:
    """Tar files of IMAGES_A_SHARD images each, in the images' order, built once below the cache."""
    folder = context.cache / "shards" / fingerprint(images, IMAGES_A_SHARD)
    build_once(folder, functools.partial(_build, images=images), context.stopwatch)
    return tuple(sorted(folder.glob("*.tar")))


def _build(folder: Path, images: Images) -> None:
    files = list(zip(images.paths, images.labels, strict=True))
    for start in range(0, len(files), IMAGES_A_SHARD):
        with tarfile.open(folder / f"{start:08d}.tar", "w") as archive:
            for index, (path, label) in enumerate(files[start : start + IMAGES_A_SHARD], start):
                encoded = (images.folder / path).read_bytes()
                member = tarfile.TarInfo(f"{index:08d}.{label}.jpg")
                member.size = len(encoded)
                archive.addfile(member, BytesIO(encoded))
