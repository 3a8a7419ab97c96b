"""A hierarchical target given by functions: each group's log-density, and the log-density of the shared coordinates.

    log p(theta) = sum_i f(theta_i, theta_g, data_i) + f_0(theta_g)

Its Hessian is an arrow (paper, Section 7.2). Automatic differentiation gives it group by group: the Hessian of f in
(theta_i, theta_g) has (r + g)^2 entries, so that all of them cost O(n (r + g)^2) and no dense matrix is formed. With it
second-order estimates serve Algorithm 2S, and the groups' gradients serve VOGN (supplement S5).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import ArrowMatrix, ArrowVector, vector
from natvi.typing import Factor, Hessian, Vector


class GroupTarget(eqx.Module):
    """log p(theta) = sum_i f(theta_i, theta_g, data_i) + f_0(theta_g), on an ArrowVector theta.

    Targets made of the same two functions share compiled code whatever their data, so define the functions once
    instead of writing a new lambda for every fit.

    Attributes:
        log_density: f, a function (theta_i `(r,)`, theta_g `(g,)`, the data of one group) -> a number.
        data: A pytree of arrays whose leading axis is the n groups; groups of unequal size are padded, with a mask.
        shared_log_density: f_0, a function theta_g -> a number; None for none.

    Example:
        >>> def group(effect, shared, y):
        ...     return -0.5 * (y - effect[0]) ** 2 - 0.5 * (effect[0] - shared[0]) ** 2
        >>> target = GroupTarget(group, jnp.array([1.0, 3.0]), lambda shared: -0.5 * shared[0] ** 2)
        >>> theta = ArrowVector(jnp.zeros((1, 2)), jnp.zeros(1))
        >>> float(target.value(theta))
        -5.0
        >>> [part.ravel().tolist() for part in target.hessian(theta)]
        [[-2.0, -2.0], [1.0, 1.0], [-3.0]]
    """

    log_density: Callable[..., Any] = eqx.field(static=True)
    data: Any
    shared_log_density: Callable[..., Any] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        """Refuse data whose arrays do not agree on the number of groups."""
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(self.data)]
        if len({shape[:1] for shape in shapes}) > 1 or () in shapes:
            came = ", ".join(str(shape) for shape in shapes)
            raise ValueError(
                "Every array of data needs the groups as its leading axis, the same number n in all; got the shapes "
                f"{came}. Let the function itself hold what all groups have in common."
            )

    def value(self, theta: Vector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        self._check(theta)
        each = jax.vmap(self.log_density, in_axes=(1, None, 0))(theta.local, theta.shared, self.data)
        if jnp.shape(each) != theta.local.shape[1:]:
            raise ValueError(
                "log_density must return one number for each group; for all "
                f"{theta.local.shape[1]} groups together it gave the shape {jnp.shape(each)}. Sum over a group's rows."
            )
        return jnp.sum(each) + self._alone(theta.shared)

    def hessian(self, theta: Vector, factor: Factor | None = None) -> Hessian:
        """Return the Hessian at one point, group by group: on the arrow, or on the factor's pattern within it.

        H_ii = d2 f / d theta_i^2;   H_gi = d2 f / d theta_g d theta_i;   H_gg = sum_i d2 f / d theta_g^2 + f_0''
        """
        self._check(theta)
        r = theta.local.shape[0]

        def one(local: Array, data: Any) -> Array:
            return jax.hessian(lambda x: self.log_density(x[:r], x[r:], data))(jnp.concatenate([local, theta.shared]))

        each = jax.vmap(one, in_axes=(1, 0), out_axes=2)(theta.local, self.data)  # (r + g, r + g, n)
        shared = jnp.sum(each[r:, r:], axis=2) + jax.hessian(self._alone)(theta.shared)
        arrow = ArrowMatrix(each[:r, :r], each[r:, :r], shared)
        return arrow if factor is None else factor.restrict(arrow)

    def group_gradients(self, theta: Vector) -> ArrowVector:
        """Return each group's gradient: of f, and of a share 1/n of f_0.

        Local parts `(r, n)`, shared parts `(g, n)` group by group; summed over groups they are the gradient.
        """
        self._check(theta)
        slopes = jax.vmap(jax.grad(self.log_density, argnums=(0, 1)), in_axes=(1, None, 0), out_axes=1)
        local, shared = slopes(theta.local, theta.shared, self.data)
        return ArrowVector(local, shared + jax.grad(self._alone)(theta.shared)[:, None] / theta.local.shape[1])

    def value_and_group_gradients(self, theta: Vector) -> tuple[Float[Array, ""], ArrowVector]:
        """Return the log-density and each group's gradient."""
        return self.value(theta), self.group_gradients(theta)

    def _alone(self, shared: Float[Array, " g"]) -> Float[Array, ""]:
        """Return f_0."""
        value = jnp.zeros(()) if self.shared_log_density is None else jnp.asarray(self.shared_log_density(shared))
        if value.shape != ():
            raise ValueError(f"shared_log_density must return one number; got the shape {value.shape}. Sum its terms.")
        return value

    def _check(self, theta: Vector) -> None:
        """Refuse a theta that is no arrow, or has other groups than the data."""
        if not vector.is_split(theta):
            raise ValueError(
                "GroupTarget takes theta as an ArrowVector, local (r, n) and shared (g,), and a Gaussian that draws "
                f"such vectors (arrow_precision, local_global_covariance); got a {type(theta).__name__}."
            )
        for leaf in jax.tree.leaves(self.data):
            if np.shape(leaf)[0] != theta.local.shape[1]:
                raise ValueError(
                    f"The data have {np.shape(leaf)[0]} groups on their leading axis, but theta.local has shape "
                    f"{theta.local.shape}, which is (r, n) for n = {theta.local.shape[1]} groups. Make them equal."
                )
