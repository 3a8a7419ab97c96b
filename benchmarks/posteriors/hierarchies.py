"""Hierarchies: centred and not, with sds far from zero and sds that may be zero; one of 2,000 dimensions."""

import jax.numpy as jnp
import numpy as np

from benchmarks.posteriors.posterior import Data, Draws, Posterior, Reference
from benchmarks.posteriors.regressions import chances, normal
from natvi.models.density.space.bijectors import correlation_factor, positive

SCHOOLS_SD = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools(rng: np.random.Generator) -> Data:
    effects = 8.0 + 6.0 * rng.standard_normal(8)
    return {"y": effects + SCHOOLS_SD * rng.standard_normal(8), "s": SCHOOLS_SD}


def schools_density(p, data):
    prior = normal(p["mu"], 0.0, 10.0) - jnp.log1p((p["tau"] / 5.0) ** 2)
    return normal(data["y"], p["theta"], data["s"]) + normal(p["theta"], p["mu"], p["tau"]) + prior


def schools_plain_density(p, data):
    prior = normal(p["mu"], 0.0, 10.0) - jnp.log1p((p["tau"] / 5.0) ** 2)
    return normal(data["y"], p["mu"] + p["tau"] * p["z"], data["s"]) + normal(p["z"]) + prior


def from_schools(draws: Draws, data: Data, rng: np.random.Generator) -> Draws:
    theta = draws["mu"][:, None] + draws["tau"][:, None] * draws["z"]
    return {"mu": draws["mu"], "tau": draws["tau"], "theta": theta}


def schools_start(name: str):
    return lambda data: {"mu": 0.0, "tau": 1.0, name: np.zeros(8)}


def grouped(groups: int, rows: int, sd: float, response: str = "normal"):
    def simulate(rng: np.random.Generator) -> Data:
        at = np.repeat(np.arange(groups), rows)
        x = rng.standard_normal(groups * rows)
        eta = 0.5 + 0.7 * x + sd * rng.standard_normal(groups)[at]
        if response == "normal":
            y = eta + rng.standard_normal(len(at))
        elif response == "binary":
            y = (rng.uniform(size=len(at)) < chances(eta)).astype(float)
        else:
            y = rng.poisson(np.exp(eta)).astype(float)
        return {"x": x, "y": y, "at": at, "groups": np.arange(groups)}

    return simulate


def grouped_prior(p):
    return normal(p["a"], 0.0, 5.0) + normal(p["b"], 0.0, 2.0) - p["tau"]


def grouped_density(p, data):
    eta = p["a"] + p["b"] * data["x"] + p["u"][data["at"]]
    like = normal(data["y"], eta, p["sd"]) - p["sd"]
    return like + normal(p["u"], 0.0, p["tau"]) + grouped_prior(p)


def grouped_plain_density(p, data):
    eta = p["a"] + p["b"] * data["x"] + p["tau"] * p["z"][data["at"]]
    return normal(data["y"], eta, p["sd"]) - p["sd"] + normal(p["z"]) + grouped_prior(p)


def binary_density(p, data):
    eta = p["a"] + p["b"] * data["x"] + p["u"][data["at"]]
    like = jnp.sum(data["y"] * eta - jnp.logaddexp(0.0, eta))
    return like + normal(p["u"], 0.0, p["tau"]) + grouped_prior(p)


def binary_plain_density(p, data):
    eta = p["a"] + p["b"] * data["x"] + p["tau"] * p["z"][data["at"]]
    return jnp.sum(data["y"] * eta - jnp.logaddexp(0.0, eta)) + normal(p["z"]) + grouped_prior(p)


def count_density(p, data):
    eta = p["a"] + p["b"] * data["x"] + p["u"][data["at"]]
    return jnp.sum(data["y"] * eta - jnp.exp(eta)) + normal(p["u"], 0.0, p["tau"]) + grouped_prior(p)


def grouped_start(name: str, sd: bool = True):
    def start(data: Data) -> dict[str, object]:
        found = {"a": 0.0, "b": 0.0, "tau": 1.0, name: np.zeros(len(data["groups"]))}
        return {**found, "sd": 1.0} if sd else found

    return start


def from_plain(draws: Draws, data: Data, rng: np.random.Generator) -> Draws:
    found = {name: values for name, values in draws.items() if name != "z"}
    return {**found, "u": draws["tau"][:, None] * draws["z"]}


def marginal_density(p, data):
    """The effects of a normal response integrated out, balanced groups."""
    groups, rows = len(data["groups"]), len(data["y"]) // len(data["groups"])
    error = (data["y"] - p["a"] - p["b"] * data["x"]).reshape(groups, rows)
    s2, t2 = p["sd"] ** 2, p["tau"] ** 2
    total = s2 + rows * t2
    square = jnp.sum(error**2) / s2 - jnp.sum(jnp.sum(error, axis=1) ** 2) * t2 / (s2 * total)
    log_det = groups * ((rows - 1) * jnp.log(s2) + jnp.log(total))
    return -0.5 * square - 0.5 * log_det - p["sd"] + grouped_prior(p)


def with_effects(draws: Draws, data: Data, rng: np.random.Generator) -> Draws:
    groups, rows = len(data["groups"]), len(data["y"]) // len(data["groups"])
    error = data["y"] - draws["a"][:, None] - draws["b"][:, None] * data["x"]
    sums = error.reshape(len(error), groups, rows).sum(axis=2)
    s2, t2 = draws["sd"][:, None] ** 2, draws["tau"][:, None] ** 2
    variance = s2 * t2 / (s2 + rows * t2)
    u = sums * t2 / (s2 + rows * t2) + np.sqrt(variance) * rng.standard_normal(sums.shape)
    return {**draws, "u": u}


def slopes(rng: np.random.Generator) -> Data:
    at = np.repeat(np.arange(30), 12)
    x = rng.standard_normal(360)
    effects = rng.multivariate_normal([1.0, -0.5], [[1.0, 0.4], [0.4, 0.5]], 30)
    return {"x": x, "y": effects[at, 0] + effects[at, 1] * x + rng.standard_normal(360), "at": at}


def slopes_density(p, data):
    L = p["sds"][:, None] * p["L"]
    error = jnp.linalg.solve(L, (p["u"] - p["mean"]).T)
    groups = -0.5 * jnp.sum(error**2) - 30 * jnp.sum(jnp.log(jnp.diagonal(L)))
    u = p["u"][data["at"]]
    like = normal(data["y"], u[:, 0] + u[:, 1] * data["x"], p["sd"])
    return like + groups + normal(p["mean"], 0.0, 3.0) - jnp.sum(p["sds"]) - p["sd"] + jnp.log(p["L"][1, 1])


def slopes_start(data: Data) -> dict[str, object]:
    return {"L": np.eye(2), "mean": np.zeros(2), "sd": 1.0, "sds": np.ones(2), "u": np.zeros((30, 2))}


POSITIVE = {"tau": positive, "sd": positive}
TAU = {"tau": positive}
PLAIN = Reference(grouped_plain_density, grouped_start("z"), from_plain, POSITIVE)
MARGINAL = Reference(marginal_density, lambda data: {"a": 0.0, "b": 0.0, "tau": 1.0, "sd": 1.0}, with_effects, POSITIVE)
BINARY = Reference(binary_plain_density, grouped_start("z", sd=False), from_plain, TAU)
SCHOOLS = Reference(schools_plain_density, schools_start("z"), from_schools, TAU)

MEMBERS = [
    Posterior("eight schools, centred", schools, schools_density, schools_start("theta"), TAU, reference=SCHOOLS),
    Posterior("eight schools, not centred", schools, schools_plain_density, schools_start("z"), TAU),
    Posterior(
        "20 groups, centred", grouped(20, 10, 1.0), grouped_density, grouped_start("u"), POSITIVE, reference=MARGINAL
    ),
    Posterior(
        "15 groups, sd near zero, centred",
        *(grouped(15, 4, 0.1), grouped_density, grouped_start("u"), POSITIVE),
        reference=MARGINAL,
    ),
    Posterior(
        "15 groups, sd near zero, not centred",
        *(grouped(15, 4, 0.1), grouped_plain_density, grouped_start("z"), POSITIVE),
    ),
    Posterior(
        "40 groups, binary, centred",
        *(grouped(40, 8, 1.0, "binary"), binary_density, grouped_start("u", sd=False), TAU),
        reference=BINARY,
    ),
    Posterior(
        "60 groups, counts, centred", grouped(60, 5, 0.7, "count"), count_density, grouped_start("u", False), TAU
    ),
    Posterior(
        "intercepts and slopes",
        *(slopes, slopes_density, slopes_start),
        {"L": correlation_factor, "sd": positive, "sds": positive},
    ),
    Posterior(
        "2,000 intercepts",
        *(grouped(1996, 6, 1.0), grouped_density, grouped_start("u"), POSITIVE),
        reference=MARGINAL,
    ),
]
