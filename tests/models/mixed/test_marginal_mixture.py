"""Marginals that a single proposal does not fit: several sds near zero, and the mixture of t distributions."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import natvi
from natvi.metrics.t_mixture import TMixture, fit_mixture
from natvi.models.mixed.marginal import method as mixed_marginal
from natvi.models.mixed.marginal.chart import Curved, Plain
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.models.mixed.marginal.method import _adapt
from natvi.models.mixed.marginal.posterior import MarginalFit
from natvi.models.mixed.marginal.proposal import Proposal, draw_mixture, refit
from natvi.models.mixed.marginal.search import find_plateaus
from natvi.models.mixed.marginal.settle import settle, weigh

# --- the mixture ---------------------------------------------------------------------------------------------


def test_density_is_that_of_the_draws() -> None:
    factors = np.array([[[0.5, 0.0], [0.2, 0.3]], [[1.0, 0.0], [-0.6, 0.4]]])
    mixture = TMixture(np.array([0.3, 0.7]), np.array([[0.0, 1.0], [4.0, -2.0]]), factors, 7.0)
    x = mixture.draw(20_000, np.random.default_rng(0))
    laws = [scipy.stats.multivariate_t(mean, L @ L.T, df=7.0) for mean, L in zip(mixture.means, factors, strict=True)]  # type: ignore[arg-type]
    dense = 0.3 * laws[0].pdf(x) + 0.7 * laws[1].pdf(x)
    np.testing.assert_allclose(mixture.log_density(x), np.log(dense), rtol=1e-10)
    np.testing.assert_allclose(x.mean(axis=0), [2.8, -1.1], atol=0.05)
    inside = scipy.stats.multivariate_normal([4.0, -2.0], 0.05 * np.eye(2))  # type: ignore[arg-type]
    assert np.mean(inside.pdf(x) / dense) == pytest.approx(1.0, abs=0.05)


def test_a_fit_covers_a_banana_and_repeats_itself() -> None:
    """x2 = x1^2 + noise: draws from the fit have usable weights, those of one Gaussian have not."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4000, 2)) * [1.0, 0.3]
    x[:, 1] += x[:, 0] ** 2

    def log_p(x: np.ndarray) -> np.ndarray:
        return scipy.stats.norm.logpdf(x[:, 0]) + scipy.stats.norm.logpdf(x[:, 1], x[:, 0] ** 2, 0.3)

    mixture, again = (fit_mixture(x, np.random.default_rng(2)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(mixture, again, strict=True))
    assert mixture.shares.sum() == pytest.approx(1.0)
    draws = mixture.draw(4096, rng)
    found = weigh(draws, log_p(draws), mixture.log_density(draws))
    single = scipy.stats.multivariate_t(x.mean(axis=0), np.cov(x.T), df=6.0, seed=3)  # type: ignore[arg-type]
    draws = single.rvs(4096)
    plain = weigh(draws, log_p(draws), single.logpdf(draws))
    assert found is not None and plain is not None
    assert found.k < 0.7 and found.effective > 2 * plain.effective
    assert found.log_evidence == pytest.approx(0.0, abs=0.1)


def test_a_mixture_fits_a_mode_with_a_plateau() -> None:
    """Draws like those of a log sd that may be minus infinity: importance weights of the fit are worth a lot."""
    rng = np.random.default_rng(1)
    peak, plateau = scipy.stats.norm(0.0, 0.5), scipy.stats.uniform(1.0, 20.0)
    first = np.where(
        rng.uniform(size=2048) < 0.6, peak.rvs(2048, random_state=rng), plateau.rvs(2048, random_state=rng)
    )
    mixture = fit_mixture(np.stack([first, rng.standard_normal(2048)], axis=1), rng)
    x = mixture.draw(4096, rng)
    density = (0.6 * peak.pdf(x[:, 0]) + 0.4 * plateau.pdf(x[:, 0])) * scipy.stats.norm.pdf(x[:, 1])  # type: ignore[attr-defined]
    weights = density / np.exp(mixture.log_density(x))
    assert np.mean(weights) == pytest.approx(1.0, abs=0.05)
    assert weights.sum() ** 2 / np.sum(weights**2) > 2000


def test_copies_of_a_few_draws_do_not_collapse() -> None:
    rng = np.random.default_rng(4)
    few = rng.standard_normal((7, 3))
    mixture = fit_mixture(few[rng.integers(0, 7, 500)], rng)
    assert np.all(np.isfinite(mixture.log_density(rng.standard_normal((50, 3)))))
    assert np.all(np.diagonal(mixture.factors, axis1=1, axis2=2) > 0)


class Corner(MarginalDensity):
    """log p of (beta, omega_11, omega_21, omega_22) that hardly depends on omega once both sds are small."""

    def __init__(self) -> None:
        """Need no target."""

    def values(self, x: np.ndarray) -> np.ndarray:
        """Return the log density: the data speak against large sds only, the prior ends the plateaus."""
        x = np.where(np.abs(x) < 300, x, np.nan)
        prior = -0.5 * np.sum((x[:, 1:] / 10.0) ** 2, axis=1)
        return prior - 0.5 * (x[:, 0] / 0.1) ** 2 - 5 * np.exp(-2 * x[:, 1]) - 5 * np.exp(-2 * x[:, 3])

    def scores(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log densities and gradients."""
        gradient = -x / 100.0
        gradient[:, 0] = -x[:, 0] / 0.01
        gradient[:, [1, 3]] += 10 * np.exp(-2 * x[:, [1, 3]])
        return self.values(x), gradient


# --- the last resort -----------------------------------------------------------------------------------------


class Known(MarginalDensity):
    """A density that is known: a normal for most of the mass, and a narrow bump far away."""

    mass, at = 0.4, np.array([9.0, -4.0])

    def __init__(self) -> None:
        """Need no target."""

    def values(self, x: np.ndarray) -> np.ndarray:
        """Return its logarithm."""
        centre = scipy.stats.norm.logpdf(x).sum(axis=1) + np.log1p(-self.mass)
        bump = scipy.stats.norm.logpdf(x, self.at, 0.2).sum(axis=1) + np.log(self.mass)
        values = np.logaddexp(centre, bump)
        return np.where(x[:, 0] > 30, np.nan, values)


def test_poor_draws_are_made_good() -> None:
    """From a wide normal a handful of draws is effective; mixtures find both parts, with the mass that they have."""
    rng = np.random.default_rng(5)
    wide = scipy.stats.multivariate_normal([0.0, 0.0], 150.0 * np.eye(2), seed=rng)  # type: ignore[arg-type]
    x = wide.rvs(2048)
    poor = weigh(x, Known().values(x), wide.logpdf(x))

    def first(num_draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        raise AssertionError("the last resort draws from what it has fitted")

    assert poor is not None
    good, source = _adapt(Known(), poor, first, Plain())
    assert poor.effective < 0.05 * 2048 and good.effective > 0.25 * 2048
    assert good.k < 0.7 and mixed_marginal.MOST_ROUNDS < good.rounds <= mixed_marginal.MOST_ROUNDS + 3
    assert good.log_evidence == pytest.approx(0.0, abs=0.1)
    assert good.weights @ (good.shared[:, 0] > 5) == pytest.approx(0.4, abs=0.05)
    # a number to which few draws contribute asks for more of them, up to the limit
    rare = settle(Known(), source, good, lambda x: np.exp(-3 * x[:, :1]), 16384, 0)
    assert len(rare.weights) == 16384 and rare.k < 0.7
    assert settle(Known(), source, good, lambda x: x, 16384, 0).shared is good.shared


def test_points_out_of_range_are_quiet_and_weigh_nothing() -> None:
    """A proposal of log sds that goes beyond the range of numbers: no warning, weight zero, nothing infinite kept."""
    wild = Proposal(np.zeros(4), np.diag([0.1, 2.0, 2.0, 400.0]), np.ones((2, 4)), 6.0, Curved())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws, log_q = draw_mixture([(0.5, wild), (0.5, wild._replace(chart=Plain()))], 1024, 0)
        found = weigh(draws, Corner().values(draws), log_q)
        assert found is not None
        again = refit(found.shared, found.weights, [1, 2, 3], 6.0, Curved())
    lost = ~np.all(np.isfinite(draws), axis=1) | ~np.isfinite(log_q)
    assert 10 < lost.sum() < 700 and np.all(found.weights[lost] == 0)
    assert found.weights.sum() == pytest.approx(1.0) and np.all(np.isfinite(found.shared))
    assert np.all(np.isfinite(again.factor)) and np.isfinite(found.log_evidence)
    assert weigh(draws, np.full(1024, np.nan), log_q) is None


# --- both sds may be zero ------------------------------------------------------------------------------------


def test_a_plateau_of_both_sds_is_a_component() -> None:
    covariance = np.diag([0.01, 0.5, 100.0, 0.5])
    parts = find_plateaus(Corner(), np.array([0.0, 2.0, 0.0, 2.0]), covariance, [1, 3], [2], 8.0)
    assert len(parts) == 3 and sum(share for share, _ in parts) == pytest.approx(0.5)
    _, both = parts[-1]
    # columns 0 and 1 are the log sds, wide outwards
    np.testing.assert_allclose(both.factor[[1, 3], [0, 1]], 1.0)
    assert np.all(both.sides[1, :2] > 3) and np.all(both.sides[0, :2] == 1.5)
    np.testing.assert_allclose(
        both.factor @ np.diag([0, 0, 1, 1]) @ both.factor.T, np.diag([0.01, 0, 100, 0]), atol=0.1
    )


@pytest.mark.slow
def test_two_sds_near_zero_are_drawn_well() -> None:
    """Poisson rows without any spread between groups: slopes and intercepts may both be zero, and correlated."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(30), 5), "x": rng.standard_normal(150)})
    data["y"] = rng.poisson(np.exp(0.3 - 0.2 * data["x"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = natvi.glmm("y ~ x + (1 + x | g)", data, family="poisson").fit(method="marginal")
    fit = result.model
    assert isinstance(fit, MarginalFit) and fit.pareto_k < 0.7 and fit.effective > 0.25 * len(fit.weights)
    assert result.trust == "good"
