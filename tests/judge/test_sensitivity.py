"""Power-scaling sensitivity: known for a Gaussian, and at the door of a fit."""

import numpy as np

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
