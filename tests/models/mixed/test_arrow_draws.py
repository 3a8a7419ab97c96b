"""Draws from a Gaussian on the arrow by NumPy, and the covariances of its random effects: against the dense matrix."""

import numpy as np
import pytest

from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.mixed.draws import arrow_draws, effect_covariances

N, G, DRAWS = 3, 2, 40_000


def arrow(r: int) -> tuple[ArrowPrecision, np.ndarray]:
    """Return a Gaussian and its covariance, the random effects group by group and then the shared coordinates."""
    rng = np.random.default_rng(r)
    T = np.zeros((N * r + G, N * r + G))
    for i in range(N):
        own = slice(i * r, (i + 1) * r)
        T[own, own] = np.tril(rng.uniform(-0.5, 0.5, (r, r)), -1) + np.diag(rng.uniform(0.8, 2.0, r))
        T[N * r :, own] = rng.uniform(-0.6, 0.6, (G, r))
    T[N * r :, N * r :] = np.array([[1.5, 0.0], [0.4, 0.9]])
    local = np.stack([T[i * r : (i + 1) * r, i * r : (i + 1) * r] for i in range(N)], axis=-1)
    cross = np.stack([T[N * r :, i * r : (i + 1) * r] for i in range(N)], axis=-1)
    corner = T[N * r :, N * r :]
    mean = ArrowVector(rng.standard_normal((r, N)), rng.standard_normal(G))  # type: ignore[arg-type]
    q = ArrowPrecision(mean, ArrowFactor(local, cross, corner), np.linalg.inv(corner))  # type: ignore[arg-type]
    return q, np.linalg.inv(T @ T.T)


@pytest.mark.parametrize("r", [1, 2])
def test_draws_and_covariances_are_those_of_the_dense_matrix(r: int) -> None:
    q, covariance = arrow(r)
    for i in range(N):
        own = slice(i * r, (i + 1) * r)
        np.testing.assert_allclose(effect_covariances(q)[..., i], covariance[own, own], rtol=1e-10)
    local, shared = arrow_draws(q, DRAWS, 1, True)
    draws = np.concatenate([local.swapaxes(1, 2).reshape(DRAWS, -1), shared], axis=1)
    mean = np.concatenate([np.asarray(q.mean.local).T.ravel(), np.asarray(q.mean.shared)])
    sds = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws.mean(axis=0) - mean) / sds * np.sqrt(DRAWS) < 4.5)
    # the variance of a product of two centred normals is at most twice that of their variances
    errors = (np.cov(draws.T) - covariance) / np.outer(sds, sds)
    assert np.all(np.abs(errors) * np.sqrt(DRAWS / 2) < 4.5)
    again = arrow_draws(q, DRAWS, 1, False)
    assert again[0].shape == (0, r, N)
    np.testing.assert_array_equal(again[1], shared)
