"""Power-scaling sensitivity: known for a Gaussian, and at the door of a fit."""

import numpy as np
import pandas as pd

import natvi
from natvi.judge.sensitivity import sensitivity_table


def test_a_component_that_does_not_matter_has_no_weight():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    flat, peaked = np.zeros(4000), -0.5 * x**2
    table = sensitivity_table({"x": x}, flat + 1e-9 * rng.normal(size=4000), peaked)
    assert table.loc["x", "prior"] < 0.01 and table.loc["x", "likelihood"] > 0.05
    assert table.loc["x", "diagnosis"] == "good"
    reverse = sensitivity_table({"x": x}, peaked, flat + 1e-9 * rng.normal(size=4000))
    assert "the prior decides" in reverse.loc["x", "diagnosis"]


def test_fits_tell_where_the_prior_decides():
    crabs = natvi.data.load_crabs()
    crabs["noise"] = 1e-6 * np.random.default_rng(0).normal(size=len(crabs))
    fit = natvi.glm("y ~ width + noise", crabs, family="bernoulli", prior={"noise": 1.0}).fit()
    table = fit.prior_sensitivity()
    assert list(table.columns) == ["prior", "likelihood", "diagnosis"]
    assert "the prior decides" in table.loc["noise", "diagnosis"] and table.loc["width", "prior"] < 0.05
    assert fit.prior_check == "doubtful" and "noise" in fit.prior_check_reasons[0]
    assert "Prior against the data: ! doubtful" in repr(fit)


def test_mixed_models_too():
    model = natvi.glmm("Reaction ~ Days + (Days | Subject)", natvi.data.load_sleepstudy())
    fit = model.fit(method="gva")
    assert set(fit.prior_sensitivity(400).index) == set(fit.summary().index)
    assert fit.prior_check == "good"
    drawn = model.prior_predictive(300)
    assert drawn.shape == (300, 180) and abs(np.median(drawn) - 298.5) < 60


def test_an_sd_that_two_groups_cannot_tell_is_named_with_a_cure_that_works():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=30), "g": np.arange(30) % 2})
    data["y"] = 1 + data["x"] + rng.normal(size=30)
    fit = natvi.glmm("y ~ x + (1 | g)", data).fit()
    assert fit.prior_check == "doubtful" and "the data say little about sd(Intercept|g)" in fit.prior_check_reasons[0]
    pulled = natvi.glmm("y ~ x + (1 | g)", data, prior={"sd": ("half_normal", 0.001)}).fit()
    assert any("the data say little about sd(Intercept|g)" in words for words in pulled.prior_check_reasons)
