"""Uncorrelated random effects, `(x || g)`: the sleep study, and the correlated model squeezed to the same."""

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.data import load_sleepstudy
from natvi.result.trust import Trust

APART = "Reaction ~ Days + (Days || Subject)"
NAMES = ["sd(Intercept|Subject)", "sd(Days|Subject)", "sigma"]


@cache
def fit_apart(prior: str = "default") -> natvi.Result:
    return natvi.glmm(APART, load_sleepstudy(), prior=prior).fit(method="gva")


def test_sleepstudy_agrees_with_lme4() -> None:
    result = fit_apart()
    assert result.outcome == "converged"
    fixed, components = result.fixed_effects(), result.variance_components()
    for term, value in {"Intercept": 251.405, "Days": 10.467}.items():
        assert abs(fixed.loc[term, "mean"] - value) < 0.1 * fixed.loc[term, "sd"]
    assert list(components.index) == NAMES  # no correlation is a parameter
    for name, value in zip(NAMES, (25.05, 5.99, 25.57), strict=True):
        assert abs(components.loc[name, "mean"] - value) < 0.4 * components.loc[name, "sd"]


@pytest.mark.slow
def test_a_correlation_squeezed_to_zero_gives_the_same() -> None:
    model = natvi.glmm("Reaction ~ Days + (Days | Subject)", load_sleepstudy(), prior="paper")
    sd = model.prior.sd.copy()
    sd[4] = 1e-5  # of W_21, after two coefficients, log sigma and log W_11; W_11 and W_22 are about 1/25 and 1/6
    squeezed = dataclasses.replace(model, prior=model.prior._replace(sd=sd)).fit(method="gva")
    apart = fit_apart("paper")
    assert squeezed.elbo == pytest.approx(apart.elbo, abs=1e-4)
    # the tables of the squeezed model come from draws
    np.testing.assert_allclose(squeezed.fixed_effects(), apart.fixed_effects(), rtol=1e-4)
    together = squeezed.variance_components()
    assert abs(together.loc["corr(Intercept,Days|Subject)", "mean"]) < 1e-3
    exact = apart.variance_components()
    z = (together.loc[NAMES, "mean"] - exact["mean"]) / (exact["sd"] / np.sqrt(4000))
    assert z.abs().max() < 4.5


def test_draws_and_tables_agree() -> None:
    result, many = fit_apart(), 4000
    draws = result.sample(many, seed=1)
    assert set(draws) == {*result.summary().index, "Intercept|Subject", "Days|Subject"}
    table = result.variance_components()
    for name in NAMES:  # lognormal, so the table is exact
        z = (draws[name].mean() - table.loc[name, "mean"]) / (table.loc[name, "sd"] / np.sqrt(many))
        assert abs(z) < 4.5


def test_new_groups_have_independent_effects() -> None:
    result, rows, many = fit_apart(), pd.DataFrame({"Days": [0.0, 9.0]}), 100_000
    draws = result.sample(many, seed=5, random_effects=False)
    z = np.random.default_rng(6).standard_normal((2, many))
    slope = draws["Days"] + draws["sd(Days|Subject)"] * z[1]
    eta = (draws["Intercept"] + draws["sd(Intercept|Subject)"] * z[0])[:, None] + np.outer(slope, rows["Days"])
    table = result.predict(rows, groups="new")
    error = eta.std(0) * np.sqrt(1 / many + 1 / 2000)
    assert np.abs((eta.mean(0) - table["mean"]) / error).max() < 4.5
    np.testing.assert_allclose(table["sd"], eta.std(0), rtol=0.1)


def test_saved_fits_stay_uncorrelated(tmp_path: Path) -> None:
    result = fit_apart()
    result.__dict__["_trust"] = Trust("good", ("not looked at here",))
    back = natvi.load(result.save(tmp_path / "fit"))
    pd.testing.assert_frame_equal(back.summary(), result.summary(), check_exact=True)
    rows = load_sleepstudy().head(3)
    for groups in ("known", "new"):
        expected = result.predict(rows, groups=groups)
        pd.testing.assert_frame_equal(back.predict(rows, groups=groups), expected, check_exact=True)
