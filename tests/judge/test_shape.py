"""The shape check against moments that are known, and how few draws it needs."""

import numpy as np
import pytest
import scipy.stats

from natvi.judge import thresholds
from natvi.judge.proposals import draw_pairs, together
from natvi.judge.shape import Shape, compare_moments, look_closer
from natvi.judge.words import judge_shape

NAMES = ["a", "b"]
FACTOR = np.array([[1.0, 0.0], [0.6, 0.8]])
MEAN = np.array([3.0, -1.0])


def gaussian(mean: np.ndarray, factor: np.ndarray):
    law = scipy.stats.multivariate_normal(mean, factor @ factor.T)  # type: ignore[arg-type]
    return lambda theta: np.atleast_1d(law.logpdf(theta))


def look(log_density, most: int = thresholds.MOST_DRAWS, read=lambda theta: theta) -> Shape:
    found = look_closer(log_density, MEAN, FACTOR, read, np.eye(2), most)
    assert found is not None
    return found


def test_the_gaussian_itself_is_right_almost_without_noise() -> None:
    found = look(gaussian(MEAN, FACTOR))
    assert found.num_draws == thresholds.FIRST_DRAWS and not found.off and found.reliable
    np.testing.assert_allclose([found.shift, found.change], 0.0, atol=1e-4)
    assert judge_shape(found, NAMES, "cure").level == "good"


@pytest.mark.parametrize("shift", [0.05, 0.3, 3.0])
def test_a_shifted_mean_is_measured(shift: float) -> None:
    found = look(gaussian(MEAN + [0.0, shift], FACTOR))
    assert abs(found.shift[1] - shift) < 4 * found.shift_error[1] + 0.02
    assert found.off == (shift > thresholds.SHIFT)
    verdict = judge_shape(found, NAMES, "cure")
    assert verdict.level == {0.05: "good", 0.3: "use with care", 3.0: "do not use"}[shift]
    if shift == 0.3:
        assert "the mean of b should be about 0.3 posterior sds higher" in verdict.reasons[0]


@pytest.mark.parametrize("ratio", [0.8, 0.95, 1.05, 1.14])
def test_an_sd_is_judged_as_strictly_as_a_mean(ratio: float) -> None:
    found = look(gaussian(MEAN, FACTOR * ratio))
    np.testing.assert_allclose(found.change, np.log(ratio), atol=0.01 + 3 * found.change_error.max())
    assert found.off == (abs(np.log(ratio)) > thresholds.CHANGE)
    if found.off:
        assert "the sd of" in judge_shape(found, NAMES, "cure").reasons[0]


def test_errors_are_those_of_repeated_draws() -> None:
    """z-scores of estimates over many seeds have mean zero and an sd of about one."""
    scores = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        z, log_q, log_g = together(draw_pairs(128, 2, rng, False), draw_pairs(128, 2, rng, True))
        ratios = scipy.stats.norm.logpdf(z, 0.1, 1.06).sum(axis=1) - log_g
        weights, u = np.exp(ratios), np.exp(log_q - log_g)
        controls = np.stack([u[:, None] * z, u[:, None] * (z**2 - 1), np.tile((u - 1)[:, None], 2)], axis=2)
        found = compare_moments(z, weights / weights.sum(), u / u.sum(), controls)
        scores.append([(found.shift[0] - 0.1 / 1.06) / found.shift_error[0]])
        scores[-1].append((found.change[0] - np.log(1.06)) / found.change_error[0])
    mean, sd = np.mean(scores, axis=0), np.std(scores, axis=0)
    assert np.all(np.abs(mean) < 0.5) and np.all((sd > 0.5) & (sd < 1.5))


def test_more_draws_are_taken_near_a_threshold_only() -> None:
    sizes = {ratio: look(gaussian(MEAN, FACTOR * ratio)).num_draws for ratio in (1.0, 1.1, 1.4)}
    assert sizes[1.4] <= sizes[1.0] <= 1024 < sizes[1.1]


def test_what_is_read_may_be_any_function() -> None:
    """The sd of e^b grows more than that of b: it is what the user reads that counts."""
    found = look(gaussian(MEAN, FACTOR * 1.08), read=lambda theta: np.exp(theta))
    expected = 0.5 * np.log(np.expm1(1.08**2) * np.exp(1.08**2) / (np.expm1(1.0) * np.exp(1.0)))
    np.testing.assert_allclose(found.change, expected, atol=4 * found.change_error.max() + 0.02)
    assert found.off and not look(gaussian(MEAN, FACTOR * 1.08)).off


def test_tails_heavier_than_a_gaussians_get_a_wider_proposal() -> None:
    """Weights p/q have no mean here, however close the two are; a k above 0.7 must not stand beside "good"."""

    def heavy(theta: np.ndarray) -> np.ndarray:
        z = np.linalg.solve(FACTOR, (theta - MEAN).T).T
        return scipy.stats.t.logpdf(z, 40.0).sum(axis=1)

    found = look_closer(heavy, MEAN, FACTOR, lambda theta: theta, np.eye(2), 4096)
    assert found is not None and not found.off and found.k < thresholds.LARGEST_K
    np.testing.assert_allclose(np.exp(found.change), np.sqrt(40 / 38), atol=0.03)


@pytest.mark.parametrize("k", [0.3, 0.8, 1.45])
def test_good_never_stands_beside_a_heavy_tail(k: float) -> None:
    zeros = np.zeros(2)
    shape = Shape(zeros, zeros + 0.01, zeros, zeros + 0.01, k, 4000.0, 4096, np.zeros((0, 2)), zeros)
    verdict = judge_shape(shape, NAMES, "cure")
    assert (verdict.level == "good") == (k < thresholds.LARGEST_K)
    assert not any(word in reason for reason in verdict.reasons for word in ("Pareto", "nats", "worth", "omega"))
    assert dict(verdict.numbers)["Pareto k of the check"] == k


def test_a_density_that_is_nowhere_finite() -> None:
    assert look_closer(lambda theta: np.full(len(theta), -np.inf), MEAN, FACTOR, lambda t: t, np.eye(2)) is None
    assert judge_shape(None, NAMES, "cure").level == "use with care"
