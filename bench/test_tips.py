"""The catalogue as tests, one a tip, workload and variant; the plugin measures them before."""

import warnings

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.pytest_plugin import Entry


def test_variant(entry: Entry, benchmark: BenchmarkFixture) -> None:
    """Hand the turns that were measured to pytest-benchmark, in seconds a sample.

    A question's answer passes, warns, or is an expected failure.
    """
    reason = entry.reason
    if entry.status == "not measurable here":
        pytest.skip(reason)
    if entry.status == "failed":
        pytest.fail(reason, pytrace=False)
    if entry.status == "answered":
        if entry.verdict == "fail":
            pytest.xfail(reason)
        if entry.verdict == "warn":
            warnings.warn(f"{entry.tip}: {entry.variant}: {reason}", stacklevel=1)
        return
    benchmark.extra_info.update(entry.extra_info)
    benchmark.pedantic(entry.replay.turn, rounds=entry.replay.load(entry.durations))
