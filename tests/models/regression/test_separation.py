"""Separation is found by a linear program, which is not asked where a bound says that there is none."""

import numpy as np
import pytest

from natvi.models.regression import separation
from natvi.models.regression.separation import most_apart, separating_direction


def some_data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very different sizes, some collinear or rare, with responses that they tell more or less apart."""
    n, p = int(rng.integers(5, 150)), int(rng.integers(1, 7))
    X = np.column_stack([np.ones(n), rng.normal(size=(n, p)) * 10.0 ** rng.integers(-3, 4, size=p)])
    if rng.random() < 0.3:
        X = np.column_stack([X, X[:, 1] + X[:, 0]])
    if rng.random() < 0.3:
        X = np.column_stack([X, rng.random(n) < 0.1])
    beta = rng.normal(size=X.shape[1]) * rng.choice([0, 1, 5, 100]) / (1e-12 + np.abs(X).max(axis=0))
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ beta))).astype(float)


def test_the_bound_never_contradicts_the_linear_program(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, spared, apart = np.random.default_rng(20), 0, 0
    for _ in range(120):
        X, y = some_data(rng)
        quick = separating_direction(X, y)
        with monkeypatch.context() as slow:
            slow.setattr(separation, "most_apart", lambda sides: np.inf)
            exact = separating_direction(X, y)
        assert (quick is None) == (exact is None)
        apart += exact is not None
        spared += most_apart(np.concatenate([X[y > 0], -X[y < 1]])) < 1e-6
    assert apart > 20 and spared > 30


def test_proportions_and_few_rows() -> None:
    X = np.column_stack([np.ones(3), [0.0, 1.0, 2.0]])
    assert separating_direction(X, np.array([0.2, 0.5, 0.9])) is None
    assert separating_direction(X, np.array([0.0, 1.0, 1.0])) is not None
