"""Expectations of every term against brute force, and their derivatives against finite differences.

Brute force: composite Gauss-Legendre on the density, exponents added before they are taken, so that nothing
overflows and nothing small is lost; where an integrand is a polynomial times exponentials of a few variables,
a Gauss-Hermite product rule of sufficient order, which is exact. Bonnet's theorem: E grad is the derivative of
the expectation in the mean. Price's: E hess is the second derivative in the mean, and twice the derivative in
the covariance.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import natvi.target.term
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.likelihoods import FAMILIES
from natvi.precision import float64, to_host
from natvi.target import Contribution, NormalPrior, SumOfTerms
from natvi.target.likelihood_rows import PredictorMoments, RowExpectation
from natvi.target.random_effects import expected_log_prior, omega_positions
from strategies import (
    LIKELIHOODS,
    MixedCase,
    arrow_vector,
    dense_matrix,
    dense_moments,
    dense_vector,
    hermite,
    mixed_case,
    panels,
    pattern_parts,
    quick_jit,
    random_arrow,
    random_gaussian,
)

LOG_2PI = np.log(2 * np.pi)
MEANS = np.array([-30.0, -24.0, -15.0, -7.0, -2.5, -0.4, 0.0, 0.4, 2.5, 7.0, 15.0, 24.0, 30.0])
SDS = np.array([1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.6, 0.8, 1.0, 1.6, 2.5, 4.0, 5.5, 8.0, 15.0, 30.0])
STEP = 0.05
OFFSETS = STEP * np.arange(-3, 4)
# sixth-order central differences
FIRST = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60 / STEP
SECOND = np.array([2, -27, 270, -490, 270, -27, 2]) / 180 / STEP**2


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def test_every_family_is_tested():
    assert set(LIKELIHOODS) == set(FAMILIES)
    assert {*SCALAR_ROWS, "gaussian"} == set(FAMILIES)


# --- rows: one family at a time ----------------------------------------------------------------------------


def normal_rule(reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and log-weights of the standard normal on [-14, reach + 14]."""
    z, w = panels(-14.0, reach + 14.0, int(8 * (reach + 28.0)))
    return z, np.log(w) - 0.5 * z**2 - 0.5 * LOG_2PI


def brute_poisson(y: float, m: np.ndarray, s: float) -> np.ndarray:
    z, log_w = normal_rule(s)  # e^{s z} moves the mass to z = s
    linear = y * (m[..., None] + s * z) @ np.exp(log_w)
    rate = np.exp(m[..., None] + s * z + log_w).sum(axis=-1)
    return linear - rate - scipy.special.gammaln(y + 1.0)


def brute_bernoulli(y: float, m: np.ndarray, s: float) -> np.ndarray:
    z, log_w = normal_rule(6.0)  # the mass lies below z = 5.5 for all means above -30
    sign = 1.0 - 2.0 * y
    w = np.exp(log_w)
    return np.array([-np.logaddexp(0.0, sign * (a + s * z)) @ w for a in m.ravel()]).reshape(m.shape)


def brute_gaussian(y: float, m: float, s: float, disp: float, t: float, rho: float) -> float:
    """Integrate over (eta, log sigma) with correlation rho; the integrand is quadratic in eta."""
    z, log_w = normal_rule(2.0 * t)
    z = -z  # e^{-2 t z} moves the mass to z = -2 t
    (x,), w = hermite((3,))
    eta = m + s * (rho * z[:, None] + np.sqrt(1 - rho**2) * x)
    log_sigma = disp + t * z
    squares = (y - eta) ** 2 @ w
    return float((-0.5 * LOG_2PI - log_sigma) @ np.exp(log_w) - 0.5 * np.sum(squares * np.exp(log_w - 2 * log_sigma)))


@quick_jit
def poisson_rows(y: jax.Array, m: jax.Array, v: jax.Array) -> RowExpectation:
    return FAMILIES["poisson"].expected(y, PredictorMoments(m, v))


@quick_jit
def bernoulli_rows(y: jax.Array, m: jax.Array, v: jax.Array) -> RowExpectation:
    """Evaluate each row as a batch of its own: the rule's step depends on the largest variance of the batch."""
    return jax.vmap(lambda *row: FAMILIES["bernoulli"].expected(row[0], PredictorMoments(*row[1:])))(y, m, v)


SCALAR_ROWS: dict[str, tuple[Callable, Callable, list[float], float]] = {
    # brute force, natvi, responses, absolute error of the second derivative
    "poisson": (brute_poisson, poisson_rows, [0.0, 3.0, 40.0], 0.0),
    "bernoulli": (brute_bernoulli, bernoulli_rows, [0.0, 1.0], 1e-8),
}


@pytest.mark.parametrize("name", SCALAR_ROWS)
def test_rows_without_dispersion(name):
    brute, rows, responses, slack = SCALAR_ROWS[name]
    y, m, s = (a.ravel() for a in np.meshgrid(responses, MEANS, SDS, indexing="ij"))
    got = to_host(rows(jnp.asarray(y), jnp.asarray(m), jnp.asarray(s**2)))
    points = MEANS[:, None] + OFFSETS
    stencil = np.stack([[brute(b, points, c) for c in SDS] for b in responses]).swapaxes(1, 2).reshape(-1, 7)
    assert np.all(np.isfinite(stencil))
    np.testing.assert_allclose(got.value, stencil[:, 3], rtol=1e-7, atol=0)
    # differences of the oracle carry its rounding errors; nothing else excuses an absolute error
    rounding = 1e-14 * np.abs(stencil).max(axis=1)
    assert_within(got.d_eta, stencil @ FIRST, rounding / STEP)
    assert_within(got.d_eta_eta, stencil @ SECOND, rounding / STEP**2 + slack)


def assert_within(got: np.ndarray, expected: np.ndarray, absolute: np.ndarray, relative: float = 1e-7):
    excess = np.abs(got - expected) / (absolute + relative * np.abs(expected))
    assert excess.max() <= 1, f"{excess.max()} times the tolerance at {excess.argmax()}"


def test_rows_without_dispersion_in_one_batch():
    """A batch that mixes tiny and huge variances is as accurate as rows one by one."""
    y, m, s = (a.ravel() for a in np.meshgrid([0.0, 1.0], MEANS, SDS, indexing="ij"))
    moments = PredictorMoments(jnp.asarray(m), jnp.asarray(s**2))
    got = quick_jit(lambda *args: FAMILIES["bernoulli"].expected(*args))(jnp.asarray(y), moments)
    brute = [brute_bernoulli(b, MEANS, c) for b in (0.0, 1.0) for c in SDS]
    brute = np.reshape(brute, (2, len(SDS), len(MEANS))).swapaxes(1, 2).ravel()
    assert np.abs(brute).min() < 1e-12
    np.testing.assert_allclose(got.value, brute, rtol=1e-7, atol=0)


def gaussian_points(num: int) -> np.ndarray:
    """Draw (y, m, s, disp, t, rho) over wide ranges, wherever E log p is finite in double precision."""
    rng = np.random.default_rng(0)
    points = np.column_stack(
        [
            rng.uniform(-30, 30, (8 * num, 2)),
            10 ** rng.uniform(-4, np.log10(30), 8 * num),
            rng.uniform(-30, 30, 8 * num),
            10 ** rng.uniform(-4, np.log10(30), 8 * num),
            rng.uniform(-0.95, 0.95, 8 * num),
        ]
    )
    finite = -2 * points[:, 3] + 2 * points[:, 4] ** 2 < 650
    return points[finite][:num]


def test_gaussian_rows_with_unknown_scale():
    points = gaussian_points(40)
    assert points[:, 4].max() > 10 and points[:, 4].min() < 1e-3

    @quick_jit
    @jax.vmap
    def rows(y, m, s, disp, t, rho):
        return FAMILIES["gaussian"].expected(y, PredictorMoments(m, s**2, disp, t**2, rho * s * t))

    got = to_host(rows(*(jnp.asarray(column) for column in points.T)))
    # a grid of finite differences in both means
    grid = np.array(
        [
            [[brute_gaussian(y, m + a, s, disp + b, t, rho) for b in OFFSETS] for a in OFFSETS]
            for y, m, s, disp, t, rho in points
        ]
    )
    assert np.all(np.isfinite(grid))
    np.testing.assert_allclose(got.value, grid[:, 3, 3], rtol=1e-7, atol=0)
    close = {"rtol": 1e-7, "atol": 1e-10}
    np.testing.assert_allclose(got.d_eta, grid[:, :, 3] @ FIRST, **close)
    np.testing.assert_allclose(got.d_eta_eta, grid[:, :, 3] @ SECOND, **close)
    np.testing.assert_allclose(got.d_disp, grid[:, 3] @ FIRST, **close)
    np.testing.assert_allclose(got.d_disp_disp, grid[:, 3] @ SECOND, **close)
    np.testing.assert_allclose(got.d_eta_disp, (grid @ FIRST) @ FIRST, **close)


# --- the prior of the random effects -----------------------------------------------------------------------


def brute_intercept_prior(m: float, s: float, log_w: float, t: float, rho: float) -> float:
    """Integrate over (theta, omega) for r = 1; the integrand is quadratic in theta."""
    z, log_weight = normal_rule(2.0 * t)  # e^{2 t z} moves the mass to z = 2 t
    (x,), weight = hermite((3,))
    theta = m + s * (rho * z[:, None] + np.sqrt(1 - rho**2) * x)
    omega = log_w + t * z
    squares = theta**2 @ weight
    linear = (-0.5 * LOG_2PI + omega) @ np.exp(log_weight)
    return float(linear - 0.5 * np.sum(squares * np.exp(log_weight + 2 * omega)))


def prior_moments(columns: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Return the moments of (theta, omega) for r = 1 from columns (m, s, log_w, t, rho)."""
    m, s, log_w, t, rho = columns.T
    return jnp.asarray([m, log_w]), jnp.asarray([[s**2, rho * s * t], [rho * s * t, t**2]])


def test_prior_of_random_intercepts():
    points = gaussian_points(120)[:, 1:]
    points[:, 2] *= -1
    got = expected_log_prior(1, *prior_moments(points))
    brute = [brute_intercept_prior(*point) for point in points]
    assert np.all(np.isfinite(brute))
    np.testing.assert_allclose(got, brute, rtol=1e-7, atol=0)


def test_prior_that_overflows_is_minus_infinity_not_nan():
    got = expected_log_prior(1, *prior_moments(np.array([[0.0, 1.0, 10.0, 30.0, 0.0]])))
    assert np.asarray(got)[0] == -np.inf


def log_prior(r: int, x: np.ndarray) -> np.ndarray:
    """Return log p(theta | omega) for columns x = (theta, omega), from the definition of W."""
    theta, omega = x[:r], x[r:]
    W = np.zeros((x.shape[1], r, r))
    for (row, column), position in omega_positions(r).items():
        W[:, row, column] = np.exp(omega[position]) if row == column else omega[position]
    whitened = np.einsum("nlk,ln->nk", W, theta)
    log_det = sum(np.log(W[:, k, k]) for k in range(r))
    return -0.5 * r * LOG_2PI + log_det - 0.5 * np.sum(whitened**2, axis=1)


def brute_prior(r: int, m: np.ndarray, V: np.ndarray, order: int) -> float:
    """Integrate log p: `order` nodes for each log W_kk, three for the rest, in which it is of degree four."""
    first = [r + omega_positions(r)[k, k] for k in range(r)]
    permutation = first + [k for k in range(len(m)) if k not in first]
    z, w = hermite((order,) * r + (3,) * (len(m) - r))
    x = np.empty_like(z)
    x[permutation] = m[permutation][:, None] + np.linalg.cholesky(V[np.ix_(permutation, permutation)]) @ z
    return float(w @ log_prior(r, x))


# r, nodes, largest sd of log W_kk for which they are exact, number of random cases
@pytest.mark.parametrize(("r", "order", "widest", "num"), [(1, 60, 3.0, 20), (2, 40, 2.0, 10), (3, 11, 0.5, 2)])
def test_prior_of_random_effects(r, order, widest, num):
    rng = np.random.default_rng(r)
    size = r + r * (r + 1) // 2
    moments = []
    for _ in range(num):
        draw = rng.standard_normal((size, size + 2))
        V = np.corrcoef(draw)
        sds = 10 ** rng.uniform(-3, np.log10(30), size)
        for k in range(r):
            sds[r + omega_positions(r)[k, k]] = widest * rng.uniform(0.01, 1)
        moments.append((rng.uniform(-5, 5, size), V * np.outer(sds, sds)))
    m = jnp.asarray(np.stack([a for a, _ in moments], axis=-1))
    V = jnp.asarray(np.stack([b for _, b in moments], axis=-1))
    got = quick_jit(expected_log_prior, static_argnums=0)(r, m, V)
    np.testing.assert_allclose(got, [brute_prior(r, *pair, order) for pair in moments], rtol=1e-7, atol=0)


# --- priors of the shared coordinates ----------------------------------------------------------------------


def test_normal_prior():
    gaussian = random_gaussian(2, 4, 3, seed=0, scale=2.0, mean_scale=3.0)
    mean, Sigma = dense_moments(gaussian)
    m, sd = mean[-4:], np.sqrt(np.diag(Sigma)[-4:])
    prior = NormalPrior(jnp.asarray([0.0, 1.0, -2.0, 30.0]), jnp.asarray([1e-2, 1.0, 10.0, 3.0]))
    got = quick_jit(lambda prior, gaussian: prior.expected(gaussian))(prior, gaussian)
    (x,), w = hermite((3,))
    theta = m[:, None] + sd[:, None] * x
    brute = scipy.stats.norm.logpdf(theta, prior.mean[:, None], prior.sd[:, None]) @ w
    np.testing.assert_allclose(got.value, brute.sum(), rtol=1e-12)
    np.testing.assert_allclose(got.grad.shared, (prior.mean - m) / prior.sd**2, rtol=1e-12)
    np.testing.assert_allclose(got.hess.shared, -np.diag(1 / np.square(prior.sd)), rtol=1e-12)
    for part in (got.grad.local, got.hess.local, got.hess.cross):
        assert np.all(np.asarray(part) == 0.0)


# --- whole models ------------------------------------------------------------------------------------------

GROUP_SIZES = (2, 1, 9, 3)  # the third group needs extra chunks
MODELS = [(name, r) for name in LIKELIHOODS for r in (1, 2)]
NUM_DRAWS = 20_000


@cache
def model(name: str, r: int) -> MixedCase:
    case = mixed_case(name, GROUP_SIZES, r, seed=11)
    assert len(case.layout.extra) > 0
    return case


@quick_jit
def expected_many(target: SumOfTerms, gaussians: ArrowPrecision) -> Contribution:
    return jax.lax.map(target.expected, gaussians)


def stack(gaussians: list[ArrowPrecision]) -> ArrowPrecision:
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *to_host(gaussians))


def unstack(got: Contribution) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, dense gradients and dense Hessians."""
    got = to_host(got)
    each = [jax.tree.map(lambda a, i=i: a[i], got) for i in range(len(got.value))]
    return (
        got.value,
        np.stack([dense_vector(one.grad) for one in each]),
        np.stack([dense_matrix(one.hess) for one in each]),
    )


class Probe(NamedTuple):
    """Expectations at a Gaussian and differences around it: dense, on the host."""

    centre: ArrowPrecision
    value: float
    grad: np.ndarray
    hess: np.ndarray
    grad_by_differences: np.ndarray
    hess_by_differences: np.ndarray
    slope_in_covariance: float  # along dV
    dV: np.ndarray


@cache
def probe(name: str, r: int) -> Probe:
    case = model(name, r)
    n, d = case.n, r * case.n + case.g
    centre = to_host(random_gaussian(r, case.g, n, seed=12, scale=0.8))
    mean, Sigma = dense_moments(centre)
    moved = [to_host(arrow_vector(mean + h * e, r, n)) for e in np.eye(d) for h in OFFSETS]
    # Sigma(h) = (P + h D)^-1 with D on the pattern, so dV = -Sigma D Sigma; h D is small beside P
    P, D = np.linalg.inv(Sigma), 0.3 * dense_matrix(random_arrow(r, case.g, n, seed=13, condition=2.0))
    widened = [with_precision(centre, P + h * D, r, n) for h in OFFSETS]
    everything = [*(centre._replace(mean=m) for m in moved), *widened]
    values, grads, hesses = unstack(expected_many(case.target, stack(everything)))
    values, grads = values.reshape(d + 1, 7), grads.reshape(d + 1, 7, d)
    return Probe(
        centre,
        values[-1, 3],
        grads[-1, 3],
        hesses[-4],
        values[:-1] @ FIRST,
        np.einsum("k,dkj->dj", FIRST, grads[:-1]),
        float(values[-1] @ FIRST),
        -Sigma @ D @ Sigma,
    )


def with_precision(gaussian: ArrowPrecision, precision: np.ndarray, r: int, n: int) -> ArrowPrecision:
    T = ArrowFactor(*pattern_parts(np.linalg.cholesky(precision), r, n))
    return gaussian._replace(factor=T, inverse_shared=np.linalg.inv(T.shared))


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_bonnet(name, r):
    got = probe(name, r)
    np.testing.assert_allclose(got.grad, got.grad_by_differences, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_price_in_the_mean(name, r):
    """The second derivative is dense in the oracle: E hess agrees with it on the pattern and off it."""
    got = probe(name, r)
    np.testing.assert_allclose(got.hess, got.hess_by_differences, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_price_in_the_covariance(name, r):
    got = probe(name, r)
    np.testing.assert_allclose(got.slope_in_covariance, 0.5 * np.sum(got.hess * got.dV), rtol=1e-7)


@quick_jit
def value_many(target: SumOfTerms, theta: ArrowVector) -> jax.Array:
    return jax.vmap(target.value)(theta)


@cache
def drawn(name: str, r: int) -> tuple[ArrowVector, np.ndarray]:
    """Draw from the Gaussian of `probe` and evaluate the log-density at the draws."""
    case = model(name, r)
    mean, Sigma = dense_moments(probe(name, r).centre)
    z = np.random.default_rng(0).standard_normal((NUM_DRAWS, len(mean)))
    flat = mean + z @ np.linalg.cholesky(Sigma).T
    local = flat[:, : r * case.n].reshape(NUM_DRAWS, case.n, r).swapaxes(1, 2)
    theta = ArrowVector(local, flat[:, r * case.n :])
    return theta, np.asarray(value_many(case.target, theta))


def log_density(name: str, case: MixedCase, theta: ArrowVector) -> float:
    """State the model with SciPy's distributions."""
    _, effects = case.target.grouped
    (prior,) = case.target.shared
    p, place = case.data.X.shape[1], case.layout.place_of_group[case.data.group]
    eta = case.data.offset + case.data.X @ theta.shared[:p]
    eta += np.sum(case.data.Z * theta.local[:, place].T, axis=1)
    rows = LIKELIHOODS[name].log_density(case.y, eta, theta.shared[p])
    W = np.zeros((case.r, case.r))
    for (row, column), position in omega_positions(case.r).items():
        entry = theta.shared[effects.start + position]
        W[row, column] = np.exp(entry) if row == column else entry
    local = scipy.stats.multivariate_normal.logpdf(theta.local.T, np.zeros(case.r), np.linalg.inv(W @ W.T))
    shared = scipy.stats.norm.logpdf(theta.shared, prior.mean, prior.sd)
    return float(np.sum(rows) + np.sum(local) + np.sum(shared))


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_value_is_the_density_of_scipy(name, r):
    theta, values = drawn(name, r)
    for i in range(5):
        one = ArrowVector(theta.local[i], theta.shared[i])
        np.testing.assert_allclose(values[i], log_density(name, model(name, r), one), rtol=1e-11)


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_expectation_agrees_with_sampling(name, r):
    _, values = drawn(name, r)
    z = (values.mean() - probe(name, r).value) / (values.std() / np.sqrt(NUM_DRAWS))
    assert abs(z) < 4


@pytest.mark.parametrize(("name", "r"), MODELS)
def test_padding_does_not_matter(name, r):
    """Cells without a row hold anything, even what overflows."""
    case, centre = model(name, r), probe(name, r).centre
    (likelihood, _) = case.target.grouped
    empty = ~np.asarray(likelihood.design.filled)
    assert empty.any()
    spoilt = eqx.tree_at(
        lambda target: (target.grouped[0].y, target.grouped[0].design.offset),
        case.target,
        (jnp.where(empty, jnp.nan, likelihood.y), jnp.where(empty, 1e4, likelihood.design.offset)),
    )
    same = stack([centre] * (7 * (r * case.n + case.g + 1)))
    clean, other = (to_host(expected_many(target, same)) for target in (case.target, spoilt))
    jax.tree.map(np.testing.assert_array_equal, clean, other)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_hessian_at_a_point(name):
    """All mass at one point: E hess is the Hessian of `value`."""
    case = model(name, 1)
    at = dense_vector(probe(name, 1).centre.mean)

    def value(x: jax.Array) -> jax.Array:
        return case.target.value(ArrowVector(x[: case.n][None], x[case.n :]))

    got = quick_jit(lambda target, theta: target.hessian(theta))(case.target, arrow_vector(at, 1, case.n))
    np.testing.assert_allclose(dense_matrix(got), quick_jit(jax.hessian(value))(jnp.asarray(at)), rtol=1e-8, atol=1e-8)


# --- blocks of groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "r"), [("poisson", 1), ("bernoulli", 1), ("gaussian", 2)])
def test_blocks_of_groups_give_the_same(name, r, monkeypatch):
    sizes = (2, 3, 1, 2, 11, 3, 2, 1, 3, 2, 2, 14, 3, 1, 2, 3, 2, 2, 1, 9, 3, 2)
    case = mixed_case(name, sizes, r, seed=14)
    # four blocks of four groups, then groups of one chunk, then groups of several
    assert 16 < case.layout.num_simple < len(sizes)
    gaussian = random_gaussian(r, case.g, len(sizes), seed=15, scale=0.8)
    # for r = 2 the likelihood alone, because the prior takes seconds to compile
    target = case.target if r == 1 else SumOfTerms(case.target.grouped[:1], case.target.shared)
    whole = to_host(quick_jit(lambda q: target.expected(q))(gaussian))
    in_blocks = []
    unspied = natvi.target.term._room_in_front
    monkeypatch.setattr(natvi.target.term, "_room_in_front", lambda *args: in_blocks.append(args[1]) or unspied(*args))
    monkeypatch.setattr(natvi.target.term, "BLOCK_GROUPS", 4)
    blocked = to_host(quick_jit(lambda q: target.expected(q))(gaussian))
    assert in_blocks == [16]
    # the step of the logit's quadrature depends on the largest variance of a block: accuracy, not rounding
    close = {"rtol": 1e-9, "atol": 1e-8} if name == "bernoulli" else {"rtol": 1e-12, "atol": 1e-12}
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(blocked), strict=True):
        np.testing.assert_allclose(one, other, **close)
