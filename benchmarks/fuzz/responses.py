"""Responses of every family, and those from which little or nothing can be learned."""

import numpy as np

Generator = np.random.Generator
REAL = ("gaussian", "gamma")
BINARY = ("bernoulli", "binomial")

ANY = ("all equal", "one differs")
DEGENERATE = {
    "gaussian": (*ANY, "no noise", "huge", "tiny", "far from zero", "all zero"),
    "gamma": (*ANY, "no noise", "huge", "tiny"),
    "poisson": (*ANY, "all zero", "huge", "overdispersed"),
    "negative_binomial": (*ANY, "all zero", "huge", "no overdispersion"),
    "bernoulli": (*ANY, "all zero", "separated", "nearly separated"),
    "binomial": (*ANY, "all zero", "separated", "nearly separated"),
}


def inverse_link(link: str, eta: np.ndarray) -> np.ndarray:
    """Return the mean of the response at a predictor."""
    if link == "identity":
        return eta
    if link == "log":
        return np.exp(np.clip(eta, -20.0, 20.0))
    if link == "logit":
        return 1.0 / (1.0 + np.exp(-eta))
    if link == "probit":
        from scipy.special import ndtr

        return ndtr(eta)
    return -np.expm1(-np.exp(np.clip(eta, -20.0, 3.0)))  # cloglog


def draw_response(family: str, link: str, eta: np.ndarray, trials: np.ndarray, rng: Generator) -> np.ndarray:
    """Draw responses; of trials the successes."""
    mean = inverse_link(link, eta)
    if family == "gaussian":
        return mean + rng.uniform(0.3, 2.0) * rng.standard_normal(len(eta))
    if family in BINARY:
        return rng.binomial(trials, np.clip(mean, 0.0, 1.0))
    if family == "poisson":
        return rng.poisson(mean)
    shape = rng.uniform(1.0, 8.0)
    rate = rng.gamma(shape, mean / shape)
    return rng.poisson(rate) if family == "negative_binomial" else np.maximum(rate, 1e-300)


def spoil(kind: str, family: str, y: np.ndarray, eta: np.ndarray, trials: np.ndarray, rng: Generator) -> np.ndarray:
    """Return a degenerate response in the place of an ordinary one."""
    whole = family not in REAL
    if kind == "all equal":
        return np.minimum(np.full(len(y), y[0]), trials) if family in BINARY else np.full(len(y), y[0])
    if kind == "all zero":
        return np.zeros_like(y)
    if kind == "one differs":
        other = np.zeros_like(y) if whole or family == "gaussian" else np.ones_like(y)
        other[rng.integers(len(y))] = 1 if whole else 2.0
        return other
    if kind == "no noise":
        return eta.copy() if family == "gaussian" else np.exp(eta)
    if kind in ("huge", "tiny"):
        scale = 1e10 if kind == "huge" else 1e-10
        return rng.poisson(1e4 * np.exp(np.clip(eta, -5.0, 5.0))) if whole else scale * y
    if kind == "far from zero":
        return y + 1e8
    if kind == "overdispersed":
        return rng.poisson(np.minimum(rng.gamma(0.2, 5.0 * np.exp(np.clip(eta, -5.0, 5.0))), 1e6))
    if kind == "no overdispersion":
        return rng.poisson(np.exp(np.clip(eta, -5.0, 5.0)))
    separated = np.where(eta > np.median(eta), trials, 0)
    if kind == "nearly separated":
        at = rng.integers(len(y))
        separated[at] = trials[at] - separated[at]
    return separated
