"""Shapes of the Gaussian: the arrow is found and exact for a Gaussian; 2,000 dimensions need no d x d matrix."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.models.density.evaluator import Evaluator
from natvi.models.density.space.maps import open_space
from natvi.models.density.structures.choice import Structure, choose_structure
from natvi.models.density.structures.layout import Layout, arrow_of, find_arrow
from natvi.x64 import float64

# two groups of two and one of one, and two shared numbers in between
LAYOUT = Layout(np.array([[0, 3, 6], [1, 5, -1]]), np.array([2, 4]))


def arrow_precision() -> np.ndarray:
    rng = np.random.default_rng(0)
    P = np.zeros((7, 7))
    for group in LAYOUT.local.T:
        at = group[group >= 0]
        P[np.ix_(at, at)] = np.eye(len(at)) * 3 + 0.5
        P[np.ix_(at, LAYOUT.shared)] = 0.4 * rng.standard_normal((len(at), 2))
        P[np.ix_(LAYOUT.shared, at)] = P[np.ix_(at, LAYOUT.shared)].T
    P[np.ix_(LAYOUT.shared, LAYOUT.shared)] = np.array([[4.0, 0.3], [0.3, 5.0]])
    return P


def gaussian(theta):
    error = theta - jnp.arange(7.0)
    return -0.5 * error @ jnp.asarray(arrow_precision()) @ error


def test_an_arrow_of_uneven_groups_is_exact_for_a_gaussian():
    structure = Structure("arrow", "", LAYOUT)
    with float64():
        evaluator = Evaluator(gaussian, open_space(np.zeros(7)))
        z = structure.points("climb", 7, 0)
        here = structure.narrow(np.zeros(7), 0.1)
        for _ in range(6):
            here, _ = here.moved(here.expect(evaluator(here.at(z)), z), 1e6, 1e6, True, True)
        now = here.expect(evaluator(here.at(z)), z)
        assert now.is_flat
        np.testing.assert_allclose(here.mean, np.arange(7.0), atol=1e-8)
        covariance = here.spread(np.eye(7)).T @ here.spread(np.eye(7))
        np.testing.assert_allclose(np.linalg.inv(covariance), arrow_precision(), atol=1e-7)
        np.testing.assert_allclose(here.sds, np.sqrt(np.diagonal(np.linalg.inv(arrow_precision()))), rtol=1e-8)
        S = np.array([[1.5, 0.2], [0.2, 1.1]])
        wide = here.widened(S).spread(np.eye(7))
        shared = np.ix_(LAYOUT.shared, LAYOUT.shared)
        np.testing.assert_allclose((wide.T @ wide)[shared], _widened(covariance[shared], here.shared, S), atol=1e-8)


def _widened(old: np.ndarray, T: np.ndarray, S: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(T)
    np.testing.assert_allclose(inverse.T @ inverse, old, atol=1e-8)
    return inverse.T @ S @ inverse


@pytest.mark.parametrize("name", ["arrow", "diagonal", "dense"])
def test_the_slope_of_the_bound_is_its_derivative(name):
    def density(t):
        return gaussian(t) - 0.1 * jnp.sum(jnp.cosh(0.3 * t))

    structure = Structure(name, "", LAYOUT if name == "arrow" else None)
    rng = np.random.default_rng(1)
    with float64():
        evaluator = Evaluator(density, open_space(np.zeros(7)))
        z, here = structure.points("climb", 7, 0), structure.narrow(np.zeros(7), 0.5)
        w, v = 0.1 * rng.standard_normal((2, here.num_coordinates))
        bound, slope = here.slope(w, evaluator, z)
        up, down = here.slope(w + 1e-5 * v, evaluator, z)[0], here.slope(w - 1e-5 * v, evaluator, z)[0]
        assert bound == pytest.approx(here.shifted(w).expect(evaluator(here.shifted(w).at(z)), z).bound, abs=1e-9)
    assert (up - down) / 2e-5 == pytest.approx(slope @ v, abs=1e-5)


def test_the_pattern_of_a_hierarchy_is_found():
    def density(p):
        return -jnp.sum((p[:300] - p[300]) ** 2 * jnp.exp(p[301])) - jnp.sum(p[300:] ** 2)

    layout = find_arrow(density, np.zeros(302))
    assert layout.shared.tolist() == [300, 301] and layout.local.shape == (1, 300)
    chain = [np.array([max(j - 1, 0), j, min(j + 1, 99)]) for j in range(100)]
    assert arrow_of(chain) is None  # a random walk is no arrow
    assert find_arrow(lambda p: -(jnp.sum(p) ** 2) - jnp.sum(p**2), np.zeros(80)) is None


def test_what_is_asked_for_is_had_or_refused():
    def full(p):
        return -(jnp.sum(p) ** 2) - jnp.sum(p**2)

    assert choose_structure("auto", full, np.zeros(10)).name == "dense"
    assert choose_structure("auto", full, np.zeros(400)).why.startswith("no groups")
    many = choose_structure("auto", full, np.zeros(1200))
    assert many.name == "diagonal" and "too small" in many.why
    with pytest.raises(ValueError, match="shows no groups"):
        choose_structure("arrow", full, np.zeros(30))
    with pytest.raises(ValueError, match="too many for a full covariance"):
        choose_structure("dense", full, np.zeros(1200))
    with pytest.raises(ValueError, match="structure must be one of"):
        choose_structure("blocks", full, np.zeros(3))
    result = natvi.fit(lambda p: -jnp.sum((p - 1.0) ** 2), jnp.zeros(3), structure="diagonal")
    assert result.structure == "diagonal" and result.trust == "good"
    np.testing.assert_allclose(result.summary()["sd"], np.sqrt(0.5), rtol=1e-2)


def intercepts(n: int):
    """Return rows of n groups, and the log-density of a random-intercept model as a plain function."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 6))
    y = 0.5 + 0.7 * x + rng.standard_normal((n, 1)) + rng.standard_normal((n, 6))

    def logdensity(p):
        error = (y - p["a"] - p["b"] * x - p["u"][:, None]) / p["sd"]
        groups = -0.5 * jnp.sum((p["u"] / p["tau"]) ** 2) - n * jnp.log(p["tau"])
        return -0.5 * jnp.sum(error**2) - y.size * jnp.log(p["sd"]) + groups - p["sd"] - p["tau"]

    init = {"a": 0.0, "b": 0.0, "sd": 1.0, "tau": 1.0, "u": jnp.zeros(n)}
    return x, y, logdensity, init


@pytest.mark.slow
def test_a_hierarchy_of_four_hundred_is_fitted_on_an_arrow(tmp_path):
    _, _, logdensity, init = intercepts(400)
    result = natvi.fit(logdensity, init, constrain={"sd": "positive", "tau": "positive"})
    assert result.structure == "arrow" and "400 groups of up to 1, and 4 shared" in repr(result)
    table = result.summary().iloc[:4]
    np.testing.assert_array_less(np.abs(table["mean"] - [0.5, 0.7, 1.0, 1.0]) / table["sd"], 3.0)
    again = natvi.load(result.save(tmp_path / "fit.natvi"))
    np.testing.assert_array_equal(again.sample(3)["u"], result.sample(3)["u"])


@pytest.mark.slow
def test_two_thousand_intercepts_agree_with_the_formula_door():
    x, y, logdensity, init = intercepts(1996)
    tracemalloc.start()
    result = natvi.fit(logdensity, init, constrain={"sd": "positive", "tau": "positive"})
    assert (
        tracemalloc.get_traced_memory()[1] < 40 * 256 * 2000 * 8
    )  # some sets of points, and no 2,000 x 2,000 matrices
    tracemalloc.stop()
    assert result.structure == "arrow"
    frame = pd.DataFrame({"y": y.ravel(), "x": x.ravel(), "g": np.repeat(np.arange(1996), 6)})
    formula = natvi.glmm("y ~ x + (1 | g)", frame, family="gaussian").fit(method="gva")
    ours, theirs = result.summary().iloc[:2], formula.summary().iloc[:2]
    np.testing.assert_array_less(np.abs(ours["mean"].to_numpy() - theirs["mean"].to_numpy()) / theirs["sd"], 0.1)
    np.testing.assert_allclose(ours["sd"], theirs["sd"], rtol=0.1)
