"""Maximum mean discrepancy between two samples, and the measure that the paper makes of it.

Plain NumPy in float64: all the work is one matrix product, so that draws may be wide (many thousand coordinates).
"""

from typing import NamedTuple

import numpy as np

# The paper's guard inside the logarithm; it caps the measure at -log(1e-5) = 11.5.
FLOOR = 1e-5


class MmdMeasure(NamedTuple):
    """The measure M over repeated evaluations; higher is better."""

    mean: float
    sd: float  # of one evaluation, not of the mean


def squared_mmd(x: np.ndarray, y: np.ndarray) -> float:
    """Estimate the squared maximum mean discrepancy between the laws of two samples of equal size.

    With k(a, b) = exp(-|a - b|^2 / m), m the median of |a - b|^2 over all pairs of the 2 S pooled points,

        1 / (S (S - 1)) * sum_{i != j} { k(x_i, x_j) + k(y_i, y_j) - k(x_i, y_j) - k(x_j, y_i) },

    an unbiased estimate for fixed m; it may be negative. The pairs (x_i, y_i) are left out, so rows must be in
    random order.

    Args:
        x: One draw in each row, `(S, d)`, S at least 2.
        y: Likewise, the same shape.

    Returns:
        The estimate.

    Raises:
        ValueError: The shapes do not fit, a draw is not finite, or most points coincide.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(2, 500, 3))
        >>> abs(squared_mmd(x, y)) < 0.01 < squared_mmd(x, y + 1)
        True

    Paper: Section 8, the displayed formula of MMD. The paper does not name the kernel's width; the median is ours.
    """
    x, y = _draws(x, "x"), _draws(y, "y")
    if x.shape != y.shape or len(x) < 2:
        raise ValueError(
            f"squared_mmd needs two samples of equal shape with at least two draws; got {x.shape} and {y.shape}. "
            "Take random subsets of equal size, as mmd_measure does."
        )
    S = len(x)
    squares = squared_distances(np.concatenate([x, y]))
    width = np.median(squares[np.tri(2 * S, k=-1, dtype=bool)])
    if width == 0:
        raise ValueError(
            "More than half of the pairs of draws coincide, so the kernel has no width. Look at the draws: a chain "
            "that is stuck repeats the same point."
        )
    kernel = np.exp(squares / -width)
    within = kernel[:S, :S] + kernel[S:, S:]
    between = kernel[:S, S:]
    total = within.sum() - np.trace(within) - 2 * (between.sum() - np.trace(between))
    return float(total / (S * (S - 1)))


def squared_distances(points: np.ndarray) -> np.ndarray:
    """Return |p_i - p_j|^2 for all pairs of rows, by one matrix product.

    |p_i - p_j|^2 = |p_i|^2 + |p_j|^2 - 2 p_i'p_j. Columns are centred first: far from the origin the three parts are
    large and nearly cancel.

    Args:
        points: `(n, d)`.

    Returns:
        `(n, n)`, symmetric, zero on the diagonal, nowhere negative.
    """
    centred = points - points.mean(axis=0)
    gram = centred @ centred.T
    norms = np.diagonal(gram)
    squares = np.maximum(norms[:, None] + norms - 2 * gram, 0.0)
    np.fill_diagonal(squares, 0.0)
    return squares


def mmd_measure(
    draws_a: np.ndarray, draws_b: np.ndarray, *, size: int = 1000, evaluations: int = 50, seed: int = 0
) -> MmdMeasure:
    """Return the paper's measure of accuracy, M = -log{ max(MMD, 0) + 1e-5 }, averaged over random subsets.

    Every evaluation takes `size` draws of each sample, without replacement, and estimates the squared discrepancy.
    Two samples of one law score about 10 at size 1000; the ceiling is 11.5. Near it a single evaluation has a
    standard deviation of about 1.6, since the estimate is then mostly noise around zero. The kernel is on the raw
    scale of the coordinates: those with large variance dominate.

    Args:
        draws_a: One draw in each row, `(draws, d)`.
        draws_b: Likewise, of the same d; the number of draws may differ.
        size: Draws per evaluation.
        evaluations: How many subsets.
        seed: The same seed gives the same subsets.

    Returns:
        Mean and standard deviation of M over the evaluations.

    Raises:
        ValueError: A sample is smaller than `size`, or the shapes do not fit.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> a, b = rng.normal(size=(2, 2000, 3))
        >>> near = mmd_measure(a, b, size=200, evaluations=5)
        >>> far = mmd_measure(a, b + 1, size=200, evaluations=5)
        >>> near.mean > 5 > far.mean
        True

    Paper: Section 8, M and its average over 50 evaluations with S = 1000 (Tables 8 and 11).
    """
    draws_a, draws_b = _draws(draws_a, "draws_a"), _draws(draws_b, "draws_b")
    if draws_a.shape[1] != draws_b.shape[1]:
        raise ValueError(
            f"Both samples need the same coordinates; got {draws_a.shape[1]} and {draws_b.shape[1]} columns."
        )
    for name, draws in (("draws_a", draws_a), ("draws_b", draws_b)):
        if not 2 <= size <= len(draws):
            raise ValueError(
                f"size must lie between 2 and the number of draws; got size={size}, and {name} has {len(draws)} rows. "
                "Draw more, or give a smaller size."
            )
    if evaluations < 1:
        raise ValueError(f"evaluations must be at least 1; got {evaluations}.")
    rng = np.random.default_rng(seed)
    values = np.empty(evaluations)
    for k in range(evaluations):
        x = draws_a[rng.choice(len(draws_a), size, replace=False)]
        y = draws_b[rng.choice(len(draws_b), size, replace=False)]
        # M = -log{ max(MMD, 0) + 1e-5 }
        values[k] = -np.log(max(squared_mmd(x, y), 0.0) + FLOOR)
    sd = float(values.std(ddof=1)) if evaluations > 1 else float("nan")
    return MmdMeasure(float(values.mean()), sd)


def _draws(draws: np.ndarray, name: str) -> np.ndarray:
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim != 2:
        raise ValueError(
            f"{name} must be a matrix with one draw in each row; got shape {draws.shape}. "
            "Merge chains first, and give a single variable as a column: draws[:, None]."
        )
    if not np.isfinite(draws).all():
        raise ValueError(
            f"{name} holds values that are not finite. Remove those draws and find out where they came from."
        )
    return draws
