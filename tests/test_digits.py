"""Digits and what they can tell: splits, and intervals that hold what they promise."""

import numpy as np
import pytest
import torch
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from bench.workloads import digits
from bench.workloads.digits import LEARNT, paired_interval, split, wilson_interval


def test_the_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    ours, theirs = digits._load(), load_digits()
    assert np.array_equal(ours.images.squeeze(1).numpy() * 16, theirs.images)
    assert np.array_equal(ours.labels.numpy(), theirs.target)


def test_each_seed_holds_out_other_digits_and_never_one_that_is_learnt() -> None:
    learnt, held_out = split(0)
    assert (len(learnt), len(held_out)) == (LEARNT, 797)
    again, others = split(0)[1], split(1)[1]
    assert torch.equal(held_out.images, again.images)
    assert not torch.equal(held_out.images, others.images)
    together = torch.cat([learnt.images, held_out.images]).flatten(1)
    assert len(together.unique(dim=0)) == len(digits._load().images.flatten(1).unique(dim=0))
    assert learnt.images.dtype == torch.float32
    assert 0 <= float(learnt.images.min()) < float(learnt.images.max()) <= 1


@pytest.mark.parametrize(("right", "total"), [(0, 797), (1, 10), (750, 797), (797, 797)])
def test_the_interval_of_one_accuracy_is_wilsons(right: int, total: int) -> None:
    expected = proportion_confint(right, total, method="wilson")
    assert wilson_interval(right, total) == pytest.approx(expected, abs=1e-12)


def test_the_interval_of_a_difference_is_that_of_the_paired_differences() -> None:
    gained, lost, total = 9, 21, 797
    differences = [1] * (gained + 1) + [-1] * (lost + 1) + [0] * (total - gained - lost)
    expected = DescrStatsW(differences).zconfint_mean()
    assert paired_interval(gained, lost, total) == pytest.approx(expected, abs=1e-4)


def test_the_interval_of_a_difference_holds_the_truth_and_is_never_empty() -> None:
    low, high = paired_interval(0, 0, 797)
    assert low < 0 < high
    rng = np.random.default_rng(0)
    truth = 0.01 - 0.03
    draws = rng.multinomial(797, [0.01, 0.03, 0.96], size=2000)
    intervals = [paired_interval(gained, lost, 797) for gained, lost, _ in draws]
    held = sum(low <= truth <= high for low, high in intervals)
    assert 0.93 <= held / len(draws) <= 0.975


def test_evidence_says_whether_a_difference_is_within_its_uncertainty() -> None:
    before = torch.ones(797, dtype=torch.bool)
    before[:40] = False
    few, many = before.clone(), before.clone()
    few[40:43] = False
    many[40:80] = False
    within = digits.difference_evidence(few, before, name="fp32")
    beyond = digits.difference_evidence(many, before, name="fp32")
    assert within["difference"] == "within its uncertainty"
    assert beyond["difference"] == "beyond its uncertainty"
    assert beyond["accuracy_against_fp32_points"] == pytest.approx(-100 * 40 / 797, abs=0.01)
    alone = digits.accuracy_evidence(before)
    assert alone["accuracy_percent"] == pytest.approx(100 * 757 / 797, abs=0.01)
    low, high = alone["accuracy_interval_percent"]
    assert low < alone["accuracy_percent"] < high
