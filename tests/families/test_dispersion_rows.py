"""Rows with a dispersion parameter against brute force: Gaussian, negative binomial, gamma.

(eta, a) is Gaussian with correlation rho. Given one of the two the other is integrated in closed form or by a rule that
is exact, which leaves one integral; natvi tilts instead.
"""

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.families.table import FAMILIES
from natvi.x64 import float64, to_host
from oracles import FIRST, LOG_2PI, OFFSETS, SECOND, STEP, assert_within, normal_rule
from strategies import hermite, quick_jit


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def draw_points(num: int, seed: int) -> np.ndarray:
    """Draw rows (m, s, disp, t, rho) over wide ranges; a third of the dispersions are narrow, as in most fits."""
    rng = np.random.default_rng(seed)
    spread = 10 ** rng.uniform(-4, np.log10(30), num)
    narrow = 10 ** rng.uniform(-3, -0.3, num)
    return np.column_stack(
        [
            rng.uniform(-30, 30, num),
            10 ** rng.uniform(-4, np.log10(30), num),
            rng.uniform(-30, 30, num),
            np.where(np.arange(num) % 3 == 0, narrow, spread),
            rng.uniform(-0.95, 0.95, num),
        ]
    )


# --- oracles: E log p for every pair of shifts of the two means --------------------------------------------


def brute_gaussian(y: float, m: float, s: float, disp: float, t: float, rho: float) -> float:
    """Integrate over a; the integrand is quadratic in eta."""
    z, log_w = normal_rule(2.0 * t + 14.0, 14.0)  # e^{-2 t z} moves the mass to z = -2 t
    (x,), w = hermite((3,))
    eta = m + s * (rho * z[:, None] + np.sqrt(1 - rho**2) * x)
    log_sigma = disp + t * z
    squares = (y - eta) ** 2 @ w
    return float((-0.5 * LOG_2PI - log_sigma) @ np.exp(log_w) - 0.5 * np.sum(squares * np.exp(log_w - 2 * log_sigma)))


def brute_negative_binomial(y: float, m: float, s: float, disp: float, t: float, rho: float) -> float:
    """Integrate over eta - a, given which E e^a is closed, and over a, of which log Gamma's are sums of logarithms."""
    cross = rho * s * t
    mean, sd = m - disp, np.sqrt(s**2 + t**2 - 2 * cross)
    pull = (cross - t**2) / sd  # Cov(a, z)
    z, log_w = normal_rule(46.0, 46.0)
    x = mean + sd * z
    softplus = np.logaddexp(0.0, x)
    log_phi = disp + pull * z + 0.5 * np.maximum(t**2 - pull**2, 0.0)
    log_softplus = np.where(x < -30, x, np.log(np.maximum(softplus, 1e-30)))
    tilted = np.exp(log_phi + log_softplus + log_w).sum()
    a = disp + t * z
    k = np.arange(1, int(y))[:, None]
    sums = (a + np.logaddexp(np.log(k), a).sum(axis=0)) if y else np.zeros_like(a)
    w = np.exp(log_w)
    return float((sums - y * np.logaddexp(0.0, -x)) @ w - tilted - scipy.special.gammaln(y + 1.0))


def brute_gamma(y: float, m: float, s: float, disp: float, t: float, rho: float) -> float:
    """Integrate over a, given which eta is Gaussian and E e^-eta closed."""
    z, log_w = normal_rule(75.0, 75.0)
    a = disp + t * z
    d = m + rho * s * z - np.log(y)  # of eta - log y
    log_x = a + log_w
    pull = np.exp(log_x - d + 0.5 * s**2 * (1 - rho**2))
    clipped = np.clip(a, -600.0, 7.0)
    x = np.exp(clipped)
    left = scipy.special.gammaln(x) - (x - 0.5) * clipped + x - 0.5 * LOG_2PI + 0.5 * np.maximum(0.0, -600.0 - a)
    remainder = np.where(a < 7.0, left, np.exp(-np.maximum(a, 7.0)) / 12)
    loss = np.sum(pull - np.exp(log_x) + np.exp(log_x) * d)
    return float((0.5 * a - 0.5 * LOG_2PI - np.log(y) - remainder) @ np.exp(log_w) - loss)


def finite(name: str, points: np.ndarray) -> np.ndarray:
    """Say where E log p is finite in double precision."""
    m, s, disp, t, rho = points.T
    if name == "gaussian":
        return -2 * disp + 2 * t**2 < 650
    if name == "gamma":
        return (disp - m + 0.5 * (s**2 + t**2 - 2 * rho * s * t) < 600) & (disp + 0.5 * t**2 < 600)
    return np.ones(len(points), bool)


CASES: dict[str, tuple[Callable[..., float], Callable[[np.random.Generator, int], np.ndarray]]] = {
    # brute force, responses
    "gaussian": (brute_gaussian, lambda rng, num: rng.uniform(-30, 30, num)),
    "negative_binomial": (brute_negative_binomial, lambda rng, num: rng.choice([0.0, 1.0, 2.0, 7.0, 40.0], num)),
    "gamma": (brute_gamma, lambda rng, num: np.exp(rng.uniform(-10, 10, num))),
}


def test_every_dispersion_is_tested():
    assert set(CASES) == {name for name, family in FAMILIES.items() if family.has_dispersion}


def row(name: str, y, m, s, disp, t, rho) -> RowExpectation:
    return FAMILIES[name].expected(y, PredictorMoments(m, s**2, disp, t**2, rho * s * t))


NUM_POINTS, NUM_STENCILS = 150, 12


@cache
def rows(name: str) -> Callable[..., RowExpectation]:
    """Evaluate each row with a dispersion of its own."""
    return quick_jit(jax.vmap(partial(row, name)))


@cache
def evaluated(name: str) -> tuple[np.ndarray, np.ndarray, RowExpectation]:
    """Return responses, moments and what natvi makes of them."""
    points = draw_points(8 * NUM_POINTS, seed=0)
    points = points[finite(name, points)][:NUM_POINTS]
    y = CASES[name][1](np.random.default_rng(1), NUM_POINTS)
    return y, points, to_host(rows(name)(jnp.asarray(y), *(jnp.asarray(column) for column in points.T)))


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    y, points, got = evaluated(name)
    assert points[:, 3].max() > 10 and points[:, 3].min() < 2e-3
    brute = np.array([CASES[name][0](b, *point) for b, point in zip(y, points, strict=True)])
    assert np.all(np.isfinite(brute))
    assert_within(got.value, brute, 0.0)


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name):
    brute = CASES[name][0]
    y, points, got = evaluated(name)
    # a grid of finite differences in both means
    grid = np.array(
        [
            [[brute(b, m + i, s, disp + j, t, rho) for j in OFFSETS] for i in OFFSETS]
            for b, (m, s, disp, t, rho) in zip(y[:NUM_STENCILS], points, strict=False)
        ]
    )
    value, d_eta, d_eta_eta, d_disp, d_eta_disp, d_disp_disp = (part[:NUM_STENCILS] for part in got)
    np.testing.assert_allclose(value, grid[:, 3, 3], rtol=1e-7)
    size = np.abs(grid).max(axis=(1, 2)) + 30 * np.abs(y[:NUM_STENCILS])
    rounding = 1e-13 * size
    assert_within(d_eta, grid[:, :, 3] @ FIRST, rounding / STEP)
    assert_within(d_eta_eta, grid[:, :, 3] @ SECOND, rounding / STEP**2)
    # large parts of the derivatives in the dispersion cancel, and their errors do not
    assert_within(d_disp, grid[:, 3] @ FIRST, 1e-9 * size)
    assert_within(d_disp_disp, grid[:, 3] @ SECOND, 1e-9 * size)
    assert_within(d_eta_disp, (grid @ FIRST) @ FIRST, 1e-9 * size)


@pytest.mark.parametrize("name", ["negative_binomial", "gamma"])
def test_rows_in_one_batch(name):
    """The dispersion is shared; the predictors mix tiny and huge variances."""
    rng = np.random.default_rng(3)
    num = 40
    m, s, rho = rng.uniform(-12, 12, num), 10 ** rng.uniform(-4, np.log10(20), num), rng.uniform(-0.9, 0.9, num)
    y = CASES[name][1](rng, num)
    disp = jnp.asarray(1.3)
    batch = quick_jit(
        lambda t: row(name, jnp.asarray(y), jnp.asarray(m), jnp.asarray(s), disp, t, jnp.asarray(rho)).value
    )
    for t in (0.05, 0.5, 3.0):
        brute = [CASES[name][0](y[i], m[i], s[i], 1.3, t, rho[i]) for i in range(num)]
        assert_within(np.asarray(batch(jnp.asarray(t))), np.array(brute), 0.0)


DENSITIES = {
    "gaussian": lambda y, eta, disp: scipy.stats.norm.logpdf(y, eta, np.exp(disp)),
    "negative_binomial": lambda y, eta, disp: scipy.stats.nbinom.logpmf(y, np.exp(disp), 1 / (1 + np.exp(eta - disp))),
    "gamma": lambda y, eta, disp: scipy.stats.gamma.logpdf(y, np.exp(disp), scale=np.exp(eta - disp)),
}


@pytest.mark.parametrize("name", CASES)
def test_at_a_point(name):
    """Without variance `expected` is `log_density`, which is SciPy's, with the derivatives of `log_density`."""
    rng = np.random.default_rng(4)
    y, eta, disp = CASES[name][1](rng, 60), rng.uniform(-3, 3, 60), rng.uniform(-2, 3, 60)
    disp[:6] = 0.0
    density = FAMILIES[name].log_density

    @quick_jit
    @jax.vmap
    def both(y, eta, disp):
        hessian = jax.hessian(density, (1, 2))(y, eta, disp)
        zero = jnp.zeros(())
        point = FAMILIES[name].expected(y, PredictorMoments(eta, zero, disp, zero, zero))
        return point, density(y, eta, disp), jax.grad(density, (1, 2))(y, eta, disp), hessian

    got, value, (d_eta, d_disp), ((d_eta_eta, d_eta_disp), (_, d_disp_disp)) = to_host(both(y, eta, disp))
    np.testing.assert_allclose(value, DENSITIES[name](y, eta, disp), rtol=1e-10)
    np.testing.assert_allclose(got.value, value, rtol=1e-8)
    for one, other in [
        (got.d_eta, d_eta),
        (got.d_disp, d_disp),
        (got.d_eta_eta, d_eta_eta),
        (got.d_eta_disp, d_eta_disp),
        (got.d_disp_disp, d_disp_disp),
    ]:
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "moments"),
    [
        ("gaussian", (0.0, 1.0, 0.0, 30.0, 0.0)),
        ("negative_binomial", (30.0, 60.0, 30.0, 50.0, 0.0)),
        ("gamma", (-30.0, 60.0, 30.0, 50.0, 0.0)),
    ],
)
def test_overflow_is_minus_infinity_not_nan(name, moments):
    value = np.asarray(rows(name)(*(jnp.full(NUM_POINTS, a) for a in (1.0, *moments))).value)
    assert not np.any(np.isnan(value)) and np.all(value < -1e300)


@pytest.mark.parametrize("name", ["negative_binomial", "gamma"])
def test_huge_variances_stay_bounded(name):
    """Neither infinity nor NaN decides the number of nodes; NaN stays in its row."""
    s = jnp.ones(NUM_POINTS).at[1].set(jnp.nan)
    nothing, one = jnp.zeros(NUM_POINTS), jnp.ones(NUM_POINTS)
    for t, most in ((1e3, 1), (jnp.inf, NUM_POINTS)):
        value = np.asarray(rows(name)(one, nothing, s, nothing, t * one, nothing).value)
        assert np.isnan(value[1]) and np.isnan(value).sum() <= most
