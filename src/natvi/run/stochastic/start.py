"""What a stochastic fit asks of its start before any work is done."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.linalg import vector


def check_start(target: Any, gaussian: Any) -> None:
    """Refuse a start from which no step can be taken, and say why.

    Raises:
        ValueError: If the Gaussian holds integers or values that are not finite, its mean and factor are of different
            sizes, its factor is singular, or the log-density cannot be evaluated, is not a scalar, or is not finite at
            the mean.
    """
    for leaf in jax.tree.leaves(gaussian):
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating):
            raise ValueError(
                f"Mean and factor must be floating-point arrays; got {jnp.asarray(leaf).dtype}. Convert them, e.g. "
                "jnp.asarray(start, float)."
            )
        if not np.all(np.isfinite(leaf)):
            raise ValueError("Mean and factor must be finite; the start holds NaN or infinite values.")
    shape, sizes = (_shapes(part) for part in (gaussian.mean, gaussian.factor.diagonal()))
    if shape != sizes:
        raise ValueError(
            f"Mean and factor must be of the same size; the mean has shape {shape} and the factor's diagonal {sizes}. "
            "Give both the same number of coordinates, as natvi.gaussian.starts does."
        )
    diagonal = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gaussian.factor.diagonal())])
    if np.any(diagonal == 0):
        raise ValueError(
            f"The factor is singular: {int(np.sum(diagonal == 0))} of its {diagonal.size} diagonal entries are zero. "
            "Start from a positive multiple of the identity, as natvi.gaussian.starts does."
        )
    try:
        result = jax.eval_shape(target.value, gaussian.mean)
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"The log-density could not be evaluated at the start, a vector of {vector.length(gaussian.mean)} "
            f"coordinates (shape {shape}): {str(error).splitlines()[0]} Check that start and data belong together."
        ) from error
    if getattr(result, "shape", None) != ():
        raise ValueError(f"The log-density must return one number; got shape {getattr(result, 'shape', None)}. Sum it.")
    if not jnp.issubdtype(result.dtype, jnp.floating):
        raise ValueError(f"The log-density must return a floating-point number; got {result.dtype}.")
    value = float(target.value(gaussian.mean))
    if not np.isfinite(value):
        raise ValueError(
            f"The log-density is {value} at the start's mean. Start where it is finite: inside the support of every "
            "prior, with data free of NaN."
        )


def _shapes(x: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(x)]
