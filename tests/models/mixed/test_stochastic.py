"""Stochastic fits of mixed models by GVA, RVB1 and RVB2: bounds, draws on the original scale, every rule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from natvi import optimize
from natvi.derivatives.exact import exact_derivatives
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian, diagonal_covariance
from natvi.linalg import LocalGlobalFactor
from natvi.models.mixed.noisy.stochastic import WAYS, default_start, estimate_elbo, fit_mixed_stochastic
from natvi.recipes import algorithm_1s, algorithm_2s
from natvi.run.algorithm import compose
from natvi.target.function import FunctionTarget
from natvi.target.mixed.rvb import rvb2
from natvi.x64 import float64
from strategies import mixed_case, quick_jit

SIZES = (4, 2, 6, 3, 5, 4)


def poisson():
    with float64():
        return mixed_case("poisson", SIZES, 1, seed=11)


@pytest.fixture(scope="module")
def converged():
    """The three ways at their optimum, by second-order estimates with a decreasing step."""
    target = poisson().target
    with float64():
        rule = optimize.plain(optax.exponential_decay(0.3, 100, 0.3), natural=True)
        settings = {"order": 2, "steps": 400, "window": 100, "num_samples": 8, "antithetic": True, "elbo_draws": 8000}
        fits = {way: fit_mixed_stochastic(target, way, rule, **settings) for way in WAYS}
    return target, fits


@pytest.mark.slow
def test_bounds_can_be_compared(converged):
    """GVA's estimate agrees with its exact bound; RVB2 is better than RVB1, and that better than GVA, up to noise."""
    target, fits = converged
    gva = fits["gva"]
    assert isinstance(gva.gaussian, PrecisionGaussian)
    with float64():
        exact, *_ = quick_jit(exact_derivatives)(target, jax.device_put(gva.gaussian))
    assert abs(gva.elbo - float(exact)) < 4 * gva.elbo_se and gva.elbo_se < 0.02
    assert fits["rvb2"].elbo > fits["rvb1"].elbo - 0.02 > gva.elbo - 0.04
    assert fits["rvb2"].elbo > float(exact)
    for fit in fits.values():
        assert fit.outcome == "max_steps" and fit.skipped == 0 and len(fit.trace) == 4
        assert abs(fit.trace[-1] - fit.elbo) < 0.1


def test_draws_are_on_the_original_scale(converged):
    _, fits = converged
    draws = {way: fit.sample(4000, seed=1) for way, fit in fits.items()}
    for way, draw in draws.items():
        assert draw.local.shape == (4000, 1, 6) and draw.local.dtype == np.float64
        for own, other in zip(draw, draws["rvb2"], strict=True):
            off = (own.mean(0) - other.mean(0)) / other.std(0)
            assert np.abs(off).max() < 0.25, way
            assert np.abs(np.log(own.std(0) / other.std(0))).max() < 0.25, way
    again = fits["rvb1"].sample(10, seed=3)
    np.testing.assert_array_equal(again.local, fits["rvb1"].sample(10, seed=3).local)


def test_gaussian_responses_leave_standard_normals():
    """tilde is exactly standard normal: the local blocks end at mean 0 and C = I, and the bound is that of theta_g."""
    with float64():
        target = mixed_case("gaussian", SIZES, 1, seed=4).target
        rule = optimize.plain(0.2, natural=True)
        start = default_start(target, "rvb1")
        moved = jax.tree.map(lambda a: a + 0.3, start.mean)
        start = CovarianceGaussian(moved, LocalGlobalFactor(0.7 * start.factor.local, start.factor.shared))
        fit = fit_mixed_stochastic(target, "rvb1", rule, order=2, steps=150, window=50, start=start, elbo_draws=100)
    np.testing.assert_allclose(fit.gaussian.mean.local, 0.0, atol=1e-6)
    np.testing.assert_allclose(fit.gaussian.factor.local, 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("way", "optimizer"),
    [("gva", "pga"), ("rvb1", "adam"), ("rvb1", "vogn"), ("rvb2", "nadam")],
)
def test_every_rule_climbs(way, optimizer):
    fit = fit_mixed_stochastic(poisson().target, way, optimizer, step_size=0.005, steps=300, window=100, elbo_draws=20)
    assert fit.outcome == "max_steps" and fit.skipped == 0
    assert np.isfinite(fit.elbo) and fit.trace[-1] > fit.trace[0]
    assert isinstance(fit.gaussian.mean.local, np.ndarray) and fit.gaussian.mean.local.dtype == np.float64


def test_vogn_finds_the_means(converged):
    """The empirical Fisher information gives no covariance, but the mean is right."""
    target, fits = converged
    fit = fit_mixed_stochastic(target, "rvb2", "vogn", step_size=0.01, steps=4000)
    truth = fits["rvb2"].gaussian
    with float64():
        sds = np.asarray(truth.marginal_sds().shared)
    assert np.abs((fit.gaussian.mean.shared - truth.mean.shared) / sds).max() < 0.6
    assert fit.elbo < fits["rvb2"].elbo + 4 * fit.elbo_se


def test_same_seed_same_bits_also_in_two_parts():
    target = poisson().target
    whole = fit_mixed_stochastic(target, "rvb2", "snngm", steps=60, window=20, seed=5, elbo_draws=20)
    part = fit_mixed_stochastic(target, "rvb2", "snngm", steps=25, window=20, seed=5, elbo_draws=20)
    rest = fit_mixed_stochastic(target, "rvb2", "snngm", steps=60, window=20, seed=5, elbo_draws=20, state=part.state)
    for a, b in zip(jax.tree.leaves(whole.gaussian), jax.tree.leaves(rest.gaussian), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.elbo == rest.elbo and int(rest.state.count) == 60


def test_steps_that_are_not_finite_are_left_out():
    fit = fit_mixed_stochastic(poisson().target, "gva", "adam", step_size=1e200, steps=5, window=5, elbo_draws=20)
    assert fit.skipped > 0 and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fit.gaussian))


def test_standard_error_of_the_bound():
    with float64():
        target = poisson().target
        start = default_start(target, "rvb2")
        reparametrized = rvb2(target)
        found = [estimate_elbo(reparametrized, start, 200, seed) for seed in range(30)]
    values, errors = np.array(found).T
    assert 0.6 < values.std(ddof=1) / errors.mean() < 1.5


def test_mistakes_are_explained():
    target = poisson().target
    with pytest.raises(ValueError, match="way must be one of 'gva', 'rvb1', 'rvb2'"):
        fit_mixed_stochastic(target, "rvb3")
    with pytest.raises(ValueError, match="optimizer must be a rule or one of"):
        fit_mixed_stochastic(target, "rvb1", "sgd")
    with pytest.raises(ValueError, match="step_size is for an optimizer given by name"):
        fit_mixed_stochastic(target, "rvb1", optimize.adam(), step_size=0.1)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        fit_mixed_stochastic(target, steps=0)
    with float64():
        with pytest.raises(ValueError, match="CovarianceGaussian with a factor in small blocks"):
            algorithm_1s(rvb2(target)).init(diagonal_covariance(jnp.zeros(3)))
        with pytest.raises(ValueError, match="PrecisionGaussian with a factor in small blocks"):
            algorithm_2s(target).init(default_start(target, "rvb1"))
        plain = compose(bare_function(), optimize.adam(), CovarianceGaussian, order=2)
        with pytest.raises(ValueError, match="reparametrized mixed model"):
            plain.step(plain.init(default_start(target, "rvb1")), jax.random.key(0))


def bare_function():
    return FunctionTarget(lambda theta: -0.5 * jnp.sum(theta.local**2) - 0.5 * jnp.sum(theta.shared**2))
