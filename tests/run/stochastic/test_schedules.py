"""Schedules of step sizes: those that begin badly are refused, those that turn bad end the fit with a clear outcome."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi import optimize
from natvi.gaussian import CovarianceGaussian, diagonal_covariance
from natvi.run import wander
from natvi.run.algorithm import compose
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.rows import FunctionRows
from natvi.x64 import float64

MAKERS = {
    "adam": optimize.adam,
    "nadam": optimize.nadam,
    "snngm": optimize.snngm,
    "nagm": optimize.nagm,
    "pga": optimize.pga,
    "vogn": optimize.vogn,
    "plain": optimize.plain,
    "natural": lambda step: optimize.plain(step, natural=True),
}


@pytest.fixture(autouse=True)
def double(monkeypatch):
    with float64():
        yield


@cache
def turning(at, last):
    """A schedule that is good up to a step and `last` from there on, made once so that fits share compiled code."""
    return lambda count: jnp.where(count < at, 0.01, last)


def normal_rows(theta, rows):
    return -0.5 * (rows - theta[0]) ** 2


def run(make, schedule, max_steps, window=100):
    target = FunctionRows(normal_rows, jnp.linspace(1.0, 2.0, 5), IndependentNormal.around_zero(1), 5)
    algorithm = compose(target, make(schedule), CovarianceGaussian)
    return wander(algorithm, diagonal_covariance(jnp.zeros(1), 0.3), max_steps=max_steps, window=window)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("first", [np.nan, 0.0, -0.1, np.inf])
def test_a_bad_first_value_is_refused(make, first):
    with pytest.raises(ValueError, match="must give positive step sizes; at step 0 it gave"):
        make(lambda count: first)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_schedule_that_turns_negative_keeps_the_last_good_state(make):
    good, fitted = (run(make, turning(12, -0.01), max_steps, window=20) for max_steps in (12, 40))
    assert fitted.outcome == "nonfinite" and good.outcome == "max_steps"
    for a, b in zip(jax.tree.leaves(fitted.state.algorithm), jax.tree.leaves(good.state.algorithm), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("last", [np.nan, np.inf])
def test_a_schedule_that_stops_being_finite(last):
    fitted = run(optimize.snngm, turning(12, last), 40, window=20)
    assert fitted.outcome == "nonfinite" and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fitted.gaussian))


def test_a_schedule_may_come_down_to_zero():
    fitted = run(optimize.snngm, turning(12, 0.0), 40, window=20)
    assert fitted.outcome == "max_steps" and np.isfinite(fitted.trace).all()


@pytest.mark.parametrize(
    ("max_steps", "outcome"),
    [(8, "max_steps"), (13, "max_steps"), (20, "max_steps"), (25, "nonfinite"), (40, "nonfinite")],
)
def test_a_window_cut_short_counts_by_its_own_steps(max_steps, outcome):
    """Steps 12, 13, ... are not finite: less than half of the first 20, and all of those after them."""
    assert run(optimize.snngm, turning(12, np.nan), max_steps, window=20).outcome == outcome


def test_a_first_window_cut_short_counts_too():
    assert run(optimize.snngm, turning(4, np.nan), 10).outcome == "nonfinite"
