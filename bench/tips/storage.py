"""A fast local disk shortens the reads that memory does not serve.

Training reads many files in random order. An NVMe disk answers such reads in a tenth of a
millisecond, a rotating disk moves its head for each, and a network mount asks another machine.

**Matters when** the data doesn't fit into the operating system's page cache: every epoch then reads
from the disk, and so does the first epoch always.

**Doesn't matter when** the data fits into memory: from the second epoch on, the page cache serves
it. Or when decoding takes longer than reading, as "load" beside "read" shows.

**How to apply it**

```sh
cp -r /mnt/network/images /mnt/nvme/images       # the data, on the fastest local disk
export TORCH_HOME=/mnt/nvme/torch HF_HOME=/mnt/nvme/huggingface      # and the caches
python -m bench run --tips storage --storage /mnt/network --storage /mnt/nvme
```

The last line measures it: each place is given with `--storage`, the one you use now first.

**How it is measured** Each place gets files of its own (in a folder `torch-tips-bench` there,
which stays until you delete it). They are dropped from the page cache before each turn, without
root; the bytes that the kernel fetched from the device prove that reads were cold. Directory
entries stay cached. A disk's own cache, a hypervisor's or a server's can't be emptied. Without
`--storage` the claim can't be measured; reads from the data's own disk, cold and from the page
cache, and from /dev/shm are shown instead.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.records.plan import Metric
from bench.tips.tip import IMAGES_PER_SECOND, Tip, Variant, Workload
from bench.workloads import disks, placed
from bench.workloads.work import Context, Images, TreatmentNotApplied, Work, WorkFailed

BYTES_PER_SECOND = Metric(
    name="payload_bytes_per_second", unit="bytes/s", column="payload_bytes", aggregate="rate"
)
TURN_SECONDS = 0.05
"""Short: all variants read the same files in a turn, and a cold turn must not read one twice."""
BATCH_SIZE = 16
SHM = Path("/dev/shm")
COLD_SHARE = 0.9
WARM_SHARE = 0.1


def tip(context: Context) -> Tip:
    """The tip over the places that the user named, or over the data's own disk."""
    own_kind = disks.disk_kind(context.cache)
    return Tip(
        id="storage",
        section="Data loading",
        order=8,
        claim="Keep data and caches on an NVMe SSD.",
        card=__doc__ or "",
        variants=named_places(context) if len(context.storage) > 1 else own_disk(context),
        workloads=tuple(
            Workload(
                name=name,
                build=build,
                metrics=(IMAGES_PER_SECOND, BYTES_PER_SECOND),
                pinned=True,
                turn_seconds=TURN_SECONDS,
            )
            for name, build in (("read", build_read), ("load", build_load))
        ),
        note=f"The suite's cache, and its copies of the images, are on: {own_kind}.",
    )


def named_places(context: Context) -> tuple[Variant, ...]:
    """Cold reads from each place; the first NVMe disk (else SSD) that follows is the claim."""
    kinds = [disks.disk_kind(place) for place in context.storage]
    names = [
        f"{kind}, cold" if kinds.count(kind) == 1 else f"{kind} {index + 1}, cold"
        for index, kind in enumerate(kinds)
    ]
    fast = [
        index
        for wanted in (disks.NVME, disks.SSD)
        for index, kind in enumerate(kinds)
        if index and kind == wanted
    ]
    variants = tuple(
        Variant(
            name=name,
            settings={"state": "cold", "place": index},
            needs=(functools.partial(_cold, place), functools.partial(_room, place)),
            recommended=index in fast[:1],
            exploratory=index > 0 and index not in fast[:1],
        )
        for index, (name, place) in enumerate(zip(names, context.storage, strict=True))
    )
    if fast:
        return variants
    claim = _claim_not_measurable(
        "none of the places after the first that --storage names is on an NVMe disk or SSD"
    )
    return (variants[0], claim, *variants[1:])


def own_disk(context: Context) -> tuple[Variant, ...]:
    """The data's own disk cold and warm, and RAM; the claim itself needs a second disk."""
    room = functools.partial(_room, context.cache)
    return (
        Variant(
            name="own disk, cold",
            settings={"state": "cold", "place": None},
            needs=(functools.partial(_cold, context.cache), room),
        ),
        _claim_not_measurable(
            "needs two places to compare: name the one you use now, then one on an NVMe disk, "
            "with --storage PATH each"
        ),
        Variant(
            name="own disk, warm (page cache)",
            settings={"state": "warm", "place": None},
            needs=(_counts_reads, room),
            exploratory=True,
        ),
        Variant(name="/dev/shm", settings={"state": "ram"}, needs=(_has_shm,), exploratory=True),
    )


def build_read(settings: Mapping[str, Any], context: Context) -> Work:
    """Reading a batch of files, whole, one after the other."""
    files = _place(settings, context)
    context = dataclasses.replace(context, batch_size=BATCH_SIZE)
    drawn = 0
    asked = 0

    def step() -> int:
        nonlocal drawn, asked
        for _ in range(context.batch_size):
            asked += len(_path(files, drawn).read_bytes())
            drawn += 1
        return context.batch_size

    return _watched(
        Work(step=step, evidence=dict), files, settings, context, lambda: drawn, lambda: asked
    )


def build_load(settings: Mapping[str, Any], context: Context) -> Work:
    """Reading, decoding and augmenting a batch, in the training process."""
    from bench.workloads import loaders

    files = _place(settings, context)
    context = dataclasses.replace(context, batch_size=BATCH_SIZE)
    make = loaders.SampleMaker(
        transform=loaders.usual_transform(context.image_size), seed=context.seed
    )
    batches = loaders.Batches(loaders.JpegFiles(files, make), context, num_workers=0)
    return _watched(
        loaders.loading_work(batches, lambda: batches.evidence(num_workers=0)),
        files,
        settings,
        context,
        lambda: batches.delivered * context.batch_size,
        lambda: batches.encoded_bytes,
    )


def _watched(
    work: Work,
    files: Images,
    settings: Mapping[str, Any],
    context: Context,
    drawn: Callable[[], int],
    asked: Callable[[], int],
) -> Work:
    """``work`` with its next files made cold or warm before each turn, and that proved after it.

    ``drawn`` and ``asked``: the files and the bytes that it has read so far.
    """
    state = settings["state"]
    asked_before = asked()
    fetched_before = disks.bytes_from_device()
    count = len(files.paths)

    def prepare(steps: int) -> None:
        nonlocal asked_before, fetched_before
        coming = range(drawn(), drawn() + steps * context.batch_size)
        if state == "cold" and len(coming) > count:
            raise WorkFailed(
                f"a turn of {len(coming)} files over {count} would read some of them warm"
            )
        for position in coming[:count]:
            if state == "cold":
                disks.drop_from_page_cache(_path(files, position))
            else:
                _path(files, position).read_bytes()
        asked_before = asked()
        fetched_before = disks.bytes_from_device()

    def seen() -> dict[str, int]:
        wanted = asked() - asked_before
        fetched = disks.bytes_from_device() - fetched_before
        if state == "cold" and fetched < COLD_SHARE * wanted:
            raise TreatmentNotApplied(
                f"cold: {fetched} of {wanted} bytes came from the device, the rest from a cache"
            )
        if state != "cold" and fetched > WARM_SHARE * wanted:
            raise TreatmentNotApplied(f"{state}: {fetched} of {wanted} bytes came from the device")
        return {"bytes_asked_for": wanted, "bytes_from_device": fetched}

    def evidence() -> dict[str, Any]:
        kind = disks.RAM if state == "ram" else disks.disk_kind(files.folder)
        return {**work.evidence(), **seen(), "kind_of_disk": kind}

    return dataclasses.replace(
        work,
        evidence=evidence,
        prepare=prepare,
        readings=lambda: {"payload_bytes": seen()["bytes_asked_for"]},
    )


def _place(settings: Mapping[str, Any], context: Context) -> Images:
    from bench.workloads.loaders import shuffled

    chosen = placed.subset(shuffled(context.images, context.seed))
    if settings["state"] == "ram":
        return placed.copy_to_ram(chosen, SHM)
    if settings["state"] == "warm":
        chosen = dataclasses.replace(chosen, copies=1)
    index = settings["place"]
    place = context.cache if index is None else context.storage[index]
    purpose = settings["state"] if index is None else f"place-{index + 1}"
    files = placed.copy_to_disk(chosen, place, purpose, context)
    if settings["state"] == "cold":
        # The turns' length is worked out before the first prepare(): from cold reads too.
        for position in range(len(files.paths)):
            disks.drop_from_page_cache(_path(files, position))
    return files


def _path(files: Images, position: int) -> Path:
    return files.folder / files.paths[position % len(files.paths)]


def _claim_not_measurable(reason: str) -> Variant:
    return Variant(
        name=f"{disks.NVME}, cold", needs=(functools.partial(_because, reason),), recommended=True
    )


def _because(reason: str, context: Context) -> str:
    return reason


def _cold(place: Path, context: Context) -> str | None:
    return disks.why_not_cold(place)


def _room(place: Path, context: Context) -> str | None:
    return disks.why_no_room(place, placed.subset(context.images).bytes_on_disk)


def _counts_reads(context: Context) -> str | None:
    if os.access(disks.IO_COUNTERS, os.R_OK):
        return None
    return "needs /proc/self/io to show where reads come from"


def _has_shm(context: Context) -> str | None:
    if not os.access(SHM, os.W_OK):
        return "this system has no /dev/shm that can be written to"
    return _counts_reads(context) or disks.why_no_room(
        SHM, placed.subset(context.images).images.total_bytes
    )
