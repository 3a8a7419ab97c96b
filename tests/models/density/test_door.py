"""The function door: known posteriors, constraints, corrected draws, resuming, honesty, and clear answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natvi
from natvi.models.density.space.parameters import Parameters

COVARIANCE = np.array([[4.0, 1.9, 0.0], [1.9, 1.0, 0.1], [0.0, 0.1, 0.25]])
PRECISION = np.linalg.inv(COVARIANCE)


def gaussian(theta):
    error = theta - jnp.array([1.0, -2.0, 30.0])
    return -0.5 * error @ jnp.asarray(PRECISION) @ error


def test_a_gaussian_is_found_exactly():
    result = natvi.fit(gaussian, jnp.zeros(3))
    assert result.outcome == "converged" and result.trust == "good" and result.method == "gaussian"
    np.testing.assert_allclose(result.model.mean, [1.0, -2.0, 30.0], atol=1e-3)
    np.testing.assert_allclose(result.model.factor @ result.model.factor.T, COVARIANCE, rtol=1e-3, atol=1e-3)
    log_norm = 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]
    assert result.elbo == pytest.approx(log_norm, abs=1e-5)
    assert np.array_equal(result.model.mean, natvi.fit(gaussian, jnp.zeros(3)).model.mean)


def test_a_logistic_regression_agrees_with_the_formula_door(tmp_path):
    crabs = natvi.data.load_crabs()
    formula = natvi.glm("y ~ width", crabs, family="bernoulli", prior={"Intercept": 20.0, "width": 2.0}).fit()
    x, y = jnp.asarray(crabs["width"].to_numpy()), jnp.asarray(crabs["y"].to_numpy(dtype=float))

    def logdensity(p):
        eta = p["a"] + p["b"] * x
        prior = -0.5 * (p["a"] / 20) ** 2 - 0.5 * (p["b"] / 2) ** 2 - jnp.log(20 * 2 * 2 * jnp.pi)
        return jnp.sum(y * eta - jnp.logaddexp(0.0, eta)) + prior

    result = natvi.fit(logdensity, {"a": 0.0, "b": 0.0})
    assert result.elbo == pytest.approx(formula.elbo, abs=max(1e-3, 4 * result.elbo_se))
    np.testing.assert_allclose(result.summary(), formula.summary(), rtol=2e-2)  # wider by the linear response
    assert "Model against the data" not in repr(result) and "fixed points" in repr(result)
    again = natvi.load(result.save(tmp_path / "fit.natvi"))
    assert repr(again) == repr(result)
    on = natvi.fit(logdensity, {"a": 0.0, "b": 0.0}, state=result.state)
    assert on.elbo == pytest.approx(result.elbo, abs=1e-5)


def test_a_fit_that_stops_early_goes_on_to_the_same_bits(tmp_path):
    def logdensity(p):
        return -0.5 * jnp.sum((p - 3.0) ** 2 / jnp.array([1.0, 100.0])) - 0.1 * jnp.sum(jnp.cosh(p / 5))

    whole = natvi.fit(logdensity, jnp.zeros(2))
    part = natvi.fit(logdensity, jnp.zeros(2), max_steps=3, checkpoint=tmp_path / "c")
    assert part.outcome == "max_steps" and part.trust != "good"
    on = natvi.fit(logdensity, jnp.zeros(2), state=part.state)
    kept = natvi.fit(logdensity, jnp.zeros(2), checkpoint=tmp_path / "c")
    assert on.outcome == "converged" == kept.outcome
    np.testing.assert_array_equal(on.model.mean, kept.model.mean)
    np.testing.assert_allclose(on.model.mean, whole.model.mean, atol=1e-3)
    with pytest.raises(ValueError, match=r"result\.state of an earlier fit"):
        natvi.fit(logdensity, jnp.zeros(2), state=3)


def test_constrained_parameters_are_read_in_the_users_space(tmp_path):
    y = np.random.default_rng(0).normal(2.0, 3.0, 60)

    def logdensity(p):
        return jnp.sum(-0.5 * ((y - p["mean"]) / p["sd"]) ** 2) - 60 * jnp.log(p["sd"]) - jnp.log(p["sd"])

    result = natvi.fit(logdensity, {"mean": 0.0, "sd": 1.0}, constrain={"sd": "positive"})
    # a t distribution, and an inverse gamma of the variance
    table = result.summary()
    assert table.loc["mean", "mean"] == pytest.approx(y.mean(), abs=0.05)
    variance = 1.0 / np.random.default_rng(1).gamma(59 / 2, 2 / np.sum((y - y.mean()) ** 2), 100_000)
    assert table.loc["sd", "mean"] == pytest.approx(np.sqrt(variance).mean(), rel=0.01)
    assert table.loc["sd", "sd"] == pytest.approx(np.sqrt(variance).std(), rel=0.08)
    assert result.trust == "good" and np.all(result.sample(50)["sd"] > 0)
    again = natvi.load(result.save(tmp_path / "fit.natvi"))
    np.testing.assert_array_equal(again.sample(5)["sd"], result.sample(5)["sd"])


def test_a_function_says_what_free_parameters_mean(tmp_path):
    result = natvi.fit(
        lambda p: -0.5 * (p["log_sd"] / 0.1) ** 2, {"log_sd": 0.0}, constrain=lambda p: {"sd": jnp.exp(p["log_sd"])}
    )
    assert list(result.sample(3)) == ["sd"]
    assert result.summary().loc["sd", "mean"] == pytest.approx(np.exp(0.005), rel=2e-3)
    again = natvi.load(result.save(tmp_path / "fit.natvi"))  # the function is not kept, draws are
    assert np.mean(again.sample(2000)["sd"]) == pytest.approx(np.exp(0.005), rel=1e-2)


def test_a_bent_posterior_is_corrected(tmp_path):
    def banana(x):
        return -0.5 * x[0] ** 2 - 0.5 * ((x[1] - 0.5 * (x[0] ** 2 - 1.0)) / 0.5) ** 2

    result = natvi.fit(banana, jnp.zeros(2))
    assert result.method == "psis" and result.trust == "good"
    table = result.summary()
    np.testing.assert_allclose(table["mean"], 0.0, atol=0.12)
    np.testing.assert_allclose(table["sd"], [1.0, np.sqrt(0.75)], rtol=0.1)
    assert repr(natvi.load(result.save(tmp_path / "fit.natvi"))) == repr(result)
    plain = natvi.fit(banana, jnp.zeros(2), method="gaussian")
    assert plain.method == "gaussian" and plain.trust != "good" and "method='psis'" in plain.trust_reasons[0]


def test_a_funnel_without_groups_is_not_called_good():
    """Turned in space, its Hessian shows no locals that could be straightened."""
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]

    def funnel(t):
        v, x = (turn @ t)[0], (turn @ t)[1:]
        return -0.5 * (v / 3) ** 2 - 0.5 * jnp.sum(x**2) * jnp.exp(-v) - 0.5 * 4 * v

    result = natvi.fit(funnel, jnp.zeros(5))
    assert result.trust != "good" and "method='nuts'" in " ".join(result.trust_reasons)
    assert result.sample(5)["theta"].shape == (5, 5)


def test_the_neck_of_a_funnel_is_not_passed_over():
    """Chains whose steps are too long for the neck agree with each other and miss it; standardised locals have none."""
    y = np.random.default_rng(3).normal(0.0, 0.9, (15, 4)) + 0.1 * np.random.default_rng(4).normal(size=(15, 1))

    def logdensity(p):
        prior = -0.5 * jnp.sum((p["u"] / p["tau"]) ** 2) - 15 * jnp.log(p["tau"]) - p["tau"]
        return jnp.sum(-0.5 * ((y - p["u"][:, None]) / 0.9) ** 2) + prior

    result = natvi.fit(logdensity, {"u": jnp.zeros(15), "tau": 1.0}, constrain={"tau": "positive"})
    grid = np.exp(np.linspace(-9, 2, 4000))  # u integrated out
    variance = grid**2 + 0.9**2 / 4
    means = y.mean(axis=1)
    log_p = -0.5 * np.sum(means**2) / variance - 7.5 * np.log(variance) - grid + np.log(grid)
    weight = np.exp(log_p - log_p.max()) / np.sum(np.exp(log_p - log_p.max()))
    mean = np.sum(weight * grid)
    sd = np.sqrt(np.sum(weight * (grid - mean) ** 2))
    found = result.summary().loc["tau"]
    assert result.trust == "good"
    assert abs(found["mean"] - mean) / sd < 0.1 and found["sd"] == pytest.approx(sd, rel=0.1)


def test_a_second_mode_that_is_met_is_reported():
    def two(x):
        return jax.nn.logsumexp(jnp.array([-0.5 * (x[0] + 4) ** 2, -0.5 * (x[0] - 4) ** 2])) - 0.5 * x[1] ** 2

    reasons = " ".join(natvi.fit(two, jnp.array([1.0, 0.0]), seed=1).trust_reasons)
    assert "ended at another mode, 8.0 posterior sds away" in reasons


def test_names_of_entries():
    assert Parameters(("a", "b"), ((), (2, 1))).entries == ["a", "b[0,0]", "b[1,0]"]


@pytest.mark.parametrize(
    ("logdensity", "init", "message"),
    [
        (lambda t: -(t**2), jnp.zeros(3), r"returned an array of shape \(3,\). Sum over"),
        (lambda t: None, 0.0, "returned nothing"),
        (lambda t: (-(t**2), 1.0), 0.0, "returned a tuple"),
        (lambda t: -(float(t) ** 2), 0.0, "cannot be traced by JAX"),
        (lambda t: -(np.exp(t) ** 2), 0.0, "cannot be traced by JAX"),
        (lambda t: jnp.sum(t["b"]), {"a": 0.0}, "KeyError"),
        (lambda t: -jnp.inf * (t**2 + 1), 0.0, "constraints of parameters by constrain="),
        (lambda t: jnp.asarray(1.0), 0.0, "does not depend on its parameters"),
        (lambda t: 3.0, 0.0, "does not depend on its parameters"),
        (lambda t: -(t**2) + np.random.default_rng().normal(), 0.0, "it is random"),
        (lambda t: -(t**2) + np.random.default_rng().normal() * t, 0.0, "it is random"),
        (lambda t: jnp.where(jnp.abs(t) < 1.0, 0.0, -jnp.inf), 0.0, "flat between walls"),
        (lambda t: -(t**2), 0, "Give floats"),
        (lambda t: -(t**2), True, "Give floats"),
        (lambda t: -(t**2), "a", "Give floats"),
        (lambda t: -(t**2), np.nan, "not finite"),
        (lambda t: 0.0, {}, "holds no parameters"),
        (lambda t: 0.0, jnp.zeros(0), "without entries"),
        (3.0, 0.0, "must be a function"),
    ],
)
def test_bad_input_gets_a_clear_answer(logdensity, init, message):
    with pytest.raises(ValueError, match=message):
        natvi.fit(logdensity, init)


def test_a_start_that_is_not_finite_is_left_and_said():
    result = natvi.fit(lambda t: 3.0 * jnp.log(t) - 3.0 * t, 0.0)
    assert "the log-density is -inf at init, or its gradient is not finite there" in " ".join(repr(result).split())


def test_a_wall_is_named_and_the_answer_is_kept():
    wall = natvi.fit(
        lambda p: jnp.where(p["a"] > 0, -0.5 * p["a"] ** 2, -jnp.inf) - 0.5 * p["b"] ** 2, {"a": 0.5, "b": 0.0}
    )
    reasons = " ".join(wall.trust_reasons)
    assert wall.trust == "use with care" and "ends at a wall, probably of a, which stops a climb" in reasons
    assert wall.summary().loc["a", "mean"] == pytest.approx(np.sqrt(2 / np.pi), abs=0.1)


def test_an_improper_density_ends_with_a_word():
    loose = natvi.fit(lambda p: -(p["a"] ** 2), {"a": 0.0, "b": jnp.zeros(2)})
    assert loose.outcome == "unbounded" and loose.trust == "do not use"
    assert "does not depend on b" in " ".join(loose.trust_reasons)
    rising = natvi.fit(lambda t: jnp.sum(t), jnp.zeros(2))
    assert rising.outcome == "unbounded" and "does not fall off" in " ".join(rising.trust_reasons)
    ridge = natvi.fit(lambda p: -0.5 * (p["a"] - p["b"]) ** 2 - p["c"] ** 2, {"a": 0.0, "b": 0.0, "c": 0.0})
    assert ridge.outcome == "unbounded" and "fall off along a, b: give a proper prior" in " ".join(ridge.trust_reasons)
    with np.errstate(over="raise"):  # nothing is warned of on the way
        assert natvi.fit(lambda t: jnp.exp(t), 0.0).trust == "do not use"


def test_tails_that_are_powers_are_noticed():
    cauchy = natvi.fit(lambda p: -jnp.log1p(p["x"] ** 2) - 0.5 * p["y"] ** 2, {"x": 0.0, "y": 0.0})
    reasons = " ".join(cauchy.trust_reasons)
    assert cauchy.trust != "good" and "along x fall off like those of a t distribution with 1.0" in reasons
    endless = natvi.fit(lambda t: -0.5 * jnp.log1p(t**2), 0.0)
    assert endless.trust == "do not use" and "give a proper prior" in " ".join(endless.trust_reasons)


def test_a_long_table_is_cut_where_it_is_printed():
    result = natvi.fit(lambda t: -0.5 * jnp.sum(t**2), jnp.zeros(70), structure="diagonal")
    assert "theta[59]" in repr(result) and "theta[60]" not in repr(result) and "and 10 more" in repr(result)
    assert len(result.summary()) == 70


def test_single_precision_is_noted():
    half = np.ones(3, np.float32)

    def logdensity(t):  # JAX refuses to mix widths here
        return -0.5 * jax.lax.dot(jax.lax.sub(t, half), jax.lax.sub(t, half))

    result = natvi.fit(logdensity, jnp.zeros(3))
    assert "single precision" in repr(result)
    np.testing.assert_allclose(result.model.mean, 1.0, atol=1e-2)
