"""What a user may choose of a run, and the profiles: how thorough one is."""

import dataclasses
import difflib
import math
import re
from collections.abc import Sequence
from pathlib import Path

from bench.analysis.verdicts import FEWEST_REPLICATES
from bench.engine.replicate import Pace
from bench.engine.rounds import Policy
from bench.errors import UserError
from bench.records.run_folder import RunFolder
from bench.tips import catalogue
from bench.workloads.ranks.stores import host_and_port
from bench.workloads.work import NO_IMAGES, Context


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """How thorough a run is. ``images``: how many the loading tips read."""

    name: str
    policy: Policy
    pace: Pace
    images: int
    claims_verdicts: bool


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="smoke",
            policy=Policy(primary=1, others=1, most=1),
            pace=Pace(blocks=2, turn_seconds=0.05, warm_up_seconds=0.02),
            images=64,
            claims_verdicts=False,
        ),
        Profile(
            name="quick",
            policy=Policy(primary=5, others=3, most=0, fewest=FEWEST_REPLICATES),
            pace=Pace(blocks=8, turn_seconds=0.075, warm_up_seconds=0.1),
            images=1000,
            claims_verdicts=True,
        ),
        Profile(
            name="full",
            policy=Policy(primary=5, others=5, most=10, fewest=FEWEST_REPLICATES),
            pace=Pace(blocks=16, turn_seconds=0.2, warm_up_seconds=1.0),
            images=1000,
            claims_verdicts=True,
        ),
    )
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may choose. ``budget_seconds`` counts from the start of the program."""

    profile: str = "quick"
    budget_seconds: float | None = None
    seed: int = 0
    margin: float = 0.03
    data: Path | None = None
    out: Path | None = None
    resume: Path | None = None
    storage: tuple[Path, ...] = ()
    model: str | None = None
    """As ``bench.workloads.models.build_model`` takes it; None for the device's default one."""
    image_size: int = 224
    batch_size: int | None = None
    """None: 32 on CUDA, 8 on the CPU."""
    device: str | None = None
    """None: the GPU where CUDA works, the CPU elsewhere."""
    nnodes: int = 1
    node_rank: int = 0
    """0: the machine that measures; the others take part until it is done."""
    rdzv_endpoint: str | None = None
    tips: tuple[str, ...] = ()
    """Only these tips; empty for all."""


def parse_budget(text: str) -> float:
    """Seconds of ``90s``, ``8m``, ``1h`` or ``90``; UserError for anything else, and for 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip().lower())
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if seconds <= 0:
        raise UserError(
            f"--budget {text!r} is not a time above 0.", "Give a time such as 90s, 8m or 1h."
        )
    return seconds


def check_options(options: Options) -> None:
    """Raise UserError where an option is none that a run could follow."""
    if options.profile not in PROFILES:
        raise UserError(
            f"There is no profile {options.profile!r}.", f"Choose one of {', '.join(PROFILES)}."
        )
    for name, value in (("image", options.image_size), ("batch", options.batch_size)):
        if value is not None and value < 1:
            raise UserError(f"--{name}-size {value} is below 1.", "Give a whole number.")
    _check_tips(options.tips)
    _check_nodes(options)
    if not (0 < options.margin < math.inf):
        raise UserError(
            f"--margin {options.margin:g} is no share above 0.", "Give a share: 0.03 is 3 %."
        )
    if options.out is not None:
        if options.resume is not None:
            raise UserError(
                f"--resume goes on in {options.resume}, and --out names {options.out}.",
                "Leave --out out.",
            )
        RunFolder.refuse_used(options.out)


def _check_tips(chosen: Sequence[str]) -> None:
    known = [tip.id for tip in catalogue(Context(images=NO_IMAGES, cache=Path()))]
    for name in chosen:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(f"There is no tip {name!r}.{meant}", f"Choose from {', '.join(known)}.")


def _check_nodes(options: Options) -> None:
    if not 0 <= options.node_rank < options.nnodes:
        raise UserError(
            f"--node-rank {options.node_rank} is not among {options.nnodes} nodes (--nnodes).",
            "Nodes are counted from 0.",
        )
    if options.nnodes == 1 and options.rdzv_endpoint is None:
        return
    try:
        host_and_port(options.rdzv_endpoint or "")
        is_right = options.nnodes > 1
    except ValueError:
        is_right = False
    if not is_right:
        raise UserError(
            f"--nnodes {options.nnodes} with --rdzv-endpoint {options.rdzv_endpoint}: "
            "several nodes need a place to meet, and one needs none.",
            "Give --nnodes above 1 and, on every node, the first one's --rdzv-endpoint HOST:PORT.",
        )
