"""The target of a generalized linear model: rows whose predictor is linear in the coefficients, and a prior.

theta = (beta, dispersion). Under a Gaussian every eta_i = x_i' beta + offset_i is a scalar Gaussian, so the expected
log-likelihood is a sum of one-dimensional expectations (E psi, E psi', E psi''), which the family knows, and

    E grad = X' E psi' + grad log prior,     E hess = X' diag(E psi'') X + hess log prior.

Only the entries on the factor's pattern are computed.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natvi.families.rows import PredictorMoments, RowExpectation, RowFamily, take_extras
from natvi.linalg import Formed
from natvi.target.expected import Expected
from natvi.target.flat import FlatMarginals, FlatPoint, FlatPrior
from natvi.target.rows import scale_up
from natvi.typing import Factor, Hessian

BLOCK_ROWS = 4096
LEAST_BLOCKS = 4
HALVED_COLUMNS = 64


class Observations(NamedTuple):
    """Covariates and responses; offset and weight may be left out. Rows that are not `filled` count for nothing."""

    X: Float[Array, "k p"]
    y: Float[Array, " k"]
    offset: Float[Array, " k"] | None = None
    weight: Float[Array, " k"] | None = None
    columns: Float[Array, "p k"] | None = None  # X once more, transposed: X' W X is nearly twice as fast with it
    filled: Bool[Array, " k"] | None = None

    def gram(self, weights: Float[Array, " k"]) -> Float[Array, "p p"]:
        """Return X' diag(weights) X; of many columns a quarter is taken from the other side of the diagonal."""
        Xt, p = self.X.T if self.columns is None else self.columns, self.X.shape[1]
        if self.columns is None or p < HALVED_COLUMNS:
            return (Xt * weights) @ Xt.T
        half = p // 2 // 8 * 8  # whole vectors
        first = (Xt[:half] * weights) @ Xt[:half].T
        rest = (Xt[half:] * weights) @ Xt.T
        return jnp.concatenate([jnp.concatenate([first, rest[:, :half].T], axis=1), rest])


class RowCurvature(NamedTuple):
    """X' diag(E psi'') X, bordered by the dispersion's row; formed as far as a factor's pattern asks for it."""

    rows: Observations
    each: RowExpectation

    def diagonal(self) -> Float[Array, " d"]:
        """Return the diagonal alone."""
        diagonal, own = self.each.d_eta_eta @ self.rows.X**2, self._own()
        return diagonal if own is None else jnp.append(diagonal, jnp.diagonal(own))

    def dense(self) -> Float[Array, "d d"]:
        """Return all entries."""
        hess, each, own = self.rows.gram(self.each.d_eta_eta), self.each, self._own()
        if own is None or each.d_eta_disp is None:
            return hess
        border = each.d_eta_disp.reshape(-1, self.rows.X.shape[0]) @ self.rows.X
        return jnp.block([[hess, border.T], [border, own]])

    def _own(self) -> Float[Array, "q q"] | None:
        """Return the dispersion's own entries."""
        found = self.each.d_disp_disp
        if found is None:
            return None
        q = 1 if found.ndim == 1 else found.shape[0]
        return jnp.sum(found.reshape(q, q, -1), axis=2)


class DesignRows(eqx.Module):
    """log p(theta) + (N/k) sum over k rows of weight_i log p(y_i | eta_i, dispersion) + constant."""

    rows: Observations
    prior: FlatPrior
    family: RowFamily = eqx.field(static=True)
    num_rows: int = eqx.field(static=True)
    constant: float | Float[Array, ""] = 0.0  # of the whole data, such as log binomial coefficients

    @property
    def p(self) -> int:
        """The number of coefficients."""
        return self.rows.X.shape[1]

    @property
    def scale(self) -> float:
        """How many rows each row in use stands for."""
        return scale_up(self.num_rows, self.rows.X.shape[0])

    def with_rows(self, rows: Any) -> "DesignRows":
        """Return the target with these rows standing for all."""
        return DesignRows(Observations(*rows), self.prior, self.family, self.num_rows, self.constant)

    # --- at one point ------------------------------------------------------------------------------------

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""
        each = self.family.log_density(self.rows.y, self._predictor(theta), self._dispersion(theta))
        return self.scale * jnp.sum(self._weighted(each)) + self.prior.value(theta) + self.constant

    def hessian(self, theta: Float[Array, " d"], factor: Factor) -> Hessian:
        """Return the Hessian at one point on the factor's pattern."""
        return self.second_order(self._at(theta), FlatPoint(theta, factor))

    def row_gradients(self, theta: Float[Array, " d"]) -> Float[Array, "k d"]:
        """Return the gradient of each row's log-likelihood, not scaled up."""
        each = self._at(theta)
        gradients = self.rows.X * each.d_eta[:, None]
        if each.d_disp is None:
            return gradients
        return jnp.concatenate([gradients, each.d_disp.reshape(self.family.num_extras, -1).T], axis=1)

    # --- under a Gaussian --------------------------------------------------------------------------------

    @property
    def in_blocks(self) -> bool:
        """Whether the rows are so many that they are worked through in blocks."""
        return self.rows.X.shape[0] >= LEAST_BLOCKS * BLOCK_ROWS

    def expected(self, gaussian: FlatMarginals) -> Expected:
        """Return E log-density, E grad and E hess under the Gaussian, exactly.

        Very many rows are worked through in blocks, which stay in the processor's cache from their predictors to
        their part of X' W X.
        """
        return self.joined(self.likelihood(gaussian), gaussian)

    def likelihood(self, gaussian: FlatMarginals) -> Expected:
        """Return the expected log-likelihood of the rows in use, not scaled up, with its derivatives."""
        k = self.rows.X.shape[0]
        num_blocks = (k - 1) // BLOCK_ROWS if self.in_blocks else 0  # the rest has a row at least
        total = self._cut(num_blocks * BLOCK_ROWS, k - num_blocks * BLOCK_ROWS)._likelihood(gaussian)
        if num_blocks:

            def add_block(i: Array, total: Expected) -> Expected:
                part = self._cut(i * BLOCK_ROWS, BLOCK_ROWS)._likelihood(gaussian)
                return jax.tree.map(jnp.add, total, part)

            total = jax.lax.fori_loop(0, num_blocks, add_block, total)
        return total

    def joined(self, rows: Expected, gaussian: FlatMarginals) -> Expected:
        """Return E log-density and its derivatives from the likelihood's."""
        return Expected(*self._whole(rows[:2], gaussian), self._whole_hessian(rows.hess, gaussian))

    def moments(self, gaussian: FlatMarginals) -> PredictorMoments:
        """Return mean and variance of every row's predictor, with those of the dispersion and its covariances."""
        X, mean = self.rows.X, gaussian.mean
        eta = self._predictor(mean)
        if not self.family.has_dispersion:
            return PredictorMoments(eta, gaussian.row_variances(X))
        q, p = self.family.num_extras, self.p
        padded, disp = jnp.pad(X, ((0, 0), (0, q))), self._dispersion(mean)
        unit = jnp.eye(q, p + q, p)
        columns = jnp.stack([gaussian.covariance_product(e) for e in unit])  # Cov(dispersion, theta)
        variances = gaussian.row_variances(padded)
        if q == 1:
            return PredictorMoments(eta, variances, disp, columns[0, p], padded @ columns[0])
        return PredictorMoments(eta, variances, disp, columns[:, p:], columns @ padded.T)

    def moved(self, moments: PredictorMoments, mean: Float[Array, " d"]) -> PredictorMoments:
        """Return the moments of a Gaussian with the same covariance and another mean."""
        return moments._replace(mean=self._predictor(mean), disp_mean=self._dispersion(mean))

    def each_row(self, moments: PredictorMoments) -> RowExpectation:
        """Return the expected log-likelihood of every row with its derivatives."""
        return jax.tree.map(self._weighted, self.family.expected(self.rows.y, moments))

    def first_order(self, each: RowExpectation, gaussian: FlatMarginals) -> tuple[Float[Array, ""], Float[Array, " d"]]:
        """Return E log-density and E grad."""
        return self._whole(self._sums(each), gaussian)

    def second_order(self, each: RowExpectation, gaussian: FlatMarginals) -> Hessian:
        """Return E hess on the pattern of the Gaussian's factor."""
        return self._whole_hessian(gaussian.factor.restrict(RowCurvature(self.rows, each)), gaussian)

    def _whole(
        self, rows: tuple[Float[Array, ""], Float[Array, " d"]], gaussian: FlatMarginals
    ) -> tuple[Float[Array, ""], Float[Array, " d"]]:
        """Scale value and gradient of the rows up and add what does not come from rows."""
        value, grad = rows
        prior = self.prior.expected(gaussian)
        return self.scale * value + self.constant + prior.value, self.scale * grad + prior.grad

    def _cut(self, start: Array | int, size: int) -> "DesignRows":
        """Return the target with `size` rows from `start` on."""
        if isinstance(start, int) and (start, size) == (0, len(self.rows.y)):
            return self
        rows = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, size), self.rows._replace(columns=None))
        return DesignRows(rows, self.prior, self.family, self.num_rows, self.constant)

    def _likelihood(self, gaussian: FlatMarginals) -> Expected:
        """Return the likelihood of rows in one block."""
        each = self.each_row(self.moments(gaussian))
        return Expected(*self._sums(each), gaussian.factor.restrict(RowCurvature(self.rows, each)))

    def _sums(self, each: RowExpectation) -> tuple[Float[Array, ""], Float[Array, " d"]]:
        grad = each.d_eta @ self.rows.X
        if each.d_disp is not None:
            grad = jnp.append(grad, jnp.sum(each.d_disp.reshape(self.family.num_extras, -1), axis=1))
        return jnp.sum(each.value), grad

    def _at(self, theta: Float[Array, " d"]) -> RowExpectation:
        eta, disp = self._predictor(theta), self._dispersion(theta)
        if disp is None:

            def slope(eta: Array) -> tuple[Array, Array]:
                each, pull = jax.vjp(lambda eta: self.family.log_density(self.rows.y, eta, None), eta)
                return each, pull(jnp.ones_like(each))[0]

            (value, first), (_, second) = jax.jvp(slope, (eta,), (jnp.ones_like(eta),))
            return jax.tree.map(self._weighted, RowExpectation(value, first, second))
        # a point is a Gaussian without spread
        zero = jnp.zeros_like(eta)
        q = self.family.num_extras
        none = (jnp.zeros((), eta.dtype), zero) if q == 1 else (jnp.zeros((q, q)), jnp.zeros((q, *eta.shape)))
        return self.each_row(PredictorMoments(eta, zero, disp, *none))

    def _weighted(self, each: Float[Array, "*q k"]) -> Float[Array, "*q k"]:
        weighted = each if self.rows.weight is None else self.rows.weight * each
        return weighted if self.rows.filled is None else jnp.where(self.rows.filled, weighted, 0.0)

    def _predictor(self, theta: Float[Array, " d"]) -> Float[Array, " k"]:
        eta = self.rows.X @ theta[: self.p]
        return eta if self.rows.offset is None else eta + self.rows.offset

    def _dispersion(self, theta: Float[Array, " d"]) -> Float[Array, "*q"] | None:
        return take_extras(self.family, theta, self.p)

    def _whole_hessian(self, hess: Hessian, gaussian: FlatMarginals) -> Hessian:
        """Scale the Hessian of the rows up and take the prior's precision from it."""
        hess = jax.tree.map(lambda h: self.scale * h, hess)
        factor, precision = gaussian.factor, self.prior.expected(gaussian).precision
        if precision.ndim == 1:
            return factor.add_diagonal(hess, -precision)
        return jax.tree.map(jnp.subtract, hess, factor.restrict(Formed(precision)))
