"""The system of a model with groups: natural parameters on the arrow."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from natvi.derivatives import exact_derivatives
from natvi.derivatives.exact import ExactTarget
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowMatrix, ArrowVector, small_blocks
from natvi.optimize.system import Evaluated, Packed


class Natural(NamedTuple):
    """Natural parameters: Sigma^-1 mu and Sigma^-1."""

    linear: ArrowVector
    precision: ArrowMatrix


class ArrowSystem(eqx.Module):
    """x = (Sigma^-1 mu, Sigma^-1) on the arrow and G(x) = (S' mu + E grad, S') with S' = -E hess (Table 1).

    The group axis stays last, so that every piece is contiguous.
    """

    target: ExactTarget
    r: int = eqx.field(static=True)  # coordinates of a group
    g: int = eqx.field(static=True)  # shared coordinates
    memory: ClassVar[int] = 4  # points may be very long
    whole_residual: ClassVar[bool] = False

    @property
    def compiles_quickly(self) -> bool:
        """Not where loops over quadrature nodes take most of the time: there faster code is worth the wait."""
        links = {getattr(getattr(term, "family", None), "link", None) for term in getattr(self.target, "grouped", ())}
        return links.isdisjoint(("probit", "cloglog"))

    @classmethod
    def around(cls, target: ExactTarget, start: Natural) -> "ArrowSystem":
        """Return the system of a target, of the sizes of a start."""
        return cls(target, start.linear.local.shape[0], start.linear.shared.shape[0])

    def start(self, start: Natural) -> Packed:
        """Lay natural parameters into two arrays."""
        (h, b), (A, B, S) = start
        n = h.shape[-1]
        return Packed(jnp.concatenate([h, A.reshape(-1, n), B.reshape(-1, n)]), jnp.concatenate([b, S.reshape(-1)]))

    def natural(self, x: Packed) -> Natural:
        """Take natural parameters out of their two arrays."""
        r, g, n = self.r, self.g, x.local.shape[1]
        h, A, B = jnp.split(x.local, (r, r + r * r))
        linear = ArrowVector(h, x.shared[:g])
        return Natural(linear, ArrowMatrix(A.reshape(r, r, n), B.reshape(g, r, n), x.shared[g:].reshape(g, g)))

    def gaussian(self, x: Packed) -> ArrowPrecision:
        """Return the Gaussian at x."""
        return ArrowPrecision.from_natural(*self.natural(x))

    def evaluate(self, x: Packed) -> Evaluated:
        """Return x, G(x), the residual and the bound.

        The residual is T^-1 E grad, and for each group T_i^-1 (S'_i - S_i) T_i^-T / sqrt 2, the relative change of its
        precision: with that the mixing sees the spread of the random effects.
        """
        linear, precision = self.natural(x)
        q = ArrowPrecision.from_natural(linear, precision)
        bound, grad, hess = exact_derivatives(self.target, q)
        new_precision: ArrowMatrix = jax.tree.map(jnp.negative, hess)
        new_linear = jax.tree.map(jnp.add, new_precision.matvec(q.mean), grad)
        whitened = q.factor.solve(grad)
        half = small_blocks.solve_lower(q.factor.local, new_precision.local - precision.local)
        spread = small_blocks.solve_lower(q.factor.local, half.swapaxes(0, 1)) / jnp.sqrt(2.0)
        n = spread.shape[-1]
        residual = Packed(jnp.concatenate([whitened.local, spread.reshape(-1, n)]), whitened.shared)
        return Evaluated(x, self.start(Natural(new_linear, new_precision)), residual, bound)
