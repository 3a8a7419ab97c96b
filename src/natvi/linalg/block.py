"""A block-diagonal lower triangular factor with blocks of different sizes, computed in batches of equal size."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import half_outer, small_blocks
from natvi.linalg.on_demand import Symmetric

Stacks = tuple[Float[Array, "_ _ _"], ...]  # one stack `(m, m, k)` for every distinct size m


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

    @property
    def in_small_blocks(self) -> bool:
        """Whether each entry meets few others: yes, those of its block."""
        return True

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

    def inverse_column_norms(self) -> Float[Array, " d"]:
        """Return the norm of every column of `F^-1`: the marginal sds of a precision factor."""
        return self._flat([small_blocks.inverse_column_norms(F) for F in self.stacks])

    def outer(self, a: Float[Array, " d"], b: Float[Array, " d"]) -> "BlockFactor":
        """Return `a b'` on the pattern."""
        pieces = [a[i][:, None] * b[i][None] for i in self.layout.indices]
        return self._map(lambda F, piece: small_blocks.lower(piece), pieces)

    def half_transposed_product(self, G: "BlockFactor") -> "BlockFactor":
        """Return half(F' G): the lower triangle of each block with the diagonal halved."""
        return self._map(lambda F, g: small_blocks.half(jnp.einsum("jik,jlk->ilk", F, g)), G.stacks)

    def multiply(self, H: "BlockFactor") -> "BlockFactor":
        """Return `F H`, which has the same pattern."""
        return self._map(lambda F, h: jnp.einsum("ijk,jlk->ilk", F, h), H.stacks)

    multiply_half_outer = half_outer.multiply_half_outer

    def curvature_covariance(self, hess: Stacks) -> "BlockFactor":
        """Return `hess F` on the pattern, from the stacked diagonal blocks of the Hessian: F1 of Theorem 2."""
        return self._map(lambda F, h: small_blocks.lower(jnp.einsum("ijk,jlk->ilk", h, F)), hess)

    def curvature_precision(self, hess: Stacks) -> "BlockFactor":
        """Return `-Sigma hess F^-T` on the pattern, from the diagonal blocks of the Hessian: F2 of Theorem 2."""
        return self._map(small_blocks.curvature_precision, hess)

    # --- symmetric matrices on the pattern, by their stacked diagonal blocks -------------------------------

    def restrict(self, matrix: Symmetric) -> Stacks:
        """Return the diagonal blocks of a symmetric matrix."""
        whole = matrix.dense()
        return tuple(whole[i[:, None], i[None]] for i in self.layout.indices)

    def gram(self, rows: Float[Array, "s d"], weights: Float[Array, " s"] | None = None) -> Stacks:
        """Return the diagonal blocks of `sum_i w_i a_i a_i'` over rows a_i."""
        weighted = rows if weights is None else rows * weights[:, None]
        return tuple(jnp.einsum("sik,sjk->ijk", weighted[:, i], rows[:, i]) for i in self.layout.indices)

    def add_diagonal(self, matrix: Stacks, amounts: Float[Array, " d"]) -> Stacks:
        """Add a diagonal matrix to a block-diagonal one."""
        pieces = (amounts[i] for i in self.layout.indices)
        return tuple(
            stack + jnp.eye(len(stack))[..., None] * piece[:, None] for stack, piece in zip(matrix, pieces, strict=True)
        )

    def square(self) -> Stacks:
        """Return `F F'`."""
        return tuple(jnp.einsum("ijk,ljk->ilk", F, F) for F in self.stacks)

    def inverse_square(self) -> Stacks:
        """Return `(F F')^-1`."""
        return tuple(_each(jnp.linalg.inv, stack) for stack in self.square())

    def root_of(self, matrix: Stacks) -> "BlockFactor":
        """Return the F with `F F'` a given matrix."""
        return BlockFactor(tuple(_each(jnp.linalg.cholesky, stack) for stack in matrix), self.layout)

    def inverse_root_of(self, matrix: Stacks) -> "BlockFactor":
        """Return the F with `F F'` the inverse of a given matrix."""
        return self.root_of(tuple(_each(jnp.linalg.inv, stack) for stack in matrix))

    def _apply(self, op: Callable[[Array, Array], Array], x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self._flat([op(F, x[i]) for F, i in zip(self.stacks, self.layout.indices, strict=True)])

    def _flat(self, pieces: list[Array]) -> Float[Array, " d"]:
        order = np.argsort(np.concatenate([i.ravel() for i in self.layout.indices]))
        return jnp.concatenate([piece.reshape(-1) for piece in pieces])[order]

    def _map(self, op: Callable[[Array, Array], Array], others: tuple[Array, ...] | list[Array]) -> "BlockFactor":
        return BlockFactor(tuple(op(F, g) for F, g in zip(self.stacks, others, strict=True)), self.layout)


def _each(op: Callable[[Array], Array], stack: Float[Array, "m m k"]) -> Float[Array, "m m k"]:
    """Apply a routine for matrices `(k, m, m)` to a stack."""
    return jnp.moveaxis(op(jnp.moveaxis(stack, -1, 0)), 0, -1)
