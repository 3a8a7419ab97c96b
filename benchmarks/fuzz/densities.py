"""Log-densities of a response given its predictor, in plain NumPy: what the second method is built on."""

import numpy as np
from scipy.special import gammaln, log_ndtr

LOG_2PI = float(np.log(2 * np.pi))


def row_log_density(family: str, link: str, y: np.ndarray, eta: np.ndarray, log_disp: np.ndarray | float) -> np.ndarray:
    """Return log p(y | eta, dispersion) of every row; a proportion counts as so many bernoulli trials.

    Args:
        family: Of the response.
        link: Of the family.
        y: Responses; for trials the proportion of successes.
        eta: Predictors, shape as `y` with any axes before.
        log_disp: log sigma, log phi or log shape, of a shape that goes with `eta`; not read where there is none.
    """
    if family == "gaussian":
        return -0.5 * LOG_2PI - log_disp - 0.5 * ((y - eta) * np.exp(-log_disp)) ** 2
    if family in ("bernoulli", "binomial"):
        success, failure = binary_logs(link, eta)
        return np.where(y > 0, y * success, 0.0) + np.where(y < 1, (1 - y) * failure, 0.0)
    if family == "poisson":
        return y * eta - np.exp(eta) - gammaln(y + 1)
    phi = np.exp(log_disp)
    if family == "gamma":
        return phi * (log_disp - eta - y * np.exp(-eta)) + (phi - 1) * np.log(y) - gammaln(phi)
    # negative binomial: variance mu + mu^2 / phi
    t = eta - log_disp
    softplus = np.logaddexp(0.0, t)
    return y * t - (y + phi) * softplus + gammaln(y + phi) - gammaln(phi) - gammaln(y + 1)


def binary_logs(link: str, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probabilities of success and failure."""
    if link == "logit":
        return -np.logaddexp(0.0, -eta), -np.logaddexp(0.0, eta)
    if link == "probit":
        return log_ndtr(eta), log_ndtr(-eta)
    rate = np.exp(np.minimum(eta, 700.0))  # cloglog: P(failure) = exp(-e^eta)
    with np.errstate(divide="ignore"):
        return np.where(eta < -30, eta, np.log(-np.expm1(-rate))), -rate
