"""The prior of correlated random effects' sds and correlations, as a density of omega.

W is lower triangular with W_kk = exp(omega_kk) and W_lk = omega_lk, and (W W')^-1 = D R D is the covariance of the
random effects: D holds the sds s_k, R the correlations. The sds are independent a priori, and R has the LKJ density
(Lewandowski, Kurowicka and Joe 2009), p(R) proportional to |R|^(eta - 1). As a density of omega,

    log p(omega) = sum_k log p_k(s_k) + log p(R) + log |d(s, R) / d omega|,
    log |R| = -2 sum_k (omega_kk + log s_k),
    log |d(s, R) / d omega| = -sum_k (r + k) omega_kk - r sum_k log s_k,     k = 1, ..., r.

The Jacobian is the product of those of omega -> W -> W W' -> its inverse -> (s, R). The sds follow from the columns of
W^-1: with y_k = 1 and y_l = -sum_{k <= m < l} W_lm y_m / W_ll,

    log s_k = -omega_kk + (1/2) log(1 + sum_{l > k} y_l^2),

a function of the columns k, ..., r of W alone: the end of omega = vech(W*). What is linear in omega has a closed
expectation; a function of log s_k is integrated over that end of omega: by a product Gauss-Hermite rule in one or
three variables, by fixed points in six or more.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.quadrature.fixed_points import fixed_points
from natvi.target.expected import Expected
from natvi.target.mixed.random_effects import omega_positions
from natvi.target.point_mass import PointMass
from natvi.target.priors.scale_density import ScaleDensity, scale_log_density
from natvi.target.term import SharedMarginals

NODES_PER_DIMENSION = {1: 61, 3: 13}
NUM_POINTS = 4096


def log_sds(r: int, omega: Float[Array, "k ..."]) -> Float[Array, "r ..."]:
    """Return the logarithms of the random effects' sds."""
    position = omega_positions(r)
    return jnp.stack([_log_sd(r, k, omega[position[k, k] :]) for k in range(r)])


def _log_sd(r: int, k: int, tail: Float[Array, "d ..."]) -> Float[Array, "..."]:
    """Return log s_k from the end of omega that begins with omega_kk."""
    position = {pair: at - omega_positions(r)[k, k] for pair, at in omega_positions(r).items()}
    y: dict[int, Array] = {k: jnp.ones_like(tail[0])}
    for row in range(k + 1, r):
        inner = sum((tail[position[row, m]] * y[m] for m in range(k, row)), jnp.zeros_like(tail[0]))
        y[row] = -inner * jnp.exp(-tail[position[row, row]])
    squares = sum((y[row] ** 2 for row in range(k + 1, r)), jnp.zeros_like(tail[0]))
    return -tail[0] + 0.5 * jnp.log1p(squares)


def log_lkj_constant(r: int, eta: float) -> float:
    """Return log c of p(R) = c |R|^(eta - 1) for r x r correlation matrices."""
    terms = (
        math.lgamma(eta + (r - 1) / 2) - k / 2 * math.log(math.pi) - math.lgamma(eta + (r - 1 - k) / 2)
        for k in range(1, r)
    )
    return sum(terms)


class OmegaPrior(eqx.Module):
    """Independent priors on the sds and an LKJ prior on the correlations; omega starts at shared coordinate `start`."""

    parameters: tuple[Float[Array, " _"], ...]
    eta: Float[Array, ""]
    log_constant: Float[Array, ""]
    names: tuple[str, ...] = eqx.field(static=True)
    start: int = eqx.field(static=True)

    @classmethod
    def of(cls, densities: tuple[ScaleDensity, ...], eta: float, start: int) -> "OmegaPrior":
        """Build the term from one density per sd and the parameter of the LKJ prior."""
        r = len(densities)
        if r < 2:
            raise ValueError(f"A prior of correlated sds is for 2 or more random effects per group, not {r}.")
        parameters = tuple(jnp.asarray(density.parameters) for density in densities)
        constant = jnp.asarray(log_lkj_constant(r, eta))
        return cls(parameters, jnp.asarray(eta), constant, tuple(density.name for density in densities), start)

    @property
    def r(self) -> int:
        """The number of random effects per group."""
        return len(self.names)

    @property
    def own(self) -> slice:
        """Where omega lies among the shared coordinates."""
        return slice(self.start, self.start + self.r * (self.r + 1) // 2)

    def value(self, theta: ArrowVector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        return self.log_density(theta.shared[self.own])

    def expected(self, gaussian: SharedMarginals) -> Expected:
        """Return the expectation; derivatives in the mean give E grad and E hess (Bonnet, Price)."""
        (r, n), own = gaussian.mean.local.shape, self.own
        total = self.log_density
        if not isinstance(gaussian, PointMass):
            # backwards, so that the end of omega depends on the first variables of the rule only
            root = jnp.linalg.cholesky(_shared_covariance(gaussian)[own, own][::-1, ::-1])

            def total(omega: Float[Array, " k"]) -> Float[Array, ""]:
                parts = [self._expected_of_sd(k, omega, root) for k in range(self.r)]
                return self._linear(omega) + sum(parts, jnp.zeros(()))

        mean = gaussian.mean.shared[own]
        value, grad = jax.value_and_grad(total)(mean)
        hess = jax.jacfwd(jax.grad(total))(mean)
        return Expected(
            value,
            ArrowVector(jnp.zeros((r, n)), grad),
            ArrowMatrix(jnp.zeros((r, r, n)), jnp.zeros((mean.shape[0], r, n)), hess),
        )

    def log_density(self, omega: Float[Array, " k"]) -> Float[Array, ""]:
        """Return the log-density of omega."""
        each = [self._of_sd(k, log_s) for k, log_s in enumerate(log_sds(self.r, omega))]
        return self._linear(omega) + sum(each, jnp.zeros(()))

    def density_of_sds(self, omega: Float[Array, " k"]) -> Float[Array, ""]:
        """Return the log-density of sds and correlations themselves: that of omega without the Jacobian."""
        at, logs = omega_positions(self.r), log_sds(self.r, omega)
        jacobian = sum(((self.r + k + 1) * omega[at[k, k]] + self.r * logs[k] for k in range(self.r)), jnp.zeros(()))
        return self.log_density(omega) + jacobian

    def _linear(self, omega: Float[Array, " k"]) -> Float[Array, ""]:
        """Return the part that is linear in omega, constants included."""
        at = omega_positions(self.r)
        each = [-(self.r + k + 1 + 2 * (self.eta - 1)) * omega[at[k, k]] for k in range(self.r)]
        return self.log_constant + sum(each, jnp.zeros(()))

    def _of_sd(self, k: int, log_s: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return all that depends on s_k: its prior, and its share of log |R| and of the Jacobian."""
        prior = scale_log_density(self.names[k], log_s, self.parameters[k])
        return prior - (self.r + 2 * (self.eta - 1)) * log_s

    def _expected_of_sd(self, k: int, omega: Float[Array, " k"], root: Float[Array, "k k"]) -> Float[Array, ""]:
        tail = omega[omega_positions(self.r)[k, k] :]
        d = tail.shape[0]
        z, w = _rule(d)
        nodes = tail[:, None] + (root[:d, :d] @ jnp.asarray(z))[::-1]
        return jnp.asarray(w) @ self._of_sd(k, _log_sd(self.r, k, nodes))


def _shared_covariance(gaussian: SharedMarginals) -> Float[Array, "g g"]:
    covariance = getattr(gaussian, "shared_covariance", None)
    if covariance is None:
        raise TypeError(f"A prior of correlated sds needs shared_covariance(), which {type(gaussian).__name__} lacks.")
    return covariance()


def _rule(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes `(d, k)` and weights `(k,)` for d independent standard normals."""
    if d not in NODES_PER_DIMENSION:
        return fixed_points(d, NUM_POINTS), np.full(NUM_POINTS, 1.0 / NUM_POINTS)
    x, w = np.polynomial.hermite_e.hermegauss(NODES_PER_DIMENSION[d])
    grids = np.meshgrid(*[x] * d, indexing="ij")
    weights = np.meshgrid(*[w / np.sqrt(2 * np.pi)] * d, indexing="ij")
    return np.stack([grid.ravel() for grid in grids]), np.prod([grid.ravel() for grid in weights], axis=0)
