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
from jaxtyping import Array, Float

from natvi.gaussian import ArrowPrecision
from natvi.linalg import small_blocks
from natvi.precision import float64
from natvi.result.trust import CARE, GOOD, REFUSE, Trust
from natvi.target import SumOfTerms
from natvi.target.marginal import can_integrate, marginal_log_density

if TYPE_CHECKING:
    from natvi.models.mixed_fit import MixedFit

SMALL_SHIFT, LARGE_SHIFT = 0.25, 3.0  # in posterior sds
VAGUE = 1.0  # posterior sd of a log sd from which it is poorly determined
ROW_BUDGET = 2e6  # rows times pairs of draws


def check_fit(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> tuple[Trust, ...]:
    """Return what the checks found; `posterior` has its groups in the order of the target."""
    return (*_check_shift(target, posterior, fit), *_check_variances(fit))


def _check_shift(target: SumOfTerms, posterior: ArrowPrecision, fit: "MixedFit") -> tuple[Trust, ...]:
    if not can_integrate(target):
        return (Trust(CARE, ("the Gaussian shape was not checked: too many random effects per group",)),)
    pairs = int(np.clip(ROW_BUDGET / fit.num_rows, 1, 16))
    with float64():
        shift = np.array(marginal_shift(target, posterior, pairs))
    if not np.all(np.isfinite(shift)):
        return (Trust(CARE, ("the check against the exact marginal did not give a finite answer",)),)
    shift[list(fit.log_sd_positions().values())] *= -1.0  # omega_kk is minus a log sd
    worst = int(np.argmax(np.abs(shift)))
    size = float(np.abs(shift[worst]))
    name = fit.shared_names()[worst]
    if size <= SMALL_SHIFT:
        words = (
            f"integrating the random effects out exactly would move no parameter by more than {size:.2f} posterior sds"
        )
        return (Trust(GOOD, (words,)),)
    level = CARE if size <= LARGE_SHIFT else REFUSE
    others = int(np.sum(np.abs(shift) > SMALL_SHIFT)) - 1
    more = f" and {others} more by over {SMALL_SHIFT}" if others else ""
    return (
        Trust(
            level,
            (
                f"integrating the random effects out exactly would move {name} by about {shift[worst]:+.1f} posterior "
                f"sds{more}: the Gaussian shape of the random effects does not fit",
            ),
        ),
    )


def _check_variances(fit: "MixedFit") -> tuple[Trust, ...]:
    _, covariance = fit.shared_moments()
    sds = np.sqrt(np.diag(covariance))
    vague = [name for name, at in fit.log_sd_positions().items() if sds[at] > VAGUE]
    if not vague:
        return ()
    return (Trust(CARE, (f"{', '.join(vague)} is poorly determined by the data: the prior matters for it",)),)


@jax.jit(static_argnums=2)
def marginal_shift(target: SumOfTerms, posterior: ArrowPrecision, num_pairs: int) -> Float[Array, " g"]:
    """Return Sigma_g E_q grad log p(y, theta_g) in units of posterior sds, from antithetic pairs of draws."""
    R, center = posterior.inverse_shared, posterior.mean.shared
    z = jax.random.normal(jax.random.key(0), (num_pairs, center.shape[0]))
    # theta_i given theta_g has mean mu_i - T_i^-T T_gi' (theta_g - mu_g)
    cross = small_blocks.solve_upper(posterior.factor.local, posterior.factor.cross.swapaxes(0, 1))

    def score(z: Float[Array, " g"]) -> Float[Array, " g"]:
        move = R.T @ z
        near = posterior.mean.local - jnp.einsum("rgn,g->rn", cross, move)
        return jax.grad(lambda shared: marginal_log_density(target, shared, near))(center + move)

    mean_score = jnp.mean(jax.lax.map(score, jnp.concatenate([z, -z])), axis=0)
    return R.T @ (R @ mean_score) / jnp.sqrt(posterior.shared_variances())
