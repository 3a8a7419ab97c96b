"""The blocked pattern of crossed effects: many small blocks, a dense corner, and between them only pairs that occur.

    | A_1             .    |        local:  (r, r, n)   A_i, one level of the largest factor each
    |      ...             |        cross:  (b, r, n)   rows below A_i of the first b shared coordinates
    |           A_n   .    |        pairs:  (r, E)      entries below A_i of the other shared coordinates: one
    | B_1  ...  B_n   S    |                            column for each level i and coordinate that meet in the data
                                    shared: (G, G)      S, dense

The first b shared coordinates are those that every row may touch (coefficients, dispersion, omega); the other m = G - b
are effects of the smaller factors. Eliminating the levels first fills the corner only. Unlike the arrow the pattern is
not closed under products (T_SS T_S1 would fill the cross block); the deterministic ascent does not need that. With no
other coordinates, m = 0, it is the arrow. The group axis is the last one; nothing of size n x m is ever formed.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax.linalg import cholesky as lower_cholesky
from jaxtyping import Array, Float, Int

from natvi.linalg import small_blocks
from natvi.linalg.arrow import ArrowVector
from natvi.linalg.dense import DenseFactor


class BlockedMatrix(NamedTuple):
    """A symmetric matrix on the pattern; of the parts off the diagonal only the lower ones are stored."""

    local: Float[Array, "r r n"]
    cross: Float[Array, "b r n"]
    pairs: Float[Array, "r E"]
    shared: Float[Array, "G G"]


class BlockedFactor(NamedTuple):
    """A lower triangular T on the pattern."""

    local: Float[Array, "r r n"]
    cross: Float[Array, "b r n"]
    pairs: Float[Array, "r E"]
    shared: Float[Array, "G G"]

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det T|`."""
        local = jnp.diagonal(self.local, axis1=0, axis2=1)
        return jnp.sum(jnp.log(jnp.abs(local))) + jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.shared))))


class CrossPattern(eqx.Module):
    """Which level meets which of the other shared coordinates, and the algebra that depends on it.

    Attributes:
        level: The level of every pair, sorted.
        coordinate: Its coordinate, 0 to m - 1.
        higher: Two pairs of the same level: the one with the higher coordinate.
        lower: The one with the lower coordinate.
    """

    level: Int[Array | np.ndarray, " E"]
    coordinate: Int[Array | np.ndarray, " E"]
    higher: Int[Array | np.ndarray, " Q"]
    lower: Int[Array | np.ndarray, " Q"]

    def cholesky(self, matrix: BlockedMatrix, differentiable: bool = False) -> BlockedFactor:
        """Return T with `T T' =` the matrix; NaN entries where it is not positive definite.

        The corner is filled below its diagonal only, which derivatives of the dense factorisation do not know: for
        them `differentiable` mirrors it.
        """
        # A_i = T_i T_i',  B_i = T_gi T_i',  S = T_g T_g' + sum_i T_gi T_gi'
        local = small_blocks.cholesky(matrix.local)
        cross = small_blocks.solve_lower(local, matrix.cross.swapaxes(0, 1)).swapaxes(0, 1)
        pairs = small_blocks.solve_lower(local[..., self.level], matrix.pairs)
        shared = self._add_eliminated(matrix.shared, cross, pairs, -1)
        if differentiable:
            shared = jnp.tril(shared) + jnp.tril(shared, -1).T
        return BlockedFactor(local, cross, pairs, jnp.tril(lower_cholesky(shared, symmetrize_input=False)))

    def square(self, factor: BlockedFactor) -> BlockedMatrix:
        """Return `T T'`."""
        local = jnp.einsum("ikn,jkn->ijn", factor.local, factor.local)
        cross = jnp.einsum("bkn,jkn->bjn", factor.cross, factor.local)
        pairs = jnp.einsum("jke,ke->je", factor.local[..., self.level], factor.pairs)
        shared = jnp.tril(self._add_eliminated(factor.shared @ factor.shared.T, factor.cross, factor.pairs, 1))
        return BlockedMatrix(local, cross, pairs, shared + jnp.tril(shared, -1).T)

    def _add_eliminated(
        self, shared: Float[Array, "G G"], cross: Float[Array, "b r n"], pairs: Float[Array, "r E"], sign: int
    ) -> Float[Array, "G G"]:
        """Return the corner plus or minus sum_i T_gi T_gi', below its diagonal only."""
        b = cross.shape[0]
        flat = sign * cross.reshape(b, -1)
        shared = shared.at[:b, :b].add(flat @ cross.reshape(b, -1).T)
        if b:
            m = shared.shape[0] - b
            sums = [jnp.zeros(m, row.dtype).at[self.coordinate].add(row) for row in self._met(cross, pairs)]
            shared = shared.at[b:, :b].add(sign * jnp.stack(sums, axis=1))
        at = b + self.coordinate
        shared = shared.at[at, at].add(sign * jnp.sum(pairs**2, axis=0))
        both = jnp.sum(pairs[:, self.higher] * pairs[:, self.lower], axis=0)
        return shared.at[at[self.higher], at[self.lower]].add(sign * both)

    def _met(self, cross: Float[Array, "b r n"], pairs: Float[Array, "r E"]) -> Float[Array, "b E"]:
        return jnp.sum(cross[..., self.level] * pairs, axis=1)

    def by_coordinate(self, values: Float[Array, " E"], like: BlockedMatrix | BlockedFactor) -> Float[Array, " m"]:
        """Return the sum over the pairs of every coordinate."""
        m = like.shared.shape[0] - like.cross.shape[0]
        return jnp.zeros(m, values.dtype).at[self.coordinate].add(values)

    def by_level(self, values: Float[Array, "r E"], num_levels: int) -> Float[Array, "r n"]:
        """Return the sum over the pairs of every level."""
        zeros = jnp.zeros(num_levels, values.dtype)
        return jnp.stack([zeros.at[self.level].add(row, indices_are_sorted=True) for row in values])

    def matvec(self, matrix: BlockedMatrix, x: ArrowVector) -> ArrowVector:
        """Return the product of the symmetric matrix with a vector."""
        b, n = matrix.cross.shape[0], x.local.shape[1]
        local = jnp.sum(matrix.local * x.local[None], axis=1) + self._upper(matrix, x.shared, b, n)
        return ArrowVector(local, self._lower(matrix, x.local) + matrix.shared @ x.shared)

    def solve(self, factor: BlockedFactor, x: ArrowVector) -> ArrowVector:
        """Return `T^-1 x`."""
        local = small_blocks.solve_lower(factor.local, x.local)
        return ArrowVector(local, DenseFactor(factor.shared).solve(x.shared - self._lower(factor, local)))

    def solve_transposed(self, factor: BlockedFactor, x: ArrowVector) -> ArrowVector:
        """Return `T^-T x`."""
        b, n = factor.cross.shape[0], x.local.shape[1]
        shared = DenseFactor(factor.shared).solve_transposed(x.shared)
        return ArrowVector(small_blocks.solve_upper(factor.local, x.local - self._upper(factor, shared, b, n)), shared)

    def _lower(self, parts: BlockedMatrix | BlockedFactor, local: Float[Array, "r n"]) -> Float[Array, " G"]:
        """Return the cross block times a vector of levels."""
        base = jnp.tensordot(parts.cross, local, axes=2)
        return jnp.append(base, self.by_coordinate(jnp.sum(parts.pairs * local[:, self.level], axis=0), parts))

    def _upper(
        self, parts: BlockedMatrix | BlockedFactor, shared: Float[Array, " G"], b: int, n: int
    ) -> Float[Array, "r n"]:
        """Return the transposed cross block times a vector of shared coordinates."""
        met = self.by_level(parts.pairs * shared[b:][self.coordinate], n)
        return jnp.tensordot(shared[:b], parts.cross, axes=1) + met


def cross_pattern(level: np.ndarray, coordinates: np.ndarray) -> tuple[CrossPattern, np.ndarray]:
    """Find the pairs that occur, and the pairs of pairs.

    Args:
        level: The level of the largest factor in every row `(N,)`.
        coordinates: The other coordinates that every row touches `(K, N)`.

    Returns:
        The pattern, with indices on the host, and the pair of every coordinate of every row `(K, N)`.

    Example:
        >>> pattern, pair = cross_pattern(np.array([0, 0, 1]), np.array([[0, 1, 1]]))
        >>> pattern.level.tolist(), pattern.coordinate.tolist(), pair.tolist()
        ([0, 0, 1], [0, 1, 1], [[0, 1, 2]])
    """
    width = int(coordinates.max(initial=-1)) + 1
    keys, pair = np.unique(level.astype(np.int64) * max(width, 1) + coordinates, return_inverse=True)
    return pattern_of_keys(keys, max(width, 1)), pair.reshape(coordinates.shape)


def pattern_of_keys(keys: np.ndarray, width: int) -> CrossPattern:
    """Return the pattern of the pairs that occur, given as sorted numbers `level * width + coordinate`."""
    at, coordinate = keys // width, keys % width
    higher, lower = _pairs_of_pairs(np.bincount(at)) if len(keys) else (np.zeros(0, int), np.zeros(0, int))
    return CrossPattern(*(part.astype(np.int32) for part in (at, coordinate, higher, lower)))


def count_pairs_of_pairs(level: np.ndarray) -> int:
    """Return how many pairs of pairs there are, from the levels of the pairs, before they are listed."""
    sizes = np.bincount(level).astype(np.int64)
    return int(np.sum(sizes * (sizes - 1) // 2))


def _pairs_of_pairs(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of all two different members of each of consecutive groups, the later one first."""
    starts = np.cumsum(sizes) - sizes
    within = np.arange(sizes.sum()) - np.repeat(starts, sizes)  # the member k of a group has k before it
    later = np.repeat(np.arange(len(within)), within)
    offset = np.arange(len(later)) - np.repeat(np.cumsum(within) - within, within)
    return later, np.repeat(starts, sizes)[later] + offset
