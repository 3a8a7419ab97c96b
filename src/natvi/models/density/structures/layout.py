"""Which free numbers are local and which are shared: found from the sparsity of the Hessian.

A column of the Hessian is one Hessian-vector product. Its entries that are not zero are the numbers it meets. Numbers
that meet very many others are shared; what is left falls into pieces that do not meet. Where the pieces are small, the
precision matrix of the posterior lies on an arrow.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natvi.run.compiled_code import quick_jit
from natvi.x64 import float64

COLUMNS = 64  # Hessian-vector products at once
MOST_DIMENSIONS = 20_000  # beyond which the columns are too many to look at
LARGEST_PIECE = 16  # numbers of a local block
LARGEST_SHARED = 300
FEW = 300  # dimensions in which every limit is tried
MOST_OF_FEW = 16  # shared numbers, where these may be up to half of all
FULL = 0.25  # share of a column that is not zero, from which the Hessian counts as full
STEP, ROUNDING = 1e-3, 1e-6  # of differences, in sds; entries below are rounding, relative to a column's largest
DISTURBANCE = 0.1  # around the start: at zero some products vanish that do not elsewhere


class Layout(NamedTuple):
    """The arrow's places in the free vector.

    Attributes:
        local: Places of the local numbers `(r, n)`, group by group; -1 where a group has fewer.
        shared: Places of the shared numbers.
    """

    local: Int[np.ndarray, "r n"]
    shared: Int[np.ndarray, " g"]

    @property
    def dimension(self) -> int:
        """How many numbers there are."""
        return int(np.sum(self.local >= 0)) + len(self.shared)

    def split(self, x: Float[np.ndarray, "s d"]) -> tuple[Float[np.ndarray, "s r n"], Float[np.ndarray, "s g"]]:
        """Return the local and the shared part of vectors; zeros where a group has fewer."""
        longer = np.concatenate([x, np.zeros((len(x), 1))], axis=1)
        return longer[:, self.local], x[:, self.shared]

    def join(self, local: Float[np.ndarray, "s r n"], shared: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s d"]:
        """Return vectors of both parts."""
        x = np.zeros((len(local), self.dimension + 1))
        x[:, self.local] = local
        x[:, self.shared] = shared
        return x[:, :-1]


def find_arrow(density: Callable[[Float[Array, " d"]], Any], start: Float[np.ndarray, " d"]) -> Layout | None:
    """Return the arrow on which the Hessian lies, or None where it lies on none.

    Args:
        density: The log-density of the free vector.
        start: Where it is finite.

    Example:
        >>> def density(t):
        ...     return -jnp.sum(t[1:] ** 2 * (1 + t[0] ** 2)) - t[0] ** 4
        >>> find_arrow(density, np.ones(40)).shared.tolist()
        [0]
    """
    if len(start) > MOST_DIMENSIONS:
        return None
    columns = _columns(density, start)
    return None if columns is None else arrow_of(columns)


def _columns(density: Callable[..., Any], start: np.ndarray) -> list[np.ndarray] | None:
    """Return, for every column of the Hessian, where it is not zero; None for a full or unsound one."""
    d, rng = len(start), np.random.default_rng(0)
    point = start + DISTURBANCE * rng.uniform(-1, 1, d)
    order = rng.permutation(d)  # what the first columns tell, any columns tell
    found: list[np.ndarray] = [np.zeros(0, int)] * d
    with float64():
        gradient = jax.grad(lambda t: jnp.asarray(density(t), t.dtype))

        def products(at: Array, theta: Array) -> Array:
            def product(j: Array) -> Array:
                return jax.jvp(gradient, (theta,), (jnp.zeros_like(theta).at[j].set(1.0),))[1]

            return jax.vmap(product)(at)

        program = quick_jit(products)
        for first in range(0, d, COLUMNS):
            at = order[first : first + COLUMNS]
            whole = np.resize(at, COLUMNS)
            values = np.asarray(program(whole, point))[: len(at)]
            if not np.all(np.isfinite(values)):
                return None
            # below rounding of the column's largest entry a number is no entry
            kept = np.abs(values) > 1e-12 * np.max(np.abs(values), axis=1, keepdims=True)
            if first == 0 and d > FEW and np.median(np.mean(kept, axis=1)) > FULL:
                return None
            for j, row in zip(at, kept, strict=True):
                found[j] = np.flatnonzero(row)
    return found


def find_arrow_near(
    look: Callable[[Float[np.ndarray, "s d"]], Any], mean: Float[np.ndarray, " d"], sds: Float[np.ndarray, " d"]
) -> Layout | None:
    """Return the arrow on which the Hessian lies around a Gaussian, by differences of gradients: nothing is compiled.

    Args:
        look: From points to what has their gradients.
        mean: Of the Gaussian.
        sds: Of its coordinates, in which the entries are measured.
    """
    d, rng = len(mean), np.random.default_rng(0)
    point = mean + DISTURBANCE * sds * rng.uniform(-1, 1, d)
    H = differences(look, point, sds, np.eye(d))
    if not np.all(np.isfinite(H)):
        return None
    size = np.abs(H * sds)
    return arrow_of([np.flatnonzero(row > ROUNDING * np.max(row, initial=1e-300)) for row in size])


def differences(
    look: Callable[[Float[np.ndarray, "s d"]], Any],
    point: Float[np.ndarray, " d"],
    sds: Float[np.ndarray, " d"],
    directions: Float[np.ndarray, "k d"],
) -> Float[np.ndarray, "k d"]:
    """Return Hessian-vector products H (sds * v) by differences of gradients to both sides."""
    steps = STEP * sds * directions
    with np.errstate(all="ignore"):
        ahead, behind = np.split(look(np.concatenate([point + steps, point - steps])).gradients, 2)
        return (ahead - behind) / (2.0 * STEP)


def arrow_of(columns: list[np.ndarray]) -> Layout | None:
    """Return the arrow with the fewest shared numbers on which a sparsity pattern lies, or None."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    d = len(columns)
    counts = np.array([len(column) for column in columns])
    rows, at = np.concatenate(columns), np.repeat(np.arange(d), counts)
    pattern = coo_array((np.ones(len(rows)), (rows, at)), shape=(d, d)).tocsr()
    # a number is shared if it meets more than others do: try from the strictest limit on
    limits = np.unique(counts)[::-1][1:] if d <= FEW else (d // 4, d // 16, LARGEST_SHARED, 64, 32, LARGEST_PIECE)
    for limit in limits:
        shared = np.flatnonzero(counts > limit)
        rest = np.flatnonzero(counts <= limit)
        if len(shared) > min(LARGEST_SHARED, max(d // 4, min(d // 2, MOST_OF_FEW))) or not len(rest):
            continue
        count, label = connected_components(pattern[rest][:, rest], directed=False)
        sizes = np.bincount(label, minlength=count)
        if sizes.max() <= LARGEST_PIECE and (count > 2 or d > FEW):
            local = np.full((sizes.max(), count), -1)
            order = np.argsort(label, kind="stable")
            place = np.arange(len(rest)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            local[place, label[order]] = rest[order]
            return Layout(local, shared)
    return None
