"""Replicated responses of the families that have further numbers beside a mean and one dispersion."""

from collections.abc import Callable
from typing import Any

import numpy as np

from natvi.judge.replicate import LARGEST_RATE
from natvi.special import expit, logit, ndtri

LARGEST_LOG, LARGEST_EXPONENT = 300.0, 650.0
TINY, MOST_ROUNDS = 1e-12, 200

OWN_DRAWS: dict[str, Callable[..., np.ndarray]] = {}


def _register(*names: str) -> Callable[[Any], Any]:
    def put(function: Any) -> Any:
        OWN_DRAWS.update({name: function for name in names})
        return function

    return put


@_register("zero_inflated_poisson", "zero_inflated_negative_binomial")
def _zero_inflated(family: Any, eta: np.ndarray, disp: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    zeta, phi = (disp, None) if family.num_extras == 1 else (disp[1], np.exp(disp[0]))
    rate = np.exp(np.minimum(eta, LARGEST_LOG))
    if phi is not None:
        rate = rng.gamma(np.broadcast_to(phi, eta.shape), rate / phi)
    counts = rng.poisson(np.minimum(rate, LARGEST_RATE)).astype(float)
    return np.where(rng.uniform(size=eta.shape) < expit(zeta), 0.0, counts)


@_register("hurdle_poisson", "hurdle_negative_binomial")
def _hurdle(family: Any, eta: np.ndarray, disp: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    zeta, phi = (disp, None) if family.num_extras == 1 else (disp[1], np.exp(disp[0]))
    rate = np.exp(np.minimum(eta, LARGEST_LOG))
    if phi is not None:  # the rate given a count that is not zero, by rejection
        phi, mean = np.broadcast_to(phi, eta.shape), rate
        rate, left = np.empty(eta.shape), np.ones(eta.shape, bool)
        for _ in range(MOST_ROUNDS):
            tried = rng.gamma(phi[left], mean[left] / phi[left])
            kept = rng.uniform(size=tried.shape) < -np.expm1(-tried)
            rate[left] = np.where(kept, tried, np.maximum(tried, TINY))
            left[left] = ~kept
            if not left.any():
                break
    first = -np.log1p(rng.uniform(size=eta.shape) * np.expm1(-rate))  # when the first event comes, given there is one
    counts = 1.0 + rng.poisson(np.clip(rate - first, 0.0, LARGEST_RATE))
    return np.where(rng.uniform(size=eta.shape) < expit(zeta), 0.0, counts)


@_register("geometric")
def _geometric(family: Any, eta: np.ndarray, disp: None, rng: np.random.Generator) -> np.ndarray:
    rate = rng.exponential(np.exp(np.minimum(eta, LARGEST_LOG)))
    return rng.poisson(np.minimum(rate, LARGEST_RATE)).astype(float)


@_register("lognormal")
def _lognormal(family: Any, eta: np.ndarray, disp: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.exp(np.minimum(eta + np.exp(disp) * rng.standard_normal(eta.shape), LARGEST_EXPONENT))


@_register("exponential")
def _exponential(family: Any, eta: np.ndarray, disp: None, rng: np.random.Generator) -> np.ndarray:
    return np.exp(np.minimum(eta + np.log(rng.exponential(size=eta.shape)), LARGEST_EXPONENT))


@_register("weibull")
def _weibull(family: Any, eta: np.ndarray, disp: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    log_time = (np.log(rng.exponential(size=eta.shape)) - eta) * np.exp(-disp)
    return np.exp(np.clip(family.settings[0] + log_time, -LARGEST_EXPONENT, LARGEST_EXPONENT))


@_register("student_t")
def _student(family: Any, eta: np.ndarray, disp: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    log_sigma, nu = (disp, family.settings[0]) if family.settings else (disp[0], np.exp(disp[1]))
    return eta + np.exp(log_sigma) * rng.standard_t(np.broadcast_to(nu, eta.shape))


@_register("beta")
def _beta(family: Any, eta: np.ndarray, disp: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    phi = np.broadcast_to(np.exp(disp), eta.shape)
    a, b = (np.maximum(expit(side) * phi, TINY) for side in (eta, -eta))
    return np.clip(rng.beta(a, b), TINY, 1.0 - 1e-12)


@_register("ordinal")
def _ordinal(family: Any, eta: np.ndarray, disp: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    K, first = map(int, family.settings)
    widths = [np.exp(disp)] if K == 3 else [np.exp(part) for part in disp]
    # the latent variable: its category is the number of thresholds below it
    u = rng.uniform(size=eta.shape)
    latent = eta + (logit(u) if family.link == "logit" else ndtri(u))
    place, threshold = (latent > 0).astype(float), np.zeros(1)
    for width in widths:
        threshold = threshold + width
        place += latent > threshold
    return first + place
