"""pillow-simd: Pillow's code with faster resizing, under the same name PIL.

Installed over Pillow it leaves both listed and one broken, so it lives in a folder of its own
inside the environment, ``<sys.prefix>/pillow-simd``, which only this decoder's process sees.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.workloads.decoders import library, pillow, reference
from bench.workloads.decoders.decoder import Decoder
from bench.workloads.work import TreatmentNotApplied

FOLDER = Path(sys.prefix) / "pillow-simd"
ENVIRONMENT = {"PYTHONPATH": str(FOLDER)}


def problem() -> str | None:
    """Looked at in a new interpreter, since this one has Pillow under the same name."""
    if not (FOLDER / "PIL").is_dir():
        return "pillow-simd is not built: make setup builds it into the environment's pillow-simd"
    tried = subprocess.run(
        [sys.executable, "-c", "import PIL, PIL.Image; PIL.Image.core; print(PIL.__version__)"],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        error = tried.stderr.strip().rpartition("\n")[2]
        return f"pillow-simd cannot be imported ({error}): remove its folder, then make setup"
    if ".post" not in tried.stdout:
        return f"the pillow-simd folder holds Pillow {tried.stdout.strip()}: remove it, make setup"
    return None


def loaded_library() -> dict[str, Any]:
    """pillow-simd's version and the libjpeg it was built against."""
    import PIL

    if not reference.is_pillow_simd():
        raise TreatmentNotApplied(f"PIL is Pillow {PIL.__version__}, not pillow-simd.")
    found = library.loaded(r"/libjpeg\.so", r"/PIL/_imaging\.")
    return {"version": PIL.__version__, **found}


DECODER = Decoder(
    name="pillow-simd",
    problem=problem,
    load=pillow.load,
    library=loaded_library,
    environment=ENVIRONMENT,
)
