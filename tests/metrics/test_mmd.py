"""The discrepancy against its double sum, and the measure against what it has to tell apart."""

import numpy as np
import pytest

from natvi.metrics import mmd_measure, squared_mmd
from natvi.metrics.mmd import squared_distances


def brute_force(x: np.ndarray, y: np.ndarray) -> float:
    """The paper's formula, term by term."""
    pooled = np.concatenate([x, y])
    n, S = len(pooled), len(x)
    width = np.median([np.sum((pooled[i] - pooled[j]) ** 2) for i in range(n) for j in range(i)])
    k = lambda a, b: np.exp(-np.sum((a - b) ** 2) / width)  # noqa: E731
    total = 0.0
    for i in range(S):
        for j in range(S):
            if i != j:
                total += k(x[i], x[j]) + k(y[i], y[j]) - k(x[i], y[j]) - k(x[j], y[i])
    return total / (S * (S - 1))


@pytest.mark.parametrize(("S", "d", "shift"), [(2, 1, 0.0), (5, 3, 0.5), (12, 2, -2.0), (9, 30, 0.1)])
def test_squared_mmd_is_the_double_sum(S, d, shift):
    x, y = np.random.default_rng(S).normal(size=(2, S, d))
    assert squared_mmd(x, y + shift) == pytest.approx(brute_force(x, y + shift), abs=1e-13)


def test_squared_mmd_of_four_points():
    # pairs of {0, 1, 2, 3}: squares 1, 1, 1, 4, 4, 9, median 2.5; x = (0, 1), y = (2, 3)
    k = lambda square: np.exp(-square / 2.5)  # noqa: E731
    x, y = np.array([[0.0], [1.0]]), np.array([[2.0], [3.0]])
    assert squared_mmd(x, y) == pytest.approx(2 * k(1) - k(9) - k(1))


def test_squared_mmd_is_unbiased_at_equal_laws():
    rng = np.random.default_rng(1)
    values = np.array([squared_mmd(*rng.normal(size=(2, 40, 4))) for _ in range(400)])
    assert abs(values.mean()) < 4 * values.std() / np.sqrt(len(values))
    assert values.min() < 0


def test_squared_mmd_estimates_the_integral():
    # for N(0, 1) and N(shift, 1): E k(a, b) = sqrt(w / (w + 4)) exp(-(mean difference)^2 / (w + 4)), w the width
    shift, S = 1.5, 100
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(300):
        x, y = rng.normal(size=(S, 1)), rng.normal(shift, size=(S, 1))
        w = np.median(squared_distances(np.concatenate([x, y]))[np.tri(2 * S, k=-1, dtype=bool)])
        errors.append(squared_mmd(x, y) - 2 * np.sqrt(w / (w + 4)) * (1 - np.exp(-(shift**2) / (w + 4))))
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(len(errors))


def test_distances_far_from_the_origin():
    points = np.random.default_rng(3).normal(size=(20, 4))
    exact = np.sum((points[:, None] - points) ** 2, axis=-1)
    far = squared_distances(points + 1e6)
    np.testing.assert_allclose(far, exact, atol=1e-8)
    assert np.all(far >= 0) and np.all(np.diagonal(far) == 0)


def test_measure_falls_as_the_mean_moves():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 6000, 5))
    scores = [mmd_measure(a, b + s * np.eye(5)[0], evaluations=8).mean for s in (0.0, 0.1, 0.3, 1.0)]
    assert 8.5 < scores[0] < -np.log(1e-5)
    assert all(np.diff(scores) < 0)


def test_measure_is_repeatable_and_has_its_ceiling():
    a, b = np.random.default_rng(5).normal(size=(2, 300, 2))
    first = mmd_measure(a, b, size=100, evaluations=5, seed=3)
    assert first == mmd_measure(a, b, size=100, evaluations=5, seed=3)
    assert first != mmd_measure(a, b, size=100, evaluations=5, seed=4)
    # the discrepancy of a sample from itself, in another order, is below zero: clipped
    same = mmd_measure(a, a, size=300, evaluations=2)
    assert same.mean == pytest.approx(-np.log(1e-5)) and same.sd == pytest.approx(0.0)


def test_wide_draws_of_single_precision():
    a, b = np.random.default_rng(6).normal(size=(2, 60, 4000)).astype(np.float32)
    assert np.isfinite(mmd_measure(a, b, size=50, evaluations=2).mean)


@pytest.mark.parametrize(
    ("a", "b", "size", "words"),
    [
        (np.zeros((5, 2)), np.zeros((5, 3)), 4, "same coordinates"),
        (np.eye(5), np.eye(5), 6, "draws_a has 5 rows. Draw more"),
        (np.zeros((2, 5, 3)), np.eye(3), 2, "one draw in each row"),
        (np.full((3, 3), np.nan), np.eye(3), 2, "not finite"),
        (np.zeros((5, 2)), np.zeros((5, 2)), 4, "pairs of draws coincide"),
    ],
)
def test_wrong_draws_are_explained(a, b, size, words):
    with pytest.raises(ValueError, match=words):
        mmd_measure(a, b, size=size, evaluations=1)


def test_unequal_samples_are_explained():
    with pytest.raises(ValueError, match="equal shape"):
        squared_mmd(np.eye(3), np.eye(3)[:2])
