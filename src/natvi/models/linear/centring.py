"""Columns far from zero, such as a year, are centred inside where the model has an intercept.

A column x_j with mean c_j many sds from zero is nearly collinear with the constant column, and X' W X loses twice as
many digits as the ratio has. With the constant column equal to k, the coefficients of the centred columns are

    beta_0' = beta_0 + sum_j (c_j / k) beta_j,     beta_j' = beta_j,

a linear map of determinant one: the bound stays as it is, and the prior, independent normals on the user's scale, is
carried along exactly. Independent coordinates of q would not stay independent, so only a full covariance is centred.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.target.flat import FlatMarginals, PriorExpectation
from natvi.target.priors.independent_normal import IndependentNormal

LARGEST_SHIFT = 1e3  # of a mean, in sds
LOOKED_ROWS = 10_000  # to see whether any column needs it


class Centring(NamedTuple):
    """The constant column's place and value, and what is taken from every column (0 from that one)."""

    at: int
    value: float
    centre: np.ndarray

    def columns(self, X: np.ndarray) -> np.ndarray:
        """Return the centred columns."""
        return X - self.centre

    def undo(self, mean: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and lower triangular factor C of the user's coefficients."""
        p, mean, factor = len(self.centre), mean.copy(), factor.copy()
        mean[self.at] -= self.centre @ mean[:p] / self.value
        factor[self.at] -= self.centre @ factor[:p] / self.value
        upper = np.asarray(np.linalg.qr(factor.T, mode="r"))  # C C' = R' R
        return mean, (upper * np.where(np.diagonal(upper) < 0, -1.0, 1.0)[:, None]).T


def find_centring(X: np.ndarray) -> Centring | None:
    """Return what to take from the columns, or None where no column needs it or there is no constant column.

    Example:
        >>> find_centring(np.array([[1.0, 20000.0, 3.0], [1.0, 20001.0, 4.0]])).centre.tolist()
        [0.0, 20000.5, 0.0]
        >>> find_centring(np.array([[1.0, 20.0], [1.0, 21.0]])) is None
        True
    """
    looked = X[:: max(1, len(X) // LOOKED_ROWS)]
    mean, square = looked.mean(axis=0), np.einsum("ij,ij->j", looked, looked) / len(looked)
    sd = np.sqrt(np.maximum(square - mean**2, 0.0))  # near enough: rounding is far below the limit
    flat = np.flatnonzero(2 * np.abs(mean) > LARGEST_SHIFT * sd)
    if len(flat) < 2:  # the constant column is one of them
        return None
    columns = X[:, flat]
    varies, mean, sd = np.any(columns != columns[0], axis=0), columns.mean(axis=0), columns.std(axis=0)
    far = varies & (np.abs(mean) > LARGEST_SHIFT * sd)
    if varies.all() or not far.any():
        return None
    at, centre = int(flat[np.argmin(varies)]), np.zeros(X.shape[1])
    centre[flat] = np.where(far, mean, 0.0)
    return Centring(at, float(X[0, at]), centre)


class ShiftedNormal(IndependentNormal):
    """The prior of theta' where theta has `mean` and `sd`: theta' but for theta_at = theta'_at - shift' theta'."""

    shift: Float[Array, " d"]
    at: int = eqx.field(static=True)

    def back(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return theta."""
        return theta.at[self.at].add(-self.shift @ theta)

    @property
    def row(self) -> Float[Array, " d"]:
        """The row a with theta_at = a' theta'."""
        return (-self.shift).at[self.at].add(1.0)

    @property
    def precision(self) -> Float[Array, " d"]:
        """The diagonal of minus the Hessian."""
        return jnp.diagonal(self.whole_precision)

    @property
    def whole_precision(self) -> Float[Array, "d d"]:
        """Minus the Hessian, B' diag(sd^-2) B with theta = B theta'."""
        own = (self.sd**-2.0).at[self.at].set(0.0)
        return jnp.diag(own) + jnp.outer(self.row, self.row) * self.sd[self.at] ** -2.0

    def gradient(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient of the log-density in theta'."""
        inner = -(self.back(theta) - self.mean) * self.sd**-2.0
        return inner - self.shift * inner[self.at]

    def value(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return self._user().value(self.back(theta))

    def precision_at(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the diagonal of minus the Hessian: the same everywhere."""
        return self.precision

    def expected(self, gaussian: FlatMarginals) -> PriorExpectation:
        """Return E log p with its derivatives: only the variance of theta_at differs from that of theta'_at."""
        variances = (gaussian.marginal_sds() ** 2).at[self.at].set(gaussian.row_variances(self.row[None])[0])
        value = self._user().expected_value(self.back(gaussian.mean), variances)
        return PriorExpectation(value, self.gradient(gaussian.mean), self.whole_precision)

    def _user(self) -> IndependentNormal:
        return IndependentNormal(self.mean, self.sd)


def centred_prior(prior: IndependentNormal, centring: Centring, scales: np.ndarray | None) -> ShiftedNormal:
    """Return the prior of the centred coefficients; `prior` is on the scales, s beta, as the coefficients are."""
    p = len(centring.centre)
    s = np.ones(p) if scales is None else scales
    shift = np.append(s[centring.at] * centring.centre / (centring.value * s), np.zeros(len(prior.mean) - p))
    return ShiftedNormal(prior.mean, prior.sd, jnp.asarray(shift), centring.at)
