"""SciPy's functions under their names, imported late."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.special

from natvi import special


@pytest.mark.parametrize("p", [1e-300, 1e-9, 0.025, 0.5, 0.975, 1 - 1e-12, 0.0, 1.0])
def test_single_quantiles_are_those_of_scipy(p: float) -> None:
    assert special.ndtri(p) == pytest.approx(scipy.special.ndtri(p), rel=1e-12)
    assert special.ndtri(np.array([p]))[0] == scipy.special.ndtri(p)


@pytest.mark.parametrize("df", [1, 2, 3.0, 4.0, 7, 8, 30, 31, 2.5])
def test_quantiles_of_t(df: float) -> None:
    for p in (0.5, 0.6, 0.95, 0.975, 0.9995, 0.3, 1.0):
        assert special.stdtrit(df, p) == pytest.approx(scipy.special.stdtrit(df, p), rel=1e-9, abs=1e-12)


def test_log_odds() -> None:
    for p in (1e-300, 0.2, 0.5, 1 - 1e-12, np.array([0.1, 0.7])):
        np.testing.assert_allclose(special.logit(p), scipy.special.logit(p), rtol=1e-12)


def test_the_gamma_function() -> None:
    for x in (0.1, 1, 2.5, 170.0, 1e6, -0.5, np.array([1.0, 3.0])):
        np.testing.assert_allclose(special.gammaln(x), scipy.special.gammaln(x), rtol=1e-13, atol=1e-14)


def test_the_others_are_scipys() -> None:
    for name, arguments in {"betaln": (2.0, 3.0), "gammaincinv": (3.0, 0.9), "polygamma": (1, 2.5)}.items():
        assert getattr(special, name)(*arguments) == getattr(scipy.special, name)(*arguments)


def test_a_quantile_imports_nothing() -> None:
    code = "from natvi.special import ndtri\nndtri(0.975)\nimport sys\nassert 'scipy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
