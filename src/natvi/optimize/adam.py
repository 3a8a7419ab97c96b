"""Adam and natural Adam (paper, Table 5 and Section 6)."""

from natvi.optimize.rule import Rule, StepSize, natural_rule, optax_rule, rule_maker, scale_by_step


@rule_maker
def adam(step_size: StepSize = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Rule:
    """Return Adam on Euclidean gradients.

    m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  lambda += alpha m_hat / (sqrt(v_hat) + epsilon)
    """
    import optax

    return optax_rule(optax.chain(optax.scale_by_adam(beta1, beta2, epsilon), scale_by_step(step_size)))


@rule_maker
def nadam(
    step_size: StepSize = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    new_factor: bool = False,
) -> Rule:
    """Return Adam on natural gradients, which loses their scale: the paper's warning example.

    With `new_factor` the mean moves with the updated T (Corollary 1); the default uses the old T.
    """
    import optax

    average = optax.scale_by_adam(beta1, beta2, epsilon)
    return natural_rule(optax.chain(average, scale_by_step(step_size)), new_factor)
