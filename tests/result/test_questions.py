"""Questions of a fit: each answer beside what a direct computation from draws or by quadrature gives."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm, poisson

import natvi
from natvi.data import load_epilepsy
from natvi.formula.dot import change_formula


@pytest.fixture(scope="module")
def treated() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 120
    data = pd.DataFrame({"x": rng.normal(size=n), "arm": rng.choice(["a", "b", "c"], n), "site": rng.integers(0, 6, n)})
    eta = 0.4 * data["x"] + data["arm"].map({"a": 0.0, "b": 0.8, "c": -0.5})
    data["y"] = (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(int)
    return data


@pytest.fixture(scope="module")
def binary(treated: pd.DataFrame) -> natvi.Result:
    return natvi.glm("y ~ x*arm", treated, family="bernoulli").fit(method="gva")


def expit(eta: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-eta))


def test_comparisons_are_averages_over_the_data(binary: natvi.Result, treated: pd.DataFrame) -> None:
    draws = binary.sample(2000, seed=0)
    x = treated["x"].to_numpy()
    at_a = expit(draws["Intercept"][:, None] + draws["x"][:, None] * x)
    slope_b = (draws["x"] + draws["x:arm[b]"])[:, None]
    at_b = expit((draws["Intercept"] + draws["arm[b]"])[:, None] + slope_b * x)
    apart = at_b.mean(axis=1) - at_a.mean(axis=1)
    table = binary.compare("arm").set_index("contrast")
    assert list(table.index) == ["b - a", "c - a"]
    np.testing.assert_allclose(
        table.loc["b - a"], [apart.mean(), apart.std(ddof=1), *np.quantile(apart, [0.025, 0.975])]
    )
    ratio = binary.compare("arm", measure="ratio", levels=["a", "b"])["mean"][0]
    assert ratio == pytest.approx(float((at_b.mean(axis=1) / at_a.mean(axis=1)).mean()))
    odds = (at_b.mean(axis=1) / (1 - at_b.mean(axis=1))) / (at_a.mean(axis=1) / (1 - at_a.mean(axis=1)))
    assert binary.compare("arm", measure="odds_ratio", levels=["a", "b"])["mean"][0] == pytest.approx(
        float(odds.mean())
    )
    assert len(binary.compare("arm", pairs="all")) == 3
    means = binary.means("arm")
    assert means["mean"][0] == pytest.approx(float(at_a.mean())) and list(means["arm"]) == ["a", "b", "c"]


def test_slopes_are_derivatives(binary: natvi.Result, treated: pd.DataFrame) -> None:
    draws = binary.sample(2000, seed=0)
    rows = treated["arm"].to_numpy() == "a"
    p = expit(draws["Intercept"][:, None] + draws["x"][:, None] * treated["x"].to_numpy()[rows])
    exact = (p * (1 - p)).mean(axis=1) * draws["x"]
    table = binary.slopes("x", by="arm").set_index("arm")
    assert table.loc["a", "mean"] == pytest.approx(float(exact.mean()), rel=1e-4)
    on_link = binary.slopes("x", by="arm", kind="link").set_index("arm")
    assert on_link.loc["b", "mean"] == pytest.approx(float((draws["x"] + draws["x:arm[b]"]).mean()), rel=1e-5)
    plus_one = binary.compare("x", kind="link", by="arm").set_index("arm")
    assert plus_one.loc["b", "mean"] == pytest.approx(float(on_link.loc["b", "mean"]), rel=1e-5)


def test_ratios_and_covariance(binary: natvi.Result) -> None:
    table = binary.fixed_effects(0.9)
    slopes = table.drop(index="Intercept")
    ratios = binary.odds_ratios(0.9)
    np.testing.assert_allclose(ratios["odds ratio"], np.exp(slopes["mean"]), rtol=1e-7)
    np.testing.assert_allclose(ratios["q5"], np.exp(slopes["q5"]))
    tens = binary.odds_ratios(0.9, step={"x": 10})
    np.testing.assert_allclose(tens.loc["x", "q95"], np.exp(10 * slopes.loc["x", "q95"]))
    np.testing.assert_allclose(tens.loc["arm[b]"].drop("step"), ratios.loc["arm[b]"])
    with pytest.raises(ValueError, match=r"step names 'z', and the coefficients are 'x'"):
        binary.odds_ratios(step={"z": 10})
    with pytest.raises(ValueError, match=r"positive number of its units; got -1"):
        binary.odds_ratios(step={"x": -1})
    np.testing.assert_allclose(np.sqrt(np.diag(binary.covariance())), table["sd"])
    draws = pd.DataFrame(binary.sample(4000, seed=1))[list(table.index)]
    np.testing.assert_allclose(binary.covariance(correlation=True), draws.corr(), atol=0.08)
    with pytest.raises(ValueError, match=r"log, cloglog, log hazard link, and this one has logit. Use odds_ratios"):
        binary.rate_ratios()


def test_averages_with_groups(counts: natvi.Result) -> None:
    data = load_epilepsy()
    known = counts.means("trt", at=[0, 1], by="trt")
    own = known[known["trt set to"] == known["trt"]].set_index("trt")["mean"]
    fitted = counts.fitted().groupby(data["trt"].to_numpy()).mean()
    np.testing.assert_allclose(own, fitted, rtol=0.01)
    link = counts.compare("trt", kind="link", groups="population").iloc[0]
    coefficients = counts.fixed_effects()["mean"]
    assert link["mean"] == pytest.approx(coefficients["trt"] + coefficients["base:trt"] * data["base"].mean(), abs=0.02)
    new = counts.means("trt", groups="new")
    assert new["sd"][0] > 2 * known["sd"][0]  # another patient may differ much


def test_predictive_intervals_hold_new_observations(counts: natvi.Result) -> None:
    data = load_epilepsy()
    table = counts.predict(data, kind="predictive", prob=0.9)
    inside = (data["y"] >= table["q5"]) & (data["y"] <= table["q95"])
    assert 0.8 < inside.mean() < 1.0  # these rows have been seen, and are overdispersed
    mean = counts.predict(data, prob=0.9)
    np.testing.assert_allclose(table["mean"], mean["mean"], rtol=0.15)
    assert np.all(table["sd"] > mean["sd"])
    draws = counts.predict(data.head(2), kind="predictive", draws=40, seed=1)
    assert draws.shape == (40, 2) and np.all(draws == np.round(draws))
    np.testing.assert_array_equal(draws, counts.predict(data.head(2), kind="predictive", draws=40, seed=1))
    assert counts.predict(data.head(2).assign(subject=999), kind="predictive")["sd"][0] > table["sd"][0]


def test_residuals_of_all_rows(binary: natvi.Result, counts: natvi.Result, treated: pd.DataFrame) -> None:
    rows = counts.predicted_rows()
    np.testing.assert_allclose(rows["response"], load_epilepsy()["y"] - rows["fitted"])
    np.testing.assert_allclose(rows["pearson"], rows["response"] / np.sqrt(rows["fitted"]))
    assert abs(binary.residuals("quantile").mean()) < 0.3
    np.testing.assert_allclose(binary.residuals("response"), treated["y"] - binary.fitted())
    with pytest.raises(ValueError, match="kind must be one of 'response', 'pearson', 'quantile'"):
        binary.residuals("deviance")


def test_explained_variance(sleep: natvi.Result) -> None:
    table = sleep.r2()
    assert list(table.index) == ["conditional R2", "marginal R2"]
    # lme4 with MuMIn gives 0.79 and 0.28 for this model
    assert table.loc["conditional R2", "mean"] == pytest.approx(0.79, abs=0.04)
    assert table.loc["marginal R2", "mean"] == pytest.approx(0.28, abs=0.08)


def test_a_group_left_out_is_integrated_over_its_effect(counts: natvi.Result) -> None:
    found = counts.loo_groups("subject", num_draws=200)
    assert len(found.elpd_each) == 59 and "groups" in repr(found)
    data = load_epilepsy()
    model = counts.model
    drawn = model.draws_for(model.rows.covariates, 200, 0)
    values = model.block_values(model.rows, drawn, pd.factorize(data["subject"])[0], 59)
    own = (data["subject"] == data["subject"].iloc[0]).to_numpy()
    y, base = data["y"].to_numpy()[own], drawn.covariates.take(own)
    for s in (0, 7):
        eta = base.X @ drawn.shared[s, : base.X.shape[1]]
        sd = float(np.exp(-drawn.shared[s, -1]))

        def integrand(b: float, eta=eta, sd=sd) -> float:
            return float(np.exp(poisson.logpmf(y, np.exp(eta + b)).sum()) * norm.pdf(b, scale=sd))

        assert values[s, 0] == pytest.approx(np.log(quad(integrand, -8 * sd, 8 * sd, points=[0.0])[0]), abs=1e-6)


def test_groups_that_are_cut_are_refused(counts: natvi.Result, binary: natvi.Result) -> None:
    with pytest.raises(ValueError, match="cuts through groups of subject"):
        counts.loo_groups("visit", num_draws=10)
    assert len(counts.loo_groups("trt", num_draws=100).elpd_each) == 2
    each = binary.log_likelihood(2000).sum(axis=1)
    blocks = binary.loo_groups("site")
    assert blocks.elpd < np.log(np.mean(np.exp(each - each.max()))) + each.max()
    with pytest.raises(ValueError, match="no column of the data"):
        binary.loo_groups("nowhere")


def test_fits_side_by_side(binary: natvi.Result, counts: natvi.Result) -> None:
    smaller = binary.update(". ~ . - x:arm")
    table = natvi.compare(binary, smaller, binary.update("y ~ 1"))
    assert "se of difference" in str(table) and "..." not in str(table)
    assert table["difference"].iloc[0] == 0 and table["elpd"].is_monotonic_decreasing
    loo = smaller.loo()
    assert table.loc[smaller.model.formula, "elpd"] == pytest.approx(loo.elpd)
    both = natvi.compare({"large": binary, "small": smaller}, by="site")
    assert set(both.index) == {"large", "small"}
    with pytest.raises(ValueError, match=r"120 rows and .* to 236"):
        natvi.compare(binary, counts)
    with pytest.raises(ValueError, match="two or more results"):
        natvi.compare(binary)


def test_update_changes_what_it_is_told(binary: natvi.Result, treated: pd.DataFrame) -> None:
    mixed = binary.update(". ~ . - x:arm + (1 | site)", prior=1.0, fit={"method": "gva"})
    assert mixed.model.formula == "y ~ x*arm - x:arm + (1 | site)"
    assert list(mixed.fixed_effects().index) == ["Intercept", "x", "arm[b]", "arm[c]"]
    back = mixed.update(". ~ . - (1 | site)", data=treated.head(60))
    assert back.model.num_rows == 60 and "N(0, 1" in back.model.prior.description
    counted = binary.update(family="poisson")
    assert counted.model.family.name == "poisson"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("y ~ x", ". ~ . + z", "y ~ x + z"),
        ("y ~ x + z", "log(y) ~ . - z", "log(y) ~ x"),
        ("y ~ x", "y ~ . - x", "y ~ 1"),
        ("y ~ x + (1 | g)", ". ~ . - (1 | g) + (x | g)", "y ~ x + (x | g)"),
        ("y ~ x", "y ~ z", "y ~ z"),
    ],
)
def test_dots_of_a_change(old: str, new: str, found: str) -> None:
    assert change_formula(old, new) == found


def test_bad_questions_get_an_answer(binary: natvi.Result, treated: pd.DataFrame) -> None:
    for call, words in (
        (lambda: binary.compare("site"), r"'site' is not among the columns that the model reads: 'arm', 'x'"),
        (lambda: binary.compare("arm", levels=["a", "d"]), "'d' is no level of 'arm'"),
        (lambda: binary.compare("arm", measure="log"), "measure must be one of"),
        (lambda: binary.compare("arm", groups="new"), "this one has none"),
        (lambda: binary.slopes("arm"), r"Use compare\('arm'\)"),
        (lambda: binary.means("arm", by="x"), "Cut the column into classes"),
        (lambda: binary.means("arm", by="z"), "no column of the data"),
        (lambda: binary.means("x", at=["a"]), "is a number, and 'a' is none"),
        (lambda: binary.update(". ~ . - (1 | g)"), "which does not hold it"),
        (lambda: binary.update("x"), "a change of a formula"),
        (lambda: binary.predict(treated, kind="probability", draws=3), "kind must be one of"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_a_loaded_fit_asks_for_its_data(binary: natvi.Result, treated: pd.DataFrame, tmp_path) -> None:
    loaded = natvi.load(binary.save(tmp_path / "fit.natvi"))
    with pytest.raises(ValueError, match="Give the rows to average over as data="):
        loaded.compare("arm")
    pd.testing.assert_frame_equal(loaded.compare("arm", data=treated), binary.compare("arm"))
    with pytest.raises(ValueError, match="only a fit that holds its data"):
        loaded.update("y ~ 1")


def test_numbers_that_are_a_factor_have_levels(treated: pd.DataFrame) -> None:
    fit = natvi.glm("y ~ x + C(site)", treated, family="bernoulli").fit(method="gva")
    assert fit.compare("site", num_draws=50)["contrast"].tolist() == [f"{k} - 0" for k in range(1, 6)]
    assert fit.means("site", num_draws=50)["site"].tolist() == list(range(6))
    with pytest.raises(ValueError, match=r"Use compare\('site'\)"):
        fit.slopes("site")


def test_plots_of_answers(binary: natvi.Result) -> None:
    assert len(binary.plot_compare("arm").get_yticks()) == 2
    assert binary.plot_means("x").get_title() == "expected, by x"
    assert binary.plot_slopes("x", by="arm").get_yticklabels()[0].get_text() == "x, a"


def test_quantile_residuals_are_normal_under_a_right_model_with_many_random_effects() -> None:
    rng = np.random.default_rng(4)
    group, x = np.repeat(np.arange(150), 4), rng.normal(size=600)
    data = pd.DataFrame({"g": group, "x": x, "y": 0.5 * x + rng.normal(size=150)[group] + rng.normal(size=600)})
    fit = natvi.glmm("y ~ x + (1 | g)", data).fit(method="gva")
    assert fit.residuals("pearson").std() < 0.93  # fitted effects follow their own rows
    assert fit.residuals("quantile").std() == pytest.approx(1.0, abs=0.08)
