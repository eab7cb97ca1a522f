"""A run's folder: where each file of a run lies, and how the folder is found and made."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.records.plan import Plan, read_plan

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
RESULTS = ROOT / "results"
"""Where runs go and where published ones lie."""


OTHER_OUT = "Give a folder that you may write with --out."


class RunFolder:
    """Paths of the files that a run leaves behind (DESIGN: "What a run leaves behind")."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = path / "plan.json"
        self.measurements = path / "measurements.csv"
        self.effects = path / "effects.csv"
        self.environment = path / "environment.json"
        self.benchmark = path / "benchmark.json"
        self.report = path / "report.html"
        self.markdown = path / "report.md"

    @classmethod
    def new(cls, path: Path | None, *, results: Path, machine_name: str) -> "RunFolder":
        """Make ``path``, or ``results/local/<machine>/<UTC time>`` where none is given.

        Raises UserError when ``path`` holds files already or cannot be made.
        """
        folder = path or unused_folder(results / "local" / machine_name)
        cls.refuse_used(folder)
        return cls(made(folder, "run folder", OTHER_OUT))

    @staticmethod
    def refuse_used(path: Path) -> None:
        """Raise UserError when ``path`` is a file, or a folder that holds files already."""
        if path.is_file() or (path.exists() and any(path.iterdir())):
            raise UserError(
                f"{path} holds files already; a run needs a folder of its own.",
                f"Give another --out, or go on with that run: --resume {path}",
            )

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """A run that was started before; UserError when ``path`` holds no plan."""
        folder = cls(path)
        if not folder.plan.exists():
            raise UserError(
                f"{path} is not a run folder: it holds no plan.json.",
                "Give a folder that a run left, below results/local/ by default.",
            )
        return folder

    def read_plan(self) -> Plan:
        """The run's plan."""
        return read_plan(self.plan)

    def read_environment(self) -> dict[str, Any]:
        """The run's machine and software."""
        try:
            content: dict[str, Any] = json.loads(self.environment.read_text(encoding="utf-8"))
            named = {name: content[name] for name in ("machine_id", "machine_name")}
            if not all(isinstance(name, str) and name for name in named.values()):
                raise ValueError(f"expected two names: {named}")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"{self.environment} cannot be read ({error}).",
                "Give a folder that a run left, below results/local/ by default.",
            ) from error
        return content

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Write ``environment.json``."""
        text = json.dumps(dict(environment), ensure_ascii=False, indent=1)
        self.environment.write_text(text + "\n", encoding="utf-8")


def made(folder: Path, what: str, fix: str) -> Path:
    """``folder``, made if it wasn't there; UserError with ``fix`` when it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The {what} cannot be made: {error.strerror} ({folder}).", fix) from error
    return folder


def unused_folder(parent: Path, prefix: str = "") -> Path:
    """A path in ``parent`` that ends with the UTC time, and with -2 where that is there already."""
    name = f"{prefix}{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}"
    candidate, number = parent / name, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{name}-{number}"
    return candidate
