"""The systems of models without groups, ready for the ascent: the full covariance, and independent coordinates.

Their arrays per group are empty (`natvi.optimize.system`).
"""

from dataclasses import replace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Int

from natvi.families.family import concave
from natvi.families.rows import RowExpectation
from natvi.gaussian import CovarianceGaussian
from natvi.linalg import DenseFactor, DiagonalFactor
from natvi.optimize.system import Evaluated, Packed
from natvi.target import Expected
from natvi.target.design_rows import DesignRows

LEAST_NEWTON_STEP = 4.0**-8
MOST_MEAN_STEPS, COLUMNS_PER_STEP = 3, 40  # of the mean alone: with more columns they are cheaper beside X' W X
LEAST_RISE = 1e-5  # in nats, that makes such a step worth its while


MEMORY = 8


class DenseSystem(eqx.Module):
    """The full covariance: x = (Sigma^-1 mu, Sigma^-1) and G(x) = (S' mu + E grad, S') with S' = -E hess (Table 1)."""

    target: DesignRows
    memory: ClassVar[int] = MEMORY
    whole_residual: ClassVar[bool] = True
    compiles_quickly: ClassVar[bool] = False  # it loops over nodes for most of its time

    def gaussian(self, x: Packed) -> CovarianceGaussian:
        """Return the Gaussian at x, by the factor C = T^-T turned lower triangular."""
        mean, R, _ = self.question(x)
        # Sigma = R' R; a QR of R gives its lower factor without squaring the condition number
        upper = jnp.linalg.qr(R, mode="r")
        signs = jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0)
        return CovarianceGaussian(mean, DenseFactor((upper * signs[:, None]).T))

    def question(self, x: Packed) -> "_Whitened":
        """Return what the rows are asked about: the mean, R = T^-1 and log |T|, T T' being the precision."""
        d = self.target.prior.mean.shape[0]
        linear, precision = x.shared[:d], x.shared[d:].reshape(d, d)
        T = jnp.linalg.cholesky(precision)
        R = solve_triangular(T, jnp.eye(d), lower=True)
        return _Whitened(R.T @ (R @ linear), R, jnp.sum(jnp.log(jnp.diagonal(T))))

    def evaluate(self, x: Packed) -> Evaluated:
        """Return x with its mean moved, G, the residual T^-1 E grad and the bound."""
        q = self.question(x)
        if self.target.in_blocks:
            return self.answer(x, q, self.target.expected(q))
        mean, found = _settle_mean(self.target, q)
        precision = x.shared[mean.shape[0] :]
        x = Packed(x.local, jnp.concatenate([precision.reshape(2 * mean.shape) @ mean, precision]))
        return self.answer(x, q._replace(mean=mean), found)

    def answer(self, x: Packed, q: "_Whitened", found: Expected) -> Evaluated:
        """Return x, G, the residual T^-1 E grad and the bound from what the rows said."""
        (mean, R, log_root), (value, grad, hess) = q, found
        d = mean.shape[0]
        entropy = 0.5 * d * (1 + jnp.log(2 * jnp.pi)) - log_root
        G = jnp.concatenate([grad - hess @ mean, -hess.reshape(-1)])
        # the relative change of the precision, T^-1 (S' - S) T^-T = -T^-1 E hess T^-T - I
        change = (-R @ hess @ R.T - jnp.eye(d)) / jnp.sqrt(2.0)
        residual = jnp.concatenate([R @ grad, change.reshape(-1)])
        return Evaluated(x, Packed(x.local, G), Packed(x.local, residual), value + entropy)

    def start_at(self, mean: Float[Array, " d"], factor: Float[Array, "d d"]) -> Packed:
        """Return N(mean, C C')."""
        precision = cho_solve((factor, True), jnp.eye(mean.shape[0]))
        return Packed(jnp.zeros((0, 0)), jnp.concatenate([precision @ mean, precision.reshape(-1)]))

    def start(self, mean: Float[Array, " d"]) -> Packed:
        """Return N(mean, S^-1) with S the information at the mean."""
        precision = information(self.target, mean)
        return Packed(jnp.zeros((0, 0)), jnp.concatenate([precision @ mean, precision.reshape(-1)]))


class _Whitened(NamedTuple):
    """A Gaussian by its mean, R with Sigma = R' R and log |R^-1|, as the rows ask for it."""

    mean: Float[Array, " d"]
    root: Float[Array, "d d"]
    log_root: Float[Array, ""]

    @property
    def factor(self) -> DenseFactor:
        """A factor of the dense pattern."""
        return DenseFactor(self.root)

    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return Var(a' theta) = |R a|^2 for every row a."""
        return jnp.sum((rows @ self.root.T) ** 2, axis=1)

    def covariance_product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return Sigma x."""
        return self.root.T @ (self.root @ x)

    def marginal_sds(self) -> Float[Array, " d"]:
        """Return the sd of every coordinate."""
        return jnp.sqrt(jnp.sum(self.root**2, axis=0))


class _Looked(NamedTuple):
    """A mean with what the rows say there, and how far the next try goes."""

    mean: Float[Array, " d"]
    value: Float[Array, ""]
    grad: Float[Array, " d"]
    each: RowExpectation
    size: Float[Array, ""]
    looks: Int[Array, ""]


def _settle_mean(target: DesignRows, q: _Whitened) -> tuple[Float[Array, " d"], Expected]:
    """Move the mean by steps of Sigma E grad while the covariance stays, and return it with the expectations there.

    The variances of the predictors stay as well, so that a step costs two products with X, where X' W X and the
    variances cost as many as there are columns. A step that does not raise the bound is halved.
    """
    moments = target.moments(q)
    most = min(MOST_MEAN_STEPS, target.p // COLUMNS_PER_STEP)

    def look(mean: Array) -> tuple[Array, Array, RowExpectation]:
        each = target.each_row(target.moved(moments, mean))
        return *target.first_order(each, q._replace(mean=mean)), each

    def promising(now: _Looked) -> Array:
        rise = 0.5 * jnp.sum((q.root @ now.grad) ** 2)  # of a quadratic bound
        return (now.looks <= most) & ((now.looks == 0) | (rise > LEAST_RISE))

    def step(now: _Looked) -> _Looked:
        mean = now.mean + now.size * q.covariance_product(now.grad)
        value, grad, each = look(mean)
        rises = value >= now.value
        kept = (mean, value, grad, each)
        mean, value, grad, each = jax.tree.map(lambda new, old: jnp.where(rises, new, old), kept, now[:4])
        return _Looked(mean, value, grad, each, jnp.where(rises, 1.0, 0.5 * now.size), now.looks + 1)

    _, grad, each = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(look, q.mean))
    start = _Looked(q.mean, jnp.asarray(-jnp.inf), grad, each, jnp.ones(()), jnp.zeros((), jnp.int32))
    end = jax.lax.while_loop(promising, step, start)
    return end.mean, Expected(end.value, end.grad, target.second_order(end.each, q._replace(mean=end.mean)))


class DiagonalSystem(eqx.Module):
    """Independent coordinates: x = (mu, log s).

    The natural-gradient step of size one is a Jacobi iteration and diverges for correlated columns; the mean takes the
    full Newton step (-E hess)^-1 E grad instead, and s^2 = 1 / diag(-E hess).
    """

    target: DesignRows
    memory: ClassVar[int] = MEMORY
    whole_residual: ClassVar[bool] = True
    compiles_quickly: ClassVar[bool] = False

    def gaussian(self, x: Packed) -> CovarianceGaussian:
        """Return the Gaussian at x."""
        mean, log_sd = jnp.split(x.shared, 2)
        return CovarianceGaussian(mean, DiagonalFactor(jnp.exp(log_sd)))

    def evaluate(self, x: Packed) -> Evaluated:
        """Return x, G(x), the residual in sds and the bound."""
        q = self.question(x)
        return self.answer(x, q, self.target.expected(q))

    def question(self, x: Packed) -> "_Independent":
        """Return what the rows are asked about."""
        q = self.gaussian(x)
        return _Independent(q.mean, q.factor.values)

    def answer(self, x: Packed, q: "_Independent", found: Expected) -> Evaluated:
        """Return x, G(x), the residual in sds and the bound from what the rows said."""
        value, grad, hess = found
        step = cho_solve((jnp.linalg.cholesky(-hess), True), grad)
        log_sd = -0.5 * jnp.log(-jnp.diagonal(hess))
        G = jnp.concatenate([q.mean + step, log_sd])
        residual = jnp.concatenate([step / q.sds, log_sd - jnp.log(q.sds)])
        entropy = self.gaussian(x).entropy()
        return Evaluated(x, Packed(x.local, G), Packed(x.local, residual), value + entropy)

    def start_at(self, mean: Float[Array, " d"], sds: Float[Array, " d"]) -> Packed:
        """Return independent coordinates with these sds."""
        return Packed(jnp.zeros((0, 0)), jnp.concatenate([mean, jnp.log(jnp.abs(sds))]))

    def start(self, mean: Float[Array, " d"]) -> Packed:
        """Return independent coordinates with the information's diagonal at the mean."""
        curvature = jnp.diagonal(information(self.target, mean))
        return Packed(jnp.zeros((0, 0)), jnp.concatenate([mean, -0.5 * jnp.log(curvature)]))


class _Independent(NamedTuple):
    """Independent coordinates that ask for the whole Hessian."""

    mean: Float[Array, " d"]
    sds: Float[Array, " d"]

    @property
    def factor(self) -> DenseFactor:
        """A factor of the dense pattern."""
        return DenseFactor(jnp.diag(self.sds))

    def row_variances(self, rows: Float[Array, "k d"]) -> Float[Array, " k"]:
        """Return Var(a' theta) for every row a."""
        return rows**2 @ self.sds**2

    def covariance_product(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return Sigma x."""
        return self.sds**2 * x

    def marginal_sds(self) -> Float[Array, " d"]:
        """Return the sd of every coordinate."""
        return self.sds


SYSTEMS = {"dense": DenseSystem, "diagonal": DiagonalSystem}


def information(target: DesignRows, mean: Float[Array, " d"]) -> Float[Array, "d d"]:
    """Return minus the Hessian at a point, made positive definite: log p is concave in the predictor alone.

    The dispersion's rows are cut off, and its own entries are at least a tenth per row.
    """
    target = replace(target, family=concave(target.family))
    found = -target.hessian(mean, DenseFactor.identity(mean.shape[0]))
    if not target.family.has_dispersion:
        return found
    least, p, q = 0.1 * target.num_rows, target.p, target.family.num_extras
    beta = jnp.pad(found[:p, :p], ((0, q), (0, q)))
    own = p + jnp.arange(q)
    return beta.at[own, own].set(jnp.maximum(jnp.diagonal(found)[p:], least))


def newton_start(target: DesignRows, mean: Float[Array, " d"], steps: int) -> Float[Array, " d"]:
    """Return the coefficients after some Newton steps towards the mode, each cut to where the log-density rises."""

    def body(_: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        mean, value, grad = carry
        factor = jnp.linalg.cholesky(information(target, mean))
        step = cho_solve((factor, True), grad)
        if target.family.has_dispersion:  # it stays: with few rows the mode may lie at zero
            step = step.at[target.p :].set(0.0)

        def shorter(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            size, _ = carry
            return 0.25 * size, target.value(mean + 0.25 * size * step)

        def falls(carry: tuple[Array, Array]) -> Array:
            size, found = carry
            return ~(found >= value) & (size > LEAST_NEWTON_STEP)

        one = jnp.ones((), mean.dtype)
        size, found = jax.lax.while_loop(falls, shorter, (one, target.value(mean + step)))
        moved = jnp.where(found >= value, mean + size * step, mean)
        return moved, *jax.value_and_grad(target.value)(moved)

    return jax.lax.fori_loop(0, steps, body, (mean, *jax.value_and_grad(target.value)(mean)))[0]
