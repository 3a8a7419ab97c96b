"""Pareto-smoothed weights: against ArviZ, against known tails, and on moments that can be computed."""

import numpy as np
import pytest
import scipy.stats

from natvi.metrics.psis import fit_pareto, pareto_quantiles, resample, smooth_weights, weighted_quantiles


@pytest.mark.parametrize(("dof", "num_draws"), [(3, 100), (5, 1000), (30, 4000), (1.2, 2000)])
def test_agrees_with_arviz(dof: float, num_draws: int) -> None:
    from arviz_stats.base import array_stats

    x = np.random.default_rng(1).standard_normal(num_draws)
    ratios = scipy.stats.t.logpdf(x, dof) - scipy.stats.norm.logpdf(x)
    theirs, k = array_stats.psislw(-ratios)
    ours = smooth_weights(ratios)
    assert ours.k == pytest.approx(float(k), abs=0.03)
    np.testing.assert_allclose(ours.weights, np.exp(theirs - np.logaddexp.reduce(theirs)), rtol=0.05, atol=1e-4)
    assert ours.effective == pytest.approx(1 / np.sum(ours.weights**2))


@pytest.mark.parametrize("k", [-0.3, 0.2, 0.9])
def test_fit_finds_the_shape(k: float) -> None:
    values = np.sort(pareto_quantiles(np.random.default_rng(2).uniform(size=5000), k, 2.0))
    shape, scale = fit_pareto(values)
    assert shape == pytest.approx(k, abs=0.06) and scale == pytest.approx(2.0, rel=0.06)
    p = np.array([0.1, 0.9])
    np.testing.assert_allclose(pareto_quantiles(p, k, 2.0), scipy.stats.genpareto.ppf(p, k, scale=2.0))


def test_light_and_heavy_tails_are_told_apart() -> None:
    x = np.random.default_rng(3).standard_normal(4000)
    light = smooth_weights(-0.1 * x**2)  # the target is narrower
    heavy = smooth_weights(0.45 * x**2)  # sd 3.2 times as large: the weights have no variance
    assert light.k < 0.3 and light.effective > 3000
    assert heavy.k > 0.6 > light.k
    assert np.sum(light.weights) == pytest.approx(1.0)
    assert np.sum(light.weights * x**2) == pytest.approx(1 / 1.2, rel=0.1)


def test_equal_weights_and_lost_draws() -> None:
    equal = smooth_weights(np.full(100, -3.0))
    assert equal.effective == pytest.approx(100) and equal.k < 0.7
    some = smooth_weights(np.append(np.zeros(100), [np.nan, -np.inf]))
    assert np.all(some.weights[-2:] == 0.0)
    assert smooth_weights(np.zeros(4)).k == np.inf
    with pytest.raises(ValueError, match="finite log ratios"):
        smooth_weights(np.full(10, np.nan))


def test_weighted_quantiles_and_resampling() -> None:
    x = np.random.default_rng(4).standard_normal(20_000)
    weights = np.exp(0.5 * x)
    weights /= weights.sum()  # N(1/2, 1)
    found = weighted_quantiles(x[:, None], weights, [0.025, 0.5, 0.975])[:, 0]
    np.testing.assert_allclose(found, scipy.stats.norm.ppf([0.025, 0.5, 0.975], 0.5), atol=0.06)
    at = resample(weights, 10_000, np.random.default_rng(5))
    assert abs(x[at].mean() - 0.5) < 0.05 and abs(x[at].std() - 1) < 0.05
    counts = np.bincount(at, minlength=len(x))
    assert np.all(np.abs(counts - 10_000 * weights) < 1.0 + 1e-9)
    assert np.any(np.diff(at) < 0)
