"""Decode with a TurboJPEG-based decoder, where people meet it: on the way to a training sample.

The same decoders as in `jpeg_decoder`, but the image is also cut, resized
to 224 pixels and perhaps mirrored. The resize costs half as much as the decoding or more, and
comes with the decoder: Pillow resizes Pillow images, OpenCV has its own, and what decodes to
arrays or tensors uses torchvision's v2 functions.

**Matters when** data loading is the bottleneck. Here pillow-simd can shine: its decoding is
Pillow's, its resizing is several times faster.

**Doesn't matter when** the loader keeps up already, or the images are resized ahead of time.

**How to apply it**

```python
import torch
from torchvision.transforms import v2
from turbojpeg import TJPF_RGB, TurboJPEG

turbo, crop = TurboJPEG(), v2.RandomResizedCrop(224, antialias=True)
image = crop(torch.from_numpy(turbo.decode(data, TJPF_RGB)).permute(2, 0, 1))
```

**How it is measured** One thread, bound to one core: JPEG bytes in memory to a contiguous uint8
crop. Parts and flips are the same for all variants, drawn from the seed and the image's index as
RandomResizedCrop(224) would. Everything is resized bilinearly with antialiasing. OpenCV's
linear mode has none, so its pipeline averages areas (INTER_AREA) along the axes that shrink and
goes linearly along those that grow: a box filter where the others have a triangle. Seen on the
embedded corpus, its crops differ from Pillow's by 0.8 of 255 levels on average, torchvision's by
0.04; skipping the antialiasing would make it 2.1. The evidence holds the run's own figures, from
the largest parts. The nvJPEG variants decode 16 files a call and resize on the GPU.

**Where it comes from** The article's advice on decoders; pillow-simd's published benchmarks for
resizing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.tips.jpeg_decoder import library_and_form, variants
from bench.tips.tip import IMAGES_PER_SECOND, Tip, Workload
from bench.workloads import crops, jpegs
from bench.workloads.decoders import by_name
from bench.workloads.decoders.decoder import Decoder
from bench.workloads.decoders.reference import as_hwc, in_pillow, mean_difference
from bench.workloads.work import Context, TreatmentNotApplied, Work

COMPARED_CROPS = 3
LARGEST_DIFFERENCE = 8.0
"""Levels of 0 to 255: OpenCV's area averages reach 2.6 on a grainy image, a wrong part tens."""
TELLING_DIFFERENCE = 0.5
"""Levels by which the references with and without antialiasing differ when they can tell."""


def tip(context: Context) -> Tip:
    """The tip with a variant for each decoder, Pillow first."""
    return Tip(
        id="jpeg_to_crop",
        section="Data loading",
        order=5,
        claim="A faster decoder also speeds up the whole way from JPEG to augmented sample.",
        card=__doc__ or "",
        variants=variants(),
        workloads=(
            Workload(
                name="decode and crop",
                build=build,
                metrics=(IMAGES_PER_SECOND,),
                pinned=True,
                split=3,
            ),
        ),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Work that makes the held files' crops, one file a step (nvJPEG: 16 a step)."""
    decoder = by_name(settings["decoder"])
    run = crops.pipeline(decoder, context.image_size)
    held = jpegs.hold(context.images, seed=context.seed)
    parts = {
        jpeg.index: crops.draw(jpeg.data, seed=context.seed, index=jpeg.index) for jpeg in held
    }

    def do(part: Sequence[jpegs.Jpeg]) -> None:
        run([jpeg.data for jpeg in part], [parts[jpeg.index] for jpeg in part])

    def evidence() -> dict[str, Any]:
        # The largest parts shrink most, so that they show best whether there is antialiasing.
        largest = sorted(held, key=lambda jpeg: -parts[jpeg.index].shorter_side)[:COMPARED_CROPS]
        files = [jpeg.data for jpeg in largest]
        cuts = [parts[jpeg.index] for jpeg in largest]
        return seen(decoder, run(files, cuts), files, cuts, context.image_size)

    return jpegs.walk(held, do, evidence, batch=decoder.batch, device=decoder.device)


def seen(
    decoder: Decoder,
    images: Sequence[Any],
    files: Sequence[bytes],
    cuts: Sequence[crops.Crop],
    size: int,
) -> dict[str, Any]:
    """Evidence about crops; TreatmentNotApplied when they are not what was asked for."""
    found = library_and_form(decoder, images)
    layout = "HWC" if found["shape"][-1] == 3 else "CHW"
    pixels = [as_hwc(image, layout) for image in images]
    if any(image.shape != (size, size, 3) for image in pixels):
        raise TreatmentNotApplied(
            f"{decoder.name} gave crops of shape {found['shape']}; {size}×{size}×3 was asked for."
        )
    expected, aliased = in_pillow(crops.references, files, cuts, size)
    difference, without = _mean(pixels, expected), _mean(pixels, aliased)
    if min(difference, without) > LARGEST_DIFFERENCE:
        raise TreatmentNotApplied(
            f"{decoder.name}'s crops differ from Pillow's by {difference:.1f} levels on average."
        )
    telling = _mean(expected, aliased) > TELLING_DIFFERENCE
    antialiased = difference < without if telling else None
    if antialiased is False:
        raise TreatmentNotApplied(
            f"{decoder.name}'s crops look like those of a resize without antialiasing."
        )
    return {
        **found,
        "mean_pixel_difference": round(difference, 4),
        "antialiased": antialiased,
    }


def _mean(images: Sequence[Any], others: Sequence[Any]) -> float:
    pairs = zip(images, others, strict=True)
    return sum(mean_difference(one, other) for one, other in pairs) / len(images)
