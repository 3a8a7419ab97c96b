"""Fixed effects as standard normal numbers, given sds and dispersion: a funnel after it is straightened.

How well the data determine a coefficient depends on the sds of the random effects: with few groups and an sd that may
be large, the coefficients' marginal has heavy tails that no distribution of theta_g = (beta, dispersion, omega) with
one covariance follows. Given psi = (dispersion, omega) they are close to a Gaussian, exactly one for Gaussian rows.
Take the rows' curvatures w and gradients s at the centre (beta_0, theta_i) of a fit, W = diag(w), and the working
response v with W v = W Z theta_i + s, less X beta_0 and the offset. Then group i adds

    X_i'(W_i - W_i Z_i K_i Z_i' W_i) X_i,    X_i'(W_i - W_i Z_i K_i Z_i' W_i) v_i,    K_i = (Lambda + Z_i' W_i Z_i)^-1

to the precision of beta and to precision times mean of beta - beta_0, Lambda(omega) being the precision of the random
effects. Gaussian rows have w = weight / sigma^2, which moves with the dispersion. Here x = (u, psi) and
beta = m(psi) + L(psi) u, L L' = V(psi).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian import ArrowPrecision
from natvi.models.mixed.filling import with_filling
from natvi.models.mixed.marginal.chart import Chart
from natvi.run.compiled_code import thorough_jit
from natvi.target import SumOfTerms
from natvi.target.mixed.marginal import is_gaussian, mixed_parts
from natvi.target.mixed.modes import RowLikelihood
from natvi.target.mixed.random_effects import omega_positions
from natvi.x64 import float64

MOST_CELLS = (
    1_000_000  # groups times squared coefficients: sds of so many groups are known well, and this is not needed
)
AT_ONCE = 4_000_000  # numbers that are held


class Sums(NamedTuple):
    """What the rows say about beta and the effects of every group, to second order.

    Attributes:
        precision: X'WX, with the prior's in `prior_precision`.
        target: X'Wv.
        cross: Z_i'W_i X_i, `(n, r, p)`.
        local: Z_i'W_i Z_i, `(n, r, r)`.
        local_target: Z_i'W_i v_i, `(n, r)`.
        prior_precision: Of beta.
        prior_target: Precision times mean, less beta_0.
        centre: beta_0.
        disp: The log dispersion at which W was taken, where it moves with it; else None.
    """

    precision: np.ndarray
    target: np.ndarray
    cross: np.ndarray
    local: np.ndarray
    local_target: np.ndarray
    prior_precision: np.ndarray
    prior_target: np.ndarray
    centre: np.ndarray
    disp: float | None


class FixedEffects:
    """beta given psi, the last answer kept: several charts ask about the same draws."""

    def __init__(self, sums: Sums, omega_start: int, correlated: bool) -> None:
        self.sums, self.omega_start, self.correlated = sums, omega_start, correlated
        self.p = len(sums.target)
        self._last: tuple[bytes, tuple[np.ndarray, np.ndarray]] | None = None

    def given(self, shared: Float[np.ndarray, "s g"]) -> tuple[Float[np.ndarray, "s p"], Float[np.ndarray, "s p p"]]:
        """Return the mean of beta given psi, and the Cholesky factor of its precision."""
        key = shared[:, self.p :].tobytes()
        if self._last is None or self._last[0] != key:
            n, r, p = self.sums.cross.shape
            size = max(AT_ONCE // (n * r * r + p * p), 1)
            parts = [self._some(shared[at : at + size]) for at in range(0, len(shared), size)]
            mean, root = zip(*parts, strict=True)
            self._last = key, (np.concatenate(mean), np.concatenate(root))
        return self._last[1]

    def _some(self, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums, (n, r, p), s = self.sums, self.sums.cross.shape, len(shared)
        with np.errstate(all="ignore"):
            scale = np.ones(s) if sums.disp is None else np.exp(2.0 * (sums.disp - shared[:, p]))
            # W is scale times that of the sums, so that this is scale times K
            inverse = _inverses(self._effects_precision(shared)[:, None] / scale[:, None, None, None] + sums.local)
            outer = np.einsum("nkp,nlq->nklpq", sums.cross, sums.cross).reshape(n * r * r, p * p)
            pulled = np.einsum("nkp,nl->nklp", sums.cross, sums.local_target).reshape(n * r * r, p)
            flat = inverse.reshape(s, n * r * r)
            seen = scale[:, None, None] * (sums.precision - (flat @ outer).reshape(s, p, p))
            root = _cholesky(seen + sums.prior_precision)
            right = scale[:, None] * (sums.target - flat @ pulled) + sums.prior_target
            return sums.centre + _solve_upper(root, _solve_lower(root, right)), root

    def _effects_precision(self, shared: np.ndarray) -> Float[np.ndarray, "s r r"]:
        """Return Lambda = W W'."""
        r = self.sums.cross.shape[1]
        W = np.zeros((len(shared), r, r))
        for (row, column), k in omega_positions(r, self.correlated).items():
            value = shared[:, self.omega_start + k]
            W[:, row, column] = np.exp(value) if row == column else value
        return W @ W.swapaxes(1, 2)


class Straight:
    """The chart; `inner` is the chart of psi."""

    def __init__(self, inner: Chart, fixed: FixedEffects) -> None:
        self.inner, self.fixed = inner, fixed

    def to_shared(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s g"]:
        """Return theta_g."""
        shared, p = np.array(self.inner.to_shared(x)), self.fixed.p
        mean, root = self.fixed.given(shared)
        # V^-1 = root root', so that L = root^-T
        with np.errstate(all="ignore"):
            shared[:, :p] = mean + _solve_upper(root, x[:, :p])
        return shared

    def from_shared(self, shared: Float[np.ndarray, "s g"]) -> Float[np.ndarray, "s g"]:
        """Return x."""
        x, p = np.array(self.inner.from_shared(shared)), self.fixed.p
        mean, root = self.fixed.given(shared)
        with np.errstate(all="ignore"):
            x[:, :p] = np.einsum("skj,sk->sj", root, shared[:, :p] - mean)
        return x

    def log_volume(self, x: Float[np.ndarray, "s g"]) -> Float[np.ndarray, " s"]:
        """Return log |d theta_g / d x|."""
        _, root = self.fixed.given(self.inner.to_shared(x))
        with np.errstate(all="ignore"):
            return self.inner.log_volume(x) - np.sum(np.log(np.einsum("skk->sk", root)), axis=1)


def fixed_effects(
    target: SumOfTerms,
    posterior: ArrowPrecision,
    prior_mean: Float[np.ndarray, " g"],
    prior_sd: Float[np.ndarray, " g"],
) -> FixedEffects | None:
    """Return beta given psi around a Gaussian fit; None where there are no coefficients, or it would not help.

    Args:
        target: The mixed model.
        posterior: The fit, in the order of the target.
        prior_mean: Of the normal priors of theta_g.
        prior_sd: Of the normal priors of theta_g; infinite for a flat prior.
    """
    likelihood, effects = mixed_parts(target)
    g, n = posterior.mean.shared.shape[0], posterior.mean.local.shape[1]
    p = likelihood.p - (effects.stop - g)  # the columns that are not filling
    if p == 0 or n * effects.r**2 * p**2 > MOST_CELLS:
        return None
    with float64():
        found = _sums(target, with_filling(target, posterior))
    shared, pull, cross, local, local_pull = (np.asarray(a) for a in found)
    shared, pull, cross = shared[:p, :p], pull[:p], cross[..., :p]
    precision = prior_sd[:p] ** -2.0  # zero for a flat prior
    disp = float(posterior.mean.shared[p]) if is_gaussian(likelihood) else None
    centre = np.asarray(posterior.mean.shared)[:p]
    pulled = np.where(precision > 0, precision * (prior_mean[:p] - centre), 0.0)
    fixed = FixedEffects(
        Sums(shared, pull, cross, local, local_pull, np.diag(precision), pulled, centre, disp),
        effects.start - (effects.stop - g),
        effects.correlated,
    )
    _, root = fixed.given(np.asarray(posterior.mean.shared)[None])
    return fixed if np.all(np.isfinite(root)) else None


@thorough_jit
def _sums(target: SumOfTerms, posterior: ArrowPrecision) -> tuple[Array, ...]:
    likelihood, _ = mixed_parts(target)
    rows, design = RowLikelihood(likelihood, posterior.mean.shared), likelihood.design
    eta = rows.predictor(posterior.mean.local)
    _, slope, bend = rows.bends(eta)
    by_groups = jnp.sum(design.Z * design.per_chunk(posterior.mean.local)[:, None], axis=0)
    w = jnp.where(design.filled, jnp.maximum(-bend, 0.0), 0.0)
    local, cross, shared = design.gram(w)
    local_target, shared_target = design.transposed_product(jnp.where(design.filled, w * by_groups + slope, 0.0))
    return shared, shared_target, cross.transpose(2, 1, 0), local.transpose(2, 0, 1), local_target.T


# --- many small matrices; what has no factor becomes NaN instead of an error ---------------------------------


def _inverses(matrices: Float[np.ndarray, "s n r r"]) -> Float[np.ndarray, "s n r r"]:
    r = matrices.shape[-1]
    if r == 1:
        return 1.0 / matrices
    flat = matrices.reshape(-1, r, r)
    root = _cholesky(flat)
    inverse = np.stack([_solve_lower(root, np.broadcast_to(e, flat.shape[:-1])) for e in np.eye(r)], axis=2)
    return np.einsum("ski,skj->sij", inverse, inverse).reshape(matrices.shape)


def _cholesky(matrices: Float[np.ndarray, "s p p"]) -> Float[np.ndarray, "s p p"]:
    """Return lower triangular factors, column by column."""
    root, p = np.zeros_like(matrices), matrices.shape[-1]
    for k in range(p):
        rest = matrices[:, k:, k] - np.einsum("sij,sj->si", root[:, k:, :k], root[:, k, :k])
        root[:, k:, k] = rest / np.sqrt(rest[:, :1])
    return root


def _solve_lower(root: Float[np.ndarray, "s p p"], right: Float[np.ndarray, "s p"]) -> Float[np.ndarray, "s p"]:
    found = np.zeros(right.shape)
    for k in range(right.shape[1]):
        found[:, k] = (right[:, k] - np.einsum("sj,sj->s", root[:, k, :k], found[:, :k])) / root[:, k, k]
    return found


def _solve_upper(root: Float[np.ndarray, "s p p"], right: Float[np.ndarray, "s p"]) -> Float[np.ndarray, "s p"]:
    """Solve root' x = right."""
    found, p = np.zeros(right.shape), right.shape[1]
    for k in reversed(range(p)):
        found[:, k] = (right[:, k] - np.einsum("sj,sj->s", root[:, k + 1 :, k], found[:, k + 1 :])) / root[:, k, k]
    return found
