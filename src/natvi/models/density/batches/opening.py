"""Rows and their log-density tried before the work: what is wrong with them, said plainly."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.models.density.batches.rows import Function, none_of
from natvi.models.density.space.maps import Space
from natvi.run.batches.row_batches import common_length

PROBE = 8  # rows on which the log-density is tried


def read_rows(data: Any) -> Any:
    """Return arrays with a common first axis, those on disk left there.

    Raises:
        ValueError: For anything else, with what is needed.
    """
    leaves, structure = jax.tree.flatten(data)
    arrays = [leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in leaves]
    if not arrays or any(array.dtype.kind not in "fiub" or array.ndim < 1 for array in arrays):
        raise ValueError(
            "data must be an array of numbers with a row for each observation, or a dict (or other pytree) of them, "
            "all with the same number of rows."
        )
    rows = jax.tree.unflatten(structure, arrays)
    if common_length(rows) < 2:
        raise ValueError("data holds one row: leave data and batch_size out, and let the log-density hold it.")
    return rows


def open_function(logdensity: Any, space: Space, rows: Any) -> Function:
    """Return the log-density as a function of tree and rows; inside `float64()`.

    Raises:
        ValueError: Where it is no function of two, or no sum over rows.
    """
    if not callable(logdensity):
        raise ValueError(f"the log-density must be a function of (parameters, rows); got {type(logdensity).__name__}.")
    few = [jax.tree.map(lambda a, part=part: jnp.asarray(a[part]), rows) for part in _parts(common_length(rows))]
    tree, _ = space.tree(jnp.asarray(space.start))
    values = [_try(logdensity, tree, part) for part in (*few, none_of(few[0]))]
    whole, first, second, prior = values
    if not np.isfinite(whole):
        return logdensity  # at a bad start nothing can be said of sums; the search for a start comes next
    if not abs(whole + prior - first - second) <= 1e-6 * (1 + max(map(abs, values))):
        raise ValueError(
            f"the log-density is no sum over rows: on {PROBE} rows it is {whole:g}, on their halves {first:g} and "
            f"{second:g}, on none {prior:g}. It must give the log prior plus the sum over the rows it is handed, "
            "without a mean over them and without the number of all rows."
        )
    return logdensity


def _parts(num_rows: int) -> tuple[slice, slice, slice]:
    end = min(PROBE, num_rows)
    return slice(0, end), slice(0, end // 2), slice(end // 2, end)


def _try(logdensity: Callable[..., Any], tree: Any, rows: Any) -> float:
    count = common_length(rows) if jax.tree.leaves(rows)[0].shape[0] else 0
    try:
        found = jax.jit(lambda t, r: logdensity(t, r))(tree, rows)
    except Exception as error:
        told = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0].rstrip('.')}"
        raise ValueError(
            f"the log-density cannot be computed at init on {count} rows: {told}. With data= it is a function of "
            "(parameters, rows) that sums over however many rows it is handed, none included."
        ) from error
    if jnp.shape(found) != ():
        raise ValueError(
            f"the log-density must return one number, and returned shape {jnp.shape(found)}: sum over rows."
        )
    return float(found)
