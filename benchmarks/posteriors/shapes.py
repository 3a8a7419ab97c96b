"""Densities whose draws are known: correlated, long-tailed, skewed, bent, truncated, with two modes."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from benchmarks.posteriors.posterior import Data, Draws, Posterior
from natvi.models.density.space.bijectors import interval, lower

Generator = np.random.Generator


def seeded(rng: Generator) -> Data:
    return {"mean": 2.0 * rng.standard_normal(20)}


def vector(d: int):
    return lambda data: {"x": np.zeros(d)}


def correlated_density(p, data):
    error = p["x"] - data["mean"]
    common = 0.999
    # the inverse of (1 - c) I + c 1 1'
    square = (jnp.sum(error**2) - common * jnp.sum(error) ** 2 / (1 + 19 * common)) / (1 - common)
    return -0.5 * square


def correlated(data: Data, rng: Generator, count: int) -> Draws:
    shared, own = rng.standard_normal((count, 1)), rng.standard_normal((count, 20))
    return {"x": data["mean"] + np.sqrt(0.999) * shared + np.sqrt(0.001) * own}


def stretched_density(p, data):
    return -0.5 * jnp.sum(((p["x"] - data["mean"]) / data["sd"]) ** 2)


def stretched_data(rng: Generator) -> Data:
    return {"mean": rng.standard_normal(200), "sd": 10.0 ** rng.uniform(-2, 2, 200)}


def stretched(data: Data, rng: Generator, count: int) -> Draws:
    return {"x": data["mean"] + data["sd"] * rng.standard_normal((count, 200))}


def two_modes_density(apart: float):
    def density(p, data):
        x = p["x"]
        modes = jnp.array([-0.5, 0.5]) * apart
        each = -0.5 * (x[0] - modes) ** 2 + jnp.log(jnp.array([0.6, 0.4]))
        return logsumexp(each) - 0.5 * jnp.sum(x[1:] ** 2)

    return density


def two_modes(apart: float):
    def draw(data: Data, rng: Generator, count: int) -> Draws:
        x = rng.standard_normal((count, 4))
        x[:, 0] += np.where(rng.uniform(size=count) < 0.6, -0.5, 0.5) * apart
        return {"x": x}

    return draw


def funnel_density(p, data):
    return -0.5 * (p["v"] / 3.0) ** 2 - 0.5 * jnp.sum(p["x"] ** 2) * jnp.exp(-p["v"]) - 4.5 * p["v"]


def funnel(data: Data, rng: Generator, count: int) -> Draws:
    v = 3.0 * rng.standard_normal(count)
    return {"v": v, "x": np.exp(v / 2)[:, None] * rng.standard_normal((count, 9))}


def banana_density(p, data):
    x = p["x"]
    return -0.5 * x[0] ** 2 - 0.5 * ((x[1] - 0.5 * (x[0] ** 2 - 1.0)) / 0.5) ** 2


def banana(data: Data, rng: Generator, count: int) -> Draws:
    a, e = rng.standard_normal((2, count))
    return {"x": np.stack([a, 0.5 * (a**2 - 1.0) + 0.5 * e], axis=1)}


def student_density(p, data):
    return -0.5 * (5.0 + 10.0) * jnp.log1p(jnp.sum((p["x"] - data["mean"][:10]) ** 2) / 5.0)


def student(data: Data, rng: Generator, count: int) -> Draws:
    scale = np.sqrt(5.0 / rng.chisquare(5.0, count))
    return {"x": data["mean"][:10] + scale[:, None] * rng.standard_normal((count, 10))}


def log_gamma_density(p, data):
    return jnp.sum(0.5 * p["x"] - jnp.exp(p["x"]))


def log_gamma(data: Data, rng: Generator, count: int) -> Draws:
    return {"x": np.log(rng.gamma(0.5, 1.0, (count, 4)))}


def mild_log_gamma_density(p, data):
    return jnp.sum(20.0 * p["x"] - 20.0 * jnp.exp(p["x"]))


def mild_log_gamma(data: Data, rng: Generator, count: int) -> Draws:
    return {"x": np.log(rng.gamma(20.0, 1 / 20.0, (count, 20)))}


def truncated_density(p, data):
    return -0.5 * p["half"] ** 2 - 0.5 * ((p["part"] - 0.5) / 2.0) ** 2


def truncated(data: Data, rng: Generator, count: int) -> Draws:
    part = 0.5 + 2.0 * rng.standard_normal(20 * count)
    return {"half": np.abs(rng.standard_normal(count)), "part": part[(part > 0) & (part < 1)][:count]}


MEMBERS = [
    Posterior("correlation 0.999", seeded, correlated_density, vector(20), exact=correlated),
    Posterior("sds of 0.01 to 100, d=200", stretched_data, stretched_density, vector(200), exact=stretched),
    Posterior("two modes, 3 sds apart", seeded, two_modes_density(3.0), vector(4), exact=two_modes(3.0)),
    Posterior(
        "two modes, 10 sds apart", seeded, two_modes_density(10.0), vector(4), exact=two_modes(10.0), modes_apart=10.0
    ),
    Posterior("funnel", seeded, funnel_density, lambda data: {"v": 0.0, "x": np.zeros(9)}, exact=funnel),
    Posterior("banana", seeded, banana_density, vector(2), exact=banana),
    Posterior("student tails", seeded, student_density, vector(10), exact=student),
    Posterior("log-gamma tails", seeded, log_gamma_density, vector(4), exact=log_gamma),
    Posterior("mild log-gamma, d=20", seeded, mild_log_gamma_density, vector(20), exact=mild_log_gamma),
    Posterior(
        "truncated",
        *(seeded, truncated_density, lambda data: {"half": 1.0, "part": 0.5}),
        {"half": lower(0.0), "part": interval(0.0, 1.0)},
        exact=truncated,
    ),
]
