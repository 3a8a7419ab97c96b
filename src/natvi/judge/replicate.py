"""Replicated responses by NumPy, which has nothing to compile: for checks that are made once."""

import numpy as np
from jaxtyping import Float

CHECK_DRAWS, CHECK_ROWS = 200, 2000  # of predictive checks; of more rows an even selection is taken
LARGEST_RATE = 1e15  # NumPy refuses larger ones


def draw_responses(
    family: str,
    mean: Float[np.ndarray, "s n"],
    log_dispersion: Float[np.ndarray, "s k"] | None,
    trials: Float[np.ndarray, " n"] | None,
    rng: np.random.Generator,
) -> Float[np.ndarray, "s n"]:
    """Draw a response for every draw of the parameters and every row.

    Args:
        family: The name of the response distribution.
        mean: Expected responses, of one trial each.
        log_dispersion: log sigma, log phi or log shape of every draw, where the family has one; of every row or one
            for all.
        trials: Trials of every row, for binomial responses.
        rng: The source of randomness.

    Returns:
        Responses; of trials the successes.

    Example:
        >>> draw_responses("poisson", np.full((3, 2), 1e-12), None, None, np.random.default_rng(0)).tolist()
        [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    if family in ("bernoulli", "binomial"):
        count = np.ones(mean.shape[1]) if trials is None else trials
        return rng.binomial(np.round(count).astype(int), np.clip(mean, 0.0, 1.0)).astype(float)
    if family == "poisson":
        return rng.poisson(np.minimum(mean, LARGEST_RATE)).astype(float)
    assert log_dispersion is not None
    scale = np.exp(log_dispersion)
    if family == "gaussian":
        return mean + scale * rng.standard_normal(mean.shape)
    # both are gamma distributions with this shape, of the response or of its rate
    rate = rng.gamma(np.broadcast_to(scale, mean.shape), np.minimum(mean, LARGEST_RATE) / scale)
    return rng.poisson(np.minimum(rate, LARGEST_RATE)).astype(float) if family == "negative_binomial" else rate


def even_rows(n: int) -> np.ndarray | None:
    """Return the rows of the selection, or None where all are taken."""
    return None if n <= CHECK_ROWS else np.linspace(0, n - 1, CHECK_ROWS).astype(int)
