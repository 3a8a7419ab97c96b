"""Predictive measures against hand computations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from natvi.metrics import predictive
from natvi.metrics.predictive import accuracy, calibration_error, predictive_probabilities


def test_log_likelihood_by_hand():
    # p(y_1 | .) = 0.2, 0.4 and p(y_2 | .) = 0.5, 0.1 under two draws
    table = np.log([[0.2, 0.5], [0.4, 0.1]])
    value = predictive.test_log_likelihood(lambda draws: table[draws[:, 0]], np.array([[0], [1]]))
    assert value == pytest.approx((np.log(0.3) + np.log(0.3)) / 2)


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_log_likelihood_does_not_depend_on_chunks(chunk):
    rng = np.random.default_rng(0)
    y, draws = rng.normal(size=30), rng.normal(size=(25, 2))
    density = scipy.stats.norm.pdf(y, draws[:, :1], np.exp(draws[:, 1:]))
    rows = lambda part: scipy.stats.norm.logpdf(y, part[:, :1], np.exp(part[:, 1:]))  # noqa: E731
    expected = np.mean(np.log(density.mean(axis=0)))
    assert predictive.test_log_likelihood(rows, draws, chunk=chunk) == pytest.approx(expected, abs=1e-13)


def test_log_likelihood_of_a_pytree_by_vmap_and_far_in_the_tail():
    y = np.array([0.0, 60.0])  # exp(-1800) underflows

    def rows(draw):
        return -0.5 * (y - draw["mean"]) ** 2

    draws = {"mean": jnp.array([0.0, 1.0, 2.0])}
    expected = np.mean(np.logaddexp.reduce(-0.5 * (y - np.arange(3.0)[:, None]) ** 2, axis=0) - np.log(3))
    assert predictive.test_log_likelihood(jax.vmap(rows), draws, chunk=2) == pytest.approx(expected, rel=1e-6)


def test_a_draw_that_excludes_a_row_counts_as_zero():
    table = np.array([[-np.inf, 0.0], [0.0, 0.0]])
    value = predictive.test_log_likelihood(lambda rows: table[rows], np.arange(2), chunk=1)
    assert value == pytest.approx(np.log(0.5) / 2)


def test_probabilities_are_averaged_over_draws():
    draws = np.random.default_rng(1).normal(size=(11, 3))
    sigmoid = lambda eta: 1 / (1 + np.exp(-eta))  # noqa: E731
    np.testing.assert_allclose(predictive_probabilities(sigmoid, draws, chunk=4), sigmoid(draws).mean(axis=0))


def test_accuracy_of_two_and_of_many_classes():
    assert accuracy(np.array([0.6, 0.3, 0.9]), np.array([1, 1, 1])) == pytest.approx(2 / 3)
    table = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    assert accuracy(table, np.array([1, 2])) == 0.5


def test_calibration_error_by_hand():
    # confidence 0.9 twice, one right: |0.5 - 0.9|; confidence 0.6 twice, both right: |1 - 0.6|
    probabilities, labels = np.array([0.9, 0.1, 0.6, 0.4]), np.array([1, 1, 1, 0])
    assert calibration_error(probabilities, labels) == pytest.approx(0.4)


def test_calibration_error_vanishes_for_true_probabilities():
    rng = np.random.default_rng(2)
    p = rng.uniform(size=200_000)
    assert calibration_error(p, (rng.uniform(size=p.shape) < p).astype(int)) < 0.01


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: predictive.test_log_likelihood(lambda t: np.zeros(4), np.zeros((2, 1))), "jax.vmap"),
        (lambda: predictive.test_log_likelihood(lambda t: t, np.zeros((0, 1))), "at least one"),
        (lambda: predictive.test_log_likelihood(lambda t: t, {"a": np.zeros(2), "b": np.zeros(3)}), "same number"),
        (lambda: accuracy(np.array([0.5]), np.array([-1])), "Recode -1 and 1"),
        (lambda: accuracy(np.array([3.0]), np.array([1])), "between 0 and 1"),
        (lambda: accuracy(np.array([0.5, 0.5]), np.array([1])), r"\(2,\) and \(1,\)"),
        (lambda: calibration_error(np.array([0.5]), np.array([1]), num_bins=0), "num_bins"),
    ],
)
def test_wrong_input_is_explained(call, words):
    with pytest.raises(ValueError, match=words):
        call()
