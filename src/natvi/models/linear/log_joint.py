"""The log joint density of a generalized linear model at many draws of its parameters."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.rows import take_extras
from natvi.families.table import Family
from natvi.linalg.buckets import bucket
from natvi.models.regression.criticism import CHUNK_CELLS, weighted_log_density
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.log_density import log_prior
from natvi.models.regression.rows import Rows
from natvi.run.compiled_code import thorough_jit
from natvi.x64 import float64

JOINT_DRAWS = 128  # worked on together: one size compiles once, however many a check takes


def log_joint(family: Family, prior: Prior, rows: Rows, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, " s"]:
    """Return log p(y, theta) of every draw, but for a summand of (d/2) log 2 pi."""
    size = int(min(JOINT_DRAWS, max(1, CHUNK_CELLS // len(rows.y))))
    filled = np.concatenate([theta, np.repeat(theta[-1:], -len(theta) % size, axis=0)])
    room = bucket(len(rows.y)) - len(rows.y)  # rows that count for nothing, so that few sizes are compiled
    real = np.arange(len(rows.y) + room) < len(rows.y)
    parts = (rows.X, rows.offset, rows.y, rows.weight, rows.constants)
    padded = [None if part is None else np.concatenate([part, np.repeat(part[-1:], room, axis=0)]) for part in parts]
    with float64():
        arrays = jax.device_put([*padded, real])
        sums = [np.asarray(_row_sums(family, *arrays, filled[at : at + size])) for at in range(0, len(filled), size)]
    likelihood = np.concatenate(sums)[: len(theta)]
    return likelihood + log_prior(prior, theta) + 0.5 * theta.shape[1] * np.log(2 * np.pi)


@partial(thorough_jit, static_argnums=0)
def _row_sums(
    family: Family, X: Any, offset: Any, y: Any, weight: Any, constants: Any, real: Any, theta: Float[Array, "s d"]
) -> Float[Array, " s"]:
    eta = theta[:, : X.shape[1]] @ X.T
    eta = eta if offset is None else eta + offset
    disp = take_extras(family, theta.T, X.shape[1])
    disp = None if disp is None else disp[..., None]
    return jnp.sum(jnp.where(real, weighted_log_density(family, y, weight, constants, eta, disp), 0.0), axis=1)
