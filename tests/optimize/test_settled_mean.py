"""The mean of a dense model settles before each X' W X: the bound rises, and nothing else changes."""

from collections.abc import Callable
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from natvi.families.table import FAMILIES
from natvi.optimize import fixed_point
from natvi.optimize.fixed_point import DenseSystem
from natvi.optimize.system import Packed
from natvi.run.exact.rows import climb_rows
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.x64 import float64
from strategies import quick_jit


def problem(family: str = "bernoulli", n: int = 60, p: int = 4) -> DesignRows:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    y = rng.poisson(2.0, n) + 0.5 if family == "gamma" else rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0]))
    rows = Observations(jnp.asarray(X), jnp.asarray(y, jnp.float64))
    return DesignRows(rows, IndependentNormal.around_zero(p + int(family == "gamma")), FAMILIES[family], n)


def point(target: DesignRows, seed: int = 1) -> Packed:
    d = target.prior.mean.shape[0]
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d))
    precision = 20.0 * np.eye(d) + A @ A.T
    return Packed(jnp.zeros((0, 0)), jnp.concatenate([precision @ rng.normal(size=d), precision.ravel()]))


def evaluate(target: DesignRows, x: Packed, steps: int, monkeypatch: pytest.MonkeyPatch) -> tuple:
    monkeypatch.setattr(fixed_point, "MOST_MEAN_STEPS", steps)
    monkeypatch.setattr(fixed_point, "COLUMNS_PER_STEP", 1)
    return evaluator(steps)(target, x)


@cache
def evaluator(steps: int) -> Callable:
    """Return code compiled for a number of steps: once compiled it does not see the constant change."""
    return quick_jit(lambda target, x: DenseSystem(target).evaluate(x))


# a gamma's full steps overshoot from this point, and so do their halves
@pytest.mark.parametrize(("family", "rise"), [("bernoulli", 0.1), ("gamma", -1e-12)])
def test_only_the_mean_moves_and_the_bound_rises(family: str, rise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    with float64():
        target = problem(family)
        x, d = point(target), target.prior.mean.shape[0]
        same, *_, before = evaluate(target, x, 0, monkeypatch)
        np.testing.assert_allclose(same.shared, x.shared, rtol=1e-12)
        bounds = [float(before)]
        for steps in (1, 2, 3):
            moved, G, residual, bound = evaluate(target, x, steps, monkeypatch)
            np.testing.assert_array_equal(moved.shared[d:], x.shared[d:])
            bounds.append(float(bound))
        assert np.all(np.diff(bounds) >= 0)
        assert bounds[-1] > bounds[0] + rise
        # what is said about the moved point is what an evaluation there says
        again = evaluate(target, moved, 0, monkeypatch)
        for found, expected in zip(
            (G.shared, residual.shared, bound), (again[1].shared, again[2].shared, again[3]), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_steps_that_overshoot_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a covariance far too large a full step of the mean falls; the mean stays or goes a shorter way."""
    with float64():
        target = problem()
        d = target.p
        precision = 0.05 * np.eye(d)
        x = Packed(jnp.zeros((0, 0)), jnp.concatenate([jnp.ones(d) * 0.05, jnp.asarray(precision.ravel())]))
        *_, before = evaluate(target, x, 0, monkeypatch)
        *_, after = evaluate(target, x, 3, monkeypatch)
        assert np.isfinite(after) and after >= before


@pytest.mark.parametrize("family", ["bernoulli", "gamma"])
def test_the_fit_is_the_same_with_fewer_evaluations(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with float64():
        target = problem(family)
        fits = []
        for steps, columns in ((0, 40), (3, 1)):
            monkeypatch.setattr(fixed_point, "MOST_MEAN_STEPS", steps)
            monkeypatch.setattr(fixed_point, "COLUMNS_PER_STEP", columns)
            # another shape for each: compiled code does not see the constants change
            rows = target.rows._replace(X=target.rows.X[:], weight=jnp.ones(60) if steps else None)
            fits.append(climb_rows(target.with_rows(rows), tolerance=1e-12))
        plain, settled = fits
        assert plain.outcome == settled.outcome == "converged"
        assert len(settled.trace) <= len(plain.trace)
        np.testing.assert_allclose(settled.elbo, plain.elbo, atol=1e-8)
        np.testing.assert_allclose(settled.gaussian.mean, plain.gaussian.mean, atol=1e-5)


def test_the_residual_tells_what_is_left() -> None:
    with float64():
        target = problem()
        best = climb_rows(target, tolerance=1e-14).elbo
        for limit in (2, 3):
            fitted = climb_rows(target, tolerance=1e-14, max_steps=limit)
            left = float(np.sum(np.asarray(fitted.state.ascent.residual.shared) ** 2))
            assert 0 <= best - fitted.elbo <= 1.5 * left
