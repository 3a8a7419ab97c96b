"""Laws that every Gaussian structure keeps; a new structure adds a line to STRUCTURES and inherits them all.

The oracle is the dense normal distribution of SciPy and NumPy. Sampling is judged by z-scores.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from strategies import (
    GroupedData,
    arrow_vector,
    dense_design,
    dense_moments,
    dense_vector,
    grouped_rows,
    pattern_parts,
    pick,
    random_data,
    random_factor,
    random_gaussian,
    random_vector,
)

from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowMatrix
from natvi.linalg.grouped_rows import RowLayout
from natvi.precision import float64

NUM_DRAWS = 20_000
TIGHT = {"rtol": 1e-11, "atol": 1e-12}


class Structure(NamedTuple):
    """A Gaussian beside its dense mean and covariance, and how its vectors are laid out."""

    gaussian: Any
    mean: np.ndarray
    covariance: np.ndarray
    flatten: Callable[[Any], np.ndarray]
    unflatten: Callable[[np.ndarray], Any]
    natural: Callable[[np.ndarray, np.ndarray], tuple]  # dense natural parameters in the structure's storage
    data: GroupedData | None = None  # rows for the structures that know marginals of grouped rows


def arrow(r: int, g: int, n: int, signs: bool = False) -> Structure:
    """Draw an arrow precision; with `signs` some diagonal entries of T are negative."""
    gaussian = random_gaussian(r, g, n, seed=1)
    if signs:
        factor = random_factor(r, g, n, seed=2)
        gaussian = jax.jit(ArrowPrecision.from_factor)(random_vector(r, g, n, seed=3), factor)

    def natural(linear: np.ndarray, precision: np.ndarray) -> tuple:
        parts = (jnp.asarray(part) for part in pattern_parts(precision, r, n))
        return arrow_vector(linear, r, n), ArrowMatrix(*parts)

    data = random_data((3, 1, 7, 2)[:n], 2, r, seed=4)
    mean, covariance = dense_moments(gaussian)
    return Structure(
        gaussian, mean, covariance, dense_vector, lambda x: arrow_vector(x, r, n), natural, data
    )


STRUCTURES = {
    "arrow r=1": lambda: arrow(1, 3, 4),
    "arrow r=2": lambda: arrow(2, 5, 4),
    "arrow r=3": lambda: arrow(3, 4, 4),
    "arrow, negative diagonal": lambda: arrow(2, 5, 4, signs=True),
}
GROUPED = [name for name in STRUCTURES if name.startswith("arrow")]


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


@cache
def structure(name: str) -> Structure:
    return STRUCTURES[name]()


@cache
def draws(name: str) -> np.ndarray:
    """Draw from the structure, `(NUM_DRAWS, d)`."""
    case = structure(name)
    keys = jax.random.split(jax.random.key(0), NUM_DRAWS)
    sampled = jax.jit(jax.vmap(case.gaussian.sample))(keys)
    order = case.flatten(jax.tree.map(lambda a: np.arange(a.size).reshape(a.shape), case.gaussian.mean))
    return order_columns(sampled, case, order)


def order_columns(sampled: Any, case: Structure, order: np.ndarray) -> np.ndarray:
    return np.stack([case.flatten(jax.tree.map(lambda a, i=i: a[i], sampled)) for i in range(NUM_DRAWS)])


def z_score(values: np.ndarray, expected: np.ndarray | float, sd: np.ndarray | float) -> np.ndarray:
    """Return the z-scores of averages over the draws whose single-draw sds are known."""
    return (values.mean(axis=0) - expected) / (sd / np.sqrt(len(values)))


@pytest.mark.parametrize("name", STRUCTURES)
def test_log_prob_is_the_normal_density(name):
    case = structure(name)
    points = case.mean + np.random.default_rng(5).standard_normal((6, len(case.mean)))
    log_prob = jax.jit(case.gaussian.log_prob)
    got = [float(log_prob(case.unflatten(point))) for point in points]
    np.testing.assert_allclose(
        got, scipy.stats.multivariate_normal.logpdf(points, case.mean, case.covariance), **TIGHT
    )
