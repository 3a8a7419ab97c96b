"""Snngm: stochastic normalized natural gradient ascent with momentum (paper, Table 5 and Theorem 3)."""

import optax

from natvi.linalg import vector
from natvi.optimize.rule import Rule, StepSize, normalize_jointly, optax_rule, scale_by_step, to_natural


def snngm(step_size: StepSize = 0.001, beta: float = 0.9, new_factor: bool = False) -> Rule:
    """Return Snngm; `step_size` is alpha_0.

    m = beta m + (1 - beta) g~ / |g~|;  lambda += alpha_0 sqrt(length of lambda) m / (1 - beta^t)

    Args:
        step_size: alpha_0, a number or a schedule.
        beta: The decay of the moving average.
        new_factor: Whether the mean moves with the updated T (Corollary 1). The joint norm is needed before the new T
            exists, so the default uses the old one.
    """

    def chain(length: int) -> optax.GradientTransformation:
        average = optax.ema(beta, debias=True)
        return optax.chain(to_natural(new_factor), normalize_jointly(), average, scale_by_step(step_size, length**0.5))

    def rule(gaussian: object) -> Rule:
        mean, factor = gaussian.mean, gaussian.factor  # type: ignore[attr-defined]
        return optax_rule(chain(vector.length(mean) + factor.num_entries))

    chain(1)  # a bad step size is refused here, not in mid-run
    return Rule(lambda q: rule(q).init(q), lambda q, state, gradient: rule(q).step(q, state, gradient))
