"""Responses of every family: what becomes of them, and what is said of those that do not fit."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from natvi.models.regression.response import FAMILY_NAMES, Response, encode_response, row_weights


def encode(values, family: str, trials=None) -> Response:
    counts = None if trials is None else np.asarray(trials, dtype=float)
    return encode_response(pd.Series(values), "y", family, counts)


ZEROS = r"2 value\(s\) of 4.*e.g. 0 in row 0"
REFUSED = {
    "gamma": f"{ZEROS}.*family='gaussian'",
    "lognormal": f"{ZEROS}.*family='gaussian'",
    "exponential": f"{ZEROS}.*half a unit",
    "weibull": f"{ZEROS}.*half a unit",
    "beta": r"4 value\(s\) of 4.*family='bernoulli'",
}


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_family_takes_zero_and_one_or_says_why_not(family):
    if family in REFUSED:
        with pytest.raises(ValueError, match=rf"'y' holds {REFUSED[family]}"):
            encode([0, 1, 0, 1], family)
        return
    response = encode([0, 1, 0, 1], family)
    np.testing.assert_array_equal(response.values, [0.0, 1.0, 0.0, 1.0])
    assert response.values.dtype == np.float64
    assert (response.trials is None) == (family != "binomial")


def test_a_binomial_is_a_bernoulli_of_weight_n_and_a_constant():
    y, n, eta = np.array([0.0, 3.0, 5.0, 40.0]), np.array([4.0, 5.0, 5.0, 1000.0]), np.array([-1.0, 0.3, 2.0, -3.0])
    response = encode(y, "binomial", n)
    assert response.trials is not None and response.log_choose is not None
    bernoulli = response.values * eta - np.logaddexp(0, eta)
    expected = binom.logpmf(y, n, 1 / (1 + np.exp(-eta)))
    np.testing.assert_allclose(response.trials * bernoulli + response.log_choose, expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("values", "notes"),
    [([0, 1, 1], 1), ([True, False, True], 2), (["no", "yes", "yes"], 2)],
    ids=["numbers", "booleans", "text"],
)
def test_binomial_without_trials_means_one_trial_each(values, notes):
    response = encode(values, "binomial")
    assert len(response.notes) == notes and "one trial in each row" in response.notes[-1]
    assert response.trials is not None and response.log_choose is not None
    np.testing.assert_array_equal(response.trials, 1.0)
    np.testing.assert_array_equal(response.log_choose, 0.0)


def test_equal_proportions_can_be_learned_from():
    np.testing.assert_array_equal(encode([1, 2], "binomial", [2, 4]).values, 0.5)


@pytest.mark.parametrize(
    ("values", "family", "message"),
    [
        ([0, 1, 3], "binomial", r"without trials must be 0 or 1; 'y' also holds 3.*p\(y, n\)"),
        ([0, 0.5, 1], "binomial", r"p\(y\*n, n\) for proportions"),
        (["a", "b", "c"], "binomial", "A binomial response needs two levels"),
        ([1, 1, 1], "binomial", "nothing to learn"),
        ([0, 1, 3], "bernoulli", r"p\(y, n\) and family='binomial'"),
        ([0, -1, 3], "negative_binomial", "A negative_binomial response must be a count.*1 negative"),
        ([0, 1.5, 3], "negative_binomial", "not whole numbers, e.g. 1.5"),
        ([2.0, -1.0, 3.0], "gamma", "1 value.* -1 in row 1"),
        ([2.0, np.inf, 3.0], "gamma", "1 infinite"),
        ([2.0, 2.0], "gamma", "nothing to learn"),
        (["a", "b"], "gamma", "must be numeric"),
        ([0, 1], "gama", "Unknown family 'gama'. Did you mean 'gamma'"),
    ],
)
def test_refused(values, family, message):
    with pytest.raises(ValueError, match=message):
        encode(values, family)


def test_trials_of_another_length_or_not_finite():
    with pytest.raises(ValueError, match="3 numbers of trials for 2 rows"):
        encode([1, 2], "binomial", [2, 3, 4])
    with pytest.raises(ValueError, match=r"1 of 2 rows.*not finite"):
        encode([1, 2], "binomial", [2, np.nan])


def test_row_weights():
    a, b = np.array([2.0, 3.0]), np.array([0.5, 1.0])
    assert row_weights(None, None) is None
    assert row_weights(a, None) is a and row_weights(None, b) is b
    np.testing.assert_array_equal(row_weights(a, b), [1.0, 3.0])
