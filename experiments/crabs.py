"""The horseshoe crabs of Sections 4.1 and 6: the intercept-only model, its starts, and ascent by Table 1's updates."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from natvi.data import load_crabs
from natvi.optimize.deterministic import (
    MomentGradient,
    Moments,
    euclidean_kappa,
    natural_kappa,
    natural_lambda,
    natural_xi,
)
from natvi.paper.largest_step import TOLERANCE, Ascent, ascend
from natvi.paper.loglinear import Loglinear

STARTS = {"(0, 0.1)": (0.0, 0.1), "(0.5, 0.02)": (0.5, 0.02), "(2, 0.01)": (2.0, 0.01)}
PRIOR_SD = 10.0
UPDATES = {
    "euclidean-kappa": euclidean_kappa,
    "natural-kappa": natural_kappa,
    "natural-xi": natural_xi,
    "natural-lambda": natural_lambda,
}
SETTINGS = {
    "data": "satellites of 173 female horseshoe crabs, intercept-only Poisson model",
    "prior_sd": PRIOR_SD,
    "stop": f"relative change of the complete lower bound below {TOLERANCE:g}",
}


def counts() -> np.ndarray:
    """Return the numbers of satellites."""
    return load_crabs()["sat"].to_numpy(dtype=float)


def intercept_only() -> Loglinear:
    """Return the model with one coefficient."""
    y = counts()
    return Loglinear(jnp.ones((len(y), 1)), jnp.asarray(y), PRIOR_SD)


class HostModel:
    """The same model on its sufficient statistics, in Python's floats, one rounding per printed operation of S2.

    Euclidean ascent passes points where sigma^2 is tiny and 1/sigma^2 magnifies every rounding: from (0.5, 0.02) the
    number of iterations depends on the last bit of a gradient. Compiled code fuses a multiplication with an addition
    and rounds once, so it takes another path than the paper's; this one does not depend on a compiler.
    """

    def __init__(self, y: np.ndarray) -> None:
        self.n, self.total = float(len(y)), float(y.sum())
        self.log_factorials = math.fsum(math.lgamma(count + 1) for count in y)
        self.prior_variance = PRIOR_SD**2

    def elbo(self, q: Moments) -> float:
        """Return the bound; NaN for a rate that overflows."""
        mu, variance = scalars(q)
        fit = self.total * mu - self._rate(mu, variance) - self.log_factorials
        prior = (mu * mu + variance) / (2 * self.prior_variance)
        return fit - prior + 0.5 * math.log(variance) + 0.5 * (1 - math.log(self.prior_variance))

    def gradient(self, q: Moments) -> MomentGradient:
        """Return the gradients in mu and sigma^2."""
        mu, variance = scalars(q)
        w = self._rate(mu, variance)
        by_mu = self.total - w - mu / self.prior_variance
        by_variance = 0.5 * (1 / variance - 1 / self.prior_variance - w)
        return MomentGradient(jnp.array([by_mu]), jnp.array([[by_variance]]))

    def _rate(self, mu: float, variance: float) -> float:
        exponent = mu + variance / 2
        return self.n * math.exp(exponent) if exponent < 700 else math.nan


def scalars(q: Moments) -> tuple[float, float]:
    """Return (mu, sigma^2) of a Gaussian in one dimension."""
    return q.mu.item(), q.Sigma.item()


def moments(mu: float, variance: float) -> Moments:
    """Return the Gaussian of one dimension."""
    return Moments(jnp.array([mu]), jnp.array([[variance]]))


def ascents(update: Callable[[Moments, MomentGradient, float], Moments]) -> dict[str, Ascent]:
    """Climb from the three starts by one of Table 1's updates with the paper's step rule."""
    model = HostModel(counts())

    def climb(start: tuple[float, float]) -> Ascent:
        return ascend(moments(*start), update, model.gradient, model.elbo, lambda q: scalars(q)[1] > 0)

    return {name: climb(start) for name, start in STARTS.items()}


def path(ascent: Ascent) -> np.ndarray:
    """Return the points (mu, sigma^2) of an ascent, one a line."""
    return np.array([scalars(q) for q in ascent.points])


def optimum(model: Loglinear) -> np.ndarray:
    """Return the maximiser (mu, sigma^2) by fixed-point iteration."""
    q = moments(1.0, 0.002)
    for _ in range(30):
        q = natural_lambda(q, MomentGradient(model.grad_mu(*q), model.grad_Sigma(*q)), 1.0)
    return np.array(scalars(q))


def on_grid(model: Loglinear, mu: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the bound and its gradients in mu and sigma^2 at many points at once."""

    def at(m: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        point = (m[None], v[None, None])
        return model.elbo(*point), model.grad_mu(*point)[0], model.grad_Sigma(*point)[0, 0]

    flat = jax.jit(jax.vmap(at))(jnp.ravel(mu), jnp.ravel(variance))
    elbo, by_mu, by_variance = (np.asarray(values).reshape(np.shape(mu)) for values in flat)
    return elbo, by_mu, by_variance
