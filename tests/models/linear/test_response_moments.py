"""Mean and sd of the expected response under a Gaussian predictor against brute force, for narrow and wide ones."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, ndtr

from natvi.families.table import find_family
from natvi.models.regression.predict import response_moments

INVERSE = {"logit": expit, "probit": ndtr, "cloglog": lambda eta: -np.expm1(-np.exp(np.minimum(eta, 700.0)))}
MEANS = np.array([-90.0, -30.0, -5.0, -1.0, 0.0, 0.5, 4.0, 20.0, 70.0])
SDS = np.array([0.0, 1e-3, 0.3, 1.0, 2.0, 2.99, 3.01, 4.0, 7.0, 15.0, 30.0, 64.0, 300.0])


def brute(link: str, m: float, s: float) -> tuple[float, float]:
    """Return mean and sd from nodes 0.02 apart in the predictor, or closer."""
    z = np.linspace(-10.0, 10.0, int(1000 * max(2.0, s)) + 1)
    weights = np.exp(-0.5 * z**2)
    weights /= weights.sum()
    value = INVERSE[link](m + s * z)
    mean = weights @ value
    return mean, np.sqrt(weights @ (value - mean) ** 2)


@pytest.mark.parametrize("link", INVERSE)
def test_binary_links(link: str) -> None:
    m, s = (a.ravel() for a in np.meshgrid(MEANS, SDS))
    mean, sd = response_moments(find_family("bernoulli", link), m, s)
    expected = np.array([brute(link, *row) for row in zip(m, s, strict=True)])
    np.testing.assert_allclose(mean, expected[:, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(sd, expected[:, 1], rtol=0, atol=2e-8)


@pytest.mark.parametrize("link", INVERSE)
def test_small_spreads_keep_their_relative_accuracy(link: str) -> None:
    m, s = np.array([-2.0, 0.3, 0.9]), np.full(3, 1e-7)
    slope = (INVERSE[link](m + 1e-5) - INVERSE[link](m - 1e-5)) / 2e-5
    np.testing.assert_allclose(response_moments(find_family("bernoulli", link), m, s)[1], slope * s, rtol=1e-5)


@pytest.mark.parametrize("link", INVERSE)
def test_enormous_spreads_come_to_their_limit(link: str) -> None:
    """The response is 0 or 1 then: mean Phi(m / s)."""
    m, s = np.array([-1e8, 0.0, 2e9, 1e200]), np.array([1e9, 1e9, 1e9, 1e250])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean, sd = response_moments(find_family("bernoulli", link), m, s)
    limit = ndtr(m / s)
    np.testing.assert_allclose(mean, limit, atol=1e-8)
    np.testing.assert_allclose(sd, np.sqrt(limit * (1 - limit)), atol=1e-8)


def test_log_and_identity_links_are_closed() -> None:
    m, s = np.array([0.3, -1.0]), np.array([0.2, 2.0])
    np.testing.assert_allclose(response_moments(find_family("gaussian"), m, s), (m, s))
    mean, sd = response_moments(find_family("poisson"), m, s)
    np.testing.assert_allclose(mean, np.exp(m + s**2 / 2))
    np.testing.assert_allclose(sd**2, np.exp(2 * m + 2 * s**2) - mean**2)
