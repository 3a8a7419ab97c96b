"""The four data sets of Table 10: two simulations and two real ones, each ready to fit."""

from functools import cache
from typing import NamedTuple

import numpy as np

from natvi import data

SIMULATED_ROWS, INPUTS = 100_000, 100
DATA_SEED = 20_240_701


class DeepProblem(NamedTuple):
    """Rows to fit and rows to test, and how long and in what batches a run goes."""

    name: str
    response: str
    X: np.ndarray
    y: np.ndarray
    test_X: np.ndarray
    test_y: np.ndarray
    batch: int
    vogn_batch: int
    epochs: int
    relevant: int  # the first so many inputs matter; 0 where nobody knows


def simulate_binary(rng: np.random.Generator, n: int, p: int = INPUTS) -> tuple[np.ndarray, np.ndarray]:
    """y = 1{ 5 - 2 (x1 + 2 x2)^2 + 4 x3 x4 + 3 x5 >= 0 }, inputs uniform on (-1, 1)."""
    X = rng.uniform(-1, 1, size=(n, p))
    score = 5 - 2 * (X[:, 0] + 2 * X[:, 1]) ** 2 + 4 * X[:, 2] * X[:, 3] + 3 * X[:, 4]
    return X, (score >= 0).astype(np.float64)


def simulate_real(rng: np.random.Generator, n: int, p: int = INPUTS) -> tuple[np.ndarray, np.ndarray]:
    """Return the second simulation: normal inputs with correlations 0.5^|i-j|, ten of them relevant, noise N(0, 1)."""
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = X[:, :10].T
    y = 5 + 10 * x1 + 10 / (x2**2 + 1) + 5 * x3 * x4 + 2 * x4 + 5 * x4**2 + 5 * x5 + 2 * x6
    y += 10 / (x7**2 + 1) + 5 * x8 * x9 + 5 * x9**2 + 5 * x10 + rng.normal(size=n)
    return X, y


@cache
def problem(name: str, quick: bool = False) -> DeepProblem:
    """Return a data set by its column in Table 10: "binary", "a9a", "real" or "protein"."""
    rng = np.random.default_rng(DATA_SEED)
    share = 50 if quick else 1
    if name in ("binary", "real"):
        simulate = simulate_binary if name == "binary" else simulate_real
        n = SIMULATED_ROWS // share
        (X, y), (test_X, test_y) = simulate(rng, n), simulate(rng, n)
        kind, relevant = ("bernoulli", 5) if name == "binary" else ("normal", 10)
        return DeepProblem(name, kind, X, y, test_X, test_y, 5000 // share, 50, 20 if quick else 500, relevant)
    if name == "a9a":
        train, test = data.load_a9a()
        # without the intercept: the net has biases
        few, test_few = len(train.X) // share, len(test.X) // share
        parts = (train.X[:few, 1:], train.y[:few], test.X[:test_few, 1:], test.y[:test_few])
        return DeepProblem(name, "bernoulli", *parts, 2036 // share, 100, 5 if quick else 100, 0)
    frame = data.load_protein()
    order = rng.permutation(len(frame))[: len(frame) // share]
    X, y = frame.drop(columns="RMSD").to_numpy()[order], frame["RMSD"].to_numpy()[order]
    cut = int(0.8 * len(order))
    return DeepProblem(
        *(name, "normal", X[:cut], y[:cut], X[cut:], y[cut:]), 4573 // share, 34, 10 if quick else 1000, 0
    )
