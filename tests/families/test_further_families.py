"""The further families: densities against SciPy, expectations against dense quadrature, derivatives, draws."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from scipy.special import expit

from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.families.table import Family, find_family
from natvi.models.regression.criticism import draw_rows
from natvi.x64 import float64
from strategies import quick_jit


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


class Case(NamedTuple):
    name: str
    link: str | None
    y: tuple[float, ...]
    disp: tuple[float, ...]
    eta: float = 0.4
    sds: tuple[float, ...] = (0.05, 0.3, 1.0)  # of the predictor
    disp_sd: tuple[float, ...] = (0.05, 0.15)


CASES = [
    Case("geometric", None, (0.0, 1.0, 7.0, 300.0), (), sds=(0.05, 1.0, 4.0)),
    Case("lognormal", None, (1e-3, 1.0, 50.0), (0.3,), disp_sd=(0.05, 0.5)),
    Case("gaussian", "log", (-1.0, 0.5, 20.0), (0.3,), disp_sd=(0.05, 0.5)),
    Case("exponential", None, (0.1, 3.0, -3.0), (), sds=(0.05, 1.0, 3.0)),
    Case("weibull(3.0)", None, (0.1, 3.0, -3.0, 20.0), (0.3,), disp_sd=(0.05, 0.2)),
    Case("student_t(4)", None, (-8.0, 0.3, 2.0), (0.2,), disp_sd=(0.05, 0.4)),
    Case("student_t", None, (-8.0, 0.3, 2.0), (0.2, 1.2), disp_sd=(0.05, 0.2)),
    Case("beta", None, (0.02, 0.5, 0.97), (1.5,), disp_sd=(0.05, 0.4)),
    Case("zero_inflated_poisson", None, (0.0, 1.0, 9.0), (-0.5,), disp_sd=(0.1, 0.6)),
    Case("zero_inflated_negative_binomial", None, (0.0, 1.0, 9.0), (0.5, -0.5), disp_sd=(0.1, 0.4)),
    Case("hurdle_poisson", None, (0.0, 1.0, 9.0), (-0.5,), disp_sd=(0.1, 0.6)),
    Case("hurdle_negative_binomial", None, (0.0, 1.0, 9.0), (0.5, -0.5), disp_sd=(0.1, 0.4)),
    Case("ordinal(3, 0)", None, (0.0, 1.0, 2.0), (0.3,), disp_sd=(0.05, 0.5)),
    Case("ordinal(4, 1)", None, (1.0, 2.0, 3.0, 4.0), (0.3, -0.5), disp_sd=(0.05, 0.3)),
    Case("ordinal(5, 1)", None, (1.0, 2.0, 3.0, 5.0), (0.3, -0.5, 0.1), disp_sd=(0.02, 0.05)),
    Case("ordinal(4, 1)", "probit", (1.0, 2.0, 3.0, 4.0), (0.3, -0.5), disp_sd=(0.05, 0.2)),
]


def moments(case: Case, s: float, t: float) -> PredictorMoments:
    """Moments with correlations of a third between predictor and shared numbers, of a fifth among these."""
    n, q = len(case.y), len(case.disp)
    mean, variance = jnp.full(n, case.eta), jnp.full(n, s**2)
    if q == 0:
        return PredictorMoments(mean, variance)
    S = t**2 * (0.8 * np.eye(q) + 0.2)
    covariance = np.full((q, n), s * t / 3.0)
    if q == 1:
        return PredictorMoments(
            mean, variance, jnp.asarray(case.disp[0]), jnp.asarray(S[0, 0]), jnp.asarray(covariance[0])
        )
    return PredictorMoments(mean, variance, jnp.asarray(case.disp), jnp.asarray(S), jnp.asarray(covariance))


def brute(family: Family, y: jax.Array, x: PredictorMoments) -> np.ndarray:
    """Return the expected log-density of every row by a product of many nodes."""
    q, n = family.num_extras, len(y)
    inner, outer = {0: (200, 1), 1: (150, 60), 2: (110, 20), 3: (70, 9)}[q]
    (z, w), (u, v) = (np.polynomial.hermite_e.hermegauss(count) for count in (inner, outer))
    parts = [*[(u, v)] * q, (z, w)]
    nodes = np.stack([grid.ravel() for grid in np.meshgrid(*[part[0] for part in parts], indexing="ij")], axis=1)
    weights = np.prod(np.meshgrid(*[part[1] / part[1].sum() for part in parts], indexing="ij"), axis=0).ravel()
    joint = np.array([[float(x.variance[0])]])
    if q:
        c = np.reshape(x.covariance, (q, n))[:, :1]
        joint = np.block([[np.reshape(x.disp_variance, (q, q)), c], [c.T, joint]])
    moves = jnp.asarray(nodes @ np.linalg.cholesky(joint).T)
    eta = x.mean[:, None] + moves[:, q]
    shared = None
    if q:
        shared = jnp.reshape(x.disp_mean, (q, 1)) + moves[:, :q].T
        shared = shared[0] if q == 1 else shared[:, None]
    return np.asarray(quick_jit(family.log_density)(y[:, None], eta, shared)) @ weights


class Differences(NamedTuple):
    """Central differences of the expectation's value in the means."""

    expected: Callable[..., RowExpectation]
    y: jax.Array
    x: PredictorMoments
    step: float = 1e-4

    def value(self, eta: float, disp: np.ndarray) -> np.ndarray:
        """Return the value with both means moved, in steps."""
        q, x = len(disp), self.x
        moved = x._replace(mean=x.mean + self.step * eta)
        if q:
            shared = np.atleast_1d(np.asarray(x.disp_mean)) + self.step * disp
            moved = moved._replace(disp_mean=jnp.asarray(shared[0] if q == 1 else shared))
        return np.asarray(self.expected(self.y, moved).value)

    def slope(self, eta: float, disp: np.ndarray) -> np.ndarray:
        """Return the derivative in a direction."""
        return (self.value(eta, disp) - self.value(-eta, -disp)) / (2 * self.step)

    def bend(self, one: tuple[float, np.ndarray], other: tuple[float, np.ndarray]) -> np.ndarray:
        """Return the second derivative in two directions."""
        (a, u), (b, v) = one, other
        corners = self.value(a + b, u + v) - self.value(a - b, u - v) - self.value(b - a, v - u)
        return (corners + self.value(-a - b, -u - v)) / (4 * self.step**2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.link or ''}")
def test_expectations_agree_with_dense_quadrature(case: Case):
    family, y, q = find_family(case.name, case.link), jnp.asarray(case.y), len(case.disp)
    expected, none = quick_jit(family.expected), np.zeros(q)
    for s in case.sds:
        for t in case.disp_sd if q else (0.0,):
            x = moments(case, s, t)
            found = expected(y, x)
            truth = brute(family, y, x)
            # of three and more shared numbers the rule has degree five
            most = 1e-6 if q < 3 else 5e-6
            assert np.max(np.abs(found.value - truth) / (1.0 + np.abs(truth))) < most, (s, t)
            near = Differences(expected, y, x)
            np.testing.assert_allclose(found.d_eta, near.slope(1.0, none), rtol=3e-5, atol=1e-5)
            np.testing.assert_allclose(found.d_eta_eta, near.bend((1.0, none), (1.0, none)), rtol=1e-3, atol=3e-4)
            for k, unit in enumerate(np.eye(q)):
                slopes, mixed = (np.reshape(part, (q, -1))[k] for part in (found.d_disp, found.d_eta_disp))
                np.testing.assert_allclose(slopes, near.slope(0.0, unit), rtol=3e-5, atol=1e-5)
                np.testing.assert_allclose(mixed, near.bend((1.0, none), (0.0, unit)), rtol=1e-3, atol=3e-4)
                for j, other in enumerate(np.eye(q)[: k + 1]):
                    own = np.reshape(found.d_disp_disp, (q, q, -1))[k, j]
                    np.testing.assert_allclose(own, near.bend((0.0, unit), (0.0, other)), rtol=1e-3, atol=3e-4)


def _pmf(values: np.ndarray, zero: float, plain: np.ndarray, at_zero: float, hurdle: bool) -> np.ndarray:
    if hurdle:
        return np.where(values == 0, zero, (1 - zero) * plain / (1 - at_zero))
    return np.where(values == 0, zero, 0.0) + (1 - zero) * plain


def scipy_density(case: Case, y: np.ndarray) -> np.ndarray:
    """Return the log-density of every response at the case's parameters, by SciPy."""
    eta, disp, name = case.eta, case.disp, case.name.partition("(")[0]
    mu, zero = np.exp(eta), expit(disp[-1]) if disp else 0.0
    if name in ("geometric", "lognormal", "gaussian", "exponential", "student_t", "beta"):
        return {
            "geometric": lambda: st.geom.logpmf(y + 1, 1 / (1 + mu)),
            "lognormal": lambda: st.lognorm.logpdf(y, np.exp(disp[0]), scale=mu),
            "gaussian": lambda: st.norm.logpdf(y, mu, np.exp(disp[0])),
            "exponential": lambda: np.where(y > 0, st.expon.logpdf(y, scale=mu), st.expon.logsf(-y, scale=mu)),
            "student_t": lambda: st.t.logpdf(y, 4 if len(disp) == 1 else np.exp(disp[1]), eta, np.exp(disp[0])),
            "beta": lambda: st.beta.logpdf(y, expit(eta) * np.exp(disp[0]), expit(-eta) * np.exp(disp[0])),
        }[name]()
    if name == "weibull":
        k = np.exp(disp[0])
        scale = np.exp(3.0 - eta / k)
        return np.where(
            y > 0, st.weibull_min.logpdf(np.abs(y), k, scale=scale), st.weibull_min.logsf(-y, k, scale=scale)
        )
    if name == "ordinal":
        cdf = st.norm.cdf if case.link == "probit" else expit
        first = find_family(case.name, case.link).settings[1]
        above = np.array([1.0, *cdf(eta - np.cumsum([0.0, *np.exp(disp)])), 0.0])
        return np.log(above[:-1] - above[1:])[(y - first).astype(int)]
    counts = st.poisson(mu) if name.endswith("poisson") else st.nbinom(np.exp(disp[0]), 1 / (1 + mu / np.exp(disp[0])))
    return np.log(_pmf(y, zero, counts.pmf(y), counts.pmf(0), name.startswith("hurdle")))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.link or ''}")
def test_densities_draws_and_moments(case: Case):
    family, q = find_family(case.name, case.link), len(case.disp)
    disp = None if q == 0 else jnp.asarray(case.disp[0] if q == 1 else case.disp)
    y = np.asarray(case.y)
    found = family.log_density(jnp.asarray(y), jnp.full(len(y), case.eta), disp)
    np.testing.assert_allclose(found, scipy_density(case, y), rtol=1e-9, atol=1e-9)
    n = 40_000
    eta = jnp.full(n, case.eta)
    mean, variance = float(family.response_mean(eta[0], disp)), float(family.response_variance(eta[0], disp))
    own = np.full((1, n), case.eta)
    shared = None if disp is None else np.asarray(disp)[..., None, None]
    of_numpy = draw_rows(family, own, shared, None, np.random.default_rng(1))
    for draws in (quick_jit(family.draw)(jax.random.key(0), eta, disp), of_numpy):
        draws = np.ravel(np.asarray(draws))
        assert abs(draws.mean() - mean) < 4.5 * np.sqrt(variance / n)
        if family.name != "student_t":  # whose fourth moment is infinite
            spread = (draws - mean) ** 2
            assert abs(spread.mean() - variance) < 5 * spread.std() / np.sqrt(n)
