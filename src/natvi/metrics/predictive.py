"""Quality of predictions on data that were not fitted: test log-likelihood, accuracy, calibration.

Draws are an array or a pytree of arrays with the draws along the first axis. They are worked through in chunks, so that
only `chunk` times the number of test rows is held at once.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np


def test_log_likelihood(log_density_of_rows: Callable[[Any], Any], draws: Any, *, chunk: int = 100) -> float:
    """Return the mean over test rows of log{ (1 / S) sum_s p(y_k | theta_s) }.

    Args:
        log_density_of_rows: Takes a chunk of draws (s along the first axis) and returns log p(y_k | theta_s) as
            `(s, K)`, K test rows, with all constants. Of a function of one draw make it by `jax.vmap`.
        draws: S draws of the parameters: `(S, d)`, or a pytree whose leaves have S along the first axis.
        chunk: Draws that are passed at once.

    Returns:
        The test log-likelihood per row.

    Raises:
        ValueError: There is no draw, or the function returns another shape.

    Example:
        >>> y = np.array([0.0, 1.0])
        >>> rows = lambda mean: -0.5 * (y - mean) ** 2 - 0.5 * np.log(2 * np.pi)  # mean is (s, 1)
        >>> round(test_log_likelihood(rows, np.array([[0.0], [1.0]])), 4)
        -1.138

    Paper: Section 8, the displayed formula of tll.
    """
    # log (1/S) sum_s exp(l_ks), as a running log-sum-exp over chunks
    total, num_draws = None, 0
    for part, size in _chunks(draws, chunk):
        values = _rows(log_density_of_rows(part), size)
        summed = np.logaddexp.reduce(values, axis=0)
        if total is not None and total.shape != summed.shape:
            raise ValueError(f"The number of test rows changed between chunks, from {len(total)} to {len(summed)}.")
        total = summed if total is None else np.logaddexp(total, summed)
        num_draws += size
    assert total is not None
    return float(np.mean(total - np.log(num_draws)))


def predictive_probabilities(
    probabilities_of_rows: Callable[[Any], Any], draws: Any, *, chunk: int = 100
) -> np.ndarray:
    """Return the mean over draws of the rows' probabilities: the posterior predictive.

    Args:
        probabilities_of_rows: Takes a chunk of draws and returns `(s, K)`, the probability of class 1, or
            `(s, K, classes)`.
        draws: As for `test_log_likelihood`.
        chunk: Draws that are passed at once.

    Returns:
        `(K,)` or `(K, classes)`.

    Example:
        >>> predictive_probabilities(lambda p: p, np.array([[0.2, 0.4], [0.4, 0.8]])).round(2).tolist()
        [0.3, 0.6]
    """
    total, num_draws = None, 0
    for part, size in _chunks(draws, chunk):
        values = np.asarray(probabilities_of_rows(part), dtype=np.float64)
        if values.ndim not in (2, 3) or len(values) != size:
            raise ValueError(
                f"The function must return (draws, rows) or (draws, rows, classes) for {size} draws; got shape "
                f"{values.shape}."
            )
        summed = values.sum(axis=0)
        total = summed if total is None else total + summed
        num_draws += size
    assert total is not None
    return total / num_draws


def accuracy(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of rows whose most likely class is the true one.

    Args:
        probabilities: Predictive probability of class 1, `(K,)`, or of every class, `(K, classes)`.
        labels: True classes 0, 1, ..., `(K,)`.

    Returns:
        A number between 0 and 1; the paper prints it as a percentage.

    Example:
        >>> accuracy(np.array([0.2, 0.9, 0.6, 0.4]), np.array([0, 1, 0, 0]))
        0.75

    Paper: Section 8, acc.
    """
    _, correct = _verdicts(probabilities, labels)
    return float(correct.mean())


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, *, num_bins: int = 15) -> float:
    """Return the expected calibration error: how far confidence and accuracy lie apart.

    Rows are sorted into bins of equal width by the probability of their most likely class; the result is
    sum_b (n_b / K) |accuracy_b - mean confidence_b|.

    Args:
        probabilities: As for `accuracy`.
        labels: As for `accuracy`.
        num_bins: Bins on [0, 1].

    Returns:
        A number between 0 (calibrated) and 1.

    Example:
        >>> round(calibration_error(np.full(4, 0.75), np.array([1, 1, 1, 1])), 2)
        0.25
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1; got {num_bins}.")
    confidence, correct = _verdicts(probabilities, labels)
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    gaps = np.bincount(bins, weights=correct - confidence, minlength=num_bins)
    return float(np.abs(gaps).sum() / len(bins))


def _verdicts(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of the most likely class, and whether it is the true one."""
    table = np.asarray(probabilities, dtype=np.float64)
    labels = np.asarray(labels)
    if table.ndim == 1:
        table = np.column_stack([1 - table, table])
    if table.ndim != 2 or labels.shape != (len(table),) or not len(table):
        raise ValueError(
            f"Probabilities must be (rows,) or (rows, classes) and labels (rows,), with at least one row; got "
            f"{np.shape(probabilities)} and {labels.shape}."
        )
    if not (table.min() >= 0 and table.max() <= 1 + 1e-6):
        raise ValueError("Probabilities must lie between 0 and 1. Were log-probabilities or linear predictors given?")
    if not np.isin(labels, np.arange(table.shape[1])).all():
        raise ValueError(
            f"Labels must be 0, ..., {table.shape[1] - 1}, one for each class; got {np.unique(labels)[:5].tolist()}. "
            "Recode -1 and 1 as 0 and 1."
        )
    return table.max(axis=1), table.argmax(axis=1) == labels


def _chunks(draws: Any, chunk: int) -> Iterator[tuple[Any, int]]:
    leaves = jax.tree.leaves(draws)
    sizes = {np.shape(leaf)[:1] for leaf in leaves}
    if len(sizes) != 1 or sizes & {(), (0,)}:
        raise ValueError(
            "Draws must be an array, or a pytree of arrays, with the same number of draws (at least one) along the "
            f"first axis; got shapes {[np.shape(leaf) for leaf in leaves][:5]}."
        )
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1; got {chunk}.")
    ((num_draws,),) = sizes
    for start in range(0, num_draws, chunk):
        stop = min(start + chunk, num_draws)
        yield jax.tree.map(lambda leaf, start=start, stop=stop: leaf[start:stop], draws), stop - start


def _rows(values: Any, size: int) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or len(values) != size or not values.shape[1]:
        raise ValueError(
            f"log_density_of_rows must return one row for each of {size} draws and one column for each test row; got "
            f"shape {values.shape}. Wrap a function of a single draw in jax.vmap."
        )
    return values
