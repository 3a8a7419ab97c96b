"""Brute-force expectations under Gaussians: composite Gauss-Legendre, and differences for derivatives in the mean.

Exponents are added before they are taken, so that nothing overflows and nothing small is lost.
"""

from collections.abc import Callable

import numpy as np
import scipy.special

from strategies import panels

LOG_2PI = np.log(2 * np.pi)
MEANS = np.array([-30.0, -24.0, -15.0, -7.0, -2.5, -0.4, 0.0, 0.4, 2.5, 7.0, 15.0, 24.0, 30.0])
SDS = np.array([1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.6, 0.8, 1.0, 1.6, 2.5, 4.0, 5.5, 8.0, 15.0, 30.0])
STEP = 0.05
OFFSETS = STEP * np.arange(-3, 4)
# sixth-order central differences
FIRST = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60 / STEP
SECOND = np.array([2, -27, 270, -490, 270, -27, 2]) / 180 / STEP**2


def normal_rule(left: float, right: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and log-weights of the standard normal on [-left, right]."""
    z, w = panels(-left, right, int(8 * (left + right)))
    return z, np.log(w) - 0.5 * z**2 - 0.5 * LOG_2PI


def assert_within(got: np.ndarray, expected: np.ndarray, absolute: np.ndarray | float, relative: float = 1e-7) -> None:
    """Compare with an absolute error that differs from entry to entry."""
    assert not np.any(np.isnan(got))
    excess = np.abs(got - expected) / (absolute + relative * np.abs(expected) + 1e-300)
    assert excess.max() <= 1, f"{excess.max()} times the tolerance at {np.argmax(excess)}"


# --- losses of binary responses: value, first and second derivative in t -----------------------------------


def logit_loss(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """State softplus(t) = -log P(y = 0) at eta = t."""
    left = np.logaddexp(0.0, -t)
    right = np.logaddexp(0.0, t)
    return right, np.exp(-left), np.exp(-left - right)


def probit_loss(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """State -log Phi(-t), its slope h = phi(t)/Phi(-t) and its curvature h (h - t)."""
    log_upper = scipy.special.log_ndtr(-t)
    hazard = np.exp(-0.5 * t**2 - 0.5 * LOG_2PI - log_upper)
    far = 1 / (np.sqrt(np.pi / 2) * scipy.special.erfcx(np.maximum(t, 0.0) / np.sqrt(2)))
    return -log_upper, np.where(t > 0, far, hazard), np.where(t > 0, far * (far - t), hazard * (hazard - t))


def cloglog_loss(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """State -log P(y = 1) = -log(1 - exp(-w)) at eta = -t, w = e^-t, with slope w/(e^w - 1) in t."""
    w = np.exp(np.clip(-t, -700.0, 6.55))  # e^-699 is all but 0
    value = np.where(t > 0, t - np.log(-np.expm1(-w) / w), -np.log1p(-np.exp(-np.maximum(w, 0.5))))
    slope = w / np.expm1(w)
    small = slope * w * (0.5 + w / 12)
    return value, slope, np.where(w < 1e-3, small, slope * (-w / np.expm1(-w) - 1))


LOSSES: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]] = {
    "logit": logit_loss,
    "probit": probit_loss,
    "cloglog": cloglog_loss,
}


def expected_loss(link: str, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return the expectations of loss, slope and curvature at pairs (m, s): `(3, k)`."""
    z, w = panels(-38.0, 38.0, 608)
    w = w * np.exp(-0.5 * z**2 - 0.5 * LOG_2PI)
    return np.array([[part @ w for part in LOSSES[link](a + b * z)] for a, b in zip(m, s, strict=True)]).T
