"""Priors of sds, correlations and the dispersion: what can be asked for, what it does, and how it is told."""

from typing import Any

import numpy as np
import pytest
import scipy.stats

from natvi.families.table import find_family
from natvi.models.regression.prior.choice import Prior, choose_prior
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.words import implied_intervals
from natvi.target.mixed.random_effects import omega_positions
from natvi.target.priors.scale_density import ScaleDensity

rng = np.random.default_rng(0)
X = np.column_stack([np.ones(40), rng.normal(size=40)])
Y = np.ceil(np.exp(rng.normal(size=40)))
FIXED = ("Intercept", "x")


def choose(prior: Any = "default", family: str = "poisson", r: int = 1, **options: Any) -> Prior:
    Z = np.column_stack([X[:, :1], rng.normal(size=(40, 5))])[:, :r]
    effects = ("Intercept", "x", "a", "b")[:r]
    options = {"names": FIXED, "random_names": effects, "group": "g"} | options
    return choose_prior(prior, find_family(family), PriorData(Y, X, Z), **options)


# --- what a prior implies for an sd ------------------------------------------------------------------------------


def test_priors_of_an_sd_are_told():
    words = "sd(Intercept|g): 95% of the prior between 3e-9 and 3e8"
    assert choose("paper").description == f"N(0, 10²) on every fixed effect and on ω (paper); {words}"
    both = choose("paper", r=2, correlated=False).description
    assert both.endswith("; sd(Intercept|g), sd(x|g): 95% of the prior between 3e-9 and 3e8")
    assert choose().description.endswith("; sd(Intercept|g) half-t(3, 2.5), 95% of it below 8")
    assert "sd of the random effect half-t" in choose(random_names=None).description
    assert "(at average covariates)" in choose(r=2).description and "corr LKJ(1)" in choose(r=2).description
    assert "average covariates)" not in choose(r=2, correlated=False).description


def test_implied_intervals_of_correlated_effects():
    """Against plain simulation."""
    r, mean, sd = 3, rng.normal(size=6), rng.uniform(0.3, 2.0, 6)
    omega = mean + sd * rng.standard_normal((200_000, 6))
    W = np.zeros((len(omega), r, r))
    for (row, column), at in omega_positions(r).items():
        W[:, row, column] = np.exp(omega[:, at]) if row == column else omega[:, at]
    log_s = 0.5 * np.log(np.diagonal(np.linalg.inv(W @ W.swapaxes(1, 2)), axis1=1, axis2=2))
    expected = np.quantile(log_s, [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(np.log(implied_intervals(r, True, mean, sd)), expected, atol=0.08)
    wide = implied_intervals(3, True, np.zeros(6), np.full(6, 10.0))
    assert np.all(np.isfinite(wide)) and wide[0][1] > wide[1][1] > wide[2][1] > 1e8


# --- settings ----------------------------------------------------------------------------------------------------


def test_one_sd():
    for prior in ({"sd": 2}, {"sd(Intercept|g)": ("half_normal", 2.0)}, {"sd": ["half_normal", 2]}):
        chosen = choose(prior)
        (placed,) = chosen.scales.placed
        assert placed == (2, -1.0, ScaleDensity("half_normal", (2.0,))) and chosen.scales.covariance is None
        assert np.isinf(chosen.sd[2]) and np.all(np.isfinite(chosen.sd[:2]))
        assert chosen.description.endswith("; sd(Intercept|g) half-normal(2), 95% of it below 3.9")


def test_a_lognormal_is_a_normal():
    chosen = choose({"sd": ("lognormal", 0.5, 2), "sigma": ("lognormal", -1, 3)}, "gaussian")
    np.testing.assert_array_equal(chosen.mean[2:], [-1, -0.5])
    np.testing.assert_array_equal(chosen.sd[2:], [3, 2])
    assert not chosen.scales.placed
    alone = choose({"sigma": ("lognormal", -1, 3)}, "gaussian", r=0)
    assert (alone.mean[2], alone.sd[2]) == (-1, 3) and "; sigma lognormal(-1, 3)" in alone.description


def test_uncorrelated_effects_have_priors_one_by_one():
    chosen = choose({"sd(x|g)": ("exponential", 3), "x": 1}, r=2, correlated=False)
    first, second = chosen.scales.placed
    assert second == (3, -1.0, ScaleDensity("exponential", (3.0,))) and first.density.name == "half_t"
    assert chosen.coordinates.random is None
    assert "sd(x|g) exponential(3)" in chosen.description


def test_correlated_effects_have_one_prior_together_at_the_users_zero():
    chosen = choose({"sd": 1, "sd(x|g)": ("half_t", 3, 2.5)}, r=2)
    start, densities, eta = chosen.scales.covariance
    assert (start, eta) == (2, 1.0) and [d.name for d in densities] == ["half_normal", "half_t"]
    assert np.all(np.isinf(chosen.sd[2:])) and np.all(np.isfinite(chosen.sd[:2]))
    assert chosen.coordinates.random is None and chosen.description.endswith("corr LKJ(1)")
    only = choose({"corr": ("lkj", 2)}, "gaussian", r=2)
    assert only.scales.covariance.eta == 2 and only.coordinates.random is None


@pytest.mark.parametrize("r", [3, 4])
def test_any_number_of_effects_has_the_same_kind_of_prior(r):
    chosen = choose(r=r)
    assert len(chosen.scales.covariance.densities) == r and len(chosen.mean) == 2 + r * (r + 1) // 2
    assert choose({"sd": 1}, r=r).scales.covariance.densities[0].name == "half_normal"


def test_the_dispersion():
    chosen = choose({"phi": ("gamma", 2, 0.1)}, "negative_binomial")
    assert chosen.scales.placed[0] == (2, 1.0, ScaleDensity("gamma", (2.0, 0.1)))
    assert "phi gamma(2, 0.1)" in chosen.description
    assert "1/sqrt(phi) half-t(3, 1)" in choose(family="negative_binomial").description
    assert choose({"dispersion": 1}, "gamma").scales.placed[0].density.name == "half_normal"
    assert choose({"sigma": 1}, "gaussian", r=0).scales.placed[0].density.name == "half_normal"
    clash = choose({"residual sigma": 1, "sigma": 2}, "gaussian", names=("Intercept", "sigma"))
    assert clash.scales.placed[0].position == 2


def test_densities_and_their_quantiles():
    cases = {
        ("half_normal", (2.0,)): scipy.stats.halfnorm(scale=2),
        ("half_cauchy", (2.0,)): scipy.stats.halfcauchy(scale=2),
        ("exponential", (0.5,)): scipy.stats.expon(scale=2),
        ("lognormal", (0.3, 0.7)): scipy.stats.lognorm(0.7, scale=np.exp(0.3)),
        ("gamma", (2.0, 3.0)): scipy.stats.gamma(2, scale=1 / 3),
    }
    for (name, parameters), reference in cases.items():
        np.testing.assert_allclose(ScaleDensity(name, parameters).interval(0.9), reference.interval(0.9), rtol=1e-10)
    expected = 2 * scipy.stats.t(3).ppf([0.525, 0.975])
    np.testing.assert_allclose(ScaleDensity("half_t", (3.0, 2.0)).interval(0.9), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("prior", "options", "message"),
    [
        ({"sd": "wide"}, {}, "must be a number .* or a density, .*'half_t', df, scale.* not 'wide'"),
        ({"sd": True}, {}, "must be a number"),
        ({"sd": ()}, {}, "must be a number"),
        ({"sd": ("half_t", 3)}, {}, r"half_t takes 2 parameters \(df, scale\).*got \('half_t', 3\)"),
        ({"sd": ("half_normal", "a")}, {}, "half_normal takes 1 parameter"),
        ({"sd": ("halfnormal", 1)}, {}, "'halfnormal', which is no density. Known: .*half_normal"),
        ({"sd": ("half_normal", -1)}, {}, "scale of half_normal must be finite and greater than zero, not -1"),
        ({"sd": ("lognormal", np.nan, 1)}, {}, "mu of lognormal must be a finite number"),
        ({"sd": 0}, {}, "greater than zero, not 0"),
        ({"sd": ("lkj", 2)}, {}, "a prior of correlations.*Give it for 'corr'"),
        ({"corr": 2}, {"r": 2}, r"\('lkj', eta\) with eta > 0.*not 2"),
        ({"corr": ("lkj", 0)}, {"r": 2}, "eta > 0"),
        ({"corr": ("lkj", 2)}, {"r": 1}, "has no correlations"),
        ({"corr": ("lkj", 2)}, {"r": 2, "correlated": False}, "has no correlations"),
        ({"corr(Intercept,x|g)": ("lkj", 2)}, {"r": 2}, "one prior together: give 'corr'"),
        ({"sd(y|g)": 1}, {}, r"no parameter of the model. Did you mean 'sd\(x|g\)'|Did you mean"),
        ({"sigma": 1}, {}, "'sigma', which is no parameter"),
    ],
)
def test_settings_that_are_refused(prior, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        choose(prior, **options)
    assert str(caught.value).endswith(".")
