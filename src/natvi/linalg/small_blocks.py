"""Cholesky factors and triangular solves of very many very small matrices.

A stack of n matrices of size r x r is stored as `(r, r, n)`: the loops over r are unrolled while tracing and
every line is an elementwise operation over the contiguous last axis, which the compiler vectorises. Batched
library calls on `(n, r, r)` cost a function call per matrix, far more than the arithmetic for r below ten.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LARGEST_UNROLLED = 8


def cholesky(matrices: Float[Array, "r r n"]) -> Float[Array, "r r n"]:
    """Return the lower Cholesky factors; NaN where a matrix is indefinite, a zero pivot where it is singular.

    Example:
        >>> import jax.numpy as jnp
        >>> float(cholesky(jnp.full((1, 1, 1), 9.0))[0, 0, 0])
        3.0
    """
    r = matrices.shape[0]
    zero = jnp.zeros_like(matrices[0, 0])
    factor = [[zero] * r for _ in range(r)]
    for j in range(r):
        # L_jj = sqrt(A_jj - sum_k L_jk^2);  L_ij = (A_ij - sum_k L_ik L_jk) / L_jj
        factor[j][j] = jnp.sqrt(matrices[j, j] - sum((factor[j][k] ** 2 for k in range(j)), zero))
        for i in range(j + 1, r):
            inner = sum((factor[i][k] * factor[j][k] for k in range(j)), zero)
            factor[i][j] = (matrices[i, j] - inner) / factor[j][j]
    return jnp.stack([jnp.stack(row) for row in factor])


def solve_lower(factors: Float[Array, "r r n"], right: Float[Array, "r *k n"]) -> Float[Array, "r *k n"]:
    """Solve `L x = b` for every matrix of the stack."""
    if factors.shape[0] > LARGEST_UNROLLED:
        return _solve_batched(factors, right, transposed=False)
    x: list[Array] = []
    for i in range(factors.shape[0]):
        inner = sum((factors[i, k] * x[k] for k in range(i)), jnp.zeros_like(right[i]))
        x.append((right[i] - inner) / factors[i, i])
    return jnp.stack(x)


def solve_upper(factors: Float[Array, "r r n"], right: Float[Array, "r *k n"]) -> Float[Array, "r *k n"]:
    """Solve `L' x = b` for every matrix of the stack."""
    if factors.shape[0] > LARGEST_UNROLLED:
        return _solve_batched(factors, right, transposed=True)
    r = factors.shape[0]
    x: list[Array] = [right[0]] * r
    for i in reversed(range(r)):
        inner = sum((factors[k, i] * x[k] for k in range(i + 1, r)), jnp.zeros_like(right[i]))
        x[i] = (right[i] - inner) / factors[i, i]
    return jnp.stack(x)


def curvature_precision(factors: Float[Array, "r r n"], hess: Float[Array, "r r n"]) -> Float[Array, "r r n"]:
    """Return the lower triangle of `-(F F')^-1 hess F^-T` for every block: F2 of Theorem 2."""
    inner = solve_lower(factors, solve_lower(factors, hess).swapaxes(0, 1))
    return -lower(solve_upper(factors, inner))


def inverse_column_norms(factors: Float[Array, "r r n"]) -> Float[Array, "r n"]:
    """Return the norm of every column of each block's inverse."""
    return jnp.sqrt(jnp.sum(solve_lower(factors, identities(factors)) ** 2, axis=0))


def identities(like: Float[Array, "r r n"]) -> Float[Array, "r r n"]:
    """Return a stack of identities."""
    return jnp.broadcast_to(jnp.eye(like.shape[0], dtype=like.dtype)[..., None], like.shape)


def lower(blocks: Float[Array, "r r n"]) -> Float[Array, "r r n"]:
    """Return the lower triangle of every block."""
    return blocks * jnp.tril(jnp.ones(blocks.shape[:2], blocks.dtype))[..., None]


def half(blocks: Float[Array, "r r n"]) -> Float[Array, "r r n"]:
    """Return the lower triangle of every block with the diagonal halved."""
    return lower(blocks) * (1.0 - 0.5 * jnp.eye(len(blocks), dtype=blocks.dtype))[..., None]


def _solve_batched(
    factors: Float[Array, "r r n"], right: Float[Array, "r *k n"], transposed: bool
) -> Float[Array, "r *k n"]:
    """Solve with matrices too large to unroll, by the library's batched routine."""
    r, n = factors.shape[0], factors.shape[-1]
    b = jnp.moveaxis(right.reshape(r, -1, n), -1, 0)
    matrices = jnp.moveaxis(factors, -1, 0)
    x = jax.lax.linalg.triangular_solve(matrices, b, left_side=True, lower=True, transpose_a=transposed)
    return jnp.moveaxis(x, 0, -1).reshape(right.shape)
