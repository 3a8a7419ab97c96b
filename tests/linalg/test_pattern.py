"""Patterns: what is closed under products, and clear words about what is not."""

import numpy as np
import pytest

from natvi.gaussian import pattern_covariance
from natvi.linalg import ClosedPattern
from natvi.x64 import float64


def test_a_pattern_that_is_not_closed_is_explained():
    mask = np.eye(4)
    mask[2, 1] = mask[3, 2] = 1
    with pytest.raises(ValueError, match=r"not closed under products: \(3, 2\) and \(2, 1\) .* \(3, 1\) does not"):
        ClosedPattern.from_array(mask)
    closed = ClosedPattern.closure(mask)
    assert closed.mask[3, 1] and closed.num_entries == 7


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.ones((2, 3)), "square matrix"),
        (np.zeros((0, 0)), "square matrix"),
        (np.ones((2, 2)), r"entry \(0, 1\) lies above the diagonal"),
        (np.diag([1, 0, 1]), r"entry \(1, 1\) is missing"),
    ],
)
def test_bad_patterns_are_explained(mask, words):
    with pytest.raises(ValueError, match=words):
        ClosedPattern.from_array(mask)


def test_pattern_and_mean_must_agree():
    import jax.numpy as jnp

    with float64(), pytest.raises(ValueError, match="pattern is for 3 coordinates; the mean has 4"):
        pattern_covariance(jnp.zeros(4), np.eye(3))
