"""A folder of images is scanned: odd files are left out by kind, for every decoder alike."""

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bench.errors import UserError
from bench.workloads import decoders, placed, scan
from bench.workloads.decoders.decoder import Decode, Decoder

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*TorchVision are deprecated:DeprecationWarning"),
]

GOOD = ("cats/a.jpg", "cats/b.JPG", "dogs/c.jpeg", "dogs/deep/d.Jpeg", "gray.jpg")


def jpeg(mode: str = "RGB", **options: object) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 255, (40, 60, 3), np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def rotated() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return jpeg(exif=exif)


def png() -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Good files of every naming, and one odd file of each kind."""
    upright = Image.Exif()
    upright[0x0112] = 1
    contents = {
        **dict.fromkeys(GOOD[:3], jpeg()),
        "dogs/deep/d.Jpeg": jpeg(exif=upright),
        "gray.jpg": jpeg("L"),
        "cats/cmyk.jpg": jpeg("CMYK"),
        "cats/cut.jpg": jpeg()[:-400],
        "cats/cut in its head.jpg": jpeg()[:100],
        "dogs/rotated.jpg": rotated(),
        "dogs/empty.jpg": b"",
        "page.jpg": b"\n<!DOCTYPE html><html><body>404</body></html>",
        "drawing.jpg": png(),
        "notes.jpg": b"no image at all",
        "not counted.txt": b"text",
    }
    for name, content in contents.items():
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "images"


ODD = {
    "CMYK or YCCK": ("cats/cmyk.jpg",),
    "EXIF orientation other than 1": ("dogs/rotated.jpg",),
    "not a JPEG: HTML": ("page.jpg",),
    "not a JPEG: PNG": ("drawing.jpg",),
    "not a JPEG: empty": ("dogs/empty.jpg",),
    "not a JPEG: something else": ("notes.jpg",),
    "truncated": ("cats/cut in its head.jpg", "cats/cut.jpg"),
}


def only_pillow(monkeypatch: pytest.MonkeyPatch, *others: Decoder) -> None:
    monkeypatch.setattr(decoders, "DECODERS", (decoders.DECODERS[0], *others))


def fake(name: str, decode: Decode) -> Decoder:
    return Decoder(name=name, problem=lambda: None, load=lambda: decode, library=dict)


def pillows(files: Sequence[bytes]) -> list[Any]:
    return decoders.DECODERS[0].load()(files)


def test_odd_files_are_left_out_by_kind_and_name(folder: Path) -> None:
    images = scan.scan(folder, limit=100, seed=0)
    assert sorted(images.paths) == sorted(GOOD)
    assert images.left_out == ODD
    assert images.total_bytes == sum((folder / name).stat().st_size for name in GOOD)


def test_the_list_does_not_depend_on_the_decoders_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = scan.scan(folder, limit=100, seed=3)
    only_pillow(monkeypatch)
    alone = scan.scan(folder, limit=100, seed=3)
    assert every == alone


def test_labels_are_the_files_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_pillow(monkeypatch)
    images = scan.scan(folder, limit=100, seed=0)
    labels = dict(zip(images.paths, images.labels, strict=True))
    assert labels == {
        "gray.jpg": 0,
        "cats/a.jpg": 1,
        "cats/b.JPG": 1,
        "dogs/c.jpeg": 2,
        "dogs/deep/d.Jpeg": 3,
    }


def test_the_order_is_drawn_from_the_seed_and_a_limit_takes_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_pillow(monkeypatch)
    for index in range(20):
        (tmp_path / f"{index:02d}.jpg").write_bytes(jpeg())
    first, again, other = (scan.scan(tmp_path, limit=20, seed=seed).paths for seed in (0, 0, 1))
    assert first == again
    assert sorted(first) == sorted(other)
    assert first != other
    assert first != tuple(sorted(first))
    assert scan.scan(tmp_path, limit=7, seed=0).paths == first[:7]


def test_links_are_followed_and_do_not_go_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_pillow(monkeypatch)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.jpg").write_bytes(jpeg())
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "linked").symlink_to(elsewhere)
    (folder / "y.jpg").symlink_to(elsewhere / "x.jpg")
    (folder / "round").symlink_to(folder)
    (folder / "broken.jpg").symlink_to(tmp_path / "nothing")
    os.mkfifo(folder / "pipe.jpg")
    images = scan.scan(folder, limit=100, seed=0)
    assert sorted(images.paths) == ["linked/x.jpg", "y.jpg"]
    assert images.left_out == {"not a file": ("broken.jpg", "pipe.jpg")}


def test_copies_that_a_run_left_are_no_images_of_the_users(folder: Path) -> None:
    copy = folder / placed.FOLDER / "cold-1" / "000000.jpg"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(jpeg())
    assert sorted(scan.scan(folder, limit=99, seed=0).paths) == sorted(GOOD)


def test_a_name_that_is_not_utf8_can_be_written_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_pillow(monkeypatch)
    (tmp_path / "good.jpg").write_bytes(jpeg())
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"")
    images = scan.scan(tmp_path, limit=100, seed=0)
    assert images.left_out == {"not a JPEG: empty": ("caf\N{REPLACEMENT CHARACTER}.jpg",)}


def test_decoders_that_disagree_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.jpg": jpeg(quality=90), "b.jpg": jpeg(quality=50), "c.jpg": jpeg(quality=10)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    def swaps(contents: Sequence[bytes]) -> list[Any]:
        order = -1 if contents[0] == files["b.jpg"] else 1
        return [image[:, :, ::order] for image in pillows(contents)]

    def refuses(contents: Sequence[bytes]) -> list[Any]:
        if contents[0] == files["c.jpg"]:
            raise RuntimeError("no")
        return pillows(contents)

    only_pillow(monkeypatch, fake("swapping", swaps), fake("refusing", refuses))
    images = scan.scan(tmp_path, limit=100, seed=0)
    assert images.paths == ("a.jpg",)
    assert images.left_out == {
        "decoders disagree: refusing cannot read it": ("c.jpg",),
        "decoders disagree: swapping reads it differently": ("b.jpg",),
    }


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
def test_a_decoder_that_crashes_does_not_take_the_scan_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = jpeg(quality=33)
    for index in range(30):
        content = poison if index in (4, 21) else jpeg()
        (tmp_path / f"{index:02d}.jpg").write_bytes(content)

    def crashes(contents: Sequence[bytes]) -> list[Any]:
        if contents[0] == poison:
            os.kill(os.getpid(), 9)
        return pillows(contents)

    only_pillow(monkeypatch, fake("crashing", crashes))
    images = scan.scan(tmp_path, limit=100, seed=0)
    assert len(images.paths) == len(set(images.paths)) == 28
    assert images.left_out == {"crashes a decoder": ("04.jpg", "21.jpg")}


def test_no_folder_or_nothing_in_it_is_an_error_of_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_pillow(monkeypatch)
    file = tmp_path / "file.jpg"
    file.write_bytes(jpeg())
    empty = tmp_path / "empty"
    empty.mkdir()
    useless = tmp_path / "useless"
    useless.mkdir()
    (useless / "page.jpg").write_bytes(b"<html>")
    for folder, problem in (
        (tmp_path / "nowhere", "There is no folder"),
        (file, "is a file, not a folder"),
        (empty, "holds no file named"),
        (useless, "can be used .not a JPEG: HTML: 1."),
    ):
        with pytest.raises(UserError, match=problem) as raised:
            scan.scan(folder, limit=100, seed=0)
        assert len(str(raised.value).splitlines()) == 2
