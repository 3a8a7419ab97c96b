"""Laws of the five structures against dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import structures as st
from natvi.gaussian import block_covariance, diagonal_covariance
from natvi.x64 import float64
from strategies import quick_jit


@pytest.fixture(params=st.STRUCTURES)
def name(request):
    return request.param


@quick_jit
def parts(q, z):
    theta = q.push(z)
    return theta, q.log_prob(theta), q.entropy(), q.pull(theta), q.score(z), jax.grad(q.log_prob)(theta)


def test_log_prob_push_score_and_entropy(name):
    with float64():
        q = st.random_gaussian(name, 3, 0)
        Sigma, mu = st.covariance(q), st.flat(q.mean)
        z = st.random_vector(q.mean, np.random.default_rng(1))
        theta, log_prob, entropy, pulled, score, slope = parts(q, z)
        law = scipy.stats.multivariate_normal(mu, Sigma)
        np.testing.assert_allclose(float(log_prob), law.logpdf(st.flat(theta)), rtol=1e-10)
        np.testing.assert_allclose(float(entropy), law.entropy(), rtol=1e-10)
        np.testing.assert_allclose(st.flat(pulled), st.flat(z), atol=1e-10)
        expected = -np.linalg.solve(Sigma, st.flat(theta) - mu)
        np.testing.assert_allclose(st.flat(score), expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(st.flat(slope), expected, rtol=1e-8, atol=1e-10)


def test_products_with_the_covariance(name):
    with float64():
        q = st.random_gaussian(name, 3, 2)
        x = st.random_vector(q.mean, np.random.default_rng(3))
        np.testing.assert_allclose(
            st.flat(quick_jit(lambda q, x: q.covariance_product(x))(q, x)),
            st.covariance(q) @ st.flat(x),
            rtol=1e-9,
            atol=1e-12,
        )


def test_draws_have_the_right_moments(name):
    with float64():
        q = st.random_gaussian(name, 2, 4)
        n = 20_000
        draws = quick_jit(jax.vmap(q.sample))(jax.random.split(jax.random.key(0), n))
        draws = jax.tree.map(np.asarray, draws)
        flat = np.stack([st.flat(jax.tree.map(lambda a, i=i: a[i], draws)) for i in range(0, n, 10)])
        Sigma = st.covariance(q)
        z = (flat.mean(0) - st.flat(q.mean)) / np.sqrt(np.diag(Sigma) / len(flat))
        assert np.abs(z).max() < 4
        whitened = np.linalg.solve(np.linalg.cholesky(Sigma), (flat - st.flat(q.mean)).T)
        gram = whitened @ whitened.T / len(flat) - np.eye(len(Sigma))
        assert np.abs(gram).max() < 4 * np.sqrt(2 / len(flat))


def test_marginal_sds(name):
    with float64():
        q = st.random_gaussian(name, 3, 9)
        np.testing.assert_allclose(
            st.flat(quick_jit(lambda q: q.marginal_sds())(q)) ** 2, np.diag(st.covariance(q)), rtol=1e-10
        )


def test_marginal_sds_of_very_many_coordinates_form_no_matrix():
    d = 100_000
    with float64():
        np.testing.assert_array_equal(diagonal_covariance(jnp.zeros(d), 0.5).marginal_sds(), np.full(d, 0.5))
        pairs = jax.tree.map(jnp.ones_like, block_covariance(jnp.zeros(d), (2,) * (d // 2)))
        np.testing.assert_allclose(pairs.marginal_sds(), np.full(d, np.sqrt(2.0)))


def test_marginals_of_a_design():
    with float64():
        rows = np.random.default_rng(5).standard_normal((4, 9))
        for structure, size in (("diagonal", 9), ("dense covariance", 9), ("block covariance", 3)):
            q = st.random_gaussian(structure, size, 6)
            expected = np.einsum("kd,de,ke->k", rows, st.covariance(q), rows)
            np.testing.assert_allclose(np.asarray(q.row_variances(jnp.asarray(rows))), expected, rtol=1e-10)


def test_blocks_must_cover_the_vector():
    with pytest.raises(ValueError, match="cover 3 coordinates; the mean has 4"):
        block_covariance(jnp.zeros(4), (1, 2))
    with pytest.raises(ValueError, match="positive whole numbers"):
        block_covariance(jnp.zeros(4), (4, 0))


def test_large_blocks_solve_by_the_batched_routine():
    with float64():
        q = st.random_gaussian("block covariance", 10, 7)
        x = st.random_vector(q.mean, np.random.default_rng(8))
        np.testing.assert_allclose(np.asarray(q.factor.product(q.factor.solve(x))), np.asarray(x), atol=1e-10)
        back = q.factor.transposed_product(q.factor.solve_transposed(x))
        np.testing.assert_allclose(np.asarray(back), np.asarray(x), atol=1e-10)
