"""The log-likelihood of grouped rows: one term per row, a function of its linear predictor.

The family is handed in by the model: it knows log p(y | eta, dispersion) and the expectation of that under a
Gaussian for (eta, dispersion), with first and second derivatives in the means.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natvi.families.rows import PredictorMoments, RowExpectation, RowFamily, take_extras
from natvi.linalg import ArrowMatrix, ArrowVector, GroupedRows
from natvi.target.expected import Expected
from natvi.target.point_mass import PointMass
from natvi.target.term import Marginals


class LikelihoodRows(eqx.Module):
    """sum over rows of weight_ij log p(y_ij | eta_ij) + constant.

    Shared coordinates are the p coefficients, then the dispersion. A weight of 2 counts a row twice; for binomial
    responses it is the number of trials. The constant is what the weighted rows lack, such as log binomial
    coefficients; it belongs to the whole, so that a block of groups has none and the rest carries it.
    """

    design: GroupedRows
    y: Float[Array, "c K"]
    family: RowFamily = eqx.field(static=True)
    start: int = eqx.field(static=True, default=0)
    weight: Float[Array, "c K"] | None = None
    constant: Float[Array, ""] | float = eqx.field(converter=jnp.asarray, default=0.0)

    @property
    def p(self) -> int:
        """The number of coefficients."""
        return self.design.X.shape[0]

    def num_simple(self, num_groups: int) -> int:
        """Return how many groups can be cut out in blocks: those that fill one chunk."""
        return self.design.num_simple

    def block(self, start: Int[Array, ""] | int, size: int) -> "LikelihoodRows":
        """Return the rows of the groups `start` to `start + size`."""
        y = jax.lax.dynamic_slice_in_dim(self.y, start, size, axis=-1)
        weight = None
        if self.weight is not None:
            weight = jax.lax.dynamic_slice_in_dim(self.weight, start, size, axis=-1)
        return LikelihoodRows(self.design.block(start, size), y, self.family, self.start, weight)

    def rest(self, start: int) -> "LikelihoodRows":
        """Return the rows of the groups from `start` on."""
        weight = None if self.weight is None else self.weight[..., start:]
        design, y = self.design.rest(start), self.y[..., start:]
        return LikelihoodRows(design, y, self.family, self.start, weight, self.constant)

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-likelihood at one point."""
        disp = take_extras(self.family, theta.shared, self.p)
        return jnp.sum(self.row_values(self.design.predictor(theta), disp)) + self.constant

    def row_values(self, eta: Float[Array, "c K"], disp: Float[Array, "*q"] | None) -> Float[Array, "c K"]:
        """Return every row's weighted log p at given predictors, 0 in cells without a row."""
        return self.weighted(self.family.log_density(self.y, eta, disp))

    def row_kernels(self, eta: Float[Array, "c K"], disp: Float[Array, "*q"] | None) -> Float[Array, "c K"]:
        """Return what of `row_values` depends on the predictors."""
        return self.weighted(self.family.log_kernel(self.y, eta, disp))

    def normaliser(self, disp: Float[Array, "*q"] | None) -> Float[Array, ""]:
        """Return what of the log-likelihood does not depend on predictors, `constant` included."""
        return jnp.sum(self.row_normalisers(disp)) + self.constant

    def row_normalisers(self, disp: Float[Array, "*q"] | None) -> Float[Array, "c K"]:
        """Return what of `row_values` does not depend on the predictors."""
        return self.weighted(self.family.log_normaliser(self.y, disp))

    def expected(self, gaussian: Marginals) -> Expected:
        """Return the expected log-likelihood with E grad = A' E psi' and E hess = A' diag(E psi'') A."""
        rows = self._row_expectations(gaussian)
        local, shared = self.design.transposed_product(rows.d_eta)
        blocks, cross, corner = self.design.gram(rows.d_eta_eta)
        if rows.d_disp is not None and rows.d_eta_disp is not None and rows.d_disp_disp is not None:
            q, size = self.family.num_extras, self.y.shape
            mixed = [self.design.transposed_product(each) for each in rows.d_eta_disp.reshape(q, *size)]
            shared = jnp.append(shared, jnp.sum(rows.d_disp.reshape(q, -1), axis=1))
            cross = jnp.concatenate([cross, jnp.stack([part[0] for part in mixed])])
            border = jnp.stack([part[1] for part in mixed])
            own = jnp.sum(rows.d_disp_disp.reshape(q, q, -1), axis=2)
            corner = jnp.block([[corner, border.T], [border, own]])
        value = jnp.sum(rows.value) + self.constant
        return Expected(value, ArrowVector(local, shared), ArrowMatrix(blocks, cross, corner))

    def group_gradients(self, theta: ArrowVector) -> ArrowVector:
        """Return each group's gradient in theta_i `(r, n)` and in (beta, dispersion) `(k, n)`."""
        rows = self._row_expectations(PointMass(theta))
        local, _ = self.design.transposed_product(rows.d_eta)
        shared = self.design.per_group(jnp.sum(self.design.X * rows.d_eta, axis=1))
        if rows.d_disp is not None:
            each = rows.d_disp.reshape(self.family.num_extras, *self.y.shape)
            shared = jnp.concatenate([shared, self.design.per_group(jnp.sum(each, axis=1))])
        return ArrowVector(local, shared)

    def weighted(self, rows: Float[Array, "*q c K"]) -> Float[Array, "*q c K"]:
        """Return numbers of every row times its weight, 0 in cells without a row."""
        counted = rows if self.weight is None else self.weight * rows
        return jnp.where(self.design.filled, counted, 0.0)

    def _row_expectations(self, gaussian: Marginals) -> RowExpectation:
        return jax.tree.map(self.weighted, self.family.expected(self.y, self._moments(gaussian)))

    def _moments(self, gaussian: Marginals) -> PredictorMoments:
        if not self.family.has_dispersion:
            rows = gaussian.row_moments(self.design, ())
            return PredictorMoments(rows.mean, rows.variance)
        q, p = self.family.num_extras, self.p
        rows = gaussian.row_moments(self.design, tuple(range(p, p + q)))
        disp = take_extras(self.family, gaussian.mean.shared, p)
        if q == 1:
            variance = gaussian.shared_variances()[p]
            return PredictorMoments(rows.mean, rows.variance, disp, variance, rows.covariance[0])
        variance = gaussian.shared_covariance()[p : p + q, p : p + q]
        return PredictorMoments(rows.mean, rows.variance, disp, variance, rows.covariance)
