"""Decode JPEGs with a TurboJPEG-based decoder instead of Pillow.

Decoding is the dearest step between a JPEG and a batch, and decoders
differ in what surrounds libjpeg-turbo: copies, colour order, how the library was built. Nearly
all of them call libjpeg-turbo in the end, current Pillow too, so expect less than old articles
promise.

**Matters when** the GPU waits for data, the images are decoded in every epoch, and more loader
workers are not to be had.

**Doesn't matter when** the loader keeps up already, the images are resized ahead of time, or the
resize after decoding costs as much as the decoding (see `jpeg_to_crop`).

**How to apply it**

```python
from turbojpeg import TJPF_RGB, TurboJPEG  # pip install 'PyTurboJPEG<2', apt install libturbojpeg0

turbo = TurboJPEG()
image = turbo.decode(data, TJPF_RGB)  # the default is BGR
```

`torchvision.io` is deprecated as a decoder since torchvision 0.29; TorchCodec takes over:
`torchcodec.decoders.decode_jpeg(data, mode="RGB")`.

**How it is measured** One thread, bound to one core, turns JPEG bytes in memory into contiguous
RGB uint8 pixels in memory, H×W×3. Pillow is used as torchvision's image folders do:
`Image.open(…).convert("RGB")`. The nvJPEG variants decode 16 files a call and leave 3×H×W pixels
on the GPU. No decoder runs with flags that trade pixels for speed, and the mean pixel
difference from Pillow is in the evidence (libjpeg-turbo's users give equal pixels; nvJPEG's
differ a little). A folder's CMYK, truncated or rotated files are left out for all.

**Where it comes from** The article's advice to decode with turbojpeg or jpeg4py; libjpeg-turbo's
own documentation for the flags.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.records.plan import Metric
from bench.tips.tip import IMAGES_PER_SECOND, Tip, Variant, Workload
from bench.workloads import jpegs
from bench.workloads.decoders import DECODERS, by_name
from bench.workloads.decoders.decoder import Decoder
from bench.workloads.decoders.reference import as_hwc, decoded, in_pillow, mean_difference
from bench.workloads.work import Context, TreatmentNotApplied, Work

RECOMMENDED = "PyTurboJPEG"
COMPARED_FILES = 3
LARGEST_DIFFERENCE = 5.0
"""Levels of 0 to 255. nvJPEG's chroma differs by 1 or 2; red and blue swapped, by tens."""

PAYLOAD = Metric(
    name="payload_bytes_per_second", unit="bytes/s", column="payload_bytes", aggregate="rate"
)


def tip(context: Context) -> Tip:
    """The tip with a variant for each decoder, Pillow first."""
    return Tip(
        id="jpeg_decoder",
        section="Data loading",
        order=4,
        claim="TurboJPEG-based decoders (PyTurboJPEG, jpeg4py) decode JPEGs faster than Pillow.",
        card=__doc__ or "",
        variants=variants(),
        workloads=(
            Workload(
                name="decode",
                build=build,
                metrics=(IMAGES_PER_SECOND, PAYLOAD),
                pinned=True,
                split=3,
            ),
        ),
    )


def variants() -> tuple[Variant, ...]:
    """A variant for each decoder, Pillow first."""
    return tuple(
        Variant(
            name=decoder.name,
            settings={"decoder": decoder.name},
            needs=(decoder.need,),
            recommended=decoder.name == RECOMMENDED,
            fresh=bool(decoder.environment),
            environment=decoder.environment,
        )
        for decoder in DECODERS
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Work that decodes the held files, one a step (nvJPEG: 16 a step)."""
    decoder = by_name(settings["decoder"])
    decode = decoder.load()
    held = jpegs.hold(context.images, seed=context.seed)

    def do(part: Sequence[jpegs.Jpeg]) -> None:
        decode([jpeg.data for jpeg in part])

    def evidence() -> dict[str, Any]:
        files = [jpeg.data for jpeg in held[:COMPARED_FILES]]
        return seen(decoder, decode(files), files)

    return jpegs.walk(held, do, evidence, batch=decoder.batch, device=decoder.device)


def seen(decoder: Decoder, images: Sequence[Any], files: Sequence[bytes]) -> dict[str, Any]:
    """Evidence about decoded images; TreatmentNotApplied when they are not what was asked for."""
    found = library_and_form(decoder, images)
    differences = []
    for image, expected in zip(images, in_pillow(decoded, files), strict=True):
        pixels = as_hwc(image, decoder.layout)
        if pixels.shape != expected.shape:
            raise TreatmentNotApplied(
                f"{decoder.name} gave pixels of shape {pixels.shape}, Pillow of {expected.shape}."
            )
        differences.append(mean_difference(pixels, expected))
    difference = sum(differences) / len(differences)
    if difference > LARGEST_DIFFERENCE:
        raise TreatmentNotApplied(
            f"{decoder.name}'s pixels differ from Pillow's by {difference:.1f} levels on average."
        )
    return {**found, "mean_pixel_difference": round(difference, 4)}


def library_and_form(decoder: Decoder, images: Sequence[Any]) -> dict[str, Any]:
    """The library loaded and the images' form; TreatmentNotApplied unless contiguous uint8."""
    for image in images:
        dtype = str(image.dtype).removeprefix("torch.")
        device = str(getattr(image, "device", "cpu"))
        is_contiguous = (
            image.is_contiguous() if hasattr(image, "is_contiguous") else image.flags.c_contiguous
        )
        if dtype != "uint8" or not is_contiguous or not device.startswith(decoder.device):
            raise TreatmentNotApplied(
                f"{decoder.name} gave {dtype} on {device}, contiguous: {is_contiguous}; "
                f"contiguous uint8 on {decoder.device} was asked for."
            )
    return {
        "decoder": decoder.name,
        **decoder.library(),
        "shape": list(images[0].shape),
        "dtype": dtype,
        "device": device,
    }
