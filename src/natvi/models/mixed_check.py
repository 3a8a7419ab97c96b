"""How far a Gaussian fit of a mixed model is from the posterior: integrate the random effects out and look again.

The Gaussian approximation of random effects and shared parameters together can be off in the shared ones. With the
random effects integrated out exactly, the best Gaussian for theta_g alone has E_q grad log p(y, theta_g) = 0. The
check evaluates that expectation at the fitted q, over a few antithetic pairs of draws, which cancel the linear part
of the noise: Sigma_g E_q grad is the natural-gradient step that the exact marginal would take from here.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natvi.gaussian import ArrowPrecision
from natvi.linalg import small_blocks
from natvi.precision import float64, to_host
from natvi.result.trust import CARE, GOOD, REFUSE, Trust
from natvi.target import LikelihoodRows, NormalPrior, SumOfTerms
from natvi.target.marginal import can_integrate, marginal_log_density

if TYPE_CHECKING:
    from natvi.models.mixed_fit import MixedFit

SMALL_SHIFT, LARGE_SHIFT = 0.25, 3.0  # in posterior sds
PROBE = 3.0  # sds away from the mean at which the exact marginal is looked at; the Gaussian falls by 4.5 nats there
LEAST_FALL = 1.5
VAGUE = 1.0  # posterior sd of a log sd from which it is poorly determined
LOOSE = 0.2  # share of the prior sd from which a coefficient is hardly limited by the data
WIDE = 0.5  # sd on the link scale below which that does not matter
ROW_BUDGET = 2e6  # rows times pairs of draws


def check_fit(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> tuple[Trust, ...]:
    """Return what the checks found; `posterior` has its groups in the order of the target."""
    own = (*_judge_spread(fit), *_judge_coefficients(target, fit))
    if not can_integrate(target):
        return (Trust(CARE, ("the Gaussian shape was not checked: too many random effects per group",)), *own)
    pairs = int(np.clip(ROW_BUDGET / fit.num_rows, 1, 16))
    positions = fit.log_sd_positions() | fit.dispersion_position()
    with float64():
        shift, falls = to_host(marginal_probe(target, posterior, pairs, jnp.asarray(list(positions.values()))))
    if not np.all(np.isfinite(shift)):
        return (Trust(CARE, ("the check against the exact marginal did not give a finite answer",)), *own)
    # omega_kk is minus a log sd: the sides of the others are turned round
    falls = np.where([[name in fit.log_sd_positions()] for name in positions], falls, falls[:, ::-1])
    return (_judge_shift(shift.copy(), fit), *_judge_falls(falls, list(positions)), *own)


def _judge_shift(shift: np.ndarray, fit: "MixedFit") -> Trust:
    shift[list(fit.log_sd_positions().values())] *= -1.0  # omega_kk is minus a log sd
    worst = int(np.argmax(np.abs(shift)))
    size = float(np.abs(shift[worst]))
    if size <= SMALL_SHIFT:
        words = "integrating the random effects out exactly would move no parameter by more than"
        return Trust(GOOD, (f"{words} {size:.2f} posterior sds",))
    others = int(np.sum(np.abs(shift) > SMALL_SHIFT)) - 1
    more = f" and {others} more by over {SMALL_SHIFT}" if others else ""
    words = (
        f"integrating the random effects out exactly would move {fit.shared_names()[worst]} by about "
        f"{shift[worst]:+.1f} posterior sds{more}: the Gaussian shape of the random effects does not fit"
    )
    return Trust(CARE if size <= LARGE_SHIFT else REFUSE, (words,))


def _judge_falls(falls: np.ndarray, names: list[str]) -> tuple[Trust, ...]:
    """A log sd whose exact marginal hardly falls where the Gaussian has ended is not determined as q says.

    Each row of `falls` holds the falls towards larger and towards smaller values.
    """
    wider, narrower = falls.T
    near_zero = [name for name, fall in zip(names, narrower, strict=True) if not fall > LEAST_FALL]
    wide = [name for name, fall in zip(names, wider, strict=True) if not fall > LEAST_FALL and name not in near_zero]
    reasons = []
    if near_zero:
        reasons.append(f"the data do not rule out much smaller values of {', '.join(near_zero)} than the interval says")
    if wide:
        reasons.append(f"the data do not rule out much larger values of {', '.join(wide)} than the interval says")
    return (Trust(CARE, tuple(reasons)),) if reasons else ()


def _judge_spread(fit: "MixedFit") -> tuple[Trust, ...]:
    _, covariance = fit.shared_moments()
    sds = np.sqrt(np.diag(covariance))
    positions = fit.log_sd_positions() | fit.dispersion_position()
    vague = [name for name, at in positions.items() if sds[at] > VAGUE]
    if not vague:
        return ()
    return (Trust(CARE, (f"{', '.join(vague)} is poorly determined by the data: the prior matters for it",)),)


def _judge_coefficients(target: SumOfTerms, fit: "MixedFit") -> tuple[Trust, ...]:
    """A coefficient as wide as its prior, and wide for the link: separation, or columns that say the same."""
    (likelihood, _), (prior,) = target.grouped, target.shared
    assert isinstance(likelihood, LikelihoodRows) and isinstance(prior, NormalPrior)
    if fit.family.link == "identity":
        return ()
    p = likelihood.p
    _, covariance = fit.shared_moments()
    sds = np.sqrt(np.diag(covariance)[:p])
    filled = np.asarray(likelihood.design.filled)
    largest = np.array([np.max(np.abs(column[filled])) for column in np.asarray(likelihood.design.X)])
    loose = (sds > LOOSE * np.asarray(prior.sd)[:p]) & (sds * largest > WIDE)
    if not loose.any():
        return ()
    names = ", ".join(name for name, hit in zip(fit.fixed_names, loose, strict=True) if hit)
    words = (
        f"the data hardly limit {names}, so the prior decides: for some values of the columns there may be one outcome "
        "only (separation), or columns may repeat each other; merge levels, drop columns or set a tighter prior"
    )
    return (Trust(CARE, (words,)),)


@jax.jit(static_argnums=2)
def marginal_probe(
    target: SumOfTerms, posterior: ArrowPrecision, num_pairs: int, log_sds: Int[Array, " k"]
) -> tuple[Float[Array, " g"], Float[Array, "k 2"]]:
    """Look at the exact marginal of the shared coordinates around the fit.

    Returns:
        Sigma_g E_q grad log p(y, theta_g) in posterior sds, from antithetic pairs of draws; and for each log sd or
        log dispersion how far the log marginal falls three posterior sds below and above its mean, where the Gaussian
        falls by 4.5.
    """
    R, center = posterior.inverse_shared, posterior.mean.shared
    sds = jnp.sqrt(posterior.shared_variances())
    draws = jax.random.normal(jax.random.key(0), (num_pairs, center.shape[0])) @ R
    # the others follow as they do under q: Sigma e_k / sd_k
    away = PROBE * (R.T @ R)[log_sds] / sds[log_sds][:, None]
    # theta_i given theta_g has mean mu_i - T_i^-T T_gi' (theta_g - mu_g)
    cross = small_blocks.solve_upper(posterior.factor.local, posterior.factor.cross.swapaxes(0, 1))

    def look(move: Float[Array, " g"]) -> tuple[Float[Array, ""], Float[Array, " g"]]:
        near = posterior.mean.local - jnp.einsum("rgn,g->rn", cross, move)
        return jax.value_and_grad(lambda shared: marginal_log_density(target, shared, near))(center + move)

    moves = jnp.concatenate([draws, -draws, -away, away, jnp.zeros((1, center.shape[0]))])
    values, scores = jax.lax.map(look, moves)
    mean_score = jnp.mean(scores[: 2 * num_pairs], axis=0)
    falls = values[-1] - values[2 * num_pairs : -1].reshape(2, -1).T
    return R.T @ (R @ mean_score) / sds, falls
