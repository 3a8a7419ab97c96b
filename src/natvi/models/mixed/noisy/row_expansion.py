"""What reparametrized variational Bayes asks of a family: predictors from the data, and fast slopes of the rows.

RVB1 expands a mixed model about predictors that depend on the data only (Tan, 2021). One row by itself, with Jeffreys'
prior for its mean, has a posterior whose mean of eta is known for two families:

    Poisson:           E eta = digamma(w y + 1/2) - log w                            w: how often the row counts
    binomial, logit:   E eta = digamma(m y + 1/2) - digamma(m (1 - y) + 1/2)         m: trials, y: proportion

For probit and cloglog it is the link of the posterior mean of the proportion, (m y + 1/2) / (m + 1), and for the other
families their rough predictor `family.start(y)`, such as log(y + 1/2).

With a canonical link log p = y eta - A(eta) + ..., so that the slopes of a row are y - A'(eta) and -A''(eta): mean and
variance of the response.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import digamma, ndtri
from jaxtyping import Array, Float

from natvi.target import LikelihoodRows

CANONICAL = (("poisson", "log"), ("bernoulli", "logit"), ("binomial", "logit"))  # without dispersion


def data_predictor(rows: LikelihoodRows) -> Float[Array, "c K"]:
    """Return eta_hat of every cell; what it holds in cells without a row does not matter, but is finite."""
    family: Any = rows.family
    y = jnp.where(rows.design.filled, rows.y, 0.0)
    m = jnp.ones_like(y) if rows.weight is None else jnp.where(rows.design.filled & (rows.weight > 0), rows.weight, 1.0)
    if family.name == "poisson":
        return digamma(m * y + 0.5) - jnp.log(m)
    if family.name not in ("bernoulli", "binomial"):
        return jnp.where(rows.design.filled, family.start(rows.y), 0.0)
    if family.link == "logit":
        return digamma(m * y + 0.5) - digamma(m * (1.0 - y) + 0.5)
    proportion = (m * y + 0.5) / (m + 1.0)
    return ndtri(proportion) if family.link == "probit" else jnp.log(-jnp.log1p(-proportion))


@cache
def canonical_slopes(family: Any) -> Callable[..., tuple[Array, Array]] | None:
    """Return (y, eta, dispersion) -> (d log p / d eta, -d^2 log p / d eta^2), or None without a canonical link.

    The same family gives the same function, so that compiled code is shared.
    """
    if (family.name, family.link) not in CANONICAL:
        return None

    def slopes(y: Array, eta: Array, disp: Array | None) -> tuple[Array, Array]:
        mean = family.mean(eta)
        return y - mean, family.variance(mean, disp)

    return slopes
