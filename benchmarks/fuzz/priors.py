"""The prior of a model as a function in plain NumPy, read from the numbers that the library states."""

from typing import Any

import numpy as np
from scipy.stats import expon, gamma, halfcauchy, halfnorm, lognorm
from scipy.stats import t as student

# density of a positive number, by name: (x, parameters) -> log p(x)
SCALES = {
    "half_normal": lambda x, scale: halfnorm.logpdf(x, scale=scale),
    "half_t": lambda x, df, scale: np.log(2.0) + student.logpdf(x, df, scale=scale),
    "half_cauchy": lambda x, scale: halfcauchy.logpdf(x, scale=scale),
    "exponential": lambda x, rate: expon.logpdf(x, scale=1 / rate),
    "lognormal": lambda x, mu, sd: lognorm.logpdf(x, sd, scale=np.exp(mu)),
    "gamma": lambda x, shape, rate: gamma.logpdf(x, shape, scale=1 / rate),
}


def log_prior(prior: Any, theta: np.ndarray) -> np.ndarray:
    """Return the log-density, up to a constant, of draws `(s, g)` of (beta', log dispersion, omega).

    Normals where their sd is finite; a density of x = exp(power theta) where one is placed, with its Jacobian; and for
    two correlated effects densities of their sds with an LKJ density of their correlation.
    """
    normal = np.isfinite(prior.sd)
    total = -0.5 * np.sum(((theta[:, normal] - prior.mean[normal]) / prior.sd[normal]) ** 2, axis=1)
    for placed in prior.scales.placed:
        log_x = placed.power * theta[:, placed.position]
        total = total + SCALES[placed.density.name](np.exp(log_x), *placed.density.parameters) + log_x
    if prior.scales.covariance is not None:
        total = total + _log_covariance_prior(prior.scales.covariance, theta)
    return total


def _log_covariance_prior(covariance: Any, theta: np.ndarray) -> np.ndarray:
    """Return the density of (omega_11, omega_21, omega_22) for two effects, by the Jacobian of (s_1, s_2, rho).

    With a = e^-omega_11, b = e^-omega_22 and m = omega_21:  s_1 = a sqrt(1 + b^2 m^2), s_2 = b, s_1 rho = -a b m. Then
    sqrt(1 - rho^2) = a / s_1 =: c, and |d(s_1, s_2, rho) / d omega| = s_1 s_2 * b c^3 (`test_fuzz` checks it).
    """
    start = covariance.start
    a, m, b = np.exp(-theta[:, start]), theta[:, start + 1], np.exp(-theta[:, start + 2])
    s1 = a * np.sqrt(1 + (b * m) ** 2)
    c = a / s1
    first, second = covariance.densities
    sds = SCALES[first.name](s1, *first.parameters) + SCALES[second.name](b, *second.parameters)
    return sds + 2 * (covariance.eta - 1) * np.log(c) + np.log(s1 * b * b * c**3)
