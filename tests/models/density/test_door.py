"""The function door: known Gaussians, a linear model known from another door, honesty, and clear answers."""

import jax.numpy as jnp
import numpy as np
import pytest

import natvi
from natvi.models.density.parameters import Parameters

COVARIANCE = np.array([[4.0, 1.9, 0.0], [1.9, 1.0, 0.1], [0.0, 0.1, 0.25]])
PRECISION = np.linalg.inv(COVARIANCE)


def gaussian(theta):
    error = theta - jnp.array([1.0, -2.0, 30.0])
    return -0.5 * error @ jnp.asarray(PRECISION) @ error


def test_a_gaussian_is_found_exactly():
    result = natvi.fit(gaussian, jnp.zeros(3))
    assert result.outcome == "converged" and result.trust == "good"
    np.testing.assert_allclose(result.model.mean, [1.0, -2.0, 30.0], atol=1e-4)
    np.testing.assert_allclose(result.model.factor @ result.model.factor.T, COVARIANCE, rtol=1e-4, atol=1e-4)
    log_norm = 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]
    assert result.elbo == pytest.approx(log_norm, abs=1e-6)


def test_a_logistic_regression_agrees_with_the_formula_door(tmp_path):
    crabs = natvi.data.load_crabs()
    formula = natvi.glm("y ~ width", crabs, family="bernoulli", prior={"Intercept": 20.0, "width": 2.0}).fit()
    x, y = jnp.asarray(crabs["width"].to_numpy()), jnp.asarray(crabs["y"].to_numpy(dtype=float))

    def logdensity(p):
        eta = p["a"] + p["b"] * x
        prior = -0.5 * (p["a"] / 20) ** 2 - 0.5 * (p["b"] / 2) ** 2 - jnp.log(20 * 2 * 2 * jnp.pi)
        return jnp.sum(y * eta - jnp.logaddexp(0.0, eta)) + prior

    result = natvi.fit(logdensity, {"a": 0.0, "b": 0.0})
    assert result.elbo == pytest.approx(formula.elbo, abs=1e-3)
    np.testing.assert_allclose(result.summary(), formula.summary(), rtol=2e-3)
    assert "Model against the data" not in repr(result) and "fixed points" in repr(result)
    again = natvi.load(result.save(tmp_path / "fit.natvi"))
    assert repr(again) == repr(result)
    on = natvi.fit(logdensity, {"a": 0.0, "b": 0.0}, state=result.state)
    assert on.elbo == pytest.approx(result.elbo, abs=1e-9)


def test_a_posterior_that_is_no_gaussian_is_said_to_be_none():
    def funnel(p):
        return -0.5 * (p["v"] / 3) ** 2 - 0.5 * jnp.sum(p["x"] ** 2) * jnp.exp(-p["v"]) - 0.5 * 4 * p["v"]

    result = natvi.fit(funnel, {"v": 0.0, "x": jnp.zeros(4)})
    assert result.trust != "good"
    assert list(result.sample(5)) == ["v", "x"] and result.sample(5)["x"].shape == (5, 4)


def test_names_of_entries():
    assert Parameters(("a", "b"), ((), (2, 1))).entries == ["a", "b[0,0]", "b[1,0]"]


@pytest.mark.parametrize(
    ("logdensity", "init", "message"),
    [
        (lambda t: -(t**2), jnp.zeros(3), r"returned an array of shape \(3,\). Sum over"),
        (lambda t: -(float(t) ** 2), 0.0, "cannot be traced by JAX"),
        (lambda t: jnp.log(t), 0.0, "is -inf at init"),
        (lambda t: -(t**2), 0, "Give floats"),
        (lambda t: -(t**2), np.nan, "not finite"),
        (lambda t: 0.0, {}, "holds no parameters"),
        (lambda t: -jnp.sum(t**2), jnp.zeros(2000), "1,000 are possible"),
    ],
)
def test_bad_input_gets_a_clear_answer(logdensity, init, message):
    with pytest.raises(ValueError, match=message):
        natvi.fit(logdensity, init)
