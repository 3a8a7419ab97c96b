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

from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowMatrix
from natvi.x64 import float64, to_host
from strategies import (
    GroupedData,
    arrow_vector,
    dense_design,
    dense_moments,
    dense_vector,
    grouped_rows,
    pattern_parts,
    pick,
    quick_jit,
    random_data,
    random_factor,
    random_gaussian,
    random_vector,
)

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
        gaussian = quick_jit(ArrowPrecision.from_factor)(random_vector(r, g, n, seed=3), factor)

    def natural(linear: np.ndarray, precision: np.ndarray) -> tuple:
        parts = (jnp.asarray(part) for part in pattern_parts(precision, r, n))
        return arrow_vector(linear, r, n), ArrowMatrix(*parts)

    data = random_data((3, 1, 7, 2)[:n], 2, r, seed=4)
    mean, covariance = dense_moments(gaussian)
    return Structure(gaussian, mean, covariance, dense_vector, lambda x: arrow_vector(x, r, n), natural, data)


STRUCTURES = {
    "arrow r=1": lambda: arrow(1, 3, 4),
    "arrow r=2, negative diagonal": lambda: arrow(2, 5, 4, signs=True),
    "arrow r=3": lambda: arrow(3, 4, 4),
}
GROUPED = [name for name in STRUCTURES if name.startswith("arrow")]


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


@cache
def structure(name: str) -> Structure:
    return STRUCTURES[name]()


class Said(NamedTuple):
    """All that a Gaussian says about itself, on the host; vectors in dense layout."""

    log_prob: np.ndarray  # at `points`
    covariance: np.ndarray  # Sigma I
    pushed: np.ndarray  # of zero, then of the unit vectors
    mean_again: np.ndarray  # after a turn through the natural parameters
    covariance_again: np.ndarray
    sds: np.ndarray
    entropy: float


@quick_jit
def ask(gaussian: Any, points: Any, units: Any, natural: tuple) -> tuple:
    again = type(gaussian).from_natural(*natural)
    return (
        jax.vmap(gaussian.log_prob)(points),
        jax.vmap(gaussian.covariance_product)(units),
        jax.vmap(gaussian.push)(units),
        again.mean,
        jax.vmap(again.covariance_product)(units),
        gaussian.marginal_sds(),
        gaussian.entropy(),
    )


@cache
def said(name: str) -> Said:
    case = structure(name)

    def stacked(rows: np.ndarray) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(case.unflatten, rows))

    precision = np.linalg.inv(case.covariance)
    precision[np.abs(precision) < 1e-10] = 0.0
    units = np.vstack([np.zeros(len(case.mean)), np.eye(len(case.mean))])
    natural = case.natural(precision @ case.mean, precision)
    answers = ask(case.gaussian, stacked(points(case)), stacked(units), natural)
    log_prob, columns, pushed, mean, columns_again, sds, entropy = to_host(answers)
    return Said(
        log_prob,
        flatten_rows(case, columns)[1:].T,
        flatten_rows(case, pushed),
        case.flatten(mean),
        flatten_rows(case, columns_again)[1:].T,
        case.flatten(sds),
        float(entropy),
    )


def points(case: Structure) -> np.ndarray:
    return case.mean + np.random.default_rng(5).standard_normal((6, len(case.mean)))


def flatten_rows(case: Structure, stack: Any) -> np.ndarray:
    """Lay a stack of vectors out as rows."""
    leaves = jax.tree.leaves(stack)
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
    shapes = [leaf.shape[1:] for leaf in leaves]
    numbers = np.split(np.arange(flat.shape[1]), np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    ordinals = [number.reshape(shape) for number, shape in zip(numbers, shapes, strict=True)]
    return flat[:, case.flatten(jax.tree.unflatten(jax.tree.structure(stack), ordinals)).astype(int)]


@quick_jit
def draw(gaussian: Any, key: jax.Array) -> Any:
    return jax.vmap(gaussian.sample)(jax.random.split(key, NUM_DRAWS))


@cache
def draws(name: str, seed: int = 0) -> np.ndarray:
    """Draw from the structure, `(NUM_DRAWS, d)`."""
    case = structure(name)
    return flatten_rows(case, to_host(draw(case.gaussian, jax.random.key(seed))))


def z_score(values: np.ndarray, expected: np.ndarray | float, sd: np.ndarray | float) -> np.ndarray:
    """Return the z-scores of averages over the draws whose single-draw sds are known."""
    return (values.mean(axis=0) - expected) / (sd / np.sqrt(len(values)))


@pytest.mark.parametrize("name", STRUCTURES)
def test_log_prob_is_the_normal_density(name):
    case = structure(name)
    expected = scipy.stats.multivariate_normal.logpdf(points(case), case.mean, case.covariance)
    np.testing.assert_allclose(said(name).log_prob, expected, **TIGHT)


@pytest.mark.parametrize("name", STRUCTURES)
def test_covariance_product_and_marginal_sds(name):
    case = structure(name)
    np.testing.assert_allclose(said(name).covariance, case.covariance, **TIGHT)
    np.testing.assert_allclose(said(name).sds, np.sqrt(np.diag(case.covariance)), **TIGHT)


@pytest.mark.parametrize("name", STRUCTURES)
def test_from_natural_inverts(name):
    case = structure(name)
    np.testing.assert_allclose(said(name).mean_again, case.mean, **TIGHT)
    np.testing.assert_allclose(said(name).covariance_again, case.covariance, **TIGHT)


@pytest.mark.parametrize("name", STRUCTURES)
def test_push_maps_standard_normals_to_draws(name):
    case = structure(name)
    centre, *moved = said(name).pushed
    np.testing.assert_allclose(centre, case.mean, **TIGHT)
    # theta = mu + A z with A A' = Sigma
    A = (np.stack(moved) - case.mean).T
    np.testing.assert_allclose(A @ A.T, case.covariance, **TIGHT)


@pytest.mark.parametrize("name", STRUCTURES)
def test_entropy_is_the_normal_entropy(name):
    case = structure(name)
    expected = scipy.stats.multivariate_normal(case.mean, case.covariance).entropy()
    np.testing.assert_allclose(said(name).entropy, expected, **TIGHT)


@pytest.mark.parametrize("name", STRUCTURES)
def test_entropy_agrees_with_sampling(name):
    case = structure(name)
    log_prob = scipy.stats.multivariate_normal.logpdf(draws(name), case.mean, case.covariance)
    # log q = constant - chi^2_d / 2, so its sd is sqrt(d / 2)
    assert abs(z_score(-log_prob, said(name).entropy, np.sqrt(len(case.mean) / 2))) < 4


@pytest.mark.parametrize("name", STRUCTURES)
def test_sample_mean_and_covariance(name):
    case = structure(name)
    error = draws(name) - case.mean
    V = case.covariance
    variances = np.diag(V)
    assert np.abs(z_score(error, 0.0, np.sqrt(variances))).max() < 4
    # Var (x_i x_j) = V_ii V_jj + V_ij^2
    products = np.einsum("ni,nj->nij", error, error)
    assert np.abs(z_score(products, V, np.sqrt(np.outer(variances, variances) + V**2))).max() < 4


@pytest.mark.parametrize("name", STRUCTURES)
def test_draws_repeat_and_differ(name):
    case = structure(name)
    again = flatten_rows(case, to_host(draw(case.gaussian, jax.random.key(0))))
    np.testing.assert_array_equal(draws(name), again)
    assert np.all(draws(name, seed=1) != again)
    assert len(np.unique(again)) == again.size


@pytest.mark.parametrize("name", GROUPED)
def test_group_marginals(name):
    case = structure(name)
    (r, n), g = case.gaussian.mean.local.shape, case.gaussian.mean.shared.shape[0]
    mean, covariance = quick_jit(lambda q: q.group_moments(1, 3))(case.gaussian)
    for i in range(n):
        own = [*range(r * i, r * i + r), r * n + 1, r * n + 2]
        np.testing.assert_allclose(mean[:, i], case.mean[own], **TIGHT)
        np.testing.assert_allclose(covariance[..., i], case.covariance[np.ix_(own, own)], **TIGHT)
    shared = case.covariance[r * n :, r * n :]
    np.testing.assert_allclose(case.gaussian.shared_covariance(), shared, **TIGHT)
    np.testing.assert_allclose(case.gaussian.shared_variances(), np.diag(shared), **TIGHT)
    assert shared.shape == (g, g)


@pytest.mark.parametrize("name", GROUPED)
def test_row_marginals(name):
    case = structure(name)
    assert case.data is not None
    rows, layout = grouped_rows(case.data)
    g = case.gaussian.mean.shared.shape[0]
    A = dense_design(case.data, layout, g)
    got = quick_jit(lambda q, rows: q.row_moments(rows, (g - 1,)))(case.gaussian, rows)
    np.testing.assert_allclose(pick(layout, got.mean), case.data.offset + A @ case.mean, **TIGHT)
    np.testing.assert_allclose(pick(layout, got.variance), np.diag(A @ case.covariance @ A.T), **TIGHT)
    np.testing.assert_allclose(pick(layout, got.covariance)[0], A @ case.covariance[:, -1], **TIGHT)


@pytest.mark.parametrize("name", GROUPED)
def test_a_block_is_the_marginal_of_its_groups(name):
    case = structure(name)
    (r, n), g = case.gaussian.mean.local.shape, case.gaussian.mean.shared.shape[0]
    block = quick_jit(lambda q, start: q.block(start, 2))(case.gaussian, jnp.asarray(1))
    own = [*range(r, 3 * r), *range(r * n, r * n + g)]
    mean, covariance = dense_moments(block)
    np.testing.assert_allclose(mean, case.mean[own], **TIGHT)
    np.testing.assert_allclose(covariance, case.covariance[np.ix_(own, own)], **TIGHT)


def everything(gaussian: Any, theta: Any, key: jax.Array) -> tuple:
    return (
        gaussian.log_prob(theta),
        gaussian.entropy(),
        gaussian.sample(key),
        gaussian.push(theta),
        gaussian.covariance_product(theta),
        gaussian.marginal_sds(),
    )


@pytest.mark.parametrize("name", STRUCTURES)
def test_dtype_is_kept(name):
    case = structure(name)
    wide = jax.eval_shape(everything, case.gaussian, case.unflatten(case.mean), jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(wide)} == {np.dtype(np.float64)}
    with jax.enable_x64(False):
        narrow = jax.tree.map(lambda a: jnp.asarray(np.asarray(a, np.float32)), case.gaussian)
        got = jax.eval_shape(everything, narrow, narrow.mean, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {np.dtype(np.float32)}
