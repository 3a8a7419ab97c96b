"""Shrinkage of a net's inputs: the normal-Gamma prior of the first layer, and all of it that has a closed form.

Weights w_j from input j to the m units of the first layer have w_j | tau_j ~ N(0, tau_j I),
tau_j ~ Gamma((m + 1)/2, gamma_j^2 / 2); the other weights w ~ N(0, I / gamma_w); biases have a flat prior. Given the
Gaussian of the weights, with s_j = |mu_j|^2 + |sigma_j|^2 and s_w likewise,

    1/tau_j ~ inverse Gaussian(alpha_j, beta_j),  alpha_j = gamma_j / sqrt(s_j),  beta_j = gamma_j^2
    gamma_j <- sqrt{ (m + 1) / (1/alpha_j + 1/beta_j) },   gamma_w <- d_w / s_w

each the maximum of the bound in its own argument. Together they come to rest at gamma_j = m / sqrt(s_j).

Paper: Section 8.4 and supplement S8.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from natvi.target.priors.independent_normal import IndependentNormal

LEAST_SQUARE = 1e-20  # of an input's weights: beyond it single precision has nothing to shrink


class Places(NamedTuple):
    """Where the weights of a perceptron lie in its flat vector: per layer biases first, then weights.

    Attributes:
        num_inputs: p.
        num_units: m, of the first layer.
        others: For every entry 1 for a weight of a later layer, 0 for the rest.
        begin: The first entry of the first layer's weights.
    """

    num_inputs: int
    num_units: int
    others: tuple[tuple[int, int], ...]
    begin: int

    @classmethod
    def of(cls, sizes: tuple[int, ...]) -> "Places":
        """Return the places for layers of these sizes, from inputs to outputs.

        Example:
            >>> Places.of((3, 2, 1))
            Places(num_inputs=3, num_units=2, others=((9, 11),), begin=2)
        """
        spans, at = [], 0
        for inputs, units in pairwise(sizes):
            spans.append((at + units, at + units + inputs * units))
            at += units + inputs * units
        return cls(sizes[0], sizes[1], tuple(spans[1:]), spans[0][0])

    @property
    def num_others(self) -> int:
        """d_w, the weights of later layers."""
        return sum(end - begin for begin, end in self.others)

    def squares(self, mean: Float[Array, " d"], sds: Float[Array, " d"]) -> tuple[Float[Array, " p"], Float[Array, ""]]:
        """Return s_j of every input and s_w."""
        moments = mean**2 + sds**2
        size = self.num_inputs * self.num_units
        first = moments[self.begin : self.begin + size].reshape(self.num_inputs, self.num_units)
        rest = sum((jnp.sum(moments[begin:end]) for begin, end in self.others), jnp.zeros((), moments.dtype))
        return jnp.maximum(jnp.sum(first, axis=1), LEAST_SQUARE), jnp.maximum(rest, LEAST_SQUARE)

    def spread(self, inputs: Float[Array, " p"], others: Float[Array, ""], length: int) -> Float[Array, " d"]:
        """Return a flat vector with a number for every input's weights, one for later weights, and 0 for biases."""
        flat = jnp.zeros(length, inputs.dtype)
        size = self.num_inputs * self.num_units
        flat = flat.at[self.begin : self.begin + size].set(jnp.repeat(inputs, self.num_units))
        for begin, end in self.others:
            flat = flat.at[begin:end].set(others)
        return flat


class Shrinkage(NamedTuple):
    """gamma_j of every input, alpha_j = E(1/tau_j), and gamma_w."""

    gamma: Float[Array, " p"]
    alpha: Float[Array, " p"]
    gamma_w: Float[Array, ""]


def first_shrinkage(places: Places, mean: Float[Array, " d"], sds: Float[Array, " d"]) -> Shrinkage:
    """Return the joint fixed point for the weights as they are: gamma_j = m / sqrt(s_j)."""
    s, s_w = places.squares(mean, sds)
    gamma = places.num_units / jnp.sqrt(s)
    return Shrinkage(gamma, gamma / jnp.sqrt(s), places.num_others / s_w)


def update_shrinkage(old: Shrinkage, places: Places, mean: Float[Array, " d"], sds: Float[Array, " d"]) -> Shrinkage:
    """Return q(tau), gamma and q(tau) again, each the best given the others (supplement S8)."""
    s, s_w = places.squares(mean, sds)
    root = jnp.sqrt(s)
    # gamma_j^2 = (m + 1) / (1/alpha_j + 1/beta_j) with alpha_j = gamma_j / sqrt(s_j), beta_j = gamma_j^2
    gamma = old.gamma * jnp.sqrt((places.num_units + 1) / (old.gamma * root + 1))
    return Shrinkage(gamma, gamma / root, places.num_others / s_w)


def prior_of(shrinkage: Shrinkage, places: Places, length: int) -> IndependentNormal:
    """Return the prior the weights see: precisions E(1/tau_j), gamma_w, and 0 for biases."""
    precision = places.spread(shrinkage.alpha, shrinkage.gamma_w, length)
    sd = jnp.where(precision > 0, 1.0 / jnp.sqrt(jnp.where(precision > 0, precision, 1.0)), jnp.inf)
    return IndependentNormal(jnp.zeros(length, precision.dtype), sd)


def shrinkage_bound(
    shrinkage: Shrinkage, places: Places, mean: Float[Array, " d"], sds: Float[Array, " d"]
) -> Float[Array, ""]:
    """Return E log p(weights, tau) - E log q(tau), the bound's terms of the prior, with beta_j = gamma_j^2."""
    s, s_w = places.squares(mean, sds)
    p, m, d_w = places.num_inputs, places.num_units, places.num_others
    gamma, alpha, gamma_w = shrinkage
    constant = 0.5 * p * (1 - m) * math.log(2 * math.pi) + 0.5 * p - 0.5 * p * (m + 1) * math.log(2)
    inputs = (m + 1) * jnp.log(gamma) - jnp.log(gamma) - 0.5 * alpha * s - 0.5 * gamma**2 * (1 / alpha + gamma**-2.0)
    others = 0.5 * d_w * (jnp.log(gamma_w) - math.log(2 * math.pi)) - 0.5 * gamma_w * s_w
    return constant - p * gammaln((m + 1) / 2) + jnp.sum(inputs) + others


def relevance(gamma: np.ndarray) -> np.ndarray:
    """Return how much each input matters, 1 for the largest: 1 / gamma_j, the root of its weights' squares."""
    return np.min(gamma) / np.asarray(gamma)
