"""Weights and trials of a mixed model: a row that counts several times is that row several times."""

import numpy as np
import pandas as pd
import pytest
import scipy.special

import natvi
from natvi.models.mixed.start import starting_values
from natvi.x64 import float64


def simulate() -> pd.DataFrame:
    """Draw 40 groups of 5 rows, with a count and with successes `y` of `n` trials."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(40), 5)
    x, trials = rng.standard_normal(200), rng.integers(2, 8, 200)
    eta = 0.3 + 0.6 * x + 0.7 * rng.standard_normal(40)[group]
    successes, count = rng.binomial(trials, scipy.special.expit(eta)), rng.poisson(np.exp(eta))
    return pd.DataFrame({"y": successes, "n": trials, "count": count, "x": x, "g": group})


def test_a_weight_counts_a_row_several_times() -> None:
    data = simulate().assign(times=np.arange(200) % 3)
    one = natvi.glmm("count ~ x + (1 | g)", data, family="poisson", weights="times")
    assert one.notes == ("67 of 200 rows left out: weight zero", "weights: the 133 rows count as 199")
    repeated = data.loc[data.index.repeat(data["times"])]
    results = [one.fit(method="gva"), natvi.glmm("count ~ x + (1 | g)", repeated, family="poisson").fit(method="gva")]
    assert results[0].elbo == pytest.approx(results[1].elbo, abs=1e-6)
    tables = [result.summary() for result in results]
    np.testing.assert_allclose(*tables, rtol=1e-3, atol=1e-4)


def test_trials_are_bernoulli_rows_but_for_the_constant() -> None:
    """log C(n, y) is all that separates successes of n trials from n rows, whatever the order of the latter."""
    data = simulate()
    rows = data.loc[data.index.repeat(data["n"])]
    first = np.concatenate([np.arange(n) for n in data["n"]])
    single = natvi.glmm("success ~ x + (1 | g)", rows.assign(success=first < rows["y"]), family="bernoulli").fit(
        method="gva"
    )
    together = natvi.glmm("p(y, n) ~ x + (1 | g)", data, family="binomial").fit(method="gva")
    constant = np.sum(np.log(scipy.special.comb(data["n"], data["y"])))
    assert together.elbo - single.elbo == pytest.approx(constant, abs=1e-6)
    np.testing.assert_allclose(together.summary(), single.summary(), rtol=1e-3, atol=1e-4)


def test_a_weighted_constant() -> None:
    data = simulate()
    plain, double = (
        natvi.glmm("p(y, n) ~ x + (1 | g)", data, family="binomial", link="probit", weights=weights)
        for weights in (None, np.full(200, 2.0))
    )
    assert double.constant == pytest.approx(2 * plain.constant) and plain.constant > 0
    assert plain.weight is not None and double.weight is not None
    np.testing.assert_array_equal(double.weight, 2 * plain.weight)
    np.testing.assert_array_equal(plain.weight, data["n"])


@pytest.mark.parametrize("family", ["gaussian", "poisson", "negative_binomial", "gamma"])
def test_the_start_counts_weights_too(family: str) -> None:
    data = simulate().assign(size=lambda d: d["count"] + (family == "gamma"), times=np.arange(200) % 3)
    repeated = data.loc[data.index.repeat(data["times"])]
    models = [
        natvi.glmm("size ~ x + (1 | g)", data, family=family, weights="times"),
        natvi.glmm("size ~ x + (1 | g)", repeated, family=family),
    ]
    with float64():
        starts = [starting_values(one.design, one.y, one.family, one.weight) for one in models]
    np.testing.assert_allclose(starts[0][0], starts[1][0], rtol=1e-10, atol=1e-12)
    assert starts[0][1] == pytest.approx(starts[1][1]) and (starts[0][1] > 0) == (family != "poisson")
