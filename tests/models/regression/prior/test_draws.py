"""Draws of a prior, its density and what it does to a posterior, each against the others or against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import natvi
from natvi.models.regression.prior.check import prior_concerns, prior_influence
from natvi.models.regression.prior.draws import draw_correlation_roots, draw_prior
from natvi.models.regression.prior.log_density import log_prior
from natvi.target.priors.omega_prior import log_sds

NUM = 20_000


def sleep(**options):
    return natvi.glmm("Reaction ~ Days + (Days | Subject)", natvi.data.load_sleepstudy(), **options)


def test_draws_have_the_moments_of_the_prior():
    prior = sleep().prior
    theta = draw_prior(prior, NUM, np.random.default_rng(0))
    z = (theta[:, :2] - prior.mean[:2]) / prior.sd[:2]
    assert np.all(np.abs(z.mean(axis=0)) * np.sqrt(NUM) < 4.5)
    sigma = np.exp(theta[:, 2]) / prior.scales.placed[0].density.parameters[1]
    assert scipy.stats.kstest(sigma, lambda x: 2 * scipy.stats.t(3).cdf(x) - 1).pvalue > 1e-4
    with jax.enable_x64(True):
        sds = np.exp(np.asarray(log_sds(2, jnp.asarray(theta[:, 3:].T))))
    for k in range(2):
        scaled = sds[k] / prior.scales.covariance.densities[k].parameters[1]
        assert scipy.stats.kstest(scaled, lambda x: 2 * scipy.stats.t(3).cdf(x) - 1).pvalue > 1e-4


@pytest.mark.parametrize(("r", "eta"), [(2, 1.0), (3, 1.0), (4, 2.5)])
def test_correlations_follow_lkj(r, eta):
    """A single correlation is 2 b - 1 with b ~ Beta(a, a), a = eta + r/2 - 1."""
    L = draw_correlation_roots(r, eta, NUM, np.random.default_rng(1))
    R = L @ L.swapaxes(1, 2)
    a = eta + r / 2 - 1
    for row in range(1, r):
        for column in range(row):
            assert scipy.stats.kstest((R[:, row, column] + 1) / 2, scipy.stats.beta(a, a).cdf).pvalue > 1e-4


def test_the_log_density_agrees_with_the_draws():
    """E_p [q(x) / p(x)] = 1 for a density q narrower than p."""
    prior = sleep().prior
    theta = draw_prior(prior, NUM, np.random.default_rng(2))
    typical = np.median(theta, axis=0)
    widths = 0.3 * scipy.stats.iqr(theta, axis=0) / 1.35
    log_q = scipy.stats.norm.logpdf(theta, typical, widths).sum(axis=1)
    ratio = np.exp(log_q - log_prior(prior, theta))
    assert abs(ratio.mean() - 1) < 4.5 * ratio.std() / np.sqrt(NUM)


def test_the_pull_is_how_far_the_mean_moves_when_the_prior_is_raised_to_a_power():
    crabs = natvi.data.load_crabs()
    model = natvi.glm("y ~ width", crabs, family="bernoulli", prior={"Intercept": (0, 4.0), "width": (0, 0.1)})
    fit = model.fit()
    cov = fit.model.factor @ fit.model.factor.T
    influence = prior_influence(model.prior, fit.model.mean, cov)
    power = 1.02
    sharper = {name: (0.0, sd / np.sqrt(power)) for name, sd in (("Intercept", 4.0), ("width", 0.1))}
    moved = natvi.glm("y ~ width", crabs, family="bernoulli", prior=sharper).fit()
    expected = (moved.model.mean - fit.model.mean) / (power - 1) / fit.model.sds
    np.testing.assert_allclose(influence.pull, expected, rtol=0.1)
    assert "pulls" in prior_concerns(model.prior, ["Intercept", "width"], fit.model.mean, cov)[0]


def test_a_prior_that_misleads_is_named_and_a_default_is_not():
    rng = np.random.default_rng(0)
    year = np.repeat(np.arange(2000.0, 2025.0), 8)
    data = {"year": year, "sales": 50 + 3 * (year - 2012) + rng.normal(0, 12, len(year))}
    said = {}
    for prior in ("paper", "default"):
        fit = natvi.glm("sales ~ year", data, prior=prior).fit()
        cov = fit.model.factor @ fit.model.factor.T
        said[prior] = prior_concerns(fit.model.prior, ["Intercept", "year", "sigma"], fit.model.mean, cov)
    assert "contradict each other about Intercept" in said["paper"][0] and "prior=" in said["paper"][0]
    assert not said["default"]


def test_a_unit_that_the_prior_was_not_made_for_is_named():
    crabs = natvi.data.load_crabs()
    crabs["km"] = 1e-5 * crabs["width"]
    fit = natvi.glm("y ~ km", crabs, family="bernoulli", prior=10.0).fit()
    cov = fit.model.factor @ fit.model.factor.T
    (words,) = prior_concerns(fit.model.prior, ["Intercept", "km"], fit.model.mean, cov)
    assert "contradict each other about km" in words


def test_a_parameter_the_data_say_little_about_is_named():
    crabs = natvi.data.load_crabs()
    crabs["noise"] = 1e-6 * np.random.default_rng(0).normal(size=len(crabs))
    fit = natvi.glm("y ~ width + noise", crabs, family="bernoulli", prior={"noise": 1.0}).fit()
    cov = fit.model.factor @ fit.model.factor.T
    (words,) = prior_concerns(fit.model.prior, ["Intercept", "width", "noise"], fit.model.mean, cov)
    assert "say little about noise" in words
