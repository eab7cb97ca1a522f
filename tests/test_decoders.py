"""Every decoder does the same work: contiguous RGB uint8, with Pillow's shape and pixels."""

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.workloads import decoders
from bench.workloads.decoders import library, pillow, pillow_simd, pyturbojpeg, reference
from bench.workloads.decoders.decoder import Decoder, import_problem
from bench.workloads.work import Context, Images, TreatmentNotApplied

pytestmark = pytest.mark.filterwarnings("ignore:.*TorchVision are deprecated:DeprecationWarning")

ROOT = Path(__file__).parents[1]
IN_PROCESS = [
    decoder for decoder in decoders.DECODERS if decoder.device == "cpu" and not decoder.environment
]
NVJPEG = [decoder for decoder in decoders.DECODERS if decoder.device == "cuda"]


def jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


def photograph(mode: str = "RGB", size: tuple[int, int] = (61, 43)) -> Image.Image:
    """Smooth colours with some grain; odd sizes, so that chroma blocks are cut."""
    width, height = size
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 7), np.cos(y / 5), np.sin((x + y) / 9)], axis=-1)
    grain = np.random.default_rng(0).normal(0, 4, waves.shape)
    pixels = np.clip(127 + 90 * waves + grain, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def context(device: str = "cpu") -> Context:
    images = Images(name="none", folder=Path(), paths=(), labels=(), total_bytes=0)
    return Context(images=images, cache=Path(), device=device)


@pytest.fixture(params=IN_PROCESS, ids=lambda decoder: decoder.name)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    chosen: Decoder = request.param
    if problem := chosen.problem():
        pytest.skip(problem)
    return chosen


def test_red_is_red(decoder: Decoder) -> None:
    [image] = decoder.load()([jpeg(Image.new("RGB", (32, 16), "red"))])
    pixels = reference.as_hwc(image, decoder.layout)
    assert pixels.shape == (16, 32, 3)
    assert np.abs(pixels.astype(int) - (254, 0, 0)).max() <= 1


@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": "4:2:0"},
        {"subsampling": "4:4:4", "quality": 97},
        {"subsampling": "4:2:2", "quality": 50},
        {"progressive": True},
    ],
    ids=str,
)
def test_pixels_are_pillows_and_contiguous(decoder: Decoder, options: dict[str, object]) -> None:
    files = [jpeg(photograph(), **options), jpeg(photograph(size=(500, 375)), **options)]
    for image, expected in zip(decoder.load()(files), reference.decoded(files), strict=True):
        contiguous = (
            image.flags.c_contiguous if isinstance(image, np.ndarray) else image.is_contiguous()
        )
        pixels = reference.as_hwc(image, decoder.layout)
        assert contiguous
        assert pixels.dtype == np.uint8
        assert pixels.shape == expected.shape
        assert reference.mean_difference(pixels, expected) < 0.5


def test_grayscale_gets_three_channels(decoder: Decoder) -> None:
    data = jpeg(photograph("L"))
    [image] = decoder.load()([data])
    pixels = reference.as_hwc(image, decoder.layout)
    assert pixels.shape == (43, 61, 3)
    assert reference.mean_difference(pixels, reference.decoded([data])[0]) < 0.5


def test_the_library_is_named_without_a_personal_path(decoder: Decoder) -> None:
    decoder.load()([jpeg(photograph())])
    found = decoder.library()
    assert found["version"]
    if found["library"] is not None:
        assert str(Path.home()) not in found["library"]
        assert sys.prefix not in found["library"]
        assert found["libjpeg"] is None or found["libjpeg"][0].isdigit()


def test_the_order_is_the_catalogues() -> None:
    assert [decoder.name for decoder in decoders.DECODERS] == [
        "Pillow",
        "PyTurboJPEG",
        "jpeg4py",
        "pillow-simd",
        "OpenCV",
        "simplejpeg",
        "torchvision.io",
        "TorchCodec",
        "torchvision.io nvJPEG",
        "TorchCodec nvJPEG",
    ]


def test_importing_the_decoders_does_not_import_torch() -> None:
    program = (
        "import sys, bench.workloads.decoders, bench.tips.jpeg_decoder, bench.tips.jpeg_to_crop\n"
        "print([name for name in ('torch', 'cv2', 'torchvision') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("PyTurboJPEG", "turbojpeg", "PyTurboJPEG"),
        ("jpeg4py", "jpeg4py", "jpeg4py"),
        ("OpenCV", "cv2", "opencv-python-headless"),
        ("simplejpeg", "simplejpeg", "simplejpeg"),
        ("TorchCodec", "torchcodec", "torchcodec"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    reason = decoders.by_name(name).need(context())
    assert reason == f"{package} is not installed: pip install {package}"


def test_a_module_that_lacks_something_else_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lacking.py").write_text("import what_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    reason = import_problem("lacking", package="lacking")
    assert reason is not None
    assert "what_is_not_there" in reason


def test_a_missing_libturbojpeg_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turbojpeg = pytest.importorskip("turbojpeg")
    monkeypatch.setattr(turbojpeg, "find_library", lambda name: None)
    monkeypatch.setattr(turbojpeg, "DEFAULT_LIB_PATHS", {"Linux": [], "Darwin": []})
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    reason = decoders.by_name("PyTurboJPEG").need(context())
    assert reason is not None
    assert "apt install libturbojpeg0" in reason


def test_a_missing_libturbojpeg_is_named_for_jpeg4py(monkeypatch: pytest.MonkeyPatch) -> None:
    jpeg4py = pytest.importorskip("jpeg4py")
    cffi = sys.modules["jpeg4py._cffi"]
    monkeypatch.setattr(cffi, "lib", None)
    monkeypatch.setattr(jpeg4py, "initialize", lambda: cffi._initialize(["libno_such.so"]))
    monkeypatch.setattr(cffi, "ffi", cffi.ffi)
    reason = decoders.by_name("jpeg4py").need(context())
    assert reason == f"libturbojpeg is missing: {pyturbojpeg.INSTALL_LIBRARY}"


@pytest.mark.parametrize("decoder", NVJPEG, ids=lambda decoder: decoder.name)
def test_nvjpeg_needs_cuda(decoder: Decoder) -> None:
    reason = decoder.need(context("cpu"))
    assert reason is not None
    assert "CUDA" in reason


@pytest.mark.cuda
@pytest.mark.parametrize("decoder", NVJPEG, ids=lambda decoder: decoder.name)
def test_nvjpeg_gives_pixels_near_pillows(decoder: Decoder) -> None:
    if problem := decoder.need(context("cuda")):
        pytest.skip(problem)
    files = [jpeg(photograph(size=(500, 375))), jpeg(photograph("L")), jpeg(photograph())]
    images = decoder.load()(files)
    for image, expected in zip(images, reference.decoded(files), strict=True):
        assert image.device.type == "cuda"
        assert image.is_contiguous()
        pixels = reference.as_hwc(image, decoder.layout)
        assert pixels.shape == expected.shape
        assert reference.mean_difference(pixels, expected) < 5
    # None where torchvision was linked with it statically.
    assert "nvjpeg" in (decoder.library()["library"] or "nvjpeg")


def fake_pillow_simd(folder: Path, init: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "PIL").mkdir()
    (folder / "PIL" / "__init__.py").write_text(init)
    (folder / "PIL" / "Image.py").write_text("core = None\n")
    monkeypatch.setattr(pillow_simd, "FOLDER", folder)
    monkeypatch.setattr(pillow_simd, "ENVIRONMENT", {"PYTHONPATH": str(folder)})


def test_pillow_simd_that_is_not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pillow_simd, "FOLDER", tmp_path)
    reason = pillow_simd.problem()
    assert reason is not None
    assert "make setup" in reason
    assert str(tmp_path) not in reason


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("__version__ = '9.5.0.post2'\n", None),
        ("__version__ = '13.0.0'\n", "holds Pillow 13.0.0"),
        ("raise ImportError('wrong ELF class')\n", "wrong ELF class"),
    ],
)
def test_pillow_simd_is_told_by_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, init: str, expected: str | None
) -> None:
    fake_pillow_simd(tmp_path, init, monkeypatch)
    reason = pillow_simd.problem()
    assert reason is None if expected is None else expected in (reason or "")


def test_pillow_simd_in_pillows_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference.PIL, "__version__", "9.5.0.post2")
    assert "pillow-simd" in (pillow.problem() or "")
    with pytest.raises(TreatmentNotApplied, match="not Pillow"):
        pillow.loaded_library()


def test_pillow_in_pillow_simds_place_is_noticed() -> None:
    with pytest.raises(TreatmentNotApplied, match="not pillow-simd"):
        pillow_simd.loaded_library()


def test_pillow_simd_is_compared_with_pillow_itself() -> None:
    if problem := pillow_simd.problem():
        pytest.skip(problem)
    program = (
        "import PIL; from bench.workloads.decoders import pillow_simd, reference\n"
        "print(PIL.__version__, pillow_simd.DECODER.library()['version'],"
        " reference.in_pillow(reference.is_pillow_simd), reference.is_pillow_simd())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **pillow_simd.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    version, seen, in_pillow, here = done.stdout.split()
    assert ".post" in version
    assert version == seen
    assert (in_pillow, here) == ("False", "True")


def test_a_library_that_is_not_loaded_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_mapped_files", lambda: ["/usr/lib/libz.so"])
    with pytest.raises(TreatmentNotApplied, match="libturbojpeg"):
        library.loaded(r"/libturbojpeg[^/]*$")


def test_without_proc_the_library_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_mapped_files", lambda: None)
    assert library.loaded("anything") == {"library": None, "libjpeg": None}


def test_the_libjpeg_version_is_read_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "libjpeg.so"
    file.write_bytes(b"\x7fELF\0libjpeg-turbo version 3.1.2 (build 2024)\0")
    assert library.libjpeg_version(file) == "3.1.2"
    file.write_bytes(b"\x7fELF")
    assert library.libjpeg_version(file) is None


def test_paths_are_shown_without_what_names_a_person() -> None:
    home = Path("/home/somebody/project")
    assert library.shown(home / ".venv/lib/site-packages/cv2/cv2.so") == "cv2/cv2.so"
    assert library.shown(Path("/usr/lib/libturbojpeg.so.0")) == "/usr/lib/libturbojpeg.so.0"
    assert library.shown(home / "build/libturbojpeg.so") == "libturbojpeg.so"
    assert library.shown(Path(sys.prefix) / "lib/libjpeg.so") == "lib/libjpeg.so"
