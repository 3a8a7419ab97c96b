"""Rows of data under crossed factors: the design operator on the blocked pattern.

A row with covariates x and z, in level i of the largest factor, has the linear predictor

    eta = offset + x' beta + z' u_i + sum_k s_k v_{j_k},

where v are the effects of all smaller factors and each row touches the same number K of them. The rows are laid out by
the levels of the largest factor, as for one factor (`grouped_rows`).
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natvi.linalg.arrow import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.linalg.grouped_rows import GroupedRows


class CrossedRows(eqx.Module):
    """The design operator.

    Attributes:
        rows: x, z and the offset, by level of the largest factor.
        coordinate: Which of v the row touches, j_k.
        value: With which factor, s_k; zero in cells without a row.
        pair: Which pair (i, j_k) of the pattern that is.
        num_coordinates: m, the length of v.
        num_pairs: E.
    """

    rows: GroupedRows
    coordinate: Int[Array, "K c C"]
    value: Float[Array, "K c C"]
    pair: Int[Array, "K c C"]
    num_coordinates: int = eqx.field(static=True)
    num_pairs: int = eqx.field(static=True)

    def predictor(self, theta: ArrowVector) -> Float[Array, "c C"]:
        """Return eta for every cell; v stands at the end of the shared coordinates."""
        v = theta.shared[theta.shared.shape[0] - self.num_coordinates :]
        return self.rows.predictor(theta) + self.crossed(v)

    def crossed(self, v: Float[Array, " m"]) -> Float[Array, "c C"]:
        """Return sum_k s_k v_{j_k}."""
        parts = [s * v[at] for s, at in zip(self.value, self.coordinate, strict=True)]
        return sum(parts, jnp.zeros_like(self.rows.offset))

    def transposed_product(self, weight: Float[Array, "c C"], b: int) -> ArrowVector:
        """Return A' w, its shared part `(b + m,)`."""
        local, beta = self.rows.transposed_product(weight)
        base = jnp.zeros(b).at[: beta.shape[0]].set(beta)
        return ArrowVector(local, jnp.append(base, self._by_coordinate(weight)))

    def _by_coordinate(self, weight: Float[Array, "c C"]) -> Float[Array, " m"]:
        total = jnp.zeros(self.num_coordinates)
        for s, at in zip(self.value, self.coordinate, strict=True):
            total = total.at[at.ravel()].add((s * weight).ravel())
        return total

    def gram(self, weight: Float[Array, "c C"], b: int) -> BlockedMatrix:
        """Return A' W A on the pattern, with b shared coordinates before v, the first p of them coefficients."""
        local, cross, corner = self.rows.gram(weight)
        p, (r, n) = corner.shape[0], local.shape[1:]
        shared = jnp.zeros((b + self.num_coordinates,) * 2).at[:p, :p].set(corner)
        for a in range(p):
            column = self._by_coordinate(weight * self.rows.X[a])
            shared = shared.at[b:, a].set(column).at[a, b:].set(column)
        for k, (s, at) in enumerate(zip(self.value, self.coordinate, strict=True)):
            at = b + at.ravel()
            shared = shared.at[at, at].add((weight * s * s).ravel())
            for t, other in zip(self.value[:k], self.coordinate[:k], strict=True):
                both, other = (weight * s * t).ravel(), b + other.ravel()
                shared = shared.at[at, other].add(both).at[other, at].add(both)
        whole = jnp.zeros((b, r, n)).at[:p].set(cross)
        return BlockedMatrix(local, whole, self.by_pair(self.rows.Z * weight), shared)

    def by_pair(self, weight: Float[Array, "r c C"]) -> Float[Array, "r E"]:
        """Return the sum of s_k w over the rows of every pair."""
        found = []
        for row in weight:
            total = jnp.zeros(self.num_pairs)
            for s, at in zip(self.value, self.pair, strict=True):
                total = total.at[at.ravel()].add((s * row).ravel())
            found.append(total)
        return jnp.stack(found)

    def with_dispersion(
        self, matrix: BlockedMatrix, mixed: Float[Array, "q c C"], own: Float[Array, "q q"]
    ) -> BlockedMatrix:
        """Add the dispersion's rows, which stand after the coefficients: A' w, and their own entries."""
        b, p, q = matrix.cross.shape[0], self.rows.X.shape[0], own.shape[0]
        cross, shared = matrix.cross, matrix.shared.at[p : p + q, p : p + q].add(own)
        for k, weight in enumerate(mixed, p):
            local, row = self.transposed_product(weight, b)
            row = row.at[p : p + q].set(0.0)
            shared, cross = shared.at[k].add(row).at[:, k].add(row), cross.at[k].add(local)
        return matrix._replace(cross=cross, shared=shared)
