"""Fits under priors on sds, correlations and the dispersion, against deterministic brute force.

For Gaussian responses the random effects and the coefficients integrate out in closed form; what is left, three
coordinates of omega and log sigma, is integrated over a grid. For counts, two priors of an sd differ by a function of
one coordinate, so that the bound under one follows from the other's by a one-dimensional integral.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import natvi
from natvi.derivatives import exact_derivatives
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowVector
from natvi.models.mixed.target import build_target
from natvi.result import Result
from natvi.x64 import float64
from strategies import hermite, quick_jit

SLEEP = "Reaction ~ Days + (Days | Subject)"
EPILEPSY = "y ~ base*trt + age + visit + (1 | subject)"


def fit(formula: str, frame: Any, prior: Any, family: str = "gaussian", method: str = "gva") -> Result:
    return natvi.glmm(formula, frame, family=family, prior=prior).fit(method=method)


# --- Gaussian responses -------------------------------------------------------------------------------------------


def sleep_log_posterior(points: np.ndarray, prior_sds: np.ndarray, eta: float, scale: float) -> np.ndarray:
    """Return log p(y, log s_1, log s_2, atanh rho, log sigma), coefficients and random effects integrated out."""
    frame = natvi.data.load_sleepstudy()
    Y = frame["Reaction"].to_numpy().reshape(18, 10)  # balanced: ten days of 18 subjects
    design = np.column_stack([np.ones(10), np.arange(10)])
    s, rho, sigma = np.exp(points[:2]), np.tanh(points[2]), np.exp(points[3])
    covariance = np.empty((points.shape[1], 2, 2))
    covariance[:, 0, 0], covariance[:, 1, 1] = s[0] ** 2, s[1] ** 2
    covariance[:, 0, 1] = covariance[:, 1, 0] = rho * s[0] * s[1]
    V = design @ covariance @ design.T + sigma[:, None, None] ** 2 * np.eye(10)
    inverse = np.linalg.inv(V)
    gram = 18 * design.T @ inverse @ design
    score = design.T @ inverse @ Y.sum(axis=0)
    fit_term = np.einsum("pi,pij,pj->p", score, np.linalg.inv(gram), score)
    squares = np.einsum("si,pij,sj->p", Y, inverse, Y)
    value = -9 * np.linalg.slogdet(V)[1] - 0.5 * (squares - fit_term) - 0.5 * np.linalg.slogdet(gram)[1]
    prior = scipy.stats.halfnorm(scale=prior_sds[:, None]).logpdf(s).sum(axis=0)
    prior += (eta - 1) * np.log1p(-(rho**2)) + scipy.stats.expon(scale=scale).logpdf(sigma)
    jacobian = points[0] + points[1] + np.log1p(-(rho**2)) + points[3]
    return value + prior + jacobian


def brute_posterior(prior_sds: np.ndarray, eta: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd of (log s_1, log s_2, atanh rho, log sigma) by a Gauss-Hermite grid that is moved once."""
    centre, width = np.array([3.0, 1.7, 0.2, 3.3]), np.array([0.35, 0.3, 0.5, 0.08])
    z, w = hermite((11,) * 4)
    for _ in range(3):
        points = centre[:, None] + width[:, None] * z
        log_weight = sleep_log_posterior(points, prior_sds, eta, scale) + 0.5 * np.sum(z**2, axis=0)
        weight = w * np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        centre = points @ weight
        width = np.sqrt(((points - centre[:, None]) ** 2) @ weight)
    return centre, width


@pytest.mark.parametrize(
    ("method", "sds", "eta", "scale", "close"),
    [
        ("gva", (30.0, 10.0), 1.0, 20.0, 0.25),
        ("gva", (6.0, 3.0), 8.0, 5.0, 0.25),
        ("marginal", (6.0, 3.0), 8.0, 5.0, 0.08),  # what is left is the noise of the draws
    ],
)
def test_sleepstudy_under_half_normal_and_lkj(method, sds, eta, scale, close):
    keys = ("sd(Intercept|Subject)", "sd(Days|Subject)")
    prior = dict(zip(keys, sds, strict=True)) | {"corr": ("lkj", eta), "sigma": ("exponential", 1 / scale)}
    result = fit(SLEEP, natvi.data.load_sleepstudy(), prior, method=method)
    assert result.outcome == "converged"
    draws = result.sample(4000, seed=1, random_effects=False)
    ours = np.stack(
        [
            np.log(draws["sd(Intercept|Subject)"]),
            np.log(draws["sd(Days|Subject)"]),
            np.arctanh(draws["corr(Intercept,Days|Subject)"]),
            np.log(draws["sigma"]),
        ]
    )
    mean, sd = brute_posterior(np.array(sds), eta, scale)
    np.testing.assert_allclose((ours.mean(axis=1) - mean) / sd, 0, atol=close)
    np.testing.assert_allclose(ours.std(axis=1) / sd, 1, atol=close)


# --- counts -------------------------------------------------------------------------------------------------------


def bound_by_hand(model: Any, q: ArrowPrecision, log_density: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the bound of another prior on the sd: exchange the paper's N(0, 10^2) on omega for it, by quadrature."""
    paper = build_target(model.design, model.y, model.family, model.prior).target
    m, sd = float(q.mean.shared[-1]), float(np.sqrt(q.shared_variances()[-1]))
    (z,), w = hermite((60,))
    omega = m + sd * z
    change = log_density(np.exp(-omega)) - omega - scipy.stats.norm.logpdf(omega, 0, 10)
    return float(quick_derivatives(paper, q).value) + float(w @ change)


quick_derivatives = quick_jit(exact_derivatives)


@pytest.mark.parametrize("value", [("half_normal", 0.2), ("half_t", 3, 2.5), ("exponential", 20)], ids=lambda v: v[0])
def test_epilepsy_under_another_prior(value):
    """The bound is the one that quadrature gives, and no shift of the log sd raises it."""
    frame = natvi.data.load_epilepsy()
    paper = natvi.glmm(EPILEPSY, frame, family="poisson", prior="paper")
    tens = dict.fromkeys(paper.design.fixed_names, 10.0)
    result = fit(EPILEPSY, frame, tens | {"sd": value}, "poisson")
    assert result.outcome == "converged"
    log_density = {
        "half_normal": scipy.stats.halfnorm(scale=value[-1]).logpdf,
        "half_t": lambda x: np.log(2) + scipy.stats.t(3, scale=value[-1]).logpdf(x),
        "exponential": scipy.stats.expon(scale=1 / value[-1]).logpdf,
    }[value[0]]
    with float64():
        q = jax.device_put(result.model.posterior)  # the groups in the order of the data
        assert bound_by_hand(paper, q, log_density) == pytest.approx(result.elbo, abs=1e-8)
        # theta_g moves by Sigma e, theta_i as its regression on theta_g says
        g = q.mean.shared.shape[0]
        unit = ArrowVector(jnp.zeros_like(q.mean.local), jnp.eye(g)[-1])
        move = jax.tree.map(lambda a: a / jnp.sqrt(q.shared_variances()[-1]), q.covariance_product(unit))
        there = [q._replace(mean=jax.tree.map(lambda m, d, h=h: m + h * d, q.mean, move)) for h in (-0.1, 0.1)]
        below, above = (bound_by_hand(paper, p, log_density) - result.elbo for p in there)
    assert below < 0 and above < 0
    assert 0.05 * (below - above) / (below + above) == pytest.approx(0, abs=0.01)  # the top of the parabola, in sds


def test_a_tight_prior_pulls_and_a_saved_fit_keeps_its_words(tmp_path):
    frame = natvi.data.load_epilepsy()
    tight = fit(EPILEPSY, frame, {"sd": 0.05, "base": (1.0, 0.01)}, "poisson")
    assert tight.outcome == "converged"
    components = tight.model.tables(0.95)["variance_components"]
    assert components.loc["sd(Intercept|subject)", "mean"] < 0.35
    tight.save(tmp_path / "fit.natvi")
    words = dict(natvi.load(tmp_path / "fit.natvi").model.headline)["prior"]
    assert "base N(1, 0.01²)" in words and "half-normal(0.05), 95% of it below 0.098" in words
