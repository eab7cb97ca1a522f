"""The two JPEG tips: same files, same crops, and evidence that fails when nothing was applied."""

import dataclasses
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bench.tips import jpeg_decoder, jpeg_to_crop
from bench.tips.tip import Tip, Variant
from bench.workloads import corpus, crops, decoders, jpegs
from bench.workloads.decoders.reference import decoded
from bench.workloads.work import Context, TreatmentNotApplied

pytestmark = pytest.mark.filterwarnings("ignore:.*TorchVision are deprecated:DeprecationWarning")

TIPS: tuple[Callable[[Context], Tip], ...] = (jpeg_decoder.tip, jpeg_to_crop.tip)
VARIANTS = [variant for variant in jpeg_decoder.variants() if not variant.fresh]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    cache = tmp_path_factory.mktemp("cache")
    return Context(images=corpus.prepare(cache, 12), cache=cache)


@pytest.mark.parametrize("make", TIPS)
def test_a_tip_compares_pillow_with_every_decoder(
    make: Callable[[Context], Tip], context: Context
) -> None:
    tip = make(context)
    assert tip.baseline.name == "Pillow"
    assert tip.recommended.name == "PyTurboJPEG"
    assert [variant.name for variant in tip.variants] == [
        decoder.name for decoder in decoders.DECODERS
    ]
    [simd] = [variant for variant in tip.variants if variant.fresh]
    assert simd.name == "pillow-simd"
    assert simd.environment["PYTHONPATH"].endswith("pillow-simd")
    assert tip.workloads[0].pinned
    pickle.dumps(tip)


@pytest.mark.parametrize("make", TIPS)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_decoder_does_the_work_and_proves_it(
    make: Callable[[Context], Tip], variant: Variant, context: Context
) -> None:
    for need in variant.needs:
        if reason := need(context):
            pytest.skip(reason)
    work = make(context).workloads[0].build(variant.settings, context)
    work.prepare(work.period)
    assert sum(work.step() for _ in range(work.period)) == 12
    assert work.readings() == {"payload_bytes": context.images.total_bytes}
    evidence = work.evidence()
    assert evidence["decoder"] == variant.name
    assert evidence["mean_pixel_difference"] < 3
    assert evidence["dtype"] == "uint8"
    if make is jpeg_to_crop.tip:
        assert sorted(evidence["shape"]) == [3, 224, 224]
        assert evidence["antialiased"]


def test_payload_counts_one_turn_only(context: Context) -> None:
    work = jpeg_decoder.build({"decoder": "Pillow"}, context)
    work.prepare(1)
    work.step()
    first = work.readings()["payload_bytes"]
    work.prepare(2)
    work.step()
    work.step()
    held = jpegs.hold(context.images, seed=context.seed)
    assert first == len(held[0].data)
    assert work.readings()["payload_bytes"] == len(held[1].data) + len(held[2].data)


def test_a_batch_never_reaches_past_the_end_of_the_list(context: Context) -> None:
    held = jpegs.hold(context.images, seed=0)[:5]
    seen: list[int] = []
    work = jpegs.walk(held, lambda part: seen.extend(jpeg.index for jpeg in part), dict, batch=2)
    assert work.period == 3
    assert [work.step() for _ in range(6)] == [2, 2, 1, 2, 2, 1]
    assert seen == [jpeg.index for jpeg in (*held, *held)]


def test_files_are_held_by_seed_count_and_bytes(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again, other = (
        [jpeg.index for jpeg in jpegs.hold(context.images, seed=seed)] for seed in (0, 0, 1)
    )
    assert first == again != other
    assert sorted(first) == list(range(12))
    monkeypatch.setattr(jpegs, "NVJPEG_BATCH", 5)
    assert len(jpegs.hold(context.images, seed=0)) == 10
    monkeypatch.undo()
    monkeypatch.setattr(jpegs, "MOST_BYTES", 1)
    assert len(jpegs.hold(context.images, seed=0)) == jpegs.LEAST_FILES
    monkeypatch.setattr(jpegs, "MOST_FILES", 2)
    assert len(jpegs.hold(context.images, seed=0)) == 2


def test_crops_hang_on_seed_and_index_and_lie_inside(context: Context) -> None:
    for index, data in enumerate(files(context)):
        [pixels] = decoded([data])
        drawn = [crops.draw(data, seed=seed, index=index) for seed in range(50)]
        assert drawn[3] == crops.draw(data, seed=3, index=index)
        assert drawn[3] != crops.draw(data, seed=3, index=index + 1)
        for crop in drawn:
            left, top, right, bottom = crop.box
            assert 0 <= left < right <= pixels.shape[1]
            assert 0 <= top < bottom <= pixels.shape[0]
        shares = [crop.width * crop.height / pixels[:, :, 0].size for crop in drawn]
        assert 0.07 < min(shares) < 0.3
        assert 0.6 < max(shares) <= 1
        assert 10 < sum(crop.flip for crop in drawn) < 40


def files(context: Context) -> list[bytes]:
    return [(context.images.folder / path).read_bytes() for path in context.images.paths]


def planted(decode: Callable[[Sequence[bytes]], list[Any]]) -> decoders.Decoder:
    return dataclasses.replace(decoders.DECODERS[0], name="planted", load=lambda: decode)


def test_red_and_blue_swapped_is_found(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(contents: Sequence[bytes]) -> list[Any]:
        return [np.ascontiguousarray(image[:, :, ::-1]) for image in decoded(contents)]

    monkeypatch.setattr(decoders, "DECODERS", (planted(swapped),))
    for build in (jpeg_decoder.build, jpeg_to_crop.build):
        with pytest.raises(TreatmentNotApplied, match="differ from Pillow's"):
            build({"decoder": "planted"}, context).evidence()


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        (lambda image: image[:, ::-1], "contiguous: False"),
        (lambda image: image.astype(np.float32), "float32"),
        (lambda image: np.ascontiguousarray(image[::2, ::2]), "shape"),
    ],
)
def test_another_form_of_pixels_is_found(
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
    form: Callable[[Any], Any],
    complaint: str,
) -> None:
    planted_decoder = planted(lambda contents: [form(image) for image in decoded(contents)])
    monkeypatch.setattr(decoders, "DECODERS", (planted_decoder,))
    with pytest.raises(TreatmentNotApplied, match=complaint):
        jpeg_decoder.build({"decoder": "planted"}, context).evidence()


def test_a_resize_without_antialiasing_is_found(context: Context) -> None:
    data = files(context)[:3]
    cuts = [crops.draw(file, seed=seed, index=0) for seed, file in enumerate(data)]
    whole = [dataclasses.replace(cut, top=0, left=0, height=330, width=330) for cut in cuts]
    _, aliased = crops.references(data, whole, 96)
    with pytest.raises(TreatmentNotApplied, match="without antialiasing"):
        jpeg_to_crop.seen(decoders.DECODERS[0], aliased, data, whole, 96)


def test_crops_of_another_size_are_found(context: Context) -> None:
    data = files(context)[:2]
    cuts = [crops.draw(file, seed=0, index=0) for file in data]
    made = crops.pillow_crops(data, cuts, 64)
    with pytest.raises(TreatmentNotApplied, match="224×224×3 was asked for"):
        jpeg_to_crop.seen(decoders.DECODERS[0], made, data, cuts, 224)
