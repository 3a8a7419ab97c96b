"""Draws of random effects and shared coordinates in batches of one size."""

from collections.abc import Callable

import jax
import numpy as np

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
