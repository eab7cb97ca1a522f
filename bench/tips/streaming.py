"""Reading samples as they are needed takes the memory of one batch, not of the data.

A data set that is read into memory as a whole needs that memory, in every worker once it is
touched. A generator, an iterator or a map-style data set over files holds one batch at a time.

**Matters when** the data is large against the memory, or many processes hold a copy each.

**Doesn't matter when** the data is small: then memory is the fastest place for it. Reading from
files is slower where the operating system's cache doesn't hold them; shards turn many small reads
into few long ones.

**How to apply it**

```python
class Files(IterableDataset):
    def __iter__(self):
        for path in self.paths:
            yield transform(Image.open(path).convert("RGB"))
```

With workers, each one runs the whole iterator: give each its share (`get_worker_info()`), or every
sample comes once a worker.

**How it is measured** In the training process, from memory that holds the encoded files, from files
by an iterator and by index, and from tar shards, in one order. The primary figure is how many bytes
of memory the process needs for a byte of data, from its peak at a quarter and at three quarters of
the data. The files are in the operating system's cache.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.records.plan import Metric
from bench.tips.tip import IMAGES_PER_SECOND, STARTUP, Tip, Variant, Workload
from bench.workloads.work import Context, TreatmentNotApplied, Work

if TYPE_CHECKING:
    from bench.workloads.loaders import JpegFiles
    from bench.workloads.streams import FileStream, InMemory, ShardStream

MEMORY_PER_DATA = Metric(
    name="peak_bytes_per_data_byte",
    unit="bytes/byte",
    column="peak_bytes_per_data_byte",
    aggregate="once",
    higher_is_better=False,
    kind="difference",
    margin=0.03,
)


def tip(context: Context) -> Tip:
    """The tip."""
    return Tip(
        id="streaming",
        section="Data loading",
        order=6,
        claim="Read large data with a generator or an iterator instead of loading it all.",
        card=__doc__ or "",
        variants=(
            Variant(name="all in memory", settings={"source": "memory"}),
            Variant(
                name="IterableDataset from files", settings={"source": "stream"}, recommended=True
            ),
            Variant(name="map-style from disk", settings={"source": "files"}),
            Variant(name="IterableDataset from tar shards", settings={"source": "shards"}),
        ),
        workloads=(
            Workload(
                name="loader",
                build=build,
                metrics=(MEMORY_PER_DATA, IMAGES_PER_SECOND, STARTUP),
                pinned=True,
                memory_scales=(0.25, 0.75),
            ),
        ),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing batches from the first ``scale`` of the images."""
    from torch.utils.data import IterableDataset

    from bench.workloads import loaders, streams

    everything = loaders.shuffled(context.images, context.seed)
    images = streams.leading_part(everything, settings.get("scale", 1.0))
    make = loaders.SampleMaker(
        transform=loaders.usual_transform(context.image_size), seed=context.seed
    )
    dataset: InMemory | FileStream | JpegFiles | ShardStream
    match settings["source"]:
        case "memory":
            dataset = streams.InMemory(images, make)
        case "stream":
            dataset = streams.FileStream(images, make)
        case "files":
            dataset = loaders.JpegFiles(images, make)
        case "shards":
            shards = streams.shards(everything, context)
            dataset = streams.ShardStream(shards, len(images.paths), make)
        case source:
            raise ValueError(f"no data set for {source}")
    batches = loaders.Batches(dataset, context, num_workers=0)

    def evidence() -> dict[str, Any]:
        held = dataset.resident_bytes if isinstance(dataset, streams.InMemory) else 0
        wanted = images.total_bytes if settings["source"] == "memory" else 0
        if held != wanted:
            raise TreatmentNotApplied(
                f"{held} encoded bytes were held in memory instead of {wanted}"
            )
        is_iterable = isinstance(batches.loader.dataset, IterableDataset)
        return batches.evidence(num_workers=0) | {
            "dataset": f"{type(batches.loader.dataset).__name__} "
            f"({'IterableDataset' if is_iterable else 'map-style'})",
            "resident_bytes": held,
            "data_bytes": images.total_bytes,
        }

    return loaders.loading_work(batches, evidence)
