"""--resume: what must be as it was, and what a run goes on with."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from synthetic import make_environment, make_plan

from bench.errors import UserError
from bench.options import PROFILES, Options, check_options
from bench.records.plan import Plan
from bench.records.run_folder import RunFolder
from bench.resuming import check_same, options_of
from bench.workloads.corpus import checksum
from bench.workloads.work import NO_IMAGES

PACE = PROFILES["quick"].pace
MACHINE = make_environment() | {
    "kernel": "6.1",
    "gpu_model": None,
    "cuda_version": None,
    "driver_version": None,
    "packages": {"torch": "2.14.1", "pillow": "12.0"},
}


def started(**options: Any) -> Plan:
    """The plan of a quick run as this version of the suite starts it."""
    model = options.pop("model", "small_cnn")
    return make_plan(
        blocks=PACE.blocks, turn_seconds=PACE.turn_seconds, model=model, options=options
    )


def test_a_run_goes_on_with_its_own_options() -> None:
    plan = dataclasses.replace(started(), seed=7, margin=0.1, image_size=96)
    found = options_of(plan, Options(seed=1, out=Path("there")))
    assert (found.seed, found.margin, found.image_size, found.out) == (7, 0.1, 96, Path("there"))


def test_a_run_of_another_pace_is_not_gone_on_with() -> None:
    plan = dataclasses.replace(started(), blocks=PACE.blocks + 1)
    with pytest.raises(UserError, match=rf"took {PACE.blocks + 1} turns .* takes {PACE.blocks}"):
        options_of(plan, Options())


def test_a_profile_that_there_is_not_is_left_to_the_check_of_options() -> None:
    plan = dataclasses.replace(started(), profile="long")
    with pytest.raises(UserError, match="There is no profile 'long'"):
        check_options(options_of(plan, Options()))


def test_a_run_goes_on_with_as_many_places_as_it_compared() -> None:
    plan = started(storage_places=2)
    two = Options(storage=(Path("/a"), Path("/b")))
    assert options_of(plan, two).storage == two.storage
    with pytest.raises(UserError, match="compared 2 places, and --storage names 0"):
        options_of(plan, Options())


def test_a_run_goes_on_on_as_many_nodes() -> None:
    with pytest.raises(UserError, match="started on 2 nodes, and --nnodes is 1"):
        options_of(started(nnodes=2), Options())


def test_a_run_goes_on_with_the_model_that_it_was_started_with() -> None:
    def model(plan: Plan, given: str | None) -> str | None:
        return options_of(plan, Options(model=given)).model

    assert model(started(), None) is None
    assert model(started(model="resnet18", own_model=True), None) == "resnet18"
    mine = started(model="mine.py:build", own_model=True)
    assert model(mine, "/srv/mine.py:build") == "/srv/mine.py:build"
    for other in (None, "resnet18"):
        with pytest.raises(UserError, match=r"The run trained mine.py:build"):
            model(mine, other)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"memory_bytes": 1}, None),
        ({"machine_id": "another"}, "on another machine"),
        ({"python_version": "3.13.0"}, "with python_version 3.11.2, and here it is 3.13.0"),
        ({"usable_cores": 1}, "with usable_cores 2, and here it is 1"),
        ({"packages": {"torch": "2.15.0", "pillow": "12.0"}}, "with torch 2.14.1"),
        ({"packages": {"torch": "2.14.1"}}, "with pillow 12.0, and here it is None"),
    ],
)
def test_a_run_goes_on_where_it_was_started(
    changes: dict[str, Any], problem: str | None, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path)
    folder.write_environment(MACHINE)
    plan = dataclasses.replace(started(), images={"checksum": checksum(NO_IMAGES)})
    if problem is None:
        check_same(plan, NO_IMAGES, MACHINE | changes, folder)
        return
    with pytest.raises(UserError, match=problem):
        check_same(plan, NO_IMAGES, MACHINE | changes, folder)


def test_a_run_goes_on_with_its_images(tmp_path: Path) -> None:
    images = {"checksum": "00", "name": "embedded", "count": 64}
    plan = dataclasses.replace(started(), images=images)
    with pytest.raises(UserError, match=r"measured on other images \(embedded, 64 files\)"):
        check_same(plan, NO_IMAGES, MACHINE, RunFolder(tmp_path))
