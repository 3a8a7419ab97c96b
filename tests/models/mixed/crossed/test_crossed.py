"""Crossed and nested models against lme4, NUTS and the arrow, and through everything a result offers."""

import os

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import natvi
from natvi.data.external import data_file
from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.models.mixed.crossed.integrated.inner import IntegratedDensity
from natvi.models.mixed.crossed.layout import build_crossed
from natvi.models.mixed.crossed.start import crossed_start, rough_values
from natvi.models.regression.prior.log_density import log_prior
from natvi.x64 import float64

PLATES, SAMPLES = 24, 6


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Plates crossed with samples, as in Penicillin, with a covariate and a second level of nesting."""
    rng = np.random.default_rng(8)
    plate, sample = (a.ravel() for a in np.meshgrid(np.arange(PLATES), np.arange(SAMPLES), indexing="ij"))
    x = rng.normal(size=len(plate))
    effects = rng.normal(size=PLATES)[plate] * 0.8 + rng.normal(size=SAMPLES)[sample] * 1.5
    y = 20 + 0.5 * x + effects + rng.normal(size=len(plate)) * 0.5
    frame = pd.DataFrame({"y": y, "x": x, "plate": [f"p{k:02d}" for k in plate], "sample": sample})
    return frame.assign(
        day=[f"d{k // 6}" for k in plate],
        count=rng.poisson(np.exp(0.2 * x + 0.4 * effects)),
        same=[f"other {k}" for k in plate],
        row=np.arange(len(plate)),
        hit=(y > 20).astype(int),
    )


@pytest.fixture(scope="module")
def gva(table):
    return natvi.glmm("y ~ x + (1 | plate) + (1 | sample)", table).fit(method="gva")


@pytest.fixture(scope="module")
def auto(table):
    return natvi.glmm("y ~ x + (1 | plate) + (1 | sample)", table).fit()


def dense_posterior(table: pd.DataFrame, model, hyper: np.ndarray) -> float:
    """log p(y, hyper) of the gaussian model by brute force: effects and coefficients integrated in closed form."""
    design, prior = model.design, model.prior
    log_sigma, first, second = hyper
    p = design.X.shape[1]
    covariance = np.exp(2 * log_sigma) * np.eye(len(model.y))
    for term, omega in zip(design.terms, (first, second), strict=True):
        z = (term.codes[:, None] == np.arange(term.num_levels)) * design.Z[:, term.first : term.stop]
        covariance += np.exp(-2 * omega) * z @ z.T
    covariance += (design.X * prior.sd[:p] ** 2) @ design.X.T
    theta = np.concatenate([prior.mean[:p], hyper])[None]
    normal = np.sum(-0.5 * np.log(2 * np.pi) - np.log(prior.sd[:p]))
    own = float(log_prior(prior, theta)[0]) - float(normal)
    return own + float(multivariate_normal(design.X @ prior.mean[:p], covariance).logpdf(model.y))


def test_the_inner_bound_of_a_gaussian_response_is_the_exact_evidence(table, auto):
    model = natvi.glmm("y ~ x + (1 | plate) + (1 | sample)", table)
    assert auto.method == "integrated" and auto.trust == "good"
    points = auto.model.hyper[:3]
    exact = np.array([dense_posterior(table, model, hyper) for hyper in points])
    with float64():
        built = build_crossed(model.design, model.y, model.family, model.prior, None, 0.0)
        values, information = rough_values(model.design, model.y, model.family, model.prior, None)
        start = crossed_start(built.target, jnp.asarray(values), jnp.asarray(information))
        q = BlockedPrecision.from_natural(start.linear, start.precision, built.target.pattern)
    density = IntegratedDensity(built.target, q.mean, start.precision, values[2:])
    np.testing.assert_allclose(density.values(points), exact, atol=1e-6)


def test_gva_is_narrow_about_sds_of_few_levels_and_auto_mends_it(gva, auto):
    name = "sd(Intercept|sample)"
    assert gva.trust == "use with care"
    assert auto.variance_components().loc[name, "sd"] > 1.1 * gva.variance_components().loc[name, "sd"]
    assert auto.fixed_effects().loc["x", "mean"] == pytest.approx(gva.fixed_effects().loc["x", "mean"], abs=1e-3)


def test_large_data_are_judged_by_mode_and_curvature(table, monkeypatch):
    from natvi.models.mixed.crossed import auto as choosing

    model = natvi.glmm("y ~ x + (1 | plate) + (1 | sample)", table)
    monkeypatch.setattr(choosing, "_too_large", lambda stage: "large")
    fit = model.fit()
    assert fit.method == "gva" and fit.trust == "use with care"
    assert any("log sd(Intercept|sample)" in reason for reason in fit.trust_reasons), fit.trust_reasons


def test_what_the_bound_lacks_moves_sds_of_large_binary_data(monkeypatch):
    """Two rows a level and sds of 2.5: the bound's own mode is too low, which mode and curvature of it do not see."""
    from natvi.models.mixed.crossed import auto as choosing

    rng = np.random.default_rng(3)
    a, b = np.repeat(np.arange(150), 4), rng.integers(0, 6, 600)
    eta = 2.5 * rng.normal(size=150)[a] + rng.normal(size=6)[b]
    frame = pd.DataFrame({"y": (rng.uniform(size=600) < 1 / (1 + np.exp(-eta))).astype(int), "a": a, "b": b})
    model = natvi.glmm("y ~ 1 + (1 | a) + (1 | b)", frame, family="bernoulli")
    monkeypatch.setattr(choosing, "_too_large", lambda stage: "large")
    fit = model.fit()
    numbers = {name: value for concern in fit.check() for name, value in concern.numbers}
    assert fit.method == "gva" and fit.trust == "use with care"
    assert numbers["shift of sds and dispersion by what the bound lacks"] > 0.2
    assert numbers["standard error of it"] < 0.05
    assert any("should be" in reason for reason in fit.trust_reasons)
    exact = model.fit(method="integrated")
    name = "sd(Intercept|a)"
    assert exact.variance_components().loc[name, "mean"] > fit.variance_components().loc[name, "mean"]
    # without it nothing is called good
    monkeypatch.setattr(choosing, "_num_ratios", lambda stage, points=0: 0)
    assert model.fit().trust == "use with care"


def test_tables_and_predictions_know_each_factor(table, auto):
    effects = auto.random_effects()
    assert list(effects["group"].unique()) == ["plate", "sample"] and len(effects) == PLATES + SAMPLES
    new = pd.DataFrame({"x": 0.0, "plate": ["p00", "new", "new"], "sample": [0, 0, 99]})
    found = auto.predict(new)
    assert found.attrs["new_groups"] == {"plate": ["new"], "sample": [99]}
    assert found["sd"].is_monotonic_increasing
    assert auto.predict(new, groups="population")["sd"].nunique() == 1
    assert auto.predict()["mean"].corr(table["y"]) > 0.9
    draws = auto.sample(50)
    assert draws["Intercept|plate"].shape == (50, PLATES) and draws["Intercept|sample"].shape == (50, SAMPLES)
    assert np.isfinite(auto.loo().elpd)


def test_both_kinds_of_fits_come_back_from_a_file(tmp_path, table, gva, auto):
    for k, fit in enumerate((gva, auto)):
        again = natvi.load(fit.save(tmp_path / f"{k}.natvi"))
        pd.testing.assert_frame_equal(again.summary(), fit.summary())
        pd.testing.assert_frame_equal(again.predict(table.head(5)), fit.predict(table.head(5)))
        assert again.trust == fit.trust and again.structure == "blocked"
    assert auto.report(tmp_path / "page.html").stat().st_size > 10_000


def test_a_fit_goes_on_from_its_state_bit_for_bit(table, gva):
    model = natvi.glmm("y ~ x + (1 | plate) + (1 | sample)", table)
    part = model.fit(method="gva", max_steps=6)
    assert model.fit(method="gva", state=part.state).elbo == gva.elbo


def test_one_factor_written_as_a_combination_gives_the_bound_of_the_arrow(table):
    own = table.assign(one="k")
    arrow = natvi.glmm("count ~ x + (1 + x | plate)", own, family="poisson").fit(method="gva")
    blocked = natvi.glmm("count ~ x + (1 + x | plate:one)", own, family="poisson").fit(method="gva")
    assert (arrow.structure, blocked.structure) == ("arrow", "blocked")
    assert blocked.elbo == pytest.approx(arrow.elbo, abs=1e-5)
    np.testing.assert_allclose(blocked.summary().to_numpy(), arrow.summary().to_numpy(), rtol=2e-3, atol=1e-4)


def test_shares_of_variance_are_those_of_the_draws(auto):
    draws = auto.sample(2000, random_effects=False)
    plate, sample, sigma = (draws[name] ** 2 for name in ("sd(Intercept|plate)", "sd(Intercept|sample)", "sigma"))
    found = auto.icc()
    assert list(found.index) == ["plate", "sample", "together"]
    assert found.loc["sample", "mean"] == pytest.approx(np.mean(sample / (plate + sample + sigma)), abs=1e-9)
    assert found.loc["together", "mean"] == pytest.approx(found["mean"].iloc[:2].sum(), abs=1e-9)


@pytest.mark.parametrize("by", ["plate", "day"])
def test_leaving_levels_out_integrates_their_own_effects(table, gva, by):
    fit, rows, few = gva.model, gva.model.training_rows(), 4
    drawn = fit.draws_for(rows.covariates, few, 0)
    codes, known = pd.factorize(table[by])
    values = fit.block_values(rows, drawn, codes, len(known))
    others = rows.Z.copy()
    others[:, 0] = 0.0  # the plate's effect, which no other block knows of
    eta = drawn.covariates._replace(Z=others).predictors(drawn.shared, drawn.local)
    same = rows.codes[:, 0][:, None] == rows.codes[:, 0]
    for s, (log_sigma, omega) in enumerate(drawn.shared[:, 2:4]):
        covariance = np.exp(2 * log_sigma) * np.eye(len(codes)) + np.exp(-2 * omega) * same
        for block in (0, 3):
            own = codes == block
            exact = multivariate_normal(eta[s, own], covariance[np.ix_(own, own)]).logpdf(rows.y[own])
            assert values[s, block] == pytest.approx(exact, abs=1e-8)
    assert gva.loo_groups(by, num_draws=100).unit == "groups"


def test_levels_of_two_factors_in_one_block_are_refused(table):
    fit = natvi.glmm("y ~ (1 | day/plate)", table).fit(method="gva")
    assert len(fit.loo_groups("plate", num_draws=50).elpd_each) == PLATES
    with pytest.raises(ValueError, match="several factors, day, plate:day"):
        fit.loo_groups("day")


@pytest.mark.parametrize(
    ("formula", "groups"),
    [
        ("y ~ (1 | day/plate)", ["day", "plate:day"]),
        ("y ~ (1 | day:sample) + (0 + x || plate)", ["day:sample", "plate"]),
        ("y ~ (1 | plate) + (0 + x | plate) + (1 | sample)", ["plate", "plate", "sample"]),
    ],
)
def test_factors_are_named_as_lme4_names_them(table, formula, groups):
    model = natvi.glmm(formula, table)
    assert [term.group for term in model.design.terms] == groups


@pytest.mark.parametrize(
    ("formula", "family", "words"),
    [
        ("y ~ (1 | plate) + (1 | same)", "gaussian", "same factor up to the names"),
        ("y ~ (1 | plate/day)", "gaussian", r"nested in day.*\(1 \| day/plate\)"),
        ("y ~ (1 | plate) + (1 | row)", "gaussian", "cannot be told from the residual"),
        ("hit ~ (1 | plate) + (1 | row)", "bernoulli", "a single yes or no"),
        ("y ~ (1 | plate) + (1 + x | plate)", "gaussian", "stands in two terms"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(table, formula, family, words):
    with pytest.raises(ValueError, match=words):
        natvi.glmm(formula, table, family=family)


def test_notes_tell_nesting_pieces_and_single_rows(table):
    assert any("plate is nested in day" in n for n in natvi.glmm("y ~ (1 | plate) + (1 | day)", table).notes)
    left, right = table[table["sample"] < 3], table[table["sample"] >= 3]
    halves = pd.concat([left[left["plate"] < "p12"], right[right["plate"] >= "p12"]])
    model = natvi.glmm("count ~ (1 | plate) + (1 | sample) + (1 | row)", halves, family="poisson")
    assert any("2 pieces" in note for note in model.notes) and any("overdispersion" in note for note in model.notes)


def test_what_the_machine_cannot_hold_is_refused_with_its_size():
    n = 400_000
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.integers(0, 2, n), "a": np.arange(n) // 2, "b": rng.integers(0, 100_000, n)})
    with pytest.raises(ValueError, match=r"would need about .* GiB.*dense matrix"):
        natvi.glmm("y ~ (1 | a) + (1 | b)", frame, family="bernoulli")


def test_methods_for_one_factor_are_refused(table):
    model = natvi.glmm("y ~ x + (1 | plate) + (1 | sample)", table)
    for options in ({"method": "marginal"}, {"method": "gva", "optimizer": "snngm"}, {"method": "gva", "order": 2}):
        with pytest.raises(ValueError, match=r"one grouping factor|noisy steps"):
            model.fit(**options)


@pytest.mark.skipif("NATVI_DATA" not in os.environ, reason="NATVI_DATA does not name the folder of data")
# lme4 1.1.31, REML: intercept with its standard error, and sds
@pytest.mark.parametrize(
    ("name", "formula", "mean", "se", "sds"),
    [
        (
            "penicillin",
            "diameter ~ 1 + (1 | plate) + (1 | sample)",
            22.97222,
            0.8085954,
            (0.8467025, 1.9316138, 0.5499227),
        ),
        ("pastes", "strength ~ 1 + (1 | batch/cask)", 60.05333, 0.6768702, (1.2873659, 2.9040775, 0.8234075)),
    ],
)
def test_lme4_agrees(name, formula, mean, se, sds):
    frame = pd.read_csv(data_file(f"{name}/{name}.csv", "lme4"))
    fit = natvi.glmm(formula, frame).fit()
    found = fit.fixed_effects().loc["Intercept"]
    assert abs(found["mean"] - mean) < 0.1 * found["sd"] and found["sd"] > 0.95 * se
    table = fit.variance_components()
    assert np.all(table["q2.5"] < np.array(sds)) and np.all(np.array(sds) < table["q97.5"])
