"""Weights and constants of likelihood rows, binomial responses, and every family inside a mixed model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import natvi.target.term
from natvi.families.table import FAMILIES, find_family, links_of
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowVector
from natvi.target import Expected, LikelihoodRows
from natvi.x64 import float64, to_host
from strategies import (
    GroupedData,
    MixedCase,
    dense_matrix,
    dense_moments,
    dense_vector,
    grouped_rows,
    mixed_case,
    quick_jit,
    random_data,
    random_gaussian,
)

SIZES = (2, 1, 9, 3)


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def likelihood_of(case: MixedCase) -> LikelihoodRows:
    term = case.target.grouped[0]
    assert isinstance(term, LikelihoodRows)
    return term


@quick_jit
def expected(term: LikelihoodRows, gaussian: ArrowPrecision) -> Expected:
    return term.expected(gaussian)


@quick_jit
def group_gradients(term: LikelihoodRows, theta: ArrowVector) -> ArrowVector:
    return term.group_gradients(theta)


def value(term: LikelihoodRows, gaussian: ArrowPrecision) -> float:
    return float(term.value(gaussian.mean))


def assert_same(one: Expected, other: Expected, **close: float) -> None:
    np.testing.assert_allclose(one.value, other.value, **close)
    np.testing.assert_allclose(dense_vector(one.grad), dense_vector(other.grad), **close)
    np.testing.assert_allclose(dense_matrix(one.hess), dense_matrix(other.hess), **close)


@pytest.mark.parametrize("name", ["bernoulli", "gaussian"])
def test_a_weight_of_two_is_the_row_twice(name):
    family, data = FAMILIES[name], random_data(SIZES, 2, 1, seed=0)
    rng = np.random.default_rng(1)
    N = len(data.group)
    y, twice = rng.integers(0, 2, N).astype(float), rng.integers(0, 2, N).astype(bool)
    rows, layout = grouped_rows(data)
    weight = jnp.asarray(layout.place(1.0 + twice, fill=np.nan))  # empty cells hold anything
    weighted = LikelihoodRows(rows, jnp.asarray(layout.place(y)), family, weight=weight)
    index = np.concatenate([np.arange(N), np.flatnonzero(twice)])
    repeated_rows, repeated_layout = grouped_rows(GroupedData(*(part[index] for part in data)))
    repeated = LikelihoodRows(repeated_rows, jnp.asarray(repeated_layout.place(y[index])), family)
    # the two layouts may put the groups in different places: a Gaussian whose groups are alike
    gaussian = random_gaussian(1, 3, len(SIZES), seed=2)
    orders = [np.argsort(one.place_of_group) for one in (layout, repeated_layout)]
    got, other = (
        to_host(expected(term, reorder(gaussian, order)))
        for term, order in zip((weighted, repeated), orders, strict=True)
    )
    np.testing.assert_allclose(got.value, other.value, rtol=1e-12)
    np.testing.assert_allclose(got.grad.shared, other.grad.shared, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(got.hess.shared, other.hess.shared, rtol=1e-11, atol=1e-11)
    places = [one.place_of_group for one in (layout, repeated_layout)]
    np.testing.assert_allclose(got.grad.local[:, places[0]], other.grad.local[:, places[1]], rtol=1e-11, atol=1e-11)
    values = (value(term, reorder(gaussian, order)) for term, order in zip((weighted, repeated), orders, strict=True))
    np.testing.assert_allclose(*values, rtol=1e-12)
    gradients = [
        to_host(group_gradients(term, reorder(gaussian, order).mean)).shared[:, place]
        for term, order, place in zip((weighted, repeated), orders, places, strict=True)
    ]
    np.testing.assert_allclose(*gradients, rtol=1e-11, atol=1e-11)


def reorder(gaussian: ArrowPrecision, groups: np.ndarray) -> ArrowPrecision:
    """Put the groups of a Gaussian in another order."""
    mean, factor, inverse = gaussian
    return ArrowPrecision(
        ArrowVector(mean.local[:, groups], mean.shared),
        factor._replace(local=factor.local[..., groups], cross=factor.cross[..., groups]),
        inverse,
    )


def test_no_weight_is_a_weight_of_one():
    case = mixed_case("poisson", SIZES, 1, seed=3)
    plain = likelihood_of(case)
    ones = LikelihoodRows(plain.design, plain.y, plain.family, weight=jnp.ones_like(plain.y), constant=2.5)
    gaussian = random_gaussian(1, case.g, case.n, seed=4)
    without, got = expected(plain, gaussian), expected(ones, gaussian)
    assert_same(got._replace(value=got.value - 2.5), without, rtol=1e-13)
    np.testing.assert_allclose(value(ones, gaussian), value(plain, gaussian) + 2.5)


def test_leaves_are_arrays():
    """A loop asks every leaf of a target for its size."""
    plain = likelihood_of(mixed_case("poisson", SIZES, 1, seed=3))
    assert all(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(plain))


@pytest.mark.parametrize("link", links_of("binomial"))
def test_binomial_rows_are_scipys(link):
    rng = np.random.default_rng(5)
    data = random_data(SIZES, 2, 1, seed=6)
    rows, layout = grouped_rows(data)
    trials = rng.integers(1, 30, len(data.group))
    successes = rng.binomial(trials, 0.4)
    family = find_family("binomial", link)
    term = LikelihoodRows(
        rows,
        jnp.asarray(layout.place(successes / trials)),
        family,
        weight=jnp.asarray(layout.place(trials.astype(float))),
        constant=jnp.sum(jnp.asarray(np.log(scipy.special.comb(trials, successes)))),
    )
    mean = random_gaussian(1, 3, len(SIZES), seed=7).mean
    local = np.asarray(mean.local)[0, layout.place_of_group[data.group]]
    eta = data.offset + data.X @ np.asarray(mean.shared)[:2] + data.Z[:, 0] * local
    exact = scipy.stats.binom.logpmf(successes, trials, np.asarray(family.mean(jnp.asarray(eta)))).sum()
    np.testing.assert_allclose(term.value(mean), exact, rtol=1e-11)


@pytest.mark.parametrize("name", ["bernoulli", "gaussian"])
def test_blocks_count_the_constant_once(name, monkeypatch):
    sizes = (2, 3, 1, 2, 11, 3, 2, 1, 3, 2, 2, 14, 3, 1, 2, 3, 2, 2, 1, 9, 3, 2)
    case = mixed_case(name, sizes, 1, seed=14)
    plain = likelihood_of(case)
    weight = jnp.asarray(case.layout.place(np.random.default_rng(8).uniform(0.5, 3.0, len(case.y))))
    weighted = LikelihoodRows(plain.design, plain.y, plain.family, plain.start, weight, jnp.asarray(100.0))
    target = eqx.tree_at(lambda target: target.grouped[0], case.target, weighted)
    gaussian = random_gaussian(1, case.g, len(sizes), seed=15, scale=0.8)
    whole = to_host(quick_jit(lambda q: target.expected(q))(gaussian))
    bare = eqx.tree_at(lambda target: target.grouped[0].constant, target, jnp.zeros(()))
    assert abs(float(whole.value) - 100.0 - float(quick_jit(lambda q: bare.expected(q).value)(gaussian))) < 1e-8
    in_blocks = []
    unspied = natvi.target.term._room_in_front
    monkeypatch.setattr(natvi.target.term, "_room_in_front", lambda *args: in_blocks.append(args[1]) or unspied(*args))
    monkeypatch.setattr(natvi.target.term, "BLOCK_GROUPS", 4)
    blocked = to_host(quick_jit(lambda q: target.expected(q))(gaussian))
    assert in_blocks == [16]
    # the step of the quadrature depends on the largest variance of a block: accuracy, not rounding
    assert_same(whole, blocked, rtol=1e-8, atol=1e-8)


NUM_DRAWS = 20_000
RESPONSES = {
    "negative_binomial": lambda rng, num: rng.negative_binomial(2, 0.4, num).astype(float),
    "gamma": lambda rng, num: rng.gamma(2.0, 1.0, num),
}


@pytest.mark.parametrize(
    ("name", "link"),
    [("negative_binomial", "log"), ("gamma", "log"), ("bernoulli", "probit"), ("bernoulli", "cloglog")],
)
def test_expectations_agree_with_sampling(name, link):
    """Value and gradients of a mixed model's likelihood, by z-score; empty cells hold a response of 0."""
    case = mixed_case("gaussian", SIZES, 1, seed=9)
    rng = np.random.default_rng(10)
    binary = rng.integers(0, 2, len(case.y)).astype(float)
    y = RESPONSES[name](rng, len(case.y)) if name in RESPONSES else binary
    family = find_family(name, link)
    term = LikelihoodRows(likelihood_of(case).design, jnp.asarray(case.layout.place(y)), family)
    gaussian = random_gaussian(1, case.g, case.n, seed=11, scale=0.6)
    mean, Sigma = dense_moments(gaussian)
    flat = mean + rng.standard_normal((NUM_DRAWS, len(mean))) @ np.linalg.cholesky(Sigma).T
    theta = ArrowVector(jnp.asarray(flat[:, None, : case.n]), jnp.asarray(flat[:, case.n :]))
    draws = to_host(quick_jit(jax.vmap(jax.value_and_grad(lambda theta: term.value(theta))))(theta))
    got = to_host(expected(term, gaussian))
    score = np.concatenate([draws[1].local[:, 0], draws[1].shared], axis=1)
    samples = np.column_stack([draws[0], score])
    k = 2 + int(family.has_dispersion)
    exact = np.concatenate([[got.value], got.grad.local[0], got.grad.shared, np.zeros(case.g - k)])
    touched = np.std(samples, axis=0) > 0
    assert touched.sum() == 1 + case.n + k
    z = (samples.mean(axis=0) - exact)[touched] / (samples.std(axis=0) / np.sqrt(NUM_DRAWS))[touched]
    assert np.abs(z).max() < 4.5
