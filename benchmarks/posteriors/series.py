"""Series and latent structure: random walk, AR, GARCH, Gaussian process, hidden Markov, mixture."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.posteriors.posterior import Data, Posterior
from benchmarks.posteriors.regressions import normal
from natvi.models.density.space.bijectors import interval, ordered, positive, simplex


def walk(rng: np.random.Generator) -> Data:
    level = np.cumsum(0.3 * rng.standard_normal(100))
    return {"y": rng.poisson(np.exp(1.0 + level)).astype(float)}


def walk_density(p, data):
    level = p["start"] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(p["step"] * p["z"])])
    return jnp.sum(data["y"] * level - jnp.exp(level)) + normal(p["z"]) + normal(p["start"], 0.0, 2.0) - p["step"] / 0.5


def autoregression(rng: np.random.Generator) -> Data:
    y = np.zeros(150)
    for t in range(2, 150):
        y[t] = 0.3 + 0.5 * y[t - 1] + 0.2 * y[t - 2] + rng.standard_normal()
    return {"y": y}


def autoregression_density(p, data):
    y = data["y"]
    mean = p["a"] + p["phi"][0] * y[1:-1] + p["phi"][1] * y[:-2]
    return normal(y[2:], mean, p["sd"]) + normal(p["a"], 0.0, 5.0) + normal(p["phi"]) - p["sd"]


def garch(rng: np.random.Generator) -> Data:
    y, s2 = np.zeros(300), 1.0
    for t in range(300):
        y[t] = np.sqrt(s2) * rng.standard_normal()
        s2 = 0.3 + 0.2 * y[t] ** 2 + 0.5 * s2
    return {"y": y}


def garch_density(p, data):
    y2 = data["y"] ** 2

    def step(s2, square):
        s2 = p["base"] + p["shock"] * square + p["memory"] * s2
        return s2, s2

    first = jnp.mean(y2)
    _, s2 = jax.lax.scan(step, first, y2[:-1])
    s2 = jnp.concatenate([jnp.array([1.0]) * first, s2])
    return jnp.sum(-0.5 * y2 / s2 - 0.5 * jnp.log(s2)) - p["base"]


def curve(rng: np.random.Generator) -> Data:
    x = np.sort(rng.uniform(0.0, 6.0, 40))
    return {"x": x, "y": np.sin(x) + 0.3 * rng.standard_normal(40)}


def process_density(p, data):
    gap = (data["x"][:, None] - data["x"][None]) / p["length"]
    K = p["height"] ** 2 * jnp.exp(-0.5 * gap**2) + (p["noise"] ** 2 + 1e-8) * jnp.eye(40)
    L = jnp.linalg.cholesky(K)
    z = jax.scipy.linalg.solve_triangular(L, data["y"], lower=True)
    log_length = jnp.log(p["length"])
    prior = -0.5 * log_length**2 - log_length - p["height"] / 2.0 - p["noise"]
    return -0.5 * jnp.sum(z**2) - jnp.sum(jnp.log(jnp.diagonal(L))) + prior


def regimes(rng: np.random.Generator) -> Data:
    state, y = 0, np.zeros(150)
    for t in range(150):
        state = state if rng.uniform() < 0.85 else 1 - state
        y[t] = 3.0 * state + rng.standard_normal()
    return {"y": y}


def regimes_density(p, data):
    log_move = jnp.log(p["move"])
    emit = -0.5 * ((data["y"][:, None] - p["mean"]) / p["sd"]) ** 2 - jnp.log(p["sd"])

    def step(alpha, now):
        return jax.nn.logsumexp(alpha[:, None] + log_move, axis=0) + now, None

    alpha, _ = jax.lax.scan(step, emit[0] - jnp.log(2.0), emit[1:])
    staying = jnp.sum(jnp.log(jnp.diagonal(p["move"]))) * 2.0
    return jax.nn.logsumexp(alpha) + normal(p["mean"], 1.0, 3.0) - p["sd"] + staying


def two_kinds(rng: np.random.Generator) -> Data:
    kind = rng.uniform(size=200) < 0.4
    return {"y": np.where(kind, -1.5, 1.5) + rng.standard_normal(200) * np.where(kind, 0.7, 1.0)}


def mixture_density(p, data):
    each = -0.5 * ((data["y"][:, None] - p["mean"]) / p["sd"]) ** 2 - jnp.log(p["sd"]) + jnp.log(p["share"])
    return jnp.sum(jax.nn.logsumexp(each, axis=1)) + normal(p["mean"], 0.0, 3.0) - jnp.sum(p["sd"])


def volatility(rng: np.random.Generator) -> Data:
    h = np.zeros(100)
    for t in range(1, 100):
        h[t] = 0.9 * h[t - 1] + 0.3 * rng.standard_normal()
    return {"y": np.exp(h / 2) * rng.standard_normal(100)}


def volatility_density(p, data):
    def step(h, z):
        h = p["memory"] * h + p["spread"] * z
        return h, h

    _, h = jax.lax.scan(step, jnp.zeros(()), p["z"])
    h = h + p["level"]
    like = jnp.sum(-0.5 * data["y"] ** 2 * jnp.exp(-h) - 0.5 * h)
    return like + normal(p["z"]) + normal(p["level"], 0.0, 2.0) - p["spread"] / 0.5 + 8.0 * jnp.log(p["memory"])


MEMBERS = [
    Posterior(
        "random walk, counts",
        *(walk, walk_density, lambda data: {"start": 0.0, "step": 1.0, "z": np.zeros(99)}, {"step": positive}),
    ),
    Posterior(
        "autoregression",
        *(autoregression, autoregression_density, lambda data: {"a": 0.0, "phi": np.zeros(2), "sd": 1.0}),
        {"sd": positive},
    ),
    Posterior(
        "garch",
        *(garch, garch_density, lambda data: {"base": 1.0, "shock": 0.5, "memory": 0.5}),
        {"base": positive, "shock": interval(0.0, 1.0), "memory": interval(0.0, 1.0)},
    ),
    Posterior(
        "gaussian process",
        *(curve, process_density, lambda data: {"length": 1.0, "height": 1.0, "noise": 1.0}),
        {"length": positive, "height": positive, "noise": positive},
    ),
    Posterior(
        "hidden Markov",
        *(regimes, regimes_density),
        lambda data: {"mean": np.array([0.0, 1.0]), "move": np.full((2, 2), 0.5), "sd": 1.0},
        {"mean": ordered, "move": simplex, "sd": positive},
    ),
    Posterior(
        "ordered mixture",
        *(two_kinds, mixture_density),
        lambda data: {"mean": np.array([0.0, 1.0]), "sd": np.ones(2), "share": np.full(2, 0.5)},
        {"mean": ordered, "sd": positive, "share": simplex},
    ),
    Posterior(
        "stochastic volatility",
        *(volatility, volatility_density),
        lambda data: {"level": 0.0, "memory": 0.5, "spread": 1.0, "z": np.zeros(100)},
        {"memory": interval(0.0, 1.0), "spread": positive},
    ),
]
