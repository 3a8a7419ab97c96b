"""Locals in coordinates of their own: an exact change of variables, in which a funnel is a Gaussian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natvi
from natvi.models.density.evaluator import Evaluator
from natvi.models.density.space.maps import open_space
from natvi.models.density.structures.layout import Layout, find_arrow, find_arrow_near
from natvi.models.density.structures.standardised import standardise
from natvi.x64 import float64

# groups of two, two and one, and two shared numbers in between
LAYOUT = Layout(np.array([[0, 3, 6], [1, 5, -1]]), np.array([2, 4]))


def standardised(density, layout, about):
    look = Evaluator(density, open_space(about))
    return standardise(density, layout, look, about, np.ones(len(about)))


def uneven(t):
    pairs = t[jnp.array([[0, 1], [3, 5]])]
    prior = -0.5 * jnp.sum((pairs - t[2]) ** 2) * jnp.exp(-t[4]) - 0.2 * jnp.sum(pairs[:, 0] * pairs[:, 1])
    return (
        prior - jnp.sum(jnp.exp(0.3 * pairs)) - 0.5 * (t[6] - t[2]) ** 2 * jnp.exp(-t[4]) - 0.5 * t[2] ** 2 - t[4] ** 2
    )


def test_the_log_determinant_is_that_of_the_map():
    with float64():
        carry = standardised(uneven, LAYOUT, np.linspace(-0.5, 0.5, 7))
        point = jnp.asarray(np.random.default_rng(0).standard_normal(7) * 0.5)
        theta, log_det = jax.jit(lambda t: carry(t))(point)
        slopes = jax.jit(jax.jacobian(lambda t: carry(t)[0]))(point)
    assert float(log_det) == pytest.approx(np.linalg.slogdet(np.asarray(slopes))[1], abs=1e-9)
    np.testing.assert_array_equal(theta[LAYOUT.shared], point[LAYOUT.shared])


def test_given_the_shared_numbers_a_quadratic_hierarchy_is_standard_normal():
    y, s = np.array([1.0, -2.0, 0.5, 3.0]), np.array([1.0, 2.0, 0.5, 1.0])

    def schools(t):
        return -0.5 * jnp.sum(((y - t[2:]) / s) ** 2) - 0.5 * jnp.sum((t[2:] - t[0]) ** 2) * jnp.exp(-2 * t[1])

    with float64():
        carry = standardised(schools, Layout(np.arange(2, 6)[None], np.arange(2)), np.zeros(6))

        def straight(t):
            theta, log_det = carry(t)
            return schools(theta) + log_det

        hessian = jax.jit(jax.hessian(straight))(jnp.asarray([0.3, -1.2, 0.4, -0.3, 1.0, 2.0]))
    np.testing.assert_allclose(hessian[2:, 2:], -np.eye(4), atol=1e-9)
    np.testing.assert_allclose(hessian[2:, :2], 0.0, atol=1e-9)


def test_where_a_block_is_not_definite_the_map_is_still_one():
    def bumpy(t):  # locals are concave near zero only
        return -jnp.sum(jnp.log1p((t[1:] - t[0]) ** 2)) - 0.5 * t[0] ** 2

    with float64():
        carry = standardised(bumpy, Layout(np.arange(1, 5)[None], np.array([0])), np.zeros(5))
        theta, log_det = carry(jnp.asarray([3.0, 1.0, 0.0, -1.0, 2.0]))
        assert standardised(lambda t: jnp.sum(t**2), Layout(np.arange(1, 5)[None], np.array([0])), np.zeros(5)) is None
    assert np.all(np.isfinite(theta)) and np.isfinite(log_det)


def test_small_hierarchies_are_found():
    def schools(t):
        return -jnp.sum((t[2:] - t[0]) ** 2) * jnp.exp(t[1]) - jnp.sum(t[:2] ** 2)

    with float64():
        near = find_arrow_near(Evaluator(schools, open_space(np.zeros(10))), np.zeros(10), np.full(10, 0.3))
    for layout in (find_arrow(schools, np.zeros(10)), near):
        assert layout.shared.tolist() == [0, 1] and layout.local.tolist() == [list(range(2, 10))]
    assert find_arrow(lambda t: -(jnp.sum(t) ** 2) - jnp.sum(t**4), np.ones(10)) is None


def test_a_funnel_is_straightened():
    def funnel(p):
        return -0.5 * (p["v"] / 3) ** 2 - 0.5 * jnp.sum(p["x"] ** 2) * jnp.exp(-p["v"]) - 0.5 * 4 * p["v"]

    result = natvi.fit(funnel, {"v": 0.0, "x": jnp.zeros(4)})
    assert "4 groups of up to 1 and 1 shared" in repr(result)
    # no number of draws tells the sd of x, which is exp(9 / 4); that alone is said against the answer
    reasons = " ".join(result.trust_reasons)
    assert result.trust == "use with care" and "the sd of x[" in reasons and "no mean is off" in reasons
    assert result.summary().loc["v", "sd"] == pytest.approx(3.0, rel=0.06)
    # all of the mass: log of the integral of N(0, 9) and four N(0, e^v)
    assert result.elbo == pytest.approx(0.5 * np.log(2 * np.pi * 9) + 2 * np.log(2 * np.pi), abs=1e-3)
