"""How memory lies in an arm: settled, and another layout a replicate."""

import platform
import resource
import subprocess
import sys

import pytest
from planted import bench, group, tip, variant

from bench.engine.replicate import measure

ON_GLIBC = platform.libc_ver()[0] == "glibc"
PAGES = 3 * 2**20 // resource.getpagesize()


def faults_of_large_blocks() -> int:
    """Page faults of making and freeing three blocks of 1 MiB, 50 times."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        [bytearray(b"x") * 2**20 for _ in range(3)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not ON_GLIBC, reason="only glibc gives blocks back and learns not to")
@pytest.mark.parametrize("settles", [False, True])
def test_a_settled_process_reuses_its_large_blocks(settles: bool) -> None:
    code = (
        "from bench.workloads import heap; import test_heap; "
        f"{settles} and heap.settle(); print(test_heap.faults_of_large_blocks())"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    assert (int(done.stdout) < 2 * PAGES) == settles


def test_arms_of_a_replicate_share_a_layout_that_the_next_one_does_not_have() -> None:
    planted = tip(variant("plain"), variant("treated"), memory_scales=(1.0,))
    with bench() as (made, turns):
        for replicate in range(2):
            assert not measure(made, group(planted), replicate, planted.variants).failed
    first_turns = [turn for turn in turns if turn.startup_seconds is not None]
    layouts = {
        (turn.replicate, turn.variant): turn.evidence["kept_in_heap"]
        for turn in first_turns
        if turn.evidence
    }
    assert layouts[0, "plain"] == layouts[0, "treated"]
    assert layouts[1, "plain"] == layouts[1, "treated"]
    assert layouts[0, "plain"] != layouts[1, "plain"]


def test_memory_is_read_in_a_heap_without_holes() -> None:
    """A work that takes no more than the holes would seem to take nothing."""
    planted = tip(variant("plain"), variant("treated"), memory_scales=(1.0,))
    with bench() as (made, turns):
        measure(made, group(planted), 0, planted.variants)
    readings = [turn for turn in turns if turn.peak_host_pss_bytes is not None]
    assert [turn.evidence["kept_in_heap"] for turn in readings if turn.evidence] == [[], []]
