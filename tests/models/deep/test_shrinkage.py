"""The closed-form updates of a deep GLM against numerical maximisation, and its bound against Monte Carlo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from natvi.models.deep.deep_glm import deep_glm_algorithm
from natvi.models.deep.dispersion import SCALE_0, SHAPE_0, Dispersion, first_dispersion, update_dispersion
from natvi.models.deep.shrinkage import (
    Places,
    first_shrinkage,
    prior_of,
    relevance,
    shrinkage_bound,
    update_shrinkage,
)
from natvi.models.deep.training import Training

SIZES = (3, 4, 2, 1)
PLACES = Places.of(SIZES)
LENGTH = 3 * 4 + 4 + 4 * 2 + 2 + 2 * 1 + 1
rng = np.random.default_rng(0)
MEAN = jnp.asarray(rng.normal(size=LENGTH), jnp.float32)
SDS = jnp.asarray(rng.uniform(0.1, 0.5, size=LENGTH), jnp.float32)
s, s_w = (np.asarray(part, dtype=float) for part in PLACES.squares(MEAN, SDS))
M = 4


def inverse_gaussian(alpha: float, beta: float) -> stats.rv_continuous:
    """The law of 1/tau with mean alpha and shape beta."""
    return stats.invgauss(alpha / beta, scale=beta)


def terms_of_input(alpha: float, beta: float, gamma: float, square: float) -> float:
    """E[ log p(w | tau) + log p(tau | gamma) - log q(tau) ] over q(tau), by quadrature over log(1/tau)."""
    law = inverse_gaussian(alpha, beta)

    def integrand(u: float) -> float:
        x = np.exp(u)
        log_prior = -0.5 * M * np.log(2 * np.pi / x) - 0.5 * square * x
        log_prior += stats.gamma.logpdf(1 / x, (M + 1) / 2, scale=2 / gamma**2)
        log_q = law.logpdf(x)
        if not np.isfinite(log_q):
            return 0.0
        return np.exp(log_q) * x * (log_prior - log_q - 2 * np.log(x))  # q(tau) = q(1/tau) / tau^2

    centre = np.log(alpha)
    return integrate.quad(integrand, centre - 12, centre + 12, limit=400, points=[centre])[0]


def test_places_of_weights_and_biases():
    marks = np.asarray(PLACES.spread(jnp.array([1.0, 2.0, 3.0]), jnp.asarray(9.0), LENGTH))
    # per layer biases first, then weights, input by input
    np.testing.assert_array_equal(marks[:16], [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4)
    np.testing.assert_array_equal(marks[16:], [0] * 2 + [9] * 8 + [0] + [9] * 2)
    assert PLACES.num_others == 10


def test_q_of_tau_maximises_the_bound():
    gamma, square = 3.0, float(s[0])
    found = optimize.minimize(
        lambda v: -terms_of_input(np.exp(v[0]), np.exp(v[1]), gamma, square), [0.0, 0.5], method="Nelder-Mead"
    )
    np.testing.assert_allclose(np.exp(found.x), [gamma / np.sqrt(square), gamma**2], rtol=1e-2)


def test_gamma_maximises_the_bound():
    old = first_shrinkage(PLACES, MEAN, SDS)._replace(gamma=jnp.array([1.0, 3.0, 10.0], jnp.float32))
    new = update_shrinkage(old, PLACES, MEAN, SDS)
    for j, gamma in enumerate(np.asarray(old.gamma, dtype=float)):
        law = (gamma / np.sqrt(s[j]), gamma**2)
        best = optimize.minimize_scalar(
            lambda g, law=law, j=j: -terms_of_input(*law, np.exp(g), s[j]), bounds=(-3, 4), method="bounded"
        )
        np.testing.assert_allclose(new.gamma[j], np.exp(best.x), rtol=1e-3)
        np.testing.assert_allclose(new.alpha[j], new.gamma[j] / np.sqrt(s[j]), rtol=1e-5)
    assert new.gamma_w == pytest.approx(PLACES.num_others / s_w, rel=1e-5)


def test_gamma_w_maximises_the_bound():
    at = first_shrinkage(PLACES, MEAN, SDS)
    values = [shrinkage_bound(at._replace(gamma_w=at.gamma_w * f), PLACES, MEAN, SDS) for f in (0.9, 1.0, 1.1)]
    assert values[1] > max(values[0], values[2])


def test_the_joint_fixed_point_is_reached():
    at = first_shrinkage(PLACES, MEAN, SDS)
    np.testing.assert_allclose(at.gamma, M / np.sqrt(s), rtol=1e-5)
    shrinkage = at._replace(gamma=jnp.array([0.1, 1.0, 100.0], jnp.float32))
    for _ in range(60):
        shrinkage = update_shrinkage(shrinkage, PLACES, MEAN, SDS)
    np.testing.assert_allclose(shrinkage.gamma, M / np.sqrt(s), rtol=1e-4)
    np.testing.assert_allclose(shrinkage.alpha, M / s, rtol=1e-4)


def test_the_bound_of_the_prior_agrees_with_quadrature():
    shrinkage = update_shrinkage(first_shrinkage(PLACES, MEAN, SDS), PLACES, MEAN, SDS)
    inputs = sum(
        terms_of_input(g / np.sqrt(sq), g**2, g, sq)
        for g, sq in zip(np.asarray(shrinkage.gamma, float), s, strict=True)
    )
    gamma_w, d_w = float(shrinkage.gamma_w), PLACES.num_others
    others = 0.5 * d_w * np.log(gamma_w / (2 * np.pi)) - 0.5 * gamma_w * s_w
    assert float(shrinkage_bound(shrinkage, PLACES, MEAN, SDS)) == pytest.approx(inputs + others, rel=1e-4)


def test_q_of_v_maximises_the_bound():
    n, squares = 50, 120.0

    def bound(a: float, b: float) -> float:
        law = Dispersion(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32))
        expected_log, inverse = np.log(b) - float(jax.scipy.special.digamma(a)), a / b
        return float(law.bound()) - 0.5 * n * expected_log - 0.5 * inverse * squares

    new = update_dispersion(first_dispersion(n), jnp.asarray(squares), n, share=1.0)
    assert float(new.a) == SHAPE_0 + n / 2 and float(new.b) == pytest.approx(SCALE_0 + squares / 2)
    best = bound(float(new.a), float(new.b))
    assert all(best > bound(float(new.a) * f, float(new.b) * g) for f, g in [(0.8, 1), (1.2, 1), (1, 0.8), (1, 1.2)])


def test_the_prior_has_flat_biases_and_the_expected_precisions():
    shrinkage = first_shrinkage(PLACES, MEAN, SDS)
    prior = prior_of(shrinkage, PLACES, LENGTH)
    np.testing.assert_allclose(prior.precision[4:8], shrinkage.alpha[0], rtol=1e-5)
    assert np.all(np.asarray(prior.precision[:4]) == 0) and np.isfinite(prior.value(MEAN))
    assert np.isfinite(jax.grad(prior.value)(MEAN)).all()


@pytest.mark.parametrize("response", ["normal", "bernoulli"])
def test_the_estimated_bound_agrees_with_monte_carlo_over_everything(response):
    """Draw theta, tau and v from q and average log p(y, theta, tau, v) - log q; the loop's estimate has that mean."""
    X = rng.normal(size=(30, 3)).astype(np.float32)
    y = (rng.normal(size=30) if response == "normal" else rng.integers(0, 2, 30)).astype(np.float32)
    training = Training(optimizer="adam", step_size=1e-12, schedule="constant", start_sd=0.3, batch_size=30)
    algorithm, start = deep_glm_algorithm(SIZES, response, {"x": X, "y": y}, 30, training)
    state = algorithm.init(start)
    step = jax.jit(lambda key: algorithm.move(algorithm.target, state, key).elbo)
    estimates = np.asarray(jax.vmap(step)(jax.random.split(jax.random.key(0), 4000)), dtype=float)

    # the whole joint density, written out once more
    shrinkage, net = state.shrinkage, algorithm.target.net
    draws = 4000
    theta = np.asarray(start.mean + 0.3 * jax.random.normal(jax.random.key(1), (draws, LENGTH)), dtype=float)
    eta = np.asarray(
        jax.vmap(lambda t: net.output(t, jnp.asarray(X))[:, 0])(jnp.asarray(theta, jnp.float32)), dtype=float
    )
    total = -stats.norm.logpdf(theta, np.asarray(start.mean), 0.3).sum(axis=1)
    first = theta[:, 4:16].reshape(draws, 3, 4)
    for j in range(3):
        gamma, alpha = float(shrinkage.gamma[j]), float(shrinkage.alpha[j])
        law = inverse_gaussian(alpha, gamma**2)
        x = law.rvs(draws, random_state=j)
        total += stats.norm.logpdf(first[:, j], 0, np.sqrt(1 / x)[:, None]).sum(axis=1)
        total += stats.gamma.logpdf(1 / x, (M + 1) / 2, scale=2 / gamma**2) - (law.logpdf(x) + 2 * np.log(x))
    others = np.concatenate([theta[:, 18:26], theta[:, 27:29]], axis=1)
    total += stats.norm.logpdf(others, 0, float(shrinkage.gamma_w) ** -0.5).sum(axis=1)
    if response == "normal":
        a, b = map(float, state.dispersion)
        v = stats.invgamma(a, scale=b).rvs(draws, random_state=9)
        total += stats.invgamma.logpdf(v, SHAPE_0, scale=SCALE_0) - stats.invgamma.logpdf(v, a, scale=b)
        total += stats.norm.logpdf(y, eta, np.sqrt(v)[:, None]).sum(axis=1)
    else:
        total += (y * eta - np.logaddexp(0, eta)).sum(axis=1)
    error = np.hypot(total.std(), estimates.std()) / np.sqrt(draws)
    assert abs(total.mean() - estimates.mean()) < 4 * error
    assert error < 0.5


def test_relevance_is_largest_for_the_least_shrunk():
    np.testing.assert_allclose(relevance(np.array([2.0, 1.0, 4.0])), [0.5, 1.0, 0.25])
