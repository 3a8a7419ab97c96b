"""Nagm: natural gradient ascent with momentum of the Euclidean gradient (paper, Table 5)."""

from typing import Any

import jax
import jax.numpy as jnp

from natvi.optimize.rule import Rule, StepSize, optax_rule, rule_maker, scale_by_step, to_natural
from natvi.typing import Factor

THRESHOLD = 5e5


def factor_ratio(factor: Factor) -> float:
    """Return by how much the factor's step is shorter than the mean's.

    The paper gives 10 for diagonal and 100 for dense covariance factors. Blocks and the arrow are made of small blocks,
    each of few entries, so they take the diagonal's 10; a dense T takes the dense C's 100.
    """
    return 10.0 if factor.in_small_blocks else 100.0


@rule_maker
def nagm(
    step_size: StepSize = 0.001, beta: float = 0.9, threshold: float = THRESHOLD, ratio: float | None = None
) -> Rule:
    """Return Nagm; `step_size` is the mean's alpha, the factor's is `ratio` times smaller.

    g = min(1, threshold / |g|) g;  m = beta m + (1 - beta) g, not debiased;  lambda += alpha F^-1 m
    """
    import optax

    def clip(updates: Any, _: Any) -> Any:
        return tuple(_clip(part, threshold) for part in updates)

    def shrink(updates: Any, gaussian: Any) -> Any:
        mean, factor = updates
        scale = 1.0 / (factor_ratio(gaussian.factor) if ratio is None else ratio)
        return mean, jax.tree.map(lambda u: scale * u, factor)

    average = optax.ema(beta, debias=False)
    chain = (optax.stateless(clip), average, to_natural(), optax.stateless(shrink), scale_by_step(step_size))
    return optax_rule(optax.chain(*chain))


def _clip(part: Any, threshold: float) -> Any:
    import optax

    norm = optax.tree.norm(part)
    scale = jnp.minimum(1.0, threshold / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny))
    return jax.tree.map(lambda u: scale * u, part)
