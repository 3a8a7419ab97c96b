"""A fitted generalized linear model against data: predictions, replicates, cross-validation, files, pictures."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm

import natvi
from natvi.run import storage

EVIL = "__import__('os').system('touch victim')"


def table(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    x = rng.normal(size=n)
    event, count = (rng.random(n) < expit(x)).astype(int), rng.poisson(np.exp(1.0 + 0.3 * x))
    return pd.DataFrame({"x": x, "event": event, "count": count, "size": 1.0 + 0.5 * x + rng.normal(size=n)})


@pytest.fixture(scope="module")
def binary() -> natvi.Result:
    return natvi.glm("event ~ x", table(), family="bernoulli").fit()


@pytest.fixture(scope="module")
def counts() -> natvi.Result:
    return natvi.glm("count ~ x", table(), family="poisson").fit()


@pytest.fixture(scope="module")
def sizes() -> natvi.Result:
    return natvi.glm("size ~ x", table(), weights=np.repeat([1.0, 2.0], 30)).fit()


@pytest.fixture
def saved(binary: natvi.Result, tmp_path: Path) -> Path:
    return binary.save(tmp_path / "fit.natvi")


# --- numbers -----------------------------------------------------------------------------------------------


def test_tables_and_draws(sizes: natvi.Result) -> None:
    assert list(sizes.model.tables(0.9)) == ["coefficients", "dispersion"]
    assert sizes.summary().index.tolist() == ["Intercept", "x", "sigma"]
    pd.testing.assert_frame_equal(sizes.fixed_effects(), sizes.summary().iloc[:2])
    draws = sizes.sample(20_000, seed=1)
    for name, row in sizes.summary().iterrows():
        values = draws[str(name)]
        assert abs(values.mean() - row["mean"]) < 4.5 * row["sd"] / np.sqrt(20_000)
        np.testing.assert_allclose(np.quantile(values, [0.025, 0.975]), row[["q2.5", "q97.5"]], atol=0.1 * row["sd"])


@pytest.mark.parametrize("kind", ["link", "response"])
@pytest.mark.parametrize("name", ["binary", "counts"])
def test_predictions_are_those_of_the_draws(name: str, kind: str, request: pytest.FixtureRequest) -> None:
    result: natvi.Result = request.getfixturevalue(name)
    rows = pd.DataFrame({"x": [-1.0, 0.0, 2.0]}, index=["a", "b", "c"])
    draws = result.sample(20_000, seed=1)
    values = draws["Intercept"][:, None] + draws["x"][:, None] * rows["x"].to_numpy()
    if kind == "response":
        values = expit(values) if name == "binary" else np.exp(values)
    predicted = result.predict(rows, kind=kind, prob=0.9)
    assert list(predicted.columns) == ["mean", "sd", "q5", "q95"] and list(predicted.index) == ["a", "b", "c"]
    z = (predicted["mean"] - values.mean(0)) / (values.std(0) / np.sqrt(20_000))
    assert np.max(np.abs(z)) < 4.5
    np.testing.assert_allclose(predicted["sd"], values.std(0), rtol=0.05)
    np.testing.assert_allclose(
        predicted[["q5", "q95"]].T, np.quantile(values, [0.05, 0.95], axis=0), rtol=0.03, atol=0.02
    )


def test_predict_takes_the_training_rows_by_default(binary: natvi.Result) -> None:
    pd.testing.assert_frame_equal(binary.predict(), binary.predict(table()))


def test_log_likelihood_is_the_weighted_density(sizes: natvi.Result) -> None:
    draws, frame = sizes.sample(7, seed=2), table()
    mean = draws["Intercept"][:, None] + draws["x"][:, None] * frame["x"].to_numpy()
    expected = norm.logpdf(frame["size"], mean, draws["sigma"][:, None]) * np.repeat([1.0, 2.0], 30)
    np.testing.assert_allclose(sizes.log_likelihood(7, seed=2), expected, rtol=1e-9, atol=1e-12)


def test_log_likelihood_of_other_rows(binary: natvi.Result) -> None:
    rows = pd.DataFrame({"x": [0.3, 0.4], "event": [1, 1]})  # all equal is no mistake here
    draws = binary.sample(5, seed=0)
    eta = draws["Intercept"][:, None] + draws["x"][:, None] * rows["x"].to_numpy()
    np.testing.assert_allclose(binary.log_likelihood(5, data=rows), np.log(expit(eta)), rtol=1e-9)
    with pytest.raises(ValueError, match="no column 'event'"):
        binary.log_likelihood(5, data=rows[["x"]])


def test_replicated_responses_have_the_right_moments(counts: natvi.Result) -> None:
    replicated = counts.posterior_predictive(4000, seed=0)
    assert replicated.shape == (4000, 60) and np.all(replicated == np.floor(replicated))
    expected = counts.predict()["mean"].to_numpy()
    z = (replicated.mean(0) - expected) / (replicated.std(0) / np.sqrt(4000))
    assert np.max(np.abs(z)) < 4.5
    assert np.array_equal(replicated, counts.posterior_predictive(4000, seed=0))
    with pytest.raises(ValueError, match=r"GiB.*num_draws="):
        counts.posterior_predictive(10**8)
    with pytest.raises(ValueError, match="at least 1"):
        counts.log_likelihood(0)


def test_leave_one_out_against_fits_without_the_row(binary: natvi.Result) -> None:
    found = binary.loo()
    assert found.elpd == pytest.approx(found.elpd_each.sum()) and 1 < found.p_loo < 3 and found.pareto_k.shape == (60,)
    assert "elpd_loo" in repr(found) and found.warning == ""
    frame = table()
    for row in (0, 17):
        rest = natvi.glm("event ~ x", frame.drop(index=row), family="bernoulli").fit()
        chance = rest.predict(frame.iloc[[row]])["mean"].iloc[0]
        exact = np.log(chance if frame["event"][row] else 1 - chance)
        assert found.elpd_each[row] == pytest.approx(exact, abs=0.02)


def test_residuals(sizes: natvi.Result) -> None:
    fitted, pearson, quantile = sizes.model.residuals(0)
    np.testing.assert_allclose(fitted, sizes.predict()["mean"])
    sd = np.exp(sizes.model.mean[-1]) / np.sqrt(np.repeat([1.0, 2.0], 30))
    np.testing.assert_allclose(pearson, (table()["size"] - fitted) / sd, rtol=1e-9)
    assert abs(quantile.mean()) < 0.4 and 0.7 < quantile.std() < 1.3 and norm.cdf(quantile).min() > 0


def test_to_arviz(binary: natvi.Result) -> None:
    tree = binary.to_arviz(50, seed=1, log_likelihood=True)
    assert dict(tree["posterior"].sizes) == {"chain": 1, "draw": 50}
    np.testing.assert_array_equal(tree["log_likelihood"]["y"].values[0], binary.log_likelihood(50, seed=1))


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["binary", "sizes"])
def test_round_trip(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result: natvi.Result = request.getfixturevalue(name)
    back = natvi.load(result.save(tmp_path / "fit.natvi"))
    assert repr(back) == repr(result) and back.trust_reasons == result.trust_reasons
    pd.testing.assert_frame_equal(back.summary(), result.summary(), check_exact=True)
    pd.testing.assert_frame_equal(back.predict(table()), result.predict(table()), check_exact=True)
    for method in (back.posterior_predictive, back.log_likelihood, back.loo, back.plot_residuals, back.predict):
        with pytest.raises(ValueError, match=r"does not hold its training data.*data="):
            method()
    if name == "binary":
        np.testing.assert_array_equal(back.log_likelihood(9, data=table()), result.log_likelihood(9))
        assert back.plot_residuals(data=table()).shape == (2,)
    assert "<figure>" in back.report(tmp_path / "page.html").read_text(encoding="utf-8")


def test_arrays_round_trip(tmp_path: Path) -> None:
    result = natvi.glm_arrays(table()[["x"]], table()["event"], family="bernoulli", intercept=True).fit()
    back = natvi.load(result.save(tmp_path / "fit.natvi"))
    pd.testing.assert_frame_equal(back.predict(table()[["x"]]), result.predict(), check_exact=True)
    data = {"X": table()[["x"]], "y": table()["event"]}
    np.testing.assert_array_equal(back.log_likelihood(9, data=data), result.log_likelihood(9))
    with pytest.raises(ValueError, match="'y': y"):
        back.log_likelihood(9, data=table()[["x"]])


def test_code_in_a_formula_is_not_run(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved.parent)
    arrays, document = storage.read(saved, "fit")
    for formula in (f"{EVIL} ~ x", f"event ~ {EVIL}", "{" + EVIL + "} ~ x"):
        storage.write(saved, "fit", arrays, document | {"formula": formula})
        back = natvi.load(saved)
        repr(back), back.summary(), back.predict(table()), back.sample(10)
        with pytest.raises(ValueError):
            back.log_likelihood(3, data=table())
        assert not (saved.parent / "victim").exists()


@pytest.mark.parametrize("change", [{"family": EVIL}, {"link": EVIL}, {"columns": EVIL}, {"names": ["x"]}])
def test_other_documents_are_refused(saved: Path, change: dict) -> None:
    arrays, document = storage.read(saved, "fit")
    storage.write(saved, "fit", arrays, document | change)
    with pytest.raises(storage.StorageError, match="upgrade"):
        natvi.load(saved)


# --- pictures ----------------------------------------------------------------------------------------------


def test_plots(binary: natvi.Result, counts: natvi.Result, sizes: natvi.Result) -> None:
    assert len(sizes.plot_posterior()) == 3 and len(sizes.plot_posterior("x")) == 1
    with pytest.raises(ValueError, match=r"no parameter 'w'.*Intercept, x, sigma"):
        sizes.plot_posterior(["w"])
    assert len(sizes.plot_predictive().lines) == 51
    assert binary.plot_residuals().shape == (2,)
    bars = binary.plot_predictive()
    assert [patch.get_height() for patch in bars.patches] == table()["event"].value_counts().sort_index().tolist()
    assert binary.plot_fixed_effects().get_title() == "coefficients"
    assert sum(patch.get_height() for patch in counts.plot_predictive().patches) == 60


def test_a_page_shows_five_pictures(binary: natvi.Result, tmp_path: Path) -> None:
    page = binary.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<figure>") == 5 and "Coefficients" in page


def test_densities_of_measurements() -> None:
    from natvi.show.glm_plots import predictive_densities, smooth

    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 2.0, 5000)
    grid, density = smooth(values)
    assert np.sum(density) * (grid[1] - grid[0]) == pytest.approx(1.0, abs=0.01)
    np.testing.assert_allclose(density[150:250], norm.pdf(grid[150:250], 3, 2), atol=0.02)
    assert len(predictive_densities(values, rng.normal(3, 2, (20, 100))).lines) == 21
    assert np.all(np.isfinite(smooth(np.full(10, 2.0))[1]))
