"""Snngm: stochastic normalized natural gradient ascent with momentum (paper, Table 5 and Theorem 3)."""

from typing import Any

from natvi.linalg import vector
from natvi.optimize.rule import Rule, StepSize, Transform, natural_rule, normalize_jointly, rule_maker, scale_by_step


@rule_maker
def snngm(step_size: StepSize = 0.001, beta: float = 0.9, new_factor: bool = False) -> Rule:
    """Return Snngm; `step_size` is alpha_0.

    m = beta m + (1 - beta) g~ / |g~|;  lambda += alpha_0 sqrt(length of lambda) m / (1 - beta^t)

    Args:
        step_size: alpha_0, a number or a schedule.
        beta: The decay of the moving average.
        new_factor: Whether the mean moves with the updated T (Corollary 1). The joint norm is needed before the new T
            exists, so the default uses the old one.
    """
    import optax

    def chain(length: int) -> Transform:
        average = optax.ema(beta, debias=True)
        return optax.chain(normalize_jointly(), average, scale_by_step(step_size, length**0.5))

    def rule(gaussian: Any) -> Any:
        return natural_rule(chain(vector.length(gaussian.mean) + gaussian.factor.num_entries), new_factor)

    chain(1)  # a bad step size is refused here, not in mid-run
    return Rule(
        init=lambda q: rule(q).init(q),
        step=lambda q, state, gradient: rule(q).step(q, state, gradient),
        follow=lambda q, state, gradient, direction: rule(q).follow(q, state, gradient, direction),
    )
