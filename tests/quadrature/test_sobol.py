"""The Sobol sequence is SciPy's, to the last bit."""

import numpy as np
import pytest
from scipy.stats import qmc

from natvi.quadrature import sobol as module
from natvi.quadrature.sobol import sobol


@pytest.mark.parametrize("dimension", [1, 2, 5, 40, 300])
def test_the_points_are_those_of_scipy(dimension: int) -> None:
    for count in (1, 64, 1024):
        expected = qmc.Sobol(dimension, scramble=False).random(count)
        np.testing.assert_array_equal(sobol(dimension, count), expected)


def test_scipy_is_asked_where_its_file_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sobol(3, 8)
    monkeypatch.setattr(module, "FILE", ("stats", "of_another_version.npz"))
    module._directions.cache_clear()
    try:
        assert module._directions(3) is None
        np.testing.assert_array_equal(sobol(3, 8), expected)
    finally:
        module._directions.cache_clear()
