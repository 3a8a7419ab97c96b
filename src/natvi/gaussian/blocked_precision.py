"""N(mu, (T T')^-1) with T on the blocked pattern: the Gaussian of crossed effects.

The shared coordinates theta_g (coefficients, dispersion, omega, effects of the smaller factors) have a dense covariance
Sigma_g; a level of the largest factor regresses on those it meets:

    u_i - mu_i = T_i^-T (z_i - T_gi' (theta_g - mu_g)).

All that marginals need of T_gi' Sigma_g is its columns of coordinates that level i meets: k_i^2 look-ups of Sigma_g.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.linalg import ArrowVector, small_blocks
from natvi.linalg.crossed.blocked import BlockedFactor, BlockedMatrix, CrossPattern
from natvi.linalg.crossed.rows import CrossedRows
from natvi.linalg.dense import inverse_gram
from natvi.linalg.grouped_rows import RowMoments


class Reach(NamedTuple):
    """T_gi' Sigma_g where it is needed, and T_gi' Sigma_g T_gi.

    Attributes:
        base: Its columns of the first b shared coordinates.
        pairs: Its columns of the others that level i meets.
        own: T_gi' Sigma_g T_gi.
    """

    base: Float[Array, "r b n"]
    pairs: Float[Array, "r E"]
    own: Float[Array, "r r n"]


class BlockedPrecision(eqx.Module):
    """The Gaussian: mean, factor, the covariance of the shared coordinates, and how levels reach into it."""

    mean: ArrowVector
    factor: BlockedFactor
    covariance: Float[Array, "G G"]
    reach: Reach
    pattern: CrossPattern

    @classmethod
    def from_natural(cls, linear: ArrowVector, precision: BlockedMatrix, pattern: CrossPattern) -> "BlockedPrecision":
        """Build the Gaussian from its natural parameters Sigma^-1 mu and Sigma^-1."""
        factor = pattern.cholesky(precision)
        mean = pattern.solve_transposed(factor, pattern.solve(factor, linear))
        covariance = inverse_gram(factor.shared)
        return cls(mean, factor, covariance, _reach(factor, covariance, pattern), pattern)

    def marginals(self) -> "BlockedPrecision":
        """Return itself: it is what a target asks for."""
        return self

    @property
    def b(self) -> int:
        """The number of shared coordinates before the effects of the smaller factors."""
        return self.factor.cross.shape[0]

    @property
    def dimension(self) -> int:
        """The length of theta."""
        return self.mean.local.size + self.mean.shared.size

    def push(self, z: ArrowVector) -> ArrowVector:
        """Return theta = mu + T^-T z."""
        move = self.pattern.solve_transposed(self.factor, z)
        return ArrowVector(self.mean.local + move.local, self.mean.shared + move.shared)

    def sample(self, key: PRNGKeyArray) -> ArrowVector:
        """Draw one theta."""
        local, shared = jax.random.split(key)
        z = jax.random.normal(local, self.mean.local.shape), jax.random.normal(shared, self.mean.shared.shape)
        return self.push(ArrowVector(*z))

    def entropy(self) -> Float[Array, ""]:
        """Return -E log q = (d/2)(1 + log 2 pi) - log |T|."""
        return 0.5 * self.dimension * (1 + jnp.log(2 * jnp.pi)) - self.factor.log_determinant()

    def shared_covariance(self) -> Float[Array, "b b"]:
        """Return the covariance of the first b shared coordinates."""
        return self.covariance[: self.b, : self.b]

    def row_moments(self, design: CrossedRows, with_shared: tuple[int, ...] = ()) -> RowMoments:
        """Return the marginal moments of every row, and covariances with some of the first b coordinates.

        With c the row on the shared coordinates and w = T_i^-1 z,
        Var = |w|^2 + c' Sigma c - 2 w' T_gi' Sigma c + w' T_gi' Sigma T_gi w.
        """
        rows, b, Sigma = design.rows, self.b, self.covariance
        X, p = rows.X, rows.X.shape[0]
        w = small_blocks.solve_lower(rows.per_chunk(self.factor.local), rows.Z)
        reach, own = rows.per_chunk(self.reach.base), rows.per_chunk(self.reach.own)
        cells = X.shape[1] * X.shape[2]
        variance = jnp.sum((Sigma[:p, :p] @ X.reshape(p, cells)).reshape(X.shape) * X, axis=0) + jnp.sum(w**2, axis=0)
        through = jnp.sum(reach[:, :p, None] * X[None], axis=1)  # T_gi' Sigma c
        for k, (s, at, pair) in enumerate(zip(design.value, design.coordinate, design.pair, strict=True)):
            at = b + at
            along = sum((Sigma[a][at] * X[a] for a in range(p)), jnp.zeros_like(s))
            for t, other in zip(design.value[:k], design.coordinate[:k], strict=True):
                along += t * Sigma[at, b + other]
            variance += s * (s * jnp.diagonal(Sigma)[at] + 2.0 * along)
            through += s * self.reach.pairs[:, pair]
        square = sum(
            (w[i] * w[j] * own[i, j][None] for i in range(len(w)) for j in range(len(w))), jnp.zeros_like(variance)
        )
        variance += square - 2.0 * jnp.sum(w * through, axis=0)
        covariance = [
            jnp.tensordot(Sigma[d, :p], X, axes=1)
            + design.crossed(Sigma[d, b:])
            - jnp.sum(w * reach[:, d, None], axis=0)
            for d in with_shared
        ]
        stacked = jnp.stack(covariance) if covariance else jnp.zeros((0, *variance.shape))
        return RowMoments(design.predictor(self.mean), jnp.maximum(variance, 0.0), stacked)

    def level_moments(self, start: int, stop: int) -> tuple[Float[Array, "k n"], Float[Array, "k k n"]]:
        """Return mean and covariance of (u_i, theta_g[start:stop]) for every level of the largest factor."""
        T, n = self.factor.local, self.mean.local.shape[1]
        inside = small_blocks.identities(T) + self.reach.own
        half = small_blocks.solve_upper(T, inside)  # T_i^-T (I + T_gi' Sigma T_gi)
        local = small_blocks.solve_upper(T, half.swapaxes(0, 1))
        mixed = -small_blocks.solve_upper(T, self.reach.base[:, start:stop])
        corner = jnp.broadcast_to(self.covariance[start:stop, start:stop, None], (stop - start, stop - start, n))
        covariance = _bordered(local, mixed, corner)
        shared = jnp.broadcast_to(self.mean.shared[start:stop, None], (stop - start, n))
        return jnp.concatenate([self.mean.local, shared]), covariance

    def effect_moments(
        self, first: int, shape: tuple[int, int], start: int, stop: int
    ) -> tuple[Float[Array, "k n"], Float[Array, "k k n"]]:
        """Return mean and covariance of (v_j, theta_g[start:stop]) for every level of a smaller factor.

        Args:
            first: The shared coordinate at which its effects begin, effect after effect.
            shape: How many effects, and levels.
            start: Of the other shared coordinates.
            stop: Of the other shared coordinates.
        """
        r, n = shape
        at = first + jnp.arange(r * n).reshape(r, n)
        local = self.covariance[at[:, None], at[None]]
        mixed = jnp.moveaxis(self.covariance[start:stop][:, at], 0, 1)
        corner = jnp.broadcast_to(self.covariance[start:stop, start:stop, None], (stop - start, stop - start, n))
        shared = jnp.broadcast_to(self.mean.shared[start:stop, None], (stop - start, n))
        return jnp.concatenate([self.mean.shared[at], shared]), _bordered(local, mixed, corner)

    def marginal_sds(self) -> ArrowVector:
        """Return the standard deviation of every coordinate."""
        _, local = self.level_moments(0, 0)
        variances = jnp.diagonal(local, axis1=0, axis2=1).T
        return ArrowVector(jnp.sqrt(variances), jnp.sqrt(jnp.diagonal(self.covariance)))


def _bordered(local: Array, mixed: Array, corner: Array) -> Float[Array, "k k n"]:
    above = jnp.concatenate([local, mixed], axis=1)
    return jnp.concatenate([above, jnp.concatenate([mixed.swapaxes(0, 1), corner], axis=1)])


def _reach(factor: BlockedFactor, Sigma: Float[Array, "G G"], pattern: CrossPattern) -> Reach:
    """Return T_gi' Sigma_g on the columns that are needed: a sum over what level i meets."""
    (b, r, n), pairs = factor.cross.shape, factor.pairs
    at = b + pattern.coordinate
    base = jnp.einsum("brn,ba->ran", factor.cross, Sigma[:b, :b])
    met = [pattern.by_level(pairs * Sigma[a][at], n) for a in range(b)]
    base = base + jnp.stack(met, axis=1) if b else base
    through = jnp.stack([Sigma[a][at] for a in range(b)]) if b else jnp.zeros((0, at.shape[0]))
    columns = jnp.einsum("bre,be->re", factor.cross[..., pattern.level], through) if b else jnp.zeros_like(pairs)
    columns = columns + pairs * jnp.diagonal(Sigma)[at]
    between = Sigma[at[pattern.higher], at[pattern.lower]]
    rows = []
    for column, own in zip(columns, pairs, strict=True):
        column = column.at[pattern.higher].add(own[pattern.lower] * between, indices_are_sorted=True)
        rows.append(column.at[pattern.lower].add(own[pattern.higher] * between))
    columns = jnp.stack(rows)
    own = jnp.einsum("ran,asn->rsn", base, factor.cross)
    own = own + jnp.stack([pattern.by_level(columns * pairs[s], n) for s in range(r)], axis=1)
    return Reach(base, columns, own)
