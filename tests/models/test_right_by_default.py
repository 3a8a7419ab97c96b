"""What a newcomer tries in the first hour: columns as they are, all defaults, and the answer is right."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import natvi

needs_data = pytest.mark.skipif("NATVI_DATA" not in os.environ, reason="NATVI_DATA does not name the folder of data")


def external(name):
    return pd.read_csv(Path(os.environ["NATVI_DATA"]) / name / f"{name}.csv")


def near(fit, name, mean, sd, shift=0.1, ratio=0.1):
    row = fit.summary().loc[name]
    assert abs(row["mean"] - mean) < shift * sd, (name, row["mean"])
    assert abs(np.log(row["sd"] / sd)) < ratio, (name, row["sd"])


def test_a_year_as_it_is():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"year": np.tile(np.arange(2000, 2025), 4)})
    data["sales"] = 50 + 3 * (data["year"] - 2012) + rng.normal(0, 9, len(data))
    fit = natvi.glm("sales ~ year", data).fit()
    centred = data["year"] - data["year"].mean()
    slope = float(centred @ data["sales"] / (centred @ centred))
    near(fit, "year", slope, float(np.std(data["sales"] - slope * centred) / np.sqrt(centred @ centred)))
    assert fit.trust == "good"


def test_a_year_in_a_mixed_model():
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"year": np.tile(np.arange(2000, 2025), 10), "store": np.repeat(np.arange(10), 25)})
    data["sales"] = 50 + 3 * (data["year"] - 2012) + rng.normal(0, 20, 10)[data["store"]] + rng.normal(0, 9, 250)
    row = natvi.glmm("sales ~ year + (1 | store)", data).fit().summary().loc["year"]
    assert abs(row["mean"] - 3) < 3 * row["sd"] and row["sd"] < 0.12


@needs_data
def test_grouseticks_with_years_of_four_digits():
    data = external("grouseticks")
    data["year4"] = 1900 + data["YEAR"]
    near(natvi.glm("TICKS ~ year4 + HEIGHT", data, family="poisson").fit(), "year4", -0.465, 0.027)


def test_crabs_in_kilometres():
    crabs = natvi.data.load_crabs()
    crabs["km"] = 1e-5 * crabs["width"]
    fit = natvi.glm("y ~ km", crabs, family="bernoulli").fit()
    near(fit, "km", 50_500, 10_140, shift=0.1)
    centimetres = natvi.glm("y ~ width", crabs, family="bernoulli").fit()
    assert fit.elbo == pytest.approx(centimetres.elbo, abs=1e-8)
    assert centimetres.trust == "good"


@needs_data
def test_the_sd_of_seeds():
    """Few plates: under half-t(3, 2.5) long runs of NUTS give 0.35 with [0.08, 0.69]."""
    fit = natvi.glmm(
        "p(r, m) ~ seed*root + (1 | plate)", external("seeds").assign(plate=np.arange(21)), family="binomial"
    ).fit()
    row = fit.variance_components().iloc[0]
    assert abs(row["mean"] - 0.35) < 0.03 and abs(row["q2.5"] - 0.08) < 0.04 and abs(row["q97.5"] - 0.69) < 0.06


def test_a_random_slope_far_from_zero():
    data = natvi.data.load_sleepstudy()
    data["later"] = data["Days"] + 2000
    here = natvi.glmm("Reaction ~ Days + (Days | Subject)", data).fit()
    there = natvi.glmm("Reaction ~ later + (later | Subject)", data).fit()
    a, b = here.summary(), there.summary()
    for name in ("Days", "sd(Days|Subject)", "sigma"):
        np.testing.assert_allclose(a.loc[name], b.loc[name.replace("Days", "later")], rtol=1e-5)
    assert a.loc["sd(Days|Subject)", "mean"] == pytest.approx(6.4, abs=0.3)
    np.testing.assert_allclose(here.predict(data)["mean"], there.predict(data)["mean"], rtol=1e-6)


def test_sds_are_judged_as_strictly_as_means():
    """Long runs of NUTS give Days a posterior sd of 1.78, the Gaussian 1.56."""
    prior = {"sd(Intercept|Subject)": 50.0, "sd(Days|Subject)": 50.0, "corr": ("lkj", 1)}
    fit = natvi.glmm("Reaction ~ Days + (Days | Subject)", natvi.data.load_sleepstudy(), prior=prior).fit()
    assert fit.method == "marginal" and fit.trust == "good"
    near(fit, "Days", 10.46, 1.78, ratio=0.07)
