"""Laws about draws: moments sharpened by the score, and sds that rest on few of the draws."""

import numpy as np
import pytest

from natvi.judge.stein import sharpen
from natvi.judge.tails import errors_of_sds, judge_tails

RNG = np.random.default_rng(0)


def test_for_a_gaussian_the_sharpened_moments_have_little_noise():
    d, n = 8, 500
    A = RNG.standard_normal((d, d)) / 10 + np.eye(d)
    covariance = A @ A.T
    errors = {"plain": [], "better": []}
    for _ in range(10):
        z = 0.1 + RNG.standard_normal((n, d)) @ A.T
        found = sharpen(z, -(z - 0.1) @ np.linalg.inv(covariance), n, full=True)
        assert found is not None and found.noise < 0.6
        for name, draws in (("plain", z), ("better", found.z)):
            errors[name].append([np.abs(draws.mean(axis=0) - 0.1).max(), np.abs(np.cov(draws.T) - covariance).max()])
    plain, better = (np.mean(errors[name], axis=0) for name in ("plain", "better"))
    assert np.all(better < 0.5 * plain)


def test_what_is_no_gaussian_is_not_made_worse():
    x = np.log(RNG.gamma(2.0, 1.0, (200, 400, 2)))  # log p = 2 x - exp(x)
    plain, better = [], []
    for draws in x:
        found = sharpen(draws, 2.0 - np.exp(draws), 400, full=True)
        plain.append(draws.mean(axis=0))
        better.append(draws.mean(axis=0) if found is None else found.z.mean(axis=0))
    truth = 1.0 - np.euler_gamma
    assert np.mean((np.array(better) - truth) ** 2) < 1.1 * np.mean((np.array(plain) - truth) ** 2)


def test_walls_are_noticed():
    half = np.abs(RNG.standard_normal((2000, 1)))  # E grad log p is not zero where p ends at a wall
    assert sharpen(half, -half, 2000, full=True) is None
    assert sharpen(half, np.full_like(half, np.nan), 2000, full=True) is None
    assert sharpen(half, np.zeros_like(half), 2000, full=True) is None


@pytest.mark.parametrize("dof", [5.0, 30.0])
def test_the_error_of_an_sd_is_that_of_repeated_samples(dof):
    logs = np.log(RNG.standard_t(dof, (400, 3000)).std(axis=1))
    told = np.median(errors_of_sds(RNG.standard_t(dof, (3000, 40)), 3000.0))
    assert 0.6 * logs.std() < told < 1.4 * logs.std()


def test_an_sd_that_rests_on_few_draws_is_said():
    v = 3.0 * RNG.standard_normal(4000)
    read = np.stack([v, np.exp(v / 2) * RNG.standard_normal(4000), np.zeros(4000)], axis=1)
    (found,) = judge_tails(["v", "x", "fixed"], read, 4000.0)
    assert found.level == "use with care" and "the sd of x" in found.reasons[0]
    assert judge_tails(["v"], read[:, :1], 4000.0) == ()
