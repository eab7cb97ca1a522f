"""Going on with a run that was stopped: what must be as it was, and how far each group is."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.engine.replicate import Group
from bench.engine.rounds import Standing
from bench.errors import UserError
from bench.options import PROFILES, Options
from bench.records.measurements import Turn
from bench.records.plan import Plan
from bench.records.run_folder import RunFolder
from bench.workloads.corpus import checksum
from bench.workloads.models import model_label
from bench.workloads.work import Images


def options_of(plan: Plan, given: Options) -> Options:
    """The options that a run goes on with: its own, and of ``given`` what a plan doesn't hold.

    Raises UserError where ``given`` must be as before and isn't.
    """
    _check_same_pace(plan)
    _check_same_nodes(plan, given.nnodes)
    _check_same_storage(plan, given.storage)
    return dataclasses.replace(
        given,
        profile=plan.profile,
        seed=plan.seed,
        margin=plan.margin,
        model=_model_of(plan, given.model),
        image_size=plan.image_size,
        batch_size=plan.batch_size,
        device=plan.device,
    )


def _model_of(plan: Plan, given: str | None) -> str | None:
    """The model that a run goes on with; a file is not named in full in its plan."""
    if not plan.options.get("own_model"):
        return None
    if given is None and not plan.model.partition(":")[0].endswith(".py"):
        return plan.model
    if given is None or model_label(given) != plan.model:
        raise UserError(
            f"The run trained {plan.model}.", f"Give the same again: --model path/to/{plan.model}"
        )
    return given


def _check_same_pace(plan: Plan) -> None:
    if plan.profile not in PROFILES:
        return  # which is said with the other options
    pace = PROFILES[plan.profile].pace
    if (plan.blocks, plan.turn_seconds) != (pace.blocks, pace.turn_seconds):
        raise UserError(
            f"The run took {plan.blocks} turns of {plan.turn_seconds:g} s a replicate, and this "
            f"version of the suite takes {pace.blocks} of {pace.turn_seconds:g} s.",
            "Start a new run.",
        )


def _check_same_nodes(plan: Plan, nnodes: int) -> None:
    started_on = plan.options.get("nnodes", 1)
    if started_on != nnodes:
        raise UserError(
            f"The run was started on {started_on} nodes, and --nnodes is {nnodes}.",
            f"Give --nnodes {started_on}, or start a new run.",
        )


def _check_same_storage(plan: Plan, places: Sequence[Path]) -> None:
    """The places themselves are not in the plan, which names no path of the user's."""
    started_with = plan.options.get("storage_places", 0)
    if started_with != len(places):
        raise UserError(
            f"The run compared {started_with} places, and --storage names {len(places)}.",
            "Give the same --storage as before, in the same order, or start a new run.",
        )


_SAME = ("python_version", "kernel", "usable_cores", "gpu_model", "cuda_version", "driver_version")
"""Facts of the machine that may change between two sittings."""


def check_same(
    plan: Plan, images: Images, environment: Mapping[str, Any], folder: RunFolder
) -> None:
    """A run goes on only on the machine, with the software and the images it was started with."""
    if plan.images["checksum"] != checksum(images):
        raise UserError(
            f"{folder.path} was measured on other images ({plan.images['name']}, "
            f"{plan.images['count']} files).",
            "Give the same folder with --data, or start a new run.",
        )
    before = folder.read_environment()
    if before["machine_id"] != environment["machine_id"]:
        raise UserError(
            f"{folder.path} was measured on another machine.", "Start a new run on this one."
        )
    then, now = (
        {**facts["packages"], **{name: facts.get(name) for name in _SAME}}
        for facts in (before, environment)
    )
    for name in {**then, **now}:
        was, is_now = then.get(name), now.get(name)
        if was != is_now:
            raise UserError(
                f"{folder.path} was measured with {name} {was}, and here it is {is_now}.",
                "Have it as before, or start a new run.",
            )


def standing(turns: Sequence[Turn], group: Group, blocks: int) -> Standing:
    """How far a group was when its run was stopped: replicates that have all their blocks."""
    rows = [turn for turn in turns if (turn.tip, turn.workload) == group.key]
    finished: dict[str, set[int]] = {}
    counts = Counter(
        (turn.variant, turn.replicate)
        for turn in rows
        if turn.status == "ok" and turn.block is not None
    )
    for (variant, replicate), count in counts.items():
        if count == blocks and replicate is not None:
            finished.setdefault(variant, set()).add(replicate)
    with_baseline = finished.get(group.tip.baseline.name, set())
    return Standing(
        done={variant: len(found & with_baseline) for variant, found in finished.items()},
        failed={turn.variant for turn in rows if turn.status == "failed"},
        next_replicate=1 + max((turn.replicate or 0 for turn in rows), default=-1),
    )
