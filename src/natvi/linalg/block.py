"""A block-diagonal lower triangular factor with blocks of different sizes, computed in batches of equal size."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import small_blocks


@dataclass(frozen=True)
class BlockLayout:
    """Which coordinates of a flat vector form each block; equal sizes are stacked."""

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse empty blocks."""
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"Block sizes must be positive whole numbers; got {self.sizes!r}.")

    @cached_property
    def indices(self) -> tuple[np.ndarray, ...]:
        """For each distinct size m the coordinates `(m, k)` of its k blocks."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        sizes = np.asarray(self.sizes)
        return tuple(starts[sizes == m] + np.arange(m)[:, None] for m in np.unique(sizes))

    @property
    def dimension(self) -> int:
        """The length of the vector."""
        return sum(self.sizes)


class BlockFactor(eqx.Module):
    """A block-diagonal F: one stack `(m, m, k)` of lower triangular blocks for every distinct size m."""

    stacks: tuple[Float[Array, "_ _ _"], ...]
    layout: BlockLayout = eqx.field(static=True)

    @classmethod
    def identity(cls, sizes: tuple[int, ...], scale: float = 1.0) -> "BlockFactor":
        """Return a multiple of the identity with blocks of the given sizes."""
        layout = BlockLayout(tuple(sizes))
        stacks = (jnp.repeat(scale * jnp.eye(len(i))[..., None], i.shape[1], axis=2) for i in layout.indices)
        return cls(tuple(stacks), layout)

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        return sum(m * (m + 1) // 2 for m in self.layout.sizes)

    def product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F x`."""
        return self._apply(lambda F, b: jnp.einsum("ijk,jk->ik", F, b), x)

    def transposed_product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F' x`."""
        return self._apply(lambda F, b: jnp.einsum("jik,jk->ik", F, b), x)

    def solve(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-1 b`."""
        return self._apply(small_blocks.solve_lower, b)

    def solve_transposed(self, b: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `F^-T b`."""
        return self._apply(small_blocks.solve_upper, b)

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det F|`; a negative diagonal entry is harmless."""
        return jnp.sum(jnp.log(jnp.abs(self.diagonal())))

    def diagonal(self) -> Float[Array, " d"]:
        """Return the diagonal."""
        return self._flat([jnp.diagonal(F, axis1=0, axis2=1).T for F in self.stacks])

    def with_diagonal(self, values: Float[Array, " d"]) -> "BlockFactor":
        """Return the factor with another diagonal."""
        return self._map(
            lambda F, v: F + jnp.eye(len(F))[..., None] * (v[:, None] - F),
            [values[i] for i in self.layout.indices],
        )

    def row_norms(self) -> Float[Array, " d"]:
        """Return the norm of every row: the marginal sds of a covariance factor."""
        return self._flat([jnp.sqrt(jnp.sum(F**2, axis=1)) for F in self.stacks])

    def outer(self, a: Float[Array, " d"], b: Float[Array, " d"]) -> "BlockFactor":
        """Return `a b'` on the pattern."""
        pieces = [a[i][:, None] * b[i][None] for i in self.layout.indices]
        return self._map(lambda F, piece: _lower(piece), pieces)

    def half_transposed_product(self, G: "BlockFactor") -> "BlockFactor":
        """Return half(F' G): the lower triangle of each block with the diagonal halved."""
        return self._map(lambda F, g: _half(jnp.einsum("jik,jlk->ilk", F, g)), G.stacks)

    def multiply(self, H: "BlockFactor") -> "BlockFactor":
        """Return `F H`, which has the same pattern."""
        return self._map(lambda F, h: jnp.einsum("ijk,jlk->ilk", F, h), H.stacks)

    def curvature_covariance(self, hess: tuple[Float[Array, "_ _ _"], ...]) -> "BlockFactor":
        """Return `hess F` on the pattern, from the stacked diagonal blocks of the Hessian: F1 of Theorem 2."""
        return self._map(lambda F, h: _lower(jnp.einsum("ijk,jlk->ilk", h, F)), hess)

    def _apply(self, op: Callable[[Array, Array], Array], x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self._flat([op(F, x[i]) for F, i in zip(self.stacks, self.layout.indices, strict=True)])

    def _flat(self, pieces: list[Array]) -> Float[Array, " d"]:
        order = np.argsort(np.concatenate([i.ravel() for i in self.layout.indices]))
        return jnp.concatenate([piece.reshape(-1) for piece in pieces])[order]

    def _map(self, op: Callable[[Array, Array], Array], others: tuple[Array, ...] | list[Array]) -> "BlockFactor":
        return BlockFactor(tuple(op(F, g) for F, g in zip(self.stacks, others, strict=True)), self.layout)


def _lower(A: Float[Array, "m m k"]) -> Float[Array, "m m k"]:
    return A * jnp.tril(jnp.ones(A.shape[:2], A.dtype))[..., None]


def _half(A: Float[Array, "m m k"]) -> Float[Array, "m m k"]:
    return _lower(A) * (1.0 - 0.5 * jnp.eye(len(A), dtype=A.dtype))[..., None]
