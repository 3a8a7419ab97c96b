"""Regressions: linear, robust, logistic, ordinal, counts; columns of very different size."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from benchmarks.posteriors.posterior import Data, Draws, Posterior, Reference
from natvi.models.density.space.bijectors import ordered, positive

SIZES = np.array([1e-3, 1.0, 1e3, 1.0, 30.0])


def normal(x, mean=0.0, sd=1.0):
    """Return the sum of log normal densities."""
    return jnp.sum(-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi))


def columns(rng: np.random.Generator, n: int, p: int, sizes=None, shift: float = 0.0) -> np.ndarray:
    X = rng.standard_normal((n, p)) + shift
    return X if sizes is None else X * np.resize(sizes, p)


def chances(eta: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-eta))


def linear(n: int, p: int, sizes=None):
    def simulate(rng: np.random.Generator) -> Data:
        X = columns(rng, n, p, sizes)
        scale = 1.0 if sizes is None else np.resize(sizes, p)
        y = 1.0 + X @ (rng.standard_normal(p) / scale) + 1.5 * rng.standard_normal(n)
        return {"X": X, "y": y, "scale": np.ones(p) * scale}

    return simulate


def linear_density(p, data):
    sd = p["sd"]
    prior = normal(p["b"], 0.0, 5.0 / data["scale"]) + normal(p["a"], 0.0, 10.0) - sd / 3.0
    return normal(data["y"], p["a"] + data["X"] @ p["b"], sd) + prior


def robust_density(p, data):
    sd = p["sd"]
    error = (data["y"] - p["a"] - data["X"] @ p["b"]) / sd
    like = jnp.sum(-2.5 * jnp.log1p(error**2 / 4.0) - jnp.log(sd))
    return like + normal(p["b"], 0.0, 5.0) + normal(p["a"], 0.0, 10.0) - sd / 3.0


def robust(rng: np.random.Generator) -> Data:
    X = columns(rng, 120, 4)
    return {"X": X, "y": X @ np.array([1.0, -1.0, 0.5, 0.0]) + rng.standard_t(4, 120)}


def logistic(n: int, p: int, sizes=None, shift: float = 0.0, size: float = 2.0):
    def simulate(rng: np.random.Generator) -> Data:
        X = columns(rng, n, p, sizes, shift)
        scale = np.ones(p) * (1.0 if sizes is None else np.resize(sizes, p))
        b = size * rng.standard_normal(p) / np.sqrt(p) / scale
        eta = (X - X.mean(axis=0)) @ b
        return {"X": X, "y": (rng.uniform(size=n) < chances(eta)).astype(float), "scale": scale}

    return simulate


def logistic_density(p, data):
    eta = p["a"] + data["X"] @ p["b"]
    like = jnp.sum(data["y"] * eta - jnp.logaddexp(0.0, eta))
    return like + normal(p["a"], 0.0, 5.0) + normal(p["b"], 0.0, 2.0 / data["scale"])


def counts(rng: np.random.Generator) -> Data:
    X = columns(rng, 200, 5, SIZES)
    eta = 0.5 + X @ (0.3 * rng.standard_normal(5) / SIZES)
    return {"X": X, "y": rng.poisson(np.exp(eta)).astype(float), "scale": SIZES}


def poisson_density(p, data):
    eta = p["a"] + data["X"] @ p["b"]
    like = jnp.sum(data["y"] * eta - jnp.exp(eta))
    return like + normal(p["a"], 0.0, 5.0) + normal(p["b"], 0.0, 2.0 / data["scale"])


def overdispersed(rng: np.random.Generator) -> Data:
    X = columns(rng, 150, 3)
    mean = np.exp(1.0 + X @ np.array([0.5, -0.3, 0.0]))
    return {"X": X, "y": rng.poisson(mean * rng.gamma(1.5, 1 / 1.5, 150)).astype(float)}


def negative_binomial_density(p, data):
    y, phi = data["y"], p["phi"]
    eta = p["a"] + data["X"] @ p["b"]
    log_phi = jnp.log(phi)
    both = jnp.logaddexp(eta, log_phi)
    like = jnp.sum(gammaln(y + phi) - gammaln(phi) - gammaln(y + 1.0) + phi * (log_phi - both) + y * (eta - both))
    return like + normal(p["a"], 0.0, 5.0) + normal(p["b"], 0.0, 2.0) - phi / 5.0


def grades(rng: np.random.Generator) -> Data:
    X = columns(rng, 200, 3)
    latent = X @ np.array([1.0, -0.5, 0.2]) + rng.logistic(size=200)
    return {"X": X, "y": np.digitize(latent, [-1.0, 0.5, 1.5])}


def ordinal_density(p, data):
    eta = data["X"] @ p["b"]
    cuts = jnp.concatenate([jnp.array([-jnp.inf]), p["cuts"], jnp.array([jnp.inf])])
    upper, lower = cuts[data["y"] + 1] - eta, cuts[data["y"]] - eta
    share = jax.nn.sigmoid(upper) - jax.nn.sigmoid(lower)
    return jnp.sum(jnp.log(share)) + normal(p["b"], 0.0, 2.0) + normal(p["cuts"], 0.0, 3.0)


def coefficients(data: Data, **more):
    return {"a": 0.0, "b": np.zeros(data["X"].shape[1]), **more}


def with_sd(data: Data):
    return coefficients(data, sd=1.0)


def scaled(density, start, constrain=None) -> Reference:
    """The same density in coefficients of columns brought to one size, in which NUTS mixes."""

    def in_sds(p, data):
        return density({**p, "b": p["b"] / data["scale"]}, data)

    def complete(draws: Draws, data: Data, rng: np.random.Generator) -> Draws:
        return {**draws, "b": draws["b"] / data["scale"]}

    return Reference(in_sds, start, complete, constrain or {})


MEMBERS = [
    Posterior("linear", linear(100, 5), linear_density, with_sd, {"sd": positive}),
    Posterior(
        "linear, columns of 1e-3 to 1e3",
        *(linear(100, 5, SIZES), linear_density, with_sd, {"sd": positive}),
        reference=scaled(linear_density, with_sd, {"sd": positive}),
    ),
    Posterior("robust", robust, robust_density, with_sd, {"sd": positive}),
    Posterior("logistic", logistic(300, 9), logistic_density, coefficients),
    Posterior(
        "logistic, columns of 1e-3 to 1e3",
        *(logistic(300, 5, SIZES, shift=2.0), logistic_density, coefficients),
        reference=scaled(logistic_density, coefficients),
    ),
    Posterior("logistic, few rows", logistic(30, 4), logistic_density, coefficients),
    Posterior("logistic, d=100", logistic(400, 99), logistic_density, coefficients),
    Posterior("logistic, d=250", logistic(500, 249), logistic_density, coefficients),
    Posterior(
        "poisson, columns of 1e-3 to 1e3",
        *(counts, poisson_density, coefficients),
        reference=scaled(poisson_density, coefficients),
    ),
    Posterior(
        "negative binomial",
        overdispersed,
        negative_binomial_density,
        lambda data: coefficients(data, phi=1.0),
        {"phi": positive},
    ),
    Posterior(
        "ordinal",
        grades,
        ordinal_density,
        lambda data: {"b": np.zeros(3), "cuts": np.array([0.0, 1.0, 2.0])},
        {"cuts": ordered},
    ),
]
