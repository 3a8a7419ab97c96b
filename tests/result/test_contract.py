"""The contract of every fit: attributes, tables, draws, predictions, pictures and pages."""

import html.parser
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, ndtri

import natvi
from natvi.data import load_epilepsy, load_sleepstudy
from natvi.linalg import ArrowFactor
from strategies import dense_factor

EPILEPSY = "y ~ base*trt + age + visit + (1 | subject)"
SLEEP = "Reaction ~ Days + (Days | Subject)"
NUM_DRAWS = 4000


@pytest.fixture(scope="module")
def count_draws(counts: natvi.Result) -> dict[str, np.ndarray]:
    return counts.sample(NUM_DRAWS, seed=1)


@pytest.fixture(scope="module")
def sleep_draws(sleep: natvi.Result) -> dict[str, np.ndarray]:
    return sleep.sample(NUM_DRAWS, seed=1)


def assert_moments(values: np.ndarray, mean: np.ndarray, sd: np.ndarray, num_draws: int = NUM_DRAWS) -> None:
    """Means and sds of draws against exact ones, by z-score: sd/sqrt(n), and sd/sqrt(2n) for a Gaussian's sd."""
    z_mean = (values.mean(0) - mean) / (sd / np.sqrt(num_draws))
    z_sd = (values.std(0, ddof=1) / sd - 1) * np.sqrt(2 * num_draws)
    assert np.max(np.abs(z_mean)) < 4.5 and np.max(np.abs(z_sd)) < 4.5


# --- attributes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["counts", "sleep"])
def test_attributes(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name)
    assert (result.method, result.structure, result.outcome) == ("gva", "arrow", "converged")
    assert result.trust in ("good", "use with care", "do not use")
    assert result.trust_reasons and all(isinstance(reason, str) for reason in result.trust_reasons)
    assert isinstance(result.elbo, float) and result.elbo_se == 0
    assert set(result.seconds) == {"compile", "run", "total"}
    assert result.seconds["total"] == pytest.approx(result.seconds["compile"] + result.seconds["run"])
    assert 0 <= result.seconds["run"] <= result.seconds["total"] < 300
    assert result.state is not None


@pytest.mark.parametrize("name", ["counts", "sleep"])
def test_trace_never_falls_and_ends_at_the_bound(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name)
    slack = 1e-12 * abs(result.elbo)  # rounding
    assert len(result.trace) > 3 and np.all(np.diff(result.trace) >= -slack)
    assert result.trace[-1] == result.elbo


def test_results_compare_by_identity(counts: natvi.Result, sleep: natvi.Result) -> None:
    assert counts != sleep and counts == counts and len({counts, sleep}) == 2


# --- tables ------------------------------------------------------------------------------------------------


def test_summary_columns_follow_prob(sleep: natvi.Result) -> None:
    wide, narrow = sleep.summary(), sleep.summary(0.5)
    assert list(wide.columns) == ["mean", "sd", "q2.5", "q97.5"]
    assert list(narrow.columns) == ["mean", "sd", "q25", "q75"]
    assert list(sleep.summary(prob=0.9).columns)[2:] == ["q5", "q95"]
    assert list(wide.index) == [
        "Intercept",
        "Days",
        "sd(Intercept|Subject)",
        "sd(Days|Subject)",
        "corr(Intercept,Days|Subject)",
        "sigma",
    ]
    assert np.all(wide["q2.5"] < narrow["q25"]) and np.all(narrow["q75"] < wide["q97.5"])
    pd.testing.assert_frame_equal(wide, pd.concat([sleep.fixed_effects(), sleep.variance_components()]))


@pytest.mark.parametrize("prob", [0.0, 1.0, -0.1, 95, float("nan")])
def test_prob_is_checked(counts: natvi.Result, prob: float) -> None:
    for method in (counts.summary, counts.fixed_effects, counts.random_effects, counts.variance_components):
        with pytest.raises(ValueError, match=r"between 0 and 1.*0\.95"):
            method(prob)
    with pytest.raises(ValueError, match=r"0\.95"):
        counts.predict(load_epilepsy(), prob=prob)


def test_tiny_prob_keeps_both_columns(counts: natvi.Result) -> None:
    assert counts.summary(1e-8).shape[1] == 4


def test_fixed_effects_are_gaussian(counts: natvi.Result) -> None:
    table = counts.fixed_effects(0.9)
    assert list(table.index) == ["Intercept", "base", "trt", "base:trt", "age", "visit"]
    np.testing.assert_allclose(table["q95"], table["mean"] + ndtri(0.95) * table["sd"])
    np.testing.assert_allclose(table["q5"], table["mean"] - ndtri(0.95) * table["sd"])


def test_random_effects_are_tidy(sleep: natvi.Result) -> None:
    table = sleep.random_effects()
    assert list(table.columns) == ["Subject", "effect", "mean", "sd", "q2.5", "q97.5"]
    assert len(table) == 36 and not table.isna().any().any()
    assert set(table["effect"]) == {"Intercept", "Days"} and table["Subject"].nunique() == 18
    slopes = table[table["effect"] == "Days"].set_index("Subject")["mean"]
    # the best and the worst sleeper of the study
    assert slopes.idxmax() == "308" and slopes.idxmin() == "335"


def test_variance_components(counts: natvi.Result, sleep: natvi.Result) -> None:
    assert list(counts.variance_components().index) == ["sd(Intercept|subject)"]
    table = sleep.variance_components()
    sds = table.drop("corr(Intercept,Days|Subject)")
    assert np.all(sds.to_numpy() > 0) and abs(table.loc["corr(Intercept,Days|Subject)"]).max() < 1


# --- draws -------------------------------------------------------------------------------------------------


def test_sample_has_a_leading_axis_and_repeats(sleep: natvi.Result) -> None:
    draws = sleep.sample(NUM_DRAWS, seed=1)
    assert set(draws) == {*sleep.summary().index, "Intercept|Subject", "Days|Subject"}
    for name, values in draws.items():
        assert values.shape == ((NUM_DRAWS, 18) if name.endswith("|Subject") else (NUM_DRAWS,))
        assert values.dtype == np.float64
    again, other = sleep.sample(NUM_DRAWS, seed=1), sleep.sample(NUM_DRAWS, seed=2)
    assert all(np.array_equal(draws[name], again[name]) for name in draws)
    assert not np.any(draws["Days"] == other["Days"])


def test_sample_without_random_effects(sleep: natvi.Result, sleep_draws: dict[str, np.ndarray]) -> None:
    draws = sleep.sample(NUM_DRAWS, seed=1, random_effects=False)
    assert set(draws) == set(sleep.summary().index)
    assert all(np.array_equal(draws[name], sleep_draws[name]) for name in draws)


def test_sample_is_checked(counts: natvi.Result) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        counts.sample(0)
    with pytest.raises(ValueError, match=r"GiB.*random_effects=False"):
        counts.sample(10**8)


@pytest.mark.parametrize("name", ["count", "sleep"])
def test_draws_agree_with_the_tables(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue("counts" if name == "count" else name)
    draws = request.getfixturevalue(f"{name}_draws")
    fixed = result.fixed_effects()
    stacked = np.stack([draws[term] for term in fixed.index], axis=1)
    assert_moments(stacked, fixed["mean"].to_numpy(), fixed["sd"].to_numpy())
    effects = result.random_effects()
    for effect in effects["effect"].unique():
        rows = effects[effects["effect"] == effect]
        values = draws[f"{effect}|{rows.columns[0]}"]
        assert_moments(values, rows["mean"].to_numpy(), rows["sd"].to_numpy())


def test_draws_of_variance_components_agree_with_the_table(
    sleep: natvi.Result, sleep_draws: dict[str, np.ndarray]
) -> None:
    table = sleep.variance_components()
    for name, row in table.iterrows():
        values = sleep_draws[str(name)]
        # the table has 4000 draws of its own, or is exact
        z = (values.mean() - row["mean"]) / (row["sd"] * np.sqrt(2 / NUM_DRAWS))
        assert abs(z) < 4.5
        inside = np.mean((values > row["q2.5"]) & (values < row["q97.5"]))
        assert abs(inside - 0.95) < 4.5 * np.sqrt(2 * 0.95 * 0.05 / NUM_DRAWS)


def test_correlations_of_draws_agree_with_the_dense_covariance(sleep: natvi.Result) -> None:
    arrays, _ = sleep.model.store()
    parts = (arrays[f"factor_{part}"] for part in ("local", "cross", "shared"))
    T = dense_factor(ArrowFactor(*parts))  # type: ignore[arg-type]
    covariance = np.linalg.inv(T @ T.T)
    sds = np.sqrt(np.diag(covariance))
    exact = covariance / np.outer(sds, sds)
    intercept = 36  # after two effects of 18 subjects
    local, shared = sleep.model.joint_draws(NUM_DRAWS, 1, True)
    for subject in (0, 7, 17):
        for k in range(2):
            rho = exact[intercept, 2 * subject + k]
            empirical = np.corrcoef(shared[:, 0], local[:, k, subject])[0, 1]
            # Fisher's transform has sd 1/sqrt(n - 3)
            assert abs(np.arctanh(empirical) - np.arctanh(rho)) * np.sqrt(NUM_DRAWS - 3) < 4.5
        assert exact[intercept, 2 * subject] < -0.1  # an intercept is shared between the two, so they compete
    np.testing.assert_allclose(sds[intercept:] ** 2, np.diagonal(sleep.model.shared_moments()[1]))


# --- predictions -------------------------------------------------------------------------------------------


def known_rows() -> pd.DataFrame:
    rows = load_epilepsy().iloc[[3, 100, 201, 3]]
    return rows.set_axis(["a", "b", "c", "a"], axis="index")


def linear_predictor(draws: dict[str, np.ndarray], rows: pd.DataFrame) -> np.ndarray:
    """The fixed part by hand, `(draws, rows)`."""
    columns = {
        "Intercept": np.ones(len(rows)),
        **{name: rows[name].to_numpy() for name in ("base", "trt", "age", "visit")},
        "base:trt": (rows["base"] * rows["trt"]).to_numpy(),
    }
    return sum(np.outer(draws[name], column) for name, column in columns.items())  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["link", "response"])
def test_known_groups(counts: natvi.Result, count_draws: dict[str, np.ndarray], kind: str) -> None:
    rows = known_rows()
    own = count_draws["Intercept|subject"][:, rows["subject"].to_numpy() - 1]  # subjects are numbered 1 to 59
    eta = linear_predictor(count_draws, rows) + own
    values = eta if kind == "link" else np.exp(eta)
    table = counts.predict(rows, kind=kind, prob=0.8)
    assert list(table.columns) == ["mean", "sd", "q10", "q90"] and list(table.index) == ["a", "b", "c", "a"]
    z = (values.mean(0) - table["mean"]) / (values.std(0) / np.sqrt(NUM_DRAWS))
    assert np.max(np.abs(z)) < 4.5
    np.testing.assert_allclose(values.std(0), table["sd"], rtol=0.1)
    below = np.mean(values < table["q10"].to_numpy(), axis=0)
    assert np.max(np.abs(below - 0.1)) < 4.5 * np.sqrt(0.1 * 0.9 / NUM_DRAWS)


@pytest.mark.parametrize("kind", ["link", "response"])
def test_population(counts: natvi.Result, count_draws: dict[str, np.ndarray], kind: str) -> None:
    rows = known_rows().drop(columns="subject")  # not needed
    eta = linear_predictor(count_draws, rows)
    values = eta if kind == "link" else np.exp(eta)
    table = counts.predict(rows, kind=kind, groups="population")
    z = (values.mean(0) - table["mean"]) / (values.std(0) / np.sqrt(NUM_DRAWS))
    assert np.max(np.abs(z)) < 4.5


def test_new_groups(counts: natvi.Result) -> None:
    rows, many = known_rows(), 100_000
    draws = counts.sample(many, seed=5, random_effects=False)
    fresh = draws["sd(Intercept|subject)"] * np.random.default_rng(6).standard_normal(many)
    for kind in ("link", "response"):
        eta = linear_predictor(draws, rows) + fresh[:, None]
        values = eta if kind == "link" else np.exp(eta)
        table = counts.predict(rows, kind=kind, groups="new")
        error = values.std(0) * np.sqrt(1 / many + 1 / 2000)  # predictions take 2000 draws
        assert np.max(np.abs(values.mean(0) - table["mean"]) / error) < 4.5
        known = counts.predict(rows, kind="link")
        if kind == "link":
            np.testing.assert_allclose(table["sd"], values.std(0), rtol=0.1)
            assert np.all(table["sd"] > 1.2 * known["sd"])
            assert np.all(table["q97.5"] - table["q2.5"] > 1.2 * (known["q97.5"] - known["q2.5"]))


def test_groups_never_seen_are_new(counts: natvi.Result) -> None:
    rows = known_rows()
    mixed = counts.predict(rows.assign(subject=[rows["subject"].iloc[0], 1000, 1001, 1002]))
    pd.testing.assert_frame_equal(mixed.iloc[:1], counts.predict(rows.iloc[:1]))
    pd.testing.assert_frame_equal(mixed.iloc[1:], counts.predict(rows.iloc[1:], groups="new"))


def test_new_groups_with_correlated_effects(sleep: natvi.Result) -> None:
    rows, many = pd.DataFrame({"Days": [0.0, 9.0]}), 100_000
    draws = sleep.sample(many, seed=5, random_effects=False)
    z = np.random.default_rng(6).standard_normal((2, many))
    a, b = draws["sd(Intercept|Subject)"], draws["sd(Days|Subject)"]
    rho = draws["corr(Intercept,Days|Subject)"]
    slope = b * (rho * z[0] + np.sqrt(1 - rho**2) * z[1])
    eta = (draws["Intercept"] + a * z[0])[:, None] + np.outer(draws["Days"] + slope, rows["Days"])
    table = sleep.predict(rows, groups="new")
    error = eta.std(0) * np.sqrt(1 / many + 1 / 2000)
    assert np.max(np.abs(eta.mean(0) - table["mean"]) / error) < 4.5
    np.testing.assert_allclose(table["sd"], eta.std(0), rtol=0.1)


def test_predictions_do_not_depend_on_the_other_rows(counts: natvi.Result) -> None:
    data = load_epilepsy()
    for groups in ("known", "new", "population"):
        every = counts.predict(data, groups=groups)
        some = counts.predict(data.iloc[50:53], groups=groups)
        np.testing.assert_allclose(every.iloc[50:53], some, rtol=1e-9)
    assert counts.predict(data.head(0)).shape == (0, 4)


def test_fitted_counts_follow_the_data(counts: natvi.Result) -> None:
    data = load_epilepsy()
    fitted = counts.predict(data)["mean"]
    # a Poisson posterior mean reproduces the total, but for the prior
    assert fitted.sum() == pytest.approx(data["y"].sum(), rel=0.01)


def test_offset_enters_predictions() -> None:
    data = load_epilepsy().assign(weeks=2.0)
    formula = "y ~ base*trt + age + visit + offset(log(weeks)) + (1 | subject)"
    result = natvi.glmm(formula, data, family="poisson").fit(method="gva")
    once, twice = (result.predict(data.assign(weeks=weeks))["mean"] for weeks in (2.0, 4.0))
    np.testing.assert_allclose(twice, 2 * once)


@pytest.mark.needs_data
def test_bernoulli_predictions_are_probabilities() -> None:
    data = natvi.data.load_toenail().head(400)
    result = natvi.glmm("infect ~ trt*time + (1 | idnr)", data, family="bernoulli").fit(method="gva")
    rows = data.iloc[::60]
    link, response = (result.predict(rows, kind=kind) for kind in ("link", "response"))
    z = np.random.default_rng(0).standard_normal((200_000, 1))
    values = expit(link["mean"].to_numpy() + link["sd"].to_numpy() * z)
    np.testing.assert_allclose(response["mean"], values.mean(0), atol=0.003)
    np.testing.assert_allclose(response["sd"], values.std(0), atol=0.003)
    np.testing.assert_allclose(response[["q2.5", "q97.5"]], expit(link[["q2.5", "q97.5"]]))
    assert np.all((response > 0) & (response < 1))


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda d: d.drop(columns="age"), {}, "no column 'age'"),
        (lambda d: d.drop(columns="subject"), {}, "no column 'subject'.*groups='new'"),
        (lambda d: d.assign(age=np.nan), {}, "missing values: 'age' 4.*dropna"),
        (lambda d: d.assign(age=np.inf), {}, "'age' has 4 infinite"),
        (lambda d: d.assign(subject=np.nan), {}, "4 rows have no value of the group 'subject'.*groups='population'"),
        (lambda d: d.assign(subject="1"), {}, r"holds '1'.*fitted to 1:.*pd.to_numeric\(data\['subject'\]\)"),
        (lambda d: d, {"kind": "mean"}, "kind must be one of 'response', 'link', not 'mean'"),
        (lambda d: d, {"groups": "all"}, "groups must be one of 'known', 'new', 'population', not 'all'"),
        (lambda d: 3, {}, "cannot be read as a table"),
    ],
)
def test_prediction_mistakes(counts: natvi.Result, change, options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        counts.predict(change(known_rows()), **options)


def test_unseen_factor_level() -> None:
    data = load_epilepsy().assign(arm=lambda d: d["trt"].map({0: "placebo", 1: "progabide"}))
    result = natvi.glmm("y ~ base*arm + age + visit + (1 | subject)", data, family="poisson").fit(method="gva")
    assert "arm[progabide]" in result.fixed_effects().index
    with pytest.raises(ValueError, match=r"'arm'.*'placebp'.*Known levels: 'placebo', 'progabide'"):
        result.predict(data.head(2).assign(arm="placebp"))
    assert len(result.predict(data.head(2).assign(arm="placebo"), groups="population")) == 2


def test_labels_of_another_type_are_not_new_groups(sleep: natvi.Result) -> None:
    rows = load_sleepstudy().head(2)
    with pytest.raises(ValueError, match=r"holds 308.*fitted to '308'.*astype\(str\)"):
        sleep.predict(rows.astype({"Subject": int}))
    categories = rows.astype({"Subject": "category"})
    pd.testing.assert_frame_equal(sleep.predict(categories), sleep.predict(rows))


# --- names that collide ------------------------------------------------------------------------------------


def test_covariate_called_sigma() -> None:
    data = load_sleepstudy().rename(columns={"Days": "sigma"})
    result = natvi.glmm("Reaction ~ sigma + (sigma | Subject)", data).fit(method="gva")
    assert result.summary().index.is_unique
    draws = result.sample(128)
    assert draws["sigma"].mean() == pytest.approx(10.5, abs=2) and draws["residual sigma"].mean() > 20


@pytest.mark.parametrize("name", ["mean", "effect", "draw"])
def test_group_with_the_name_of_a_column(name: str) -> None:
    data = load_sleepstudy().rename(columns={"Subject": name})
    result = natvi.glmm(f"Reaction ~ Days + (Days | {name})", data).fit(method="gva")
    assert len(result.random_effects().columns) == 6 and result.random_effects().iloc[0, 0] == "308"
    assert result.to_arviz(128).posterior.sizes["draw"] == 128
    result.plot_random_effects()


# --- export, words and pictures ----------------------------------------------------------------------------


def test_to_arviz(sleep: natvi.Result) -> None:
    tree = sleep.to_arviz(150, seed=3)
    posterior = tree["posterior"]
    assert dict(posterior.sizes) == {"chain": 1, "draw": 150, "Subject": 18}
    assert posterior["Days|Subject"].dims == ("chain", "draw", "Subject")
    assert list(posterior["Subject"].values[:2]) == ["308", "309"]
    draws = sleep.sample(150, seed=3)
    np.testing.assert_array_equal(posterior["sigma"].values[0], draws["sigma"])
    np.testing.assert_array_equal(posterior["Days|Subject"].values[0], draws["Days|Subject"])


@pytest.mark.parametrize(("name", "formula"), [("counts", EPILEPSY), ("sleep", SLEEP)])
def test_repr(name: str, formula: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name)
    text = repr(result)
    assert formula in text and f"{result.elbo:,.3f} (exact)" in text and f" {result.trust}\n" in text
    for term in result.summary().index:
        assert f"\n  {term} " in text
    assert "converged after" in text and "compilation" in text and "prior:" in text
    assert max(map(len, text.splitlines())) < 200


class Balance(html.parser.HTMLParser):
    """Checks that tags close in the order in which they opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "br", "hr", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @classmethod
    def of(cls, page: str) -> "Balance":
        parser = cls()
        parser.feed(page)
        parser.close()
        assert not parser.open
        return parser


def test_html_is_well_formed(counts: natvi.Result) -> None:
    text = "".join(Balance.of(counts._repr_html_()).text)
    for word in (EPILEPSY, "base:trt", "sd(Intercept|subject)", counts.trust, f"{counts.elbo:,.3f}"):
        assert word in text


def test_html_escapes_what_users_write() -> None:
    nasty = "<script>alert(1)</script>"
    data = load_epilepsy().rename(columns={"base": nasty, "subject": "<b>&"})
    result = natvi.glmm(f"y ~ `{nasty}`*trt + age + visit + (1 | `<b>&`)", data, family="poisson").fit(method="gva")
    page = result._repr_html_()
    assert "<script>" not in page and "<b>&" not in page
    assert nasty in "".join(Balance.of(page).text)
    assert nasty in repr(result)


def test_a_page_of_very_many_rows_has_no_pictures_of_them(counts: natvi.Result, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("natvi.result.page.MOST_PICTURED", 100)
    page = counts.report(tmp_path / "fit.html").read_text(encoding="utf-8")
    assert page.count("<figure>") == 5 and "Pearson residuals" not in page


def test_report_is_one_self_contained_page(counts: natvi.Result, tmp_path: Path) -> None:
    path = counts.report(tmp_path / "fit.html")
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "fit.html" and page.startswith("<!doctype html>")
    assert "http:" not in page and "https:" not in page and "<script" not in page and "<link" not in page
    assert page.count("<figure>") == page.count('<svg role="img" aria-label="') == 8
    assert EPILEPSY in "".join(Balance.of(page).text)
    assert [file.name for file in tmp_path.iterdir()] == ["fit.html"]
    with pytest.raises(OSError, match="nowhere"):
        counts.report(str(tmp_path / "nowhere" / "fit.html"))


@pytest.mark.parametrize("name", ["plot_trace", "plot_fixed_effects", "plot_random_effects"])
def test_plots_return_axes(sleep: natvi.Result, name: str) -> None:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    made = getattr(sleep, name)()
    assert isinstance(made, Axes) and made.has_data() and made.get_title()
    given = Figure().subplots()
    assert getattr(sleep, name)(ax=given) is given and given.has_data()


def test_names_that_are_long_or_look_like_mathematics(tmp_path: Path) -> None:
    long = "how many seizures there were in the eight weeks before the trial, on a log scale"
    data = load_epilepsy().rename(columns={"base": long, "age": "cost $a_$", "subject": "$x^$"})
    result = natvi.glmm(f"y ~ `{long}`*trt + `cost $a_$` + visit + (1 | `$x^$`)", data, family="poisson").fit(
        method="gva"
    )
    labels = [text.get_text() for text in result.plot_fixed_effects().get_yticklabels()]
    assert all(len(text) <= 42 for text in labels) and labels[1].endswith("…")
    assert result.report(tmp_path / "fit.html").exists()  # draws everything


def test_plots_leave_pyplot_alone(counts: natvi.Result) -> None:
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    counts.plot_trace()
    assert pyplot.get_fignums() == before


def test_a_fit_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    natvi.glmm(EPILEPSY, load_epilepsy(), family="poisson").fit()
    assert capfd.readouterr() == ("", "")


def test_an_unfinished_fit_says_how_to_go_on(counts: natvi.Result) -> None:
    result = natvi.glmm(EPILEPSY, load_epilepsy(), family="poisson").fit(max_steps=2)
    assert result.outcome == "max_steps" and result.elbo < counts.elbo and len(result.trace) == 2
    assert result.trust == "do not use"
    assert "fit(state=result.state)" in repr(result)
    assert json.dumps(result.seconds)  # plain numbers
