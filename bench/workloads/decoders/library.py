"""Which library file a process has really loaded, and the libjpeg version inside it."""

import re
import sys
from pathlib import Path
from typing import Any

from bench.workloads.work import TreatmentNotApplied

_VERSION = re.compile(rb"libjpeg-turbo version (\d+(?:\.\d+)+)")


def loaded(*patterns: str) -> dict[str, Any]:
    """Evidence ``library`` and ``libjpeg``: the loaded file that matches, and its version inside.

    See ``loaded_file``; where it is unknown, both values are None.
    """
    file = loaded_file(*patterns)
    if file is None:
        return {"library": None, "libjpeg": None}
    return {"library": shown(file), "libjpeg": libjpeg_version(file)}


def loaded_file(*patterns: str) -> Path | None:
    """The file mapped into this process that matches the first regular expression that any does.

    TreatmentNotApplied when none matches; None where the system doesn't tell (there is no /proc).
    """
    files = _mapped_files()
    if files is None:
        return None
    for pattern in patterns:
        for file in files:
            if re.search(pattern, file):
                return Path(file)
    raise TreatmentNotApplied(f"No library like {patterns[0]} is loaded in the process.")


def libjpeg_version(file: Path) -> str | None:
    """The version text that libjpeg-turbo compiles into a library, or None if it isn't there."""
    match = _VERSION.search(file.read_bytes())
    return match.group(1).decode() if match else None


def shown(file: Path) -> str:
    """The path without anything that names a person: from the package, the environment or /usr."""
    text = file.as_posix()
    _, packages, tail = text.rpartition("-packages/")
    if packages:
        return tail
    if file.is_relative_to(sys.prefix):
        return file.relative_to(sys.prefix).as_posix()
    if text.startswith(("/usr/", "/lib", "/opt/")):
        return text
    return file.name


def _mapped_files() -> list[str] | None:
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return sorted({line[line.index("/") :] for line in lines if "/" in line})
