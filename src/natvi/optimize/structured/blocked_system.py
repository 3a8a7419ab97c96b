"""The system of a model with crossed factors: natural parameters on the blocked pattern."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from natvi.derivatives import exact_derivatives
from natvi.derivatives.exact import ExactTarget
from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.linalg import ArrowVector, small_blocks
from natvi.linalg.crossed.blocked import BlockedMatrix, CrossPattern
from natvi.optimize.system import Evaluated, Packed


class BlockedNatural(NamedTuple):
    """Natural parameters: Sigma^-1 mu and Sigma^-1."""

    linear: ArrowVector
    precision: BlockedMatrix


class BlockedSystem(eqx.Module):
    """x = (Sigma^-1 mu, Sigma^-1) on the pattern and G(x) = (S' mu + E grad, S') with S' = -E hess (Table 1)."""

    target: ExactTarget
    pattern: CrossPattern
    r: int = eqx.field(static=True)  # coordinates of a level of the largest factor
    b: int = eqx.field(static=True)  # shared coordinates before the effects of the smaller factors
    G: int = eqx.field(static=True)  # all shared coordinates
    memory: ClassVar[int] = 4
    whole_residual: ClassVar[bool] = False

    @property
    def compiles_quickly(self) -> bool:
        """Not where loops over quadrature nodes take most of the time."""
        return getattr(getattr(self.target, "family", None), "link", None) not in ("probit", "cloglog")

    @classmethod
    def around(cls, target: ExactTarget, pattern: CrossPattern, start: BlockedNatural) -> "BlockedSystem":
        """Return the system of a target, of the sizes of a start."""
        (local, shared), matrix = start
        return cls(target, pattern, local.shape[0], matrix.cross.shape[0], shared.shape[0])

    def start(self, start: BlockedNatural) -> Packed:
        """Lay natural parameters into two arrays."""
        (h, g), (A, B, pairs, S) = start
        n = h.shape[-1]
        local = jnp.concatenate([h, A.reshape(-1, n), B.reshape(-1, n)])
        return Packed(local, jnp.concatenate([g, S.reshape(-1), pairs.reshape(-1)]))

    def natural(self, x: Packed) -> BlockedNatural:
        """Take natural parameters out of their two arrays."""
        r, b, G, n = self.r, self.b, self.G, x.local.shape[1]
        h, A, B = jnp.split(x.local, (r, r + r * r))
        linear, S, pairs = jnp.split(x.shared, (G, G + G * G))
        matrix = BlockedMatrix(A.reshape(r, r, n), B.reshape(b, r, n), pairs.reshape(r, -1), S.reshape(G, G))
        return BlockedNatural(ArrowVector(h, linear), matrix)

    def gaussian(self, x: Packed) -> BlockedPrecision:
        """Return the Gaussian at x."""
        return BlockedPrecision.from_natural(*self.natural(x), self.pattern)

    def evaluate(self, x: Packed) -> Evaluated:
        """Return x, G(x), the residual and the bound.

        The residual is T^-1 E grad with the relative changes of the precision: of each level's block, and of each
        entry on the diagonal of the corner, so that the mixing sees the spread of all random effects.
        """
        linear, precision = self.natural(x)
        q = BlockedPrecision.from_natural(linear, precision, self.pattern)
        bound, grad, hess = exact_derivatives(self.target, q)
        new_precision: BlockedMatrix = jax.tree.map(jnp.negative, hess)
        new_linear = jax.tree.map(jnp.add, self.pattern.matvec(new_precision, q.mean), grad)
        whitened = self.pattern.solve(q.factor, grad)
        half = small_blocks.solve_lower(q.factor.local, new_precision.local - precision.local)
        spread = small_blocks.solve_lower(q.factor.local, half.swapaxes(0, 1)) / jnp.sqrt(2.0)
        n = spread.shape[-1]
        change = jnp.diagonal(new_precision.shared - precision.shared)[self.b :]
        change = change / jnp.diagonal(precision.shared)[self.b :] / jnp.sqrt(2.0)
        residual = Packed(jnp.concatenate([whitened.local, spread.reshape(-1, n)]), jnp.append(whitened.shared, change))
        return Evaluated(x, self.start(BlockedNatural(new_linear, new_precision)), residual, bound)
