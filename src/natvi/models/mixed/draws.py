"""Draws of random effects and shared coordinates: of a Gaussian on the arrow, and of anything else in batches."""

from collections.abc import Callable

import jax
import numpy as np

from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowVector
from natvi.x64 import float64, to_host

LARGEST_BATCH, BATCH_BYTES = 128, 2**27  # draws per compiled call


def draw_in_batches(
    draw: Callable[[jax.Array], ArrowVector], num_samples: int, seed: int, num_local: int, keep_local: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `(s, r, n)` and `(s, g)`: another number of draws needs no new compilation.

    Args:
        draw: From keys to as many draws, inside `float64()`.
        num_samples: The number of draws.
        seed: The same seed gives the same draws.
        num_local: The number of random effects of one draw.
        keep_local: Whether the random effects are wanted; without them their array has length 0.

    Returns:
        Random effects and shared coordinates.
    """
    fitting = max(1, BATCH_BYTES // (8 * num_local))
    size = min(LARGEST_BATCH, 1 << (num_samples - 1).bit_length(), 1 << (fitting.bit_length() - 1))
    local, shared = [], []
    with float64():
        keys = jax.random.split(jax.random.key(seed), -(-num_samples // size) * size)
        for at in range(0, len(keys), size):
            draws = to_host(draw(keys[at : at + size]))
            local.append(draws.local if keep_local else draws.local[:0].copy())
            shared.append(draws.shared)
    return np.concatenate(local)[:num_samples], np.concatenate(shared)[:num_samples]


def arrow_draws(
    posterior: ArrowPrecision, num_samples: int, seed: int, keep_local: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `(s, r, n)` and `(s, g)` from N(mu, (T T')^-1), without a program that would have to be compiled.

    Args:
        posterior: The Gaussian.
        num_samples: The number of draws.
        seed: The same seed gives the same draws, those of the shared coordinates with or without the others.
        keep_local: Whether the random effects are wanted; without them their array has length 0.

    Returns:
        Random effects and shared coordinates.
    """
    # of one layout in memory, so that a loaded fit gives the same bits
    (mean, middle), (T, cross, _), inverse = jax.tree.map(np.ascontiguousarray, posterior)
    r, n = mean.shape
    first, second = np.random.default_rng(seed).spawn(2)
    # T' x = z: first T_g' x_g = z_g, then T_i' x_i = z_i - T_gi' x_g
    moved = first.standard_normal((num_samples, len(middle))) @ inverse
    local = np.empty((num_samples if keep_local else 0, r, n))
    for at in range(len(local)):
        z = second.standard_normal((r, n)) - np.tensordot(moved[at], cross, axes=1)
        local[at] = mean + _solve_transposed(T, z)
    return local, middle + moved


def effect_covariances(posterior: ArrowPrecision) -> np.ndarray:
    """Return the covariance of each group's random effects `(r, r, n)`.

    theta_i - mu_i = T_i^-T (z_i - T_gi' x_g) with Cov x_g = R'R, so that it is T_i^-T (I + T_gi' R'R T_gi) T_i^-1.
    """
    T, cross, _ = jax.tree.map(np.asarray, posterior.factor)
    r = len(T)
    spread = np.tensordot(np.asarray(posterior.inverse_shared), cross, axes=1)
    inner = np.stack([[np.sum(spread[:, j] * spread[:, k], axis=0) + (j == k) for k in range(r)] for j in range(r)])
    half = _solve_transposed(T, inner)
    return _solve_transposed(T, half.swapaxes(0, 1))


def _solve_transposed(T: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve T_i' x = right for every group."""
    x = np.empty(right.shape)
    for k in reversed(range(len(T))):
        inner = sum((T[j, k] * x[j] for j in range(k + 1, len(T))), np.zeros(right.shape[1:]))
        x[k] = (right[k] - inner) / T[k, k]
    return x
