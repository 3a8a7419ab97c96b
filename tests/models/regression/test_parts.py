"""Formulas of the dispersion and of zeros: R's estimates, models they contain, dense quadrature, questions, files."""

from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logsumexp

import natvi
from natvi.cli.app import app
from natvi.models.mixed.target import build_target
from natvi.target.mixed.marginal import group_log_likelihoods, mixed_parts
from natvi.x64 import float64

N, GROUPS = 400, 40


@cache
def data() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    g, x, z = np.repeat(np.arange(GROUPS), N // GROUPS), rng.standard_normal(N), rng.standard_normal(N)
    b = 0.6 * rng.standard_normal(GROUPS)
    pi = expit(-0.8 + 0.9 * z)
    y = np.where(rng.uniform(size=N) < pi, 0, rng.poisson(np.exp(0.5 + 0.5 * x + b[g])))
    w = 0.5 + 0.3 * x + np.exp(-0.5 + 0.5 * z) * rng.standard_normal(N)
    return pd.DataFrame({"x": x, "z": z, "y": y, "g": g, "w": w})


@cache
def zeros() -> natvi.Result:
    return natvi.glm("y ~ x", data(), family="zero_inflated_poisson", zero="~ z").fit()


@cache
def spread() -> natvi.Result:
    return natvi.glm("w ~ x", data(), dispersion="~ z").fit()


@cache
def grouped() -> natvi.Result:
    model = natvi.glmm("y ~ x + (1 | g)", data(), family="zero_inflated_poisson", zero="~ z + (1 | g)")
    return model.fit(method="gva")


# glmmTMB 1.1.5 on the same data: estimates and standard errors; its coefficients of a Gaussian's dispersion, which act
# on the logarithm of the variance, are halved
TMB = {
    "zeros": ([0.90969, 0.38355, -0.23217, 0.58301], [0.05204, 0.04238, 0.12286, 0.13101]),
    "spread": ([0.46916, 0.26854, -0.47732, 0.48043], [0.02501, 0.02503, 0.03538, 0.03563]),
}


@pytest.mark.parametrize(("name", "fit"), [("zeros", zeros), ("spread", spread)])
def test_agrees_with_glmm_tmb(name: str, fit):
    result, (estimate, error) = fit(), map(np.array, TMB[name])
    assert result.outcome == "converged" and result.trust == "good"
    table = result.summary()
    assert np.max(np.abs(table["mean"] - estimate) / error) < 0.25  # a mean beside a maximum
    np.testing.assert_allclose(table["sd"], error, rtol=0.08)


def test_names_tell_the_part():
    assert list(zeros().summary().index) == ["Intercept", "x", "zero:Intercept", "zero:z"]
    assert list(spread().summary().index) == ["Intercept", "x", "sigma:Intercept", "sigma:z"]
    table = grouped().summary()
    assert {"zero:z", "sd(Intercept|g)", "sd(zero:Intercept|g)"} <= set(table.index)


def test_an_intercept_alone_is_the_model_without_a_formula():
    """The prior of the logit is the same, so that bound and answers are."""
    for door, formula in ((natvi.glm, "y ~ x"), (natvi.glmm, "y ~ x + (1 | g)")):
        plain = door(formula, data(), family="zero_inflated_poisson").fit(method="gva")
        other = door(formula, data(), family="zero_inflated_poisson", zero="~ 1").fit(method="gva")
        np.testing.assert_allclose(other.elbo, plain.elbo, rtol=1e-7)
        ours, theirs = other.summary().loc["x"], plain.summary().loc["x"]
        np.testing.assert_allclose(ours[["mean", "sd"]], theirs[["mean", "sd"]], rtol=1e-3)


def test_units_change_nothing():
    scaled = data().assign(z=100.0 * data()["z"] + 3.0, w=10.0 * data()["w"])
    other = natvi.glm("w ~ x", scaled, dispersion="~ z").fit().summary()
    ours = spread().summary()
    np.testing.assert_allclose(other.loc["x", "mean"], 10.0 * ours.loc["x", "mean"], rtol=1e-4)
    np.testing.assert_allclose(100.0 * other.loc["sigma:z", ["mean", "sd"]], ours.loc["sigma:z", ["mean", "sd"]], 1e-4)


def test_the_bound_rises_and_knows_two_effects_of_a_group():
    result = grouped()
    assert result.outcome == "converged" and np.all(np.diff(result.trace) >= -1e-9 * abs(result.elbo))
    table = result.random_effects()
    assert set(table["effect"]) == {"Intercept", "zero:Intercept"} and len(table) == 2 * GROUPS
    truth = pd.Series({"x": 0.5, "zero:z": 0.9, "sd(Intercept|g)": 0.6})
    found = result.summary().loc[truth.index]
    assert ((found["mean"] - truth) / found["sd"]).abs().max() < 4


def test_random_effects_of_both_parts_are_integrated_out():
    """log p(y_i | theta_g) of a group against a dense sum over both of its effects."""
    model = natvi.glmm("y ~ x + (1 | g)", data(), family="zero_inflated_poisson", zero="~ z + (1 | g)")
    with float64():
        target, _, place = build_target(model.design, model.y, model.family, model.prior)
        shared = np.array([0.3, 0.4, -0.6, 0.7, -np.log(0.6), -np.log(0.8)])
        near = jnp.zeros((2, len(place)))
        found = np.asarray(group_log_likelihoods(target, jnp.asarray(shared), near))[place]
    assert mixed_parts(target)[0].family.family == model.family  # type: ignore[union-attr]
    rows, design = np.flatnonzero(data()["g"] == 7), model.design
    u = np.linspace(-7.0, 7.0, 281)
    first, second = (each.ravel() for each in np.meshgrid(u, u))
    eta = design.X[rows, :2] @ shared[:2] + 0.6 * first[:, None] * design.Z[rows, 0]
    zeta = design.X[rows, 2:] @ shared[2:4] + 0.8 * second[:, None] * design.Z[rows, 1]
    each = model.family.log_density(jnp.asarray(model.y[rows]), jnp.asarray(eta), jnp.asarray(zeta))
    normal = -0.5 * (first**2 + second**2) - np.log(2 * np.pi) + 2 * np.log(u[1] - u[0])
    np.testing.assert_allclose(found[7], logsumexp(np.asarray(each).sum(axis=1) + normal), rtol=1e-4)


def test_auto_goes_on_to_the_marginal_and_back_from_a_file(tmp_path: Path):
    model = natvi.glmm("y ~ x + (1 | g)", data(), family="zero_inflated_poisson", zero="~ z")
    result = model.fit(method="marginal")
    gaussian = model.fit(method="gva").summary()
    table = result.summary()
    assert result.method == "marginal" and result.trust == "good"
    assert np.max(np.abs(table["mean"] - gaussian["mean"]) / table["sd"]) < 0.5
    back = natvi.load(result.save(tmp_path / "fit"))
    pd.testing.assert_frame_equal(back.summary(), table)
    new = data().head(5)
    for kind in ("response", "link", "zero"):
        pd.testing.assert_frame_equal(back.predict(new, kind=kind), result.predict(new, kind=kind))


@pytest.mark.parametrize("fit", [zeros, spread, grouped])
def test_questions(fit):
    result = fit()
    replicated, expected = result.posterior_predictive(800, seed=1), result.predict()["mean"].to_numpy()
    z = (replicated.mean() - expected.mean()) / np.std(replicated.mean(axis=1)) * np.sqrt(800)
    assert abs(z) < 5
    found = result.model.residuals(0)
    assert abs(found.quantile.mean()) < 0.25 and 0.8 < found.quantile.std() < 1.2
    assert 0.8 < found.pearson.std() < 1.2
    assert np.isfinite(result.loo().elpd)
    # the model without groups lacks the groups of the data, and is told so
    assert result.model.check_model().level == ("doubtful" if fit is zeros else "good")
    assert np.isfinite(result.r2()).all(axis=None)


def test_numbers_of_their_own_are_predicted():
    new = pd.DataFrame({"x": [0.0, 0.0], "z": [-1.0, 1.0]})
    table = zeros().summary()["mean"]
    found = zeros().predict(new, kind="zero")["mean"]
    np.testing.assert_allclose(found, expit(table["zero:Intercept"] + table["zero:z"] * new["z"]), atol=0.01)
    both = zeros().predict(new)["mean"]
    np.testing.assert_allclose(both, (1 - found) * np.exp(table["Intercept"]), rtol=0.02)
    table = spread().summary()["mean"]
    found = spread().predict(new, kind="sigma")["mean"]
    np.testing.assert_allclose(found, np.exp(table["sigma:Intercept"] + table["sigma:z"] * new["z"]), rtol=0.02)
    with pytest.raises(ValueError, match="'link', 'sigma'"):
        spread().predict(new, kind="zero")


def test_files_and_changes(tmp_path: Path):
    back = natvi.load(zeros().save(tmp_path / "fit"))
    pd.testing.assert_frame_equal(back.summary(), zeros().summary())
    pd.testing.assert_frame_equal(back.predict(data().head(3)), zeros().predict(data().head(3)))
    changed = zeros().update(". ~ . + z")
    assert changed.model.names == ("Intercept", "x", "z", "zero:Intercept", "zero:z")
    assert "zero='~ z'" in zeros().model.description().call


def test_priors_by_name():
    model = natvi.glm("y ~ x", data(), family="zero_inflated_poisson", zero="~ z", prior={"zero:z": (0.5, 0.01)})
    table = model.fit(method="gva").summary()
    assert abs(table.loc["zero:z", "mean"] - 0.5) < 0.01 and table.loc["zero:z", "sd"] < 0.011
    assert "zero:z N(0.5, 0.01²)" in model.prior.description
    assert model.prior_predictive(3).shape == (3, N)


def test_missing_values_of_every_formula_leave_rows_out():
    holes = data().copy()
    holes.loc[[3, 5], "z"] = np.nan
    model = natvi.glm("y ~ x", holes, family="zero_inflated_poisson", zero="~ z")
    assert len(model.rows.y) == N - 2 and any("2 of 400 rows" in note for note in model.notes)


def test_from_the_terminal(tmp_path: Path):
    from typer.testing import CliRunner

    data().to_csv(tmp_path / "d.csv", index=False)
    words = ["fit", str(tmp_path / "d.csv"), "y ~ x", "--family", "zero_inflated_poisson", "--zero", "~ z"]
    run = CliRunner().invoke(app, [*words, "--method", "gva"])
    assert run.exit_code == 0 and "zero:z" in run.output


BAD = [
    ("poisson", {"zero": "~ z"}, "zero_inflated_poisson"),
    ("poisson", {"dispersion": "~ z"}, "negative_binomial"),
    ("zero_inflated_poisson", {"zero": "z"}, "zero='~ x'"),
    ("zero_inflated_poisson", {"zero": "~ y"}, "both sides"),
    ("zero_inflated_poisson", {"zero": "~ offset(z)"}, "Leave it out"),
    ("zero_inflated_poisson", {"zero": "~ 0"}, "'~ 1'"),
    ("zero_inflated_poisson", {"zero": "~ nothing"}, "no column 'nothing'"),
    ("zero_inflated_poisson", {"zero": "~ z + (1 | g)"}, "formula of the mean"),
]


@pytest.mark.parametrize(("family", "given", "cure"), BAD)
def test_what_cannot_be_had_is_told(family: str, given: dict, cure: str):
    with pytest.raises(ValueError, match=r"\w") as caught:
        natvi.glm("y ~ x", data(), family=family, **given)
    assert cure in str(caught.value)


BAD_GROUPS = [
    ("y ~ x + (1 | g)", "~ z + (1 | x)", "same factor"),
    ("y ~ x + (x | g)", "~ z + (1 | g)", r"\|\| g"),
    ("y ~ x + (1 | g) + (1 | z)", "~ z", "one grouping factor"),
]


@pytest.mark.parametrize(("formula", "zero", "cure"), BAD_GROUPS)
def test_other_factors_are_refused(formula: str, zero: str, cure: str):
    with pytest.raises(ValueError, match=cure):
        natvi.glmm(formula, data(), family="zero_inflated_poisson", zero=zero)


def test_methods_that_need_one_predictor_say_so():
    model = natvi.glmm("y ~ x + (1 | g)", data(), family="zero_inflated_poisson", zero="~ z")
    with pytest.raises(ValueError, match="'marginal'"):
        model.fit(method="rvb1")
    alone = natvi.glm("y ~ x", data(), family="zero_inflated_poisson", zero="~ z")
    with pytest.raises(ValueError, match="exact ascent"):
        alone.fit(method="gva", optimizer="snngm", batch_size=50)
