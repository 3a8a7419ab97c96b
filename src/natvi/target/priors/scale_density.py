"""Densities of a positive number, such as an sd: a density is a row of data.

Each row knows log p(x) as a function of log x, the scale on which Gaussians approximate positive numbers, and the
quantiles, so that a prior can be shown in words.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from natvi.special import gammaincinv, ndtri, stdtrit


class ScaleKind(NamedTuple):
    """A kind of density on (0, oo).

    Attributes:
        parameters: Their names, for messages.
        real: Which of them may be any number; the others must be positive.
        title: What it is called in a sentence.
        log_density: (log x, parameters) -> log p(x).
        quantile: (probability, parameters) -> x.
    """

    parameters: tuple[str, ...]
    real: tuple[str, ...]
    title: str
    log_density: Callable[..., Float[Array, "*n"]]
    quantile: Callable[..., np.ndarray | float]


class ScaleDensity(NamedTuple):
    """One density by name and numbers; plain data, so that it can be written down and compared.

    Example:
        >>> ScaleDensity("half_normal", (2.0,)).words
        'half-normal(2)'
    """

    name: str
    parameters: tuple[float, ...]

    @property
    def words(self) -> str:
        """The density as it is written in a sentence."""
        return f"{DENSITIES[self.name].title}({', '.join(f'{value:.4g}' for value in self.parameters)})"

    def interval(self, prob: float = 0.95) -> tuple[float, float]:
        """Return the central interval of the given probability."""
        return self.quantile(0.5 - prob / 2), self.quantile(0.5 + prob / 2)

    def quantile(self, prob: float) -> float:
        """Return the number that x is below with the given probability."""
        return float(DENSITIES[self.name].quantile(prob, *self.parameters))

    @property
    def median(self) -> float:
        """The number that x is as often below as above."""
        return self.quantile(0.5)


def scale_log_density(name: str, log_x: Float[Array, "*n"], parameters: Float[Array, " k"]) -> Float[Array, "*n"]:
    """Return log p(x), the density being that of x and not of log x."""
    return DENSITIES[name].log_density(log_x, *parameters)


def _half_normal(log_x: Array, scale: Array) -> Array:
    # p(x) = sqrt(2 / pi) / c exp(-x^2 / 2 c^2)
    return 0.5 * jnp.log(2 / jnp.pi) - jnp.log(scale) - 0.5 * jnp.exp(2 * (log_x - jnp.log(scale)))


def _half_t(log_x: Array, df: Array, scale: Array) -> Array:
    # p(x) = 2 t_df(x / c) / c;  log(1 + x^2 / df c^2) as a softplus
    constant = jnp.log(2.0) + gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * jnp.log(df * jnp.pi) - jnp.log(scale)
    return constant - 0.5 * (df + 1) * jax.nn.softplus(2 * (log_x - jnp.log(scale)) - jnp.log(df))


def _half_cauchy(log_x: Array, scale: Array) -> Array:
    return _half_t(log_x, jnp.ones_like(scale), scale)


def _exponential(log_x: Array, rate: Array) -> Array:
    return jnp.log(rate) - rate * jnp.exp(log_x)


def _lognormal(log_x: Array, mu: Array, sd: Array) -> Array:
    return -log_x - 0.5 * jnp.log(2 * jnp.pi) - jnp.log(sd) - 0.5 * ((log_x - mu) / sd) ** 2


def _gamma(log_x: Array, shape: Array, rate: Array) -> Array:
    return shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * log_x - rate * jnp.exp(log_x)


DENSITIES = {
    "half_normal": ScaleKind(("scale",), (), "half-normal", _half_normal, lambda p, scale: scale * ndtri((1 + p) / 2)),
    "half_t": ScaleKind(("df", "scale"), (), "half-t", _half_t, lambda p, df, scale: scale * stdtrit(df, (1 + p) / 2)),
    "half_cauchy": ScaleKind(
        ("scale",), (), "half-Cauchy", _half_cauchy, lambda p, scale: scale * np.tan(np.pi * p / 2)
    ),
    "exponential": ScaleKind(("rate",), (), "exponential", _exponential, lambda p, rate: -np.log1p(-p) / rate),
    "lognormal": ScaleKind(
        ("mu", "sd"), ("mu",), "lognormal", _lognormal, lambda p, mu, sd: np.exp(mu + sd * ndtri(p))
    ),
    "gamma": ScaleKind(("shape", "rate"), (), "gamma", _gamma, lambda p, shape, rate: gammaincinv(shape, p) / rate),
}
