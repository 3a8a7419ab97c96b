"""Rows of data that belong to groups: the design operator of mixed models.

A row with covariates x and z in group i has the linear predictor eta = x' beta + z' theta_i. The operator owns
the two products that matter: the marginal mean and variance of eta under a Gaussian, and the gram A' W A
accumulated on the arrow pattern.

Layout: the rows of a group fill chunks of c cells; X is `(p, c, K)` with K chunks. The first n chunks are the
first chunk of each group, the rest (`extra`) are further chunks of larger groups. Sums over a group are then
a sum over the short middle axis plus a scatter over the few extra chunks, and every contraction over rows is
one matrix product of p x cK. Cells without a row are masked by `where`. Groups of one chunk come first, so that
very many of them can be worked through in blocks that fit the processor's cache.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from natvi.linalg import small_blocks
from natvi.linalg.arrow import ArrowFactor, ArrowVector
from natvi.linalg.buckets import CHUNKS, LARGEST, bucket


class RowMoments(NamedTuple):
    """Marginal law of each row's predictor, and its covariance with the shared coordinates asked for."""

    mean: Float[Array, "c K"]
    variance: Float[Array, "c K"]
    covariance: Float[Array, "k c K"]


class GroupedRows(eqx.Module):
    """The design operator; `X` acts on the first p shared coordinates, `Z` on the local ones.

    The first `num_simple` groups have one chunk each.
    """

    X: Float[Array, "p c K"]
    Z: Float[Array, "r c K"]
    offset: Float[Array, "c K"]
    filled: Bool[Array, "c K"]
    extra: Int[Array, " E"]
    num_simple: int = eqx.field(static=True)

    def block(self, start: Int[Array, ""] | int, size: int) -> "GroupedRows":
        """Return the rows of the groups `start` to `start + size`, which must have one chunk each."""

        def cut(a: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(a, start, size, axis=-1)

        return GroupedRows(
            cut(self.X), cut(self.Z), cut(self.offset), cut(self.filled), self.extra[:0], num_simple=size
        )

    def rest(self, start: int) -> "GroupedRows":
        """Return the rows of all groups from `start` on, extra chunks included."""
        return GroupedRows(
            self.X[..., start:],
            self.Z[..., start:],
            self.offset[..., start:],
            self.filled[..., start:],
            self.extra - start,
            num_simple=self.num_simple - start,
        )

    def per_chunk(self, by_group: Float[Array, "*a n"]) -> Float[Array, "*a K"]:
        """Repeat a quantity of each group for each of its chunks."""
        if self.extra.shape[0] == 0:
            return by_group
        return jnp.concatenate([by_group, by_group[..., self.extra]], axis=-1)

    def per_group(self, by_chunk: Float[Array, "*a K"]) -> Float[Array, "*a n"]:
        """Sum a quantity of each chunk over its group."""
        if self.extra.shape[0] == 0:
            return by_chunk
        n = by_chunk.shape[-1] - self.extra.shape[0]
        rest = by_chunk[..., n:]
        return by_chunk[..., :n].at[..., self.extra].add(rest, indices_are_sorted=True)

    def predictor(self, theta: ArrowVector) -> Float[Array, "c K"]:
        """Return eta = offset + X' beta + Z' theta_i for every cell."""
        p = self.X.shape[0]
        local = self.per_chunk(theta.local)
        return self.offset + jnp.tensordot(theta.shared[:p], self.X, axes=1) + jnp.sum(self.Z * local[:, None], 0)

    def moments(
        self,
        mean: ArrowVector,
        factor: ArrowFactor,
        inverse_shared: Float[Array, "g g"],
        with_shared: tuple[int, ...],
    ) -> RowMoments:
        """Return the marginal moments of every row under N(mean, (T T')^-1).

        With a = (z, x) the row, Var eta = |T^-1 a|^2: a sum of squares, so nothing cancels.
        """
        p, r = self.X.shape[0], self.Z.shape[0]
        # first part of T^-1 a:  w = T_i^-1 z;  second:  T_g^-1 (x - T_gi w)
        w = small_blocks.solve_lower(self.per_chunk(factor.local), self.Z)
        cross = self.per_chunk(factor.cross)
        rest = -sum((cross[:, k, None] * w[k] for k in range(1, r)), cross[:, 0, None] * w[0])
        rest = jnp.concatenate([self.X + rest[:p], rest[p:]])
        whitened = (inverse_shared @ rest.reshape(rest.shape[0], -1)).reshape(rest.shape)
        variance = jnp.sum(w**2, axis=0) + jnp.sum(whitened**2, axis=0)
        columns = inverse_shared[:, list(with_shared)]
        covariance = jnp.tensordot(columns.T, whitened, axes=1)
        return RowMoments(self.predictor(mean), variance, covariance)

    def transposed_product(self, weight: Float[Array, "c K"]) -> tuple[Float[Array, "r n"], Float[Array, " p"]]:
        """Return A' w: its local part and its part on the p coefficients."""
        local = self.per_group(jnp.sum(self.Z * weight, axis=1))
        return local, jnp.tensordot(self.X, weight, axes=2)

    def gram(
        self, weight: Float[Array, "c K"]
    ) -> tuple[Float[Array, "r r n"], Float[Array, "p r n"], Float[Array, "p p"]]:
        """Return A' W A on the pattern: its local blocks, cross blocks and block on the p coefficients."""
        p = self.X.shape[0]
        weighted = self.Z * weight
        local = self.per_group(jnp.sum(self.Z[:, None] * weighted[None], axis=2))
        cross = self.per_group(
            jnp.stack([jnp.sum(self.X * weighted[k], axis=1) for k in range(self.Z.shape[0])], axis=1)
        )
        cells = weight.size  # -1 is undefined where p is 0
        shared = (self.X * weight).reshape(p, cells) @ self.X.reshape(p, cells).T
        return local, cross, shared


class RowLayout(NamedTuple):
    """Where each row of the data lives in the chunked layout, and each group in its order of work."""

    cell: np.ndarray  # (N,) index into the flattened (c, K) grid, in the order of the data
    shape: tuple[int, int]
    extra: np.ndarray
    num_simple: int
    place_of_group: np.ndarray  # (n,) position of each group of the data in the layout
    num_places: int  # n, or more: the last ones are empty

    def real_groups(self) -> np.ndarray | None:
        """Return which places hold a group, or None where all do."""
        if len(self.place_of_group) == self.num_places:
            return None
        return np.arange(self.num_places) < len(self.place_of_group)

    def place(self, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """Lay values `(..., N)` out on the grid `(..., c, K)`."""
        grid = np.full((*values.shape[:-1], self.shape[0] * self.shape[1]), fill, dtype=values.dtype)
        grid[..., self.cell] = values
        return grid.reshape(*values.shape[:-1], *self.shape)


class Room(NamedTuple):
    """A layout that several parts of the data share, so that they run one program: none of them needs more.

    Attributes:
        cells: Of a chunk.
        places: For groups.
        extra: Further chunks.
        num_simple: Groups of one chunk that every part has at least.
    """

    cells: int
    places: int
    extra: int
    num_simple: int

    @classmethod
    def needed(cls, sizes: np.ndarray, cells: int) -> "Room":
        """Return what groups of these sizes need.

        Example:
            >>> Room.needed(np.array([1, 3, 4]), cells=3)
            Room(cells=3, places=3, extra=1, num_simple=2)
        """
        return cls(cells, len(sizes), int(np.sum(-(-sizes // cells) - 1)), int(np.sum(sizes <= cells)))


def chunk_size(sizes: np.ndarray) -> int:
    """Choose the cells per chunk that make padding plus scattered chunks cheapest."""
    return chunk_size_of(*np.unique(sizes, return_counts=True))


def chunk_size_of(values: np.ndarray, counts: np.ndarray) -> int:
    """Choose the cells per chunk from the sizes of groups, ascending, and how many have each."""
    least = next((c for c in CHUNKS if c >= values[-1]), values[-1])
    candidates = [c for c in (*CHUNKS, 96, 128, 192, 256) if c <= least]

    def cost(c: int) -> float:
        chunks = float(np.sum(-(-values // c) * counts))
        # a padded cell costs about one row; an extra chunk is scattered, about three rows
        return c * chunks + 3.0 * (chunks - float(counts.sum()))

    return min(candidates, key=cost)


def layout_rows(group: np.ndarray, num_groups: int, fill_up: bool = False, common: Room | None = None) -> RowLayout:
    """Plan the chunks for rows whose group codes are 0..n-1 (any order, every group at least once).

    Args:
        group: The code of every row.
        num_groups: n.
        fill_up: Whether to add empty groups and chunks up to the next of few sizes (`buckets`).
        common: The room to lay them out in, where other parts of the data run the same program.

    Example:
        >>> plan = layout_rows(np.array([0, 0, 1]), 2)
        >>> plan.shape
        (2, 2)
    """
    sizes = np.bincount(group, minlength=num_groups)
    c = chunk_size(sizes) if common is None else common.cells
    simple = sizes <= c
    place = np.empty(num_groups, dtype=np.int64)
    place[np.argsort(~simple, kind="stable")] = np.arange(num_groups)
    group, sizes = place[group], sizes[np.argsort(~simple, kind="stable")]
    order = np.argsort(group, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - np.repeat(starts, sizes)
    further = -(-sizes // c) - 1
    num_extra = int(further.sum())
    places, room = (bucket(num_groups), bucket(num_extra)) if fill_up else (num_groups, num_extra)
    if common is not None:
        places, room = common.places, common.extra
    first_extra = places + np.concatenate([[0], np.cumsum(further)[:-1]])
    chunk = np.where(rank < c, group, first_extra[group] + rank // c - 1)
    K = places + room
    extra = np.concatenate([np.repeat(np.arange(num_groups), further), np.full(room - num_extra, places - 1)])
    # few groups are not worked through in blocks, so their number of simple ones need not make another program
    num_simple = 0 if fill_up and num_groups <= LARGEST else int(simple.sum())
    if common is not None:
        num_simple = common.num_simple
    return RowLayout((rank % c) * K + chunk, (c, K), extra, num_simple, place, places)
