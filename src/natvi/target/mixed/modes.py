"""The modes of random effects given everything else, group by group: Newton's method in all groups at once.

f_i(theta_i) = log p(y_i, theta_i | theta_g) is concave for most families, so that there is one mode; for the others one
near the guess is found, rows that are not concave adding nothing to the curvature. Value, gradient and
Hessian come from one look at the rows, and a look that showed a rise is the next step's.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natvi.families.rows import take_extras
from natvi.families.stacked import Stacked
from natvi.linalg import small_blocks
from natvi.target.likelihood_rows import LikelihoodRows

MOST_STEPS = 60  # of Newton's method
FIRMNESS = 1e-12  # added to the diagonal of a Hessian, as a share of it
FAR = 100.0  # squared distance of a guess from which zero may be nearer
# squared distances, in sds, from which one step more needs no look: it leaves hundredths of an sd, or next to nothing
CLOSE, CLOSER = 0.05, 1e-4


class RowLikelihood:
    """The log-likelihood of every group as a function of its random effects, but for what theta_g alone decides."""

    def __init__(self, term: LikelihoodRows, shared: Float[Array, " g"]) -> None:
        self.term = term
        self.disp = take_extras(term.family, shared, term.p)
        self.base = term.design.offset + jnp.tensordot(shared[: term.p], term.design.X, axes=1)

    def predictor(self, theta: Float[Array, "r n"]) -> Float[Array, "c K"]:
        """Return every row's predictor."""
        local = self.term.design.per_chunk(theta)
        return self.base + jnp.sum(self.term.design.Z * local[:, None], axis=0)

    def log_density(self, eta: Float[Array, "c K"]) -> Float[Array, "c K"]:
        """Return every row's weighted log p, less its normaliser."""
        return self.term.row_kernels(eta, self.disp)

    def by_group(self, theta: Float[Array, "r n"]) -> Float[Array, " n"]:
        """Return every group's log-likelihood, less its normaliser."""
        return self.total(self.log_density(self.predictor(theta)))

    def total(self, rows: Float[Array, "c K"]) -> Float[Array, " n"]:
        """Return the sum over every group's rows."""
        return self.term.design.per_group(jnp.sum(rows, axis=0))

    def slopes(self, eta: Float[Array, "c K"]) -> tuple[Float[Array, "c K"], Float[Array, "c K"]]:
        """Return every row's log p and its derivative in the predictor."""
        if isinstance(self.term.family, Stacked):
            return self._stacked(eta)[:2]
        return jax.jvp(self.log_density, (eta,), (jnp.ones_like(eta),))

    def bends(self, eta: Float[Array, "c K"]) -> tuple[Float[Array, "c K"], Float[Array, "c K"], Float[Array, "c K"]]:
        """Return every row's log p with its first and second derivative in the predictor."""
        if isinstance(self.term.family, Stacked):
            return self._stacked(eta)
        (value, slope), (_, bend) = jax.jvp(self.slopes, (eta,), (jnp.ones_like(eta),))
        return value, slope, bend

    def _stacked(
        self, eta: Float[Array, "c K"]
    ) -> tuple[Float[Array, "c K"], Float[Array, "c K"], Float[Array, "c K"]]:
        """Return the same of rows that stand together for one response; their bends add up to something concave."""
        assert isinstance(self.term.family, Stacked)
        value, slope, bend = self.term.family.row_derivatives(self.term.y, eta, self.disp)
        return self.term.weighted(value), self.term.weighted(slope), self.term.weighted(bend)


def is_log_concave(likelihood: LikelihoodRows) -> bool:
    """Whether every row is log-concave in its predictor."""
    return bool(getattr(likelihood.family, "log_concave", True))


class _Look(NamedTuple):
    """f_i at a point: its value, its gradient whitened by the factor of the negative Hessian, and the factor."""

    value: Float[Array, " n"]
    whitened: Float[Array, "r n"]
    root: Float[Array, "r r n"]


class _Search(NamedTuple):
    """Newton's method in every group at once."""

    theta: Float[Array, "r n"]
    look: _Look
    candidate: Float[Array, "r n"]
    length: Float[Array, " n"]  # of the next step: 1 unless a step failed
    left: Float[Array, ""]  # the largest squared distance to a mode, in sds
    count: Int[Array, ""]


def group_modes(
    rows: RowLikelihood, precision: Float[Array, "r r"], near: Float[Array, "r n"], close: float = CLOSE
) -> tuple[Float[Array, "r n"], Float[Array, "r r n"]]:
    """Return each group's mode, to some hundredths of an sd, and a Cholesky factor of the negative Hessian beside it.

    For Gaussian rows both are exact. A step counts in the groups where it raises the density; where it does not, a
    quarter of it is tried. Where the guess is far off, or its density not finite, zero is tried first.
    """
    r, n = near.shape

    def newton(state: _Search) -> _Search:
        found, before = _look(rows, precision, state.candidate), state.look.value
        rises = found.value >= before - 1e-12 * (1.0 + jnp.abs(before))  # a first look is above minus infinity
        kept = jax.tree.map(lambda new, old: jnp.where(rises, new, old), found, state.look)
        theta, distance = jnp.where(rises, state.candidate, state.theta), jnp.sum(kept.whitened**2, axis=0)
        length = jnp.where(rises, jnp.minimum(1.0, 4.0 * state.length), 0.25 * state.length)
        lost = ~(kept.value > -jnp.inf)
        to_zero = lost | ((state.count == 0) & ~(distance < FAR))
        candidate = jnp.where(to_zero, 0.0, theta + length * _step(kept))
        # a try that failed at zero says nothing about Newton's steps
        length = jnp.where(to_zero, 4.0, length)
        return _Search(theta, kept, candidate, length, jnp.max(jnp.where(lost, jnp.inf, distance)), state.count + 1)

    nowhere = _Look(jnp.full(n, -jnp.inf), jnp.zeros((r, n)), jnp.broadcast_to(jnp.eye(r)[..., None], (r, r, n)))
    start = _Search(jnp.zeros((r, n)), nowhere, near, jnp.ones(n), jnp.asarray(jnp.inf), jnp.zeros((), jnp.int32))
    found = jax.lax.while_loop(lambda s: (s.left > close) & (s.count < MOST_STEPS), newton, start)
    last = jnp.where(found.left > close, 0.0, _step(found.look))
    return found.theta + last, found.look.root


def _step(at: _Look) -> Float[Array, "r n"]:
    """Return Newton's step."""
    return small_blocks.solve_upper(at.root, at.whitened)


def _look(rows: RowLikelihood, precision: Float[Array, "r r"], theta: Float[Array, "r n"]) -> _Look:
    design, pulled = rows.term.design, precision @ theta
    value, slope, bend = rows.bends(rows.predictor(theta))
    if not is_log_concave(rows.term) and not isinstance(rows.term.family, Stacked):
        bend = jnp.minimum(bend, 0.0)
    grad = design.per_group(jnp.sum(design.Z * slope, axis=1)) - pulled
    gram = design.per_group(jnp.sum(design.Z[:, None] * (-design.Z * bend)[None], axis=2))
    hess = gram + precision[..., None]
    # where e^eta is huge, one row outweighs the rest by more digits than there are, and rounding makes H indefinite
    firm = (
        jnp.where(jnp.eye(hess.shape[0])[..., None] > 0, hess * (1.0 + FIRMNESS), hess) if hess.shape[0] > 1 else hess
    )
    root = small_blocks.cholesky(firm)
    return _Look(rows.total(value) - 0.5 * jnp.sum(theta * pulled, axis=0), small_blocks.solve_lower(root, grad), root)
