"""Fits on minibatches: the answer of all rows, and clear answers for what is no sum over rows."""

import jax.numpy as jnp
import numpy as np
import pytest

import natvi

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3000, 2))
Y = (RNG.uniform(size=3000) < 1 / (1 + np.exp(-(X @ [1.0, -0.5] + 0.4)))).astype(float)
ROWS = {"X": X, "y": Y}
INIT = {"a": 0.0, "b": np.zeros(2)}


def logdensity(p, rows):
    eta = p["a"] + rows["X"] @ p["b"]
    return jnp.sum(rows["y"] * eta - jnp.logaddexp(0.0, eta)) - 0.5 * (p["a"] ** 2 + jnp.sum(p["b"] ** 2)) / 4


def test_batches_give_the_answer_of_all_rows(tmp_path):
    whole = natvi.fit(lambda p: logdensity(p, ROWS), INIT)
    part = natvi.fit(logdensity, INIT, data=ROWS, batch_size=300, max_steps=100)
    assert part.outcome == "max_steps" and part.trust != "good"
    result = natvi.fit(logdensity, INIT, data=ROWS, batch_size=300, state=part.state)
    assert result.outcome == "converged" and result.trust == "good" and "minibatches" in repr(result)
    ours, theirs = result.summary(), whole.summary()
    np.testing.assert_array_less(np.abs(ours["mean"] - theirs["mean"]) / theirs["sd"], 0.1)
    np.testing.assert_allclose(ours["sd"], theirs["sd"], rtol=0.1)
    assert result.elbo == pytest.approx(whole.elbo, abs=0.1 + 4 * result.elbo_se)
    assert repr(natvi.load(result.save(tmp_path / "fit.natvi"))) == repr(result)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda p, rows: jnp.mean(rows["y"] - p["a"]), {}, "is no sum over rows|cannot be computed"),
        (lambda p, rows: -jnp.sum(rows["y"] * p["a"]) / len(rows["y"] + 1) - p["a"] ** 2, {}, "sum"),
        (lambda p: -(p["a"] ** 2), {}, r"function of \(parameters, rows\)"),
        (lambda p, rows: -rows["y"] * p["a"], {}, "must return one number"),
        (3.0, {}, r"function of \(parameters, rows\)"),
        (logdensity, {"batch_size": 4000}, "batch_size must be a whole number from 1 to 3,000"),
        (logdensity, {"optimizer": "vogn"}, "optimizer must be one of 'snngm'"),
        (logdensity, {"structure": "arrow"}, "'auto', 'dense' or 'diagonal'"),
        (logdensity, {"method": "nuts"}, "a fit on minibatches gives a Gaussian"),
        (logdensity, {"data": {"y": ["a", "b"]}}, "an array of numbers"),
        (logdensity, {"data": {"y": Y, "X": X[:5]}}, "same number of rows"),
        (logdensity, {"data": None, "batch_size": 10}, "give the rows as data="),
    ],
)
def test_bad_input_gets_a_clear_answer(function, options, message):
    with pytest.raises(ValueError, match=message):
        natvi.fit(function, INIT, **({"data": ROWS} | options))
