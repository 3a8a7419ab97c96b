"""What the predictors of rows need of a fitted mixed model: exact moments, or draws of the random effects."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector, GroupedRows
from natvi.models.regression.predict import slices
from natvi.models.regression.rows import Covariates
from natvi.run.compiled_code import thorough_jit
from natvi.x64 import float64

LARGEST_DRAW, PIECE_BYTES = 2_000_000_000, 2**27  # of random effects; bytes


def predictor_moments(posterior: ArrowPrecision, rows: Covariates) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact mean and sd of eta = offset + x'beta + z'theta_i for every row, in slices of one size."""
    X, offset, Z, codes = rows
    assert offset is not None and Z is not None and codes is not None
    moments = np.empty((2, len(X)))
    with float64():
        posterior = jax.device_put(posterior)
        for own in slices(np.arange(len(X))):
            moments[:, own] = _exact_slice(posterior, X[own], Z[own], offset[own], codes[own])
    return moments[0], moments[1]


@thorough_jit
def _exact_slice(
    posterior: ArrowPrecision,
    X: Float[Array, "k p"],
    Z: Float[Array, "k r"],
    offset: Float[Array, " k"],
    codes: Int[Array, " k"],
) -> Float[Array, "2 k"]:
    """Return mean and sd of the predictors of some rows: a design of one-row groups."""
    mean = ArrowVector(posterior.mean.local[:, codes], posterior.mean.shared)
    factor = ArrowFactor(
        posterior.factor.local[..., codes], posterior.factor.cross[..., codes], posterior.factor.shared
    )
    filled, extra = jnp.ones((1, len(X)), bool), jnp.zeros(0, jnp.int32)
    rows = GroupedRows(X.T[:, None], Z.T[:, None], offset[None], filled, extra, num_simple=len(X))
    moments = rows.moments(mean, factor, posterior.inverse_shared, ())
    return jnp.stack([moments.mean[0], jnp.sqrt(moments.variance[0])])


def draw_effects(
    joint_draws: Callable[[int, int, bool], tuple[np.ndarray, np.ndarray]],
    size: tuple[int, int],
    codes: np.ndarray,
    num_draws: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where each row finds its effects, and draws of random effects `(s, r, m)` and shared coordinates.

    They are the draws of `sample`, unless those of all groups would be too large: then some are drawn at a time, and
    only the groups at hand are kept.

    Args:
        joint_draws: Of a fitted mixed model.
        size: The numbers of random effects per group and of groups.
        codes: The group of every row; codes of new groups stay beyond those of the others.
        num_draws: The number of draws.
        seed: The same seed gives the same draws.
    """
    r, n = size
    if 8 * num_draws * r * n <= LARGEST_DRAW:
        return codes, *joint_draws(num_draws, seed, True)
    used = np.unique(codes[codes < n])
    kept = np.where(codes < n, np.searchsorted(used, codes), len(used) + codes - n)
    piece = max(1, PIECE_BYTES // (8 * r * n))
    local, shared = [], []
    for own in np.random.SeedSequence(seed).generate_state(-(-num_draws // piece)):
        effects, parameters = joint_draws(piece, int(own), True)
        local.append(effects[..., used])
        shared.append(parameters)
    return kept, np.concatenate(local)[:num_draws], np.concatenate(shared)[:num_draws]
