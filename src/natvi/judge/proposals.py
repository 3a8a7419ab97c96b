"""Draws with which a Gaussian is held against the exact density: from itself, and from a wider distribution.

Weights p/q of a Gaussian q have no mean in the tails wherever p falls more slowly than q, as the posterior of a
logistic regression does, however close the two are where their mass is. The tail of the weights then says nothing
about means and sds. Mixing q with a t distribution of the same centre and shape bounds the weights (a defensive
mixture, Hesterberg 1995), and all draws keep their use: together they come from the mixture in the shares of their
numbers. Draws come in antithetic pairs.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.special import gammaln

DOF = 5.0  # of the wider distribution


class Points(NamedTuple):
    """Whitened draws z in pairs, the mirror image of the first half in the second.

    Attributes:
        z: `(2 m, d)`.
        log_q: log N(z; 0, I).
        log_g: Log density of the distribution they come from.
    """

    z: np.ndarray
    log_q: np.ndarray
    log_g: np.ndarray


def draw_pairs(pairs: int, d: int, rng: np.random.Generator, wide: bool) -> Float[np.ndarray, "pairs d"]:
    """Draw one half of antithetic pairs from N(0, I), or from the t distribution."""
    z = rng.standard_normal((pairs, d))
    return z * np.sqrt(DOF / rng.chisquare(DOF, pairs))[:, None] if wide else z


def together(narrow: Float[np.ndarray, "a d"], wide: Float[np.ndarray, "b d"]) -> Points:
    """Return all draws with their mirror images, as draws of the mixture."""
    half = np.concatenate([narrow, wide])
    squared = np.sum(half**2, axis=1)
    d, share = half.shape[1], len(wide) / len(half)
    log_q = -0.5 * squared - 0.5 * d * np.log(2 * np.pi)
    log_g = log_q
    if share > 0:
        # log t_nu(z)
        constant = gammaln((DOF + d) / 2) - gammaln(DOF / 2) - 0.5 * d * np.log(DOF * np.pi)
        log_t = constant - 0.5 * (DOF + d) * np.log1p(squared / DOF)
        with np.errstate(divide="ignore"):
            log_g = np.logaddexp(np.log1p(-share) + log_q, np.log(share) + log_t)
    return Points(np.concatenate([half, -half]), np.tile(log_q, 2), np.tile(log_g, 2))
