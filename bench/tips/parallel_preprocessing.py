"""Several processes, or work done once ahead of time, shorten each epoch.

Decoding and augmentation of different samples are independent of each other, so several processes
can share them. What is the same in every epoch (decoding a large photograph, shrinking it) can also
be done once, ahead of time.

**Matters when** preprocessing takes most of the time and cores stand idle.

**Doesn't matter when** the cores are busy already, or reading is the bottleneck. A resized copy
costs disk space and the time to build it, and is other data: the crops come from fewer pixels and
twice-compressed ones. On a CPU the training step itself wants the cores: here the loader runs
alone, and what is left of the gain beside a training step stands with `num_workers`.

**How to apply it**

```python
loader = DataLoader(dataset, num_workers=cores)  # augmentation runs in the workers

with multiprocessing.Pool() as pool:             # ahead of time, once
    pool.map(resize_and_save, paths)
```

**How it is measured** A loader with heavy augmentation (crop, flip, rotation, colour jitter, blur).
The resized copy is built by one process a core and read in the training process. After how many
epochs its build pays off follows from `build_seconds / (images / rate_before − images /
rate_after)`, with the two variants' images a second.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.records.plan import Metric
from bench.tips.tip import IMAGES_PER_SECOND, Tip, Variant, Workload
from bench.workloads.work import Context, TreatmentNotApplied, Work
from bench.workloads.workers import worker_a_core

BUILD = Metric(
    name="build_seconds",
    unit="s",
    column="build_seconds",
    aggregate="once",
    higher_is_better=False,
    is_outlay=True,
)


def tip(context: Context) -> Tip:
    """The tip, with a worker a usable core."""
    return Tip(
        id="parallel_preprocessing",
        section="Data loading",
        order=7,
        claim="Preprocess the data in several processes.",
        card=__doc__ or "",
        variants=(
            Variant(name="in the training process", settings={"num_workers": 0, "resized": False}),
            Variant(
                name="in DataLoader workers",
                settings={"num_workers": worker_a_core(context), "resized": False},
                recommended=True,
            ),
            Variant(
                name="ahead of time, resized copy",
                settings={"num_workers": 0, "resized": True},
                exploratory=True,
            ),
        ),
        workloads=(
            Workload(
                name="loader with heavy augmentation",
                build=build,
                metrics=(IMAGES_PER_SECOND, BUILD),
            ),
        ),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing batches of heavily augmented images, from the originals or from a resized copy."""
    from bench.workloads import loaders, resized

    originals = loaders.shuffled(context.images, context.seed)
    images, build_seconds = originals, None
    if settings["resized"]:
        # ImageNet's usual proportion between the stored short side and the crop: 256 to 224.
        short_side = context.image_size * 8 // 7
        images, build_seconds = resized.resized_copy(originals, context, short_side)
    dataset = loaders.JpegFiles(
        images,
        loaders.SampleMaker(
            transform=loaders.heavy_transform(context.image_size), seed=context.seed
        ),
    )
    batches = loaders.Batches(dataset, context, num_workers=settings["num_workers"])

    def evidence() -> dict[str, Any]:
        sizes = [(images.folder / path).stat().st_size for path in images.paths]
        samples = batches.delivered * context.batch_size
        wanted = sum(sizes[position % len(sizes)] for position in range(samples))
        if batches.encoded_bytes != wanted:
            raise TreatmentNotApplied(
                f"{batches.encoded_bytes} bytes were read; the first {samples} samples of "
                f"{images.name} have {wanted}"
            )
        return batches.evidence(num_workers=settings["num_workers"]) | {
            "files_read": "resized copy" if settings["resized"] else "originals",
            "bytes_a_sample": round(batches.encoded_bytes / samples),
        }

    work = loaders.loading_work(batches, evidence)
    if build_seconds is None:
        return work
    return dataclasses.replace(work, readings=lambda: {"build_seconds": build_seconds})
