"""The embedded corpus is ImageNet-like, the same on every build, and survives being killed."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import psutil
import pytest
from PIL import Image, JpegImagePlugin

from bench.errors import UserError
from bench.workloads import corpus
from bench.workloads.work import Images

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    return corpus.prepare(tmp_path_factory.mktemp("cache"), 120)


def opened(images: Images) -> Iterator[Image.Image]:
    for path in images.paths:
        with Image.open(images.folder / path) as image:
            yield image


def test_sizes_are_like_imagenets(images: Images) -> None:
    long_sides = [max(image.size) for image in opened(images)]
    assert 450 < sum(long_sides) / len(long_sides) < 550
    assert sorted(long_sides)[len(long_sides) // 2] == 500
    assert len(set(long_sides)) > 10
    assert 90_000 < images.total_bytes / len(images.paths) < 130_000


def test_encodings_are_mixed(images: Images) -> None:
    subsamplings = [
        JpegImagePlugin.get_sampling(image) for image in opened(images) if image.mode == "RGB"
    ]
    four_two_zero = subsamplings.count(2)
    assert set(subsamplings) == {0, 1, 2}  # 4:4:4, 4:2:2, 4:2:0
    assert len(subsamplings) / 2 < four_two_zero < len(subsamplings) * 0.8
    with Image.open(BytesIO(corpus.encode(440))) as grayscale:
        assert grayscale.mode == "L"
    progressive = sum("progressive" in image.info for image in opened(images))
    assert 0 < progressive < len(images.paths) / 8


def test_classes_take_turns(images: Images) -> None:
    assert images.labels[:20] == (*range(10), *range(10))
    names = list(corpus.PHOTOGRAPHS)
    assert all(
        path.split("/")[0] == names[label]
        for path, label in zip(images.paths, images.labels, strict=True)
    )


def test_bytes_depend_on_nothing_but_the_index(images: Images) -> None:
    for index in (11, 0, 57):
        written = (images.folder / images.paths[index]).read_bytes()
        assert corpus.encode(index) == written


def test_a_smaller_count_is_a_prefix_and_a_larger_one_completes_it(tmp_path: Path) -> None:
    few = corpus.prepare(tmp_path, 3)
    first = few.folder / few.paths[0]
    first.write_bytes(b"kept, since it is there")
    more = corpus.prepare(tmp_path, 5)
    assert more.paths[:3] == few.paths
    assert first.read_bytes() == b"kept, since it is there"
    assert all((more.folder / path).exists() for path in more.paths)


def test_the_checksum_is_of_names_and_sizes(images: Images, tmp_path: Path) -> None:
    again = corpus.prepare(tmp_path, 4)
    first_four = Images(
        name=images.name,
        folder=images.folder,
        paths=images.paths[:4],
        labels=images.labels[:4],
        total_bytes=0,
    )
    assert corpus.checksum(again) == corpus.checksum(first_four)
    with (again.folder / again.paths[3]).open("ab") as file:
        file.write(b"\0")
    assert corpus.checksum(again) != corpus.checksum(first_four)


def test_two_builds_at_once_do_not_clash(images: Images, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        built = list(threads.map(corpus.prepare, [tmp_path] * 2, [12] * 2))
    for made in built:
        assert digests(made) == digests(images)[:12]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_killed_build_leaves_whole_files_and_no_process(images: Images, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from bench.workloads import corpus\n"
        f"if __name__ == '__main__': corpus.prepare(Path({str(tmp_path)!r}), 400)"
    )
    build = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, start_new_session=True)
    wait_until(lambda: any(tmp_path.rglob("*.jpg")))
    workers = psutil.Process(build.pid).children(recursive=True)
    assert workers
    os.kill(build.pid, signal.SIGKILL)
    build.wait()
    assert not psutil.wait_procs(workers, timeout=20)[1]
    assert len(list(tmp_path.rglob("*.jpg"))) < 400
    assert digests(corpus.prepare(tmp_path, 24)) == digests(images)[:24]


def test_a_missing_package_is_named_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="scikit-image") as raised:
        corpus.prepare(tmp_path, 1)
    assert "pip install scikit-image" in raised.value.fix


@pytest.mark.parametrize("count", [0, 1001])
def test_a_count_outside_the_corpus_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match="1 to 1000"):
        corpus.prepare(tmp_path, count)


def digests(images: Images) -> list[str]:
    return [
        hashlib.sha256((images.folder / path).read_bytes()).hexdigest() for path in images.paths
    ]


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("It did not happen within 30 seconds.")
