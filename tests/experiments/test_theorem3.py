"""Theorem 3 holds with exact gradients and fails with skewed noise."""

import jax
import numpy as np
from experiments.figure4 import weights
from experiments.theorem3 import BETA, EXACT, NOISY, flat_information, follow, no_noise, skewed_noise

from natvi.x64 import float64


def test_the_bound_and_the_rate_with_exact_gradients():
    with float64():
        mean_square = follow(EXACT, no_noise)
        Ns = (1_000, 10_000, 100_000)
        measured = np.array([float(mean_square(jax.random.key(0), N)) for N in Ns])
    assert np.all(measured <= [EXACT.bound(N, N**-0.5) for N in Ns])
    assert abs(np.log10(measured[2] / measured[1]) + 0.5) < 0.02


def test_the_counterexample():
    N = 100_000
    with float64():
        measured = float(follow(NOISY, skewed_noise)(jax.random.key(0), N))
    assert abs(measured - 0.249) < 0.003
    assert NOISY.bound(N, N**-0.5) < 0.08
    np.testing.assert_allclose(NOISY.bound(10**6, 1e-3), 0.0248, atol=5e-5)


def test_the_average_is_that_of_the_theorem():
    """Against a plain loop."""
    N, point, m, squares = 50, 1.0, 0.0, []
    for j in range(1, N + 1):
        g = -np.tanh(point)
        squares.append(g**2)
        m = BETA * m + (1 - BETA) * np.sign(g)
        point += N**-0.5 * m / (1 - BETA**j)
    w = weights(N, BETA)
    with float64():
        ours = follow(NOISY._replace(information=flat_information), no_noise)(jax.random.key(0), N)
    np.testing.assert_allclose(ours, w @ squares / w.sum(), rtol=1e-12)
