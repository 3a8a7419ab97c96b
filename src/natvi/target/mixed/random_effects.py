"""The prior of the random effects, theta_i | omega ~ N(0, (W W')^-1), in expectation by tilting.

W is lower triangular with W_kk = exp(omega_kk) and W_lk = omega_lk for l > k; omega = vech(W*) runs down the
columns (paper, Section 8.5). With W' theta written out,

    log p = -(r/2) log 2 pi + sum_k omega_kk - (1/2) sum_k (e^{omega_kk} theta_k + sum_{l>k} omega_lk theta_l)^2.

For uncorrelated random effects W is diagonal and omega holds its r logarithms only: no sums over l > k.

Tilting: E[e^{a w} f(x)] = exp(a m_w + a^2 v_w / 2) E f(x + a Cov(x, w)) for jointly Gaussian (x, w), and f is
a polynomial of degree at most four, so Isserlis' theorem closes the form.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.target.expected import Expected
from natvi.target.point_mass import PointMass
from natvi.target.term import Marginals


def omega_positions(r: int, correlated: bool = True) -> dict[tuple[int, int], int]:
    """Return the position of W*_lk in omega = vech(W*), columns stacked; or in its diagonal alone.

    Example:
        >>> omega_positions(2)
        {(0, 0): 0, (1, 0): 1, (1, 1): 2}
        >>> omega_positions(2, correlated=False)
        {(0, 0): 0, (1, 1): 1}
    """
    if not correlated:
        return {(k, k): k for k in range(r)}
    pairs = [(row, column) for column in range(r) for row in range(column, r)]
    return {pair: position for position, pair in enumerate(pairs)}


class RandomEffectsPrior(eqx.Module):
    """The sum over groups of log p(theta_i | omega); omega starts at shared coordinate `start`.

    Places that hold no group, where `real` is False, have a standard normal theta_i: under the Gaussian that is best
    for it, N(0, I), its part of the bound is zero, and it says nothing about omega.
    """

    r: int = eqx.field(static=True)
    start: int = eqx.field(static=True)
    correlated: bool = eqx.field(static=True, default=True)
    real: Bool[Array, " n"] | None = None

    @property
    def positions(self) -> dict[tuple[int, int], int]:
        """The position in omega of every entry of W that is not zero."""
        return omega_positions(self.r, self.correlated)

    @property
    def stop(self) -> int:
        """The shared coordinate after the last one of omega."""
        return self.start + len(self.positions)

    def num_simple(self, num_groups: int) -> int:
        """Return how many groups can be cut out in blocks: all."""
        return num_groups

    def block(self, start: Int[Array, ""] | int, size: int) -> "RandomEffectsPrior":
        """Return the prior of some groups."""
        if self.real is None:
            return self
        real = jax.lax.dynamic_slice_in_dim(self.real, start, size)
        return RandomEffectsPrior(self.r, self.start, self.correlated, real)

    def rest(self, start: int) -> "RandomEffectsPrior":
        """Return the prior of the remaining groups."""
        real = None if self.real is None else self.real[start:]
        return RandomEffectsPrior(self.r, self.start, self.correlated, real)

    def num_real(self, num_places: int) -> Int[Array, ""] | int:
        """Return the number of groups."""
        return num_places if self.real is None else jnp.sum(self.real)

    def where_real(self, by_group: Float[Array, "*a n"], otherwise: Any) -> Float[Array, "*a n"]:
        """Return a quantity of every group, and something else in places that hold none."""
        return by_group if self.real is None else jnp.where(self.real, by_group, otherwise)

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        W = self.precision_factor(theta.shared)
        whitened = W.T @ theta.local
        log_norm = jnp.sum(jnp.log(jnp.diagonal(W)))
        each = log_norm - 0.5 * jnp.sum(whitened**2, axis=0)
        each = self.where_real(each, -0.5 * jnp.sum(theta.local**2, axis=0))
        return jnp.sum(each) - 0.5 * theta.local.size * jnp.log(2 * jnp.pi)

    def group_gradients(self, theta: ArrowVector) -> ArrowVector:
        """Return each group's gradient in theta_i `(r, n)` and in omega `(k, n)`."""
        mean, nothing = PointMass(theta).group_moments(self.start, self.stop)
        grad = jax.grad(lambda m: jnp.sum(self._expected(m, nothing)))(mean)
        return ArrowVector(grad[: self.r], grad[self.r :])

    def precision_factor(self, shared: Float[Array, " g"]) -> Float[Array, "r r"]:
        """Return W from the shared coordinates."""
        W = jnp.zeros((self.r, self.r))
        for (row, column), position in self.positions.items():
            entry = shared[self.start + position]
            W = W.at[row, column].set(jnp.exp(entry) if row == column else entry)
        return W

    def expected(self, gaussian: Marginals) -> Expected:
        """Return the expectation with E grad and E hess."""
        return self.expected_of(*gaussian.group_moments(self.start, self.stop))

    def expected_of(self, mean: Float[Array, "k n"], covariance: Float[Array, "k k n"]) -> Expected:
        """Return the expectation from the moments of (theta_i, omega) of every group.

        Derivatives in the mean give E grad and E hess (Bonnet, Price).
        """
        r = self.r

        def total(m: Float[Array, "k n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
            value = jnp.sum(self._expected(m, covariance))
            return value, value

        gradient: Callable = jax.grad(total, has_aux=True)
        basis = [jnp.zeros_like(mean).at[k].set(1.0) for k in range(mean.shape[0])]
        linearised = [jax.jvp(gradient, (mean,), (direction,), has_aux=True) for direction in basis]
        grad, _, value = linearised[0]
        hess = jnp.stack([row for _, row, _ in linearised])
        return Expected(
            value,
            ArrowVector(grad[:r], jnp.sum(grad[r:], axis=1)),
            ArrowMatrix(hess[:r, :r], hess[r:, :r], jnp.sum(hess[r:, r:], axis=2)),
        )

    def _expected(self, m: Float[Array, "k n"], V: Float[Array, "k k n"]) -> Float[Array, " n"]:
        """Return the expectation for every group, and that of a standard normal in places that hold none."""
        each = expected_log_prior(self.r, m, V, self.correlated)
        if self.real is None:
            return each
        squares = sum(m[k] ** 2 + V[k, k] for k in range(self.r))
        return self.where_real(each, -0.5 * (self.r * jnp.log(2 * jnp.pi) + squares))


def expected_log_prior(
    r: int, m: Float[Array, "k n"], V: Float[Array, "k k n"], correlated: bool = True
) -> Float[Array, " n"]:
    """Return E log p(theta_i | omega) for each group from the moments of (theta_i, omega)."""
    position = omega_positions(r, correlated)
    total = jnp.full_like(m[0], -0.5 * r * jnp.log(2 * jnp.pi))
    for k in range(r):
        d = r + position[k, k]
        # E[e^{2w} theta^2] = e^{2 m_w + 2 v_w} [(m + 2c)^2 + v]
        tilted = m[k] + 2 * V[k, d]
        square = jnp.exp(2 * m[d] + 2 * V[d, d]) * (tilted**2 + V[k, k])
        below = [(r + position[row, k], row) for row in range(k + 1, r) if correlated]
        for w, row in below:
            # 2 E[e^{omega_kk} theta_k omega_lk theta_l]
            shift = m + V[:, d]
            square += 2 * jnp.exp(m[d] + 0.5 * V[d, d]) * product_moment(shift, V, (k, w, row))
            for w2, row2 in below:
                square += product_moment(m, V, (w, row, w2, row2))
        total += m[d] - 0.5 * square
    return total


def product_moment(m: Float[Array, "k n"], V: Float[Array, "k k n"], which: tuple[int, ...]) -> Float[Array, " n"]:
    """Return E of a product of jointly Gaussian coordinates (Isserlis with means).

    E[x_a rest] = m_a E[rest] + sum_b V_ab E[rest without b].
    """
    if not which:
        return jnp.ones_like(m[0])
    first, rest = which[0], which[1:]
    total = m[first] * product_moment(m, V, rest)
    for i, other in enumerate(rest):
        total += V[first, other] * product_moment(m, V, rest[:i] + rest[i + 1 :])
    return total
