"""Smoothed weights of many rows: those of one row at a time, and those of ArviZ."""

import numpy as np
import pytest

from natvi.metrics.psis import smooth_weights
from natvi.metrics.psis_rows import smooth_rows


@pytest.mark.parametrize("num_draws", [40, 500])
def test_every_row_is_smoothed_as_if_alone(num_draws: int) -> None:
    from arviz_stats.base import array_stats

    rng = np.random.default_rng(0)
    ratios = rng.normal(size=(12, num_draws)) * np.linspace(0.01, 3.0, 12)[:, None] + 700.0
    values = rng.uniform(size=ratios.shape)
    found = smooth_rows(ratios, values)
    for row in range(len(ratios)):
        alone = smooth_weights(ratios[row])
        np.testing.assert_allclose(found.k[row], alone.k, atol=1e-9)
        np.testing.assert_allclose(found.effective[row], alone.effective, rtol=1e-9)
        np.testing.assert_allclose(found.mean[row], alone.weights @ values[row], rtol=1e-9)
    log_weights, k = map(np.asarray, array_stats.psislw(-ratios))
    np.testing.assert_allclose(found.k, k, atol=0.05)  # another grid for the fit of the tail
    np.testing.assert_allclose(found.mean, np.sum(np.exp(log_weights) * values, axis=1), rtol=0.01)


def test_rows_without_a_tail() -> None:
    values = np.linspace(0.0, 1.0, 200)[None]
    flat = smooth_rows(np.zeros((1, 200)), values)
    assert flat.k[0] == -1.0 and abs(flat.mean[0] - 0.5) < 1e-12 and round(float(flat.effective[0])) == 200
    few = smooth_rows(np.array([[0.0, np.nan, 1.0]]), np.array([[1.0, 100.0, 1.0]]))
    assert few.k[0] == np.inf and abs(few.mean[0] - 1.0) < 1e-12
