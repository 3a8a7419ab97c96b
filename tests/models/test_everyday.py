"""What a new user tries in the first hour, mistakes included."""

import copy
import pickle
import sys
import types
from typing import Any

import cloudpickle
import jax
import numpy as np
import pandas as pd
import pytest

import natvi

RNG = np.random.default_rng(2)
TABLE = pd.DataFrame({"x": RNG.normal(size=48), "zero": 0.0, "g": np.repeat(np.arange(8), 6)})
TABLE["y"] = TABLE["x"] + np.repeat(RNG.normal(size=8), 6) + RNG.normal(size=48)
TABLE["event"] = (TABLE["y"] > 0).astype(int)


@pytest.fixture(scope="module")
def events() -> natvi.Result:
    return natvi.glmm("event ~ x + (1 | g)", TABLE, family="binary").fit(method="gva")


def test_predictions_of_the_training_rows(events: natvi.Result) -> None:
    for groups in ("known", "new", "population"):
        np.testing.assert_allclose(events.predict(groups=groups), events.predict(TABLE, groups=groups), rtol=1e-12)
    linear = natvi.glm("y ~ x", TABLE).fit()
    np.testing.assert_allclose(linear.predict(), linear.predict(TABLE), rtol=1e-12)
    with pytest.raises(ValueError, match="loaded from a file"):
        pickle.loads(pickle.dumps(events)).predict()


def test_fitted_models_travel(events: natvi.Result) -> None:
    ways: list[Any] = [lambda m: pickle.loads(pickle.dumps(m)), lambda m: cloudpickle.loads(cloudpickle.dumps(m))]
    for way in (*ways, copy.deepcopy):
        again = way(events.model)
        assert again.family is events.model.family
        pd.testing.assert_frame_equal(again.tables(0.9)["coefficients"], events.model.tables(0.9)["coefficients"])


def test_no_fixed_effects() -> None:
    for response, family in (("y", "normal"), ("event", "binary")):
        fit = natvi.glmm(f"{response} ~ 0 + (1 | g)", TABLE, family=family).fit(method="gva")
        assert str(fit.outcome) == "converged" and fit.fixed_effects().empty
        assert np.all(np.isfinite(fit.predict()))
        assert "sd(Intercept|g)" in fit.summary().index


def test_settings_of_noisy_steps_are_not_ignored() -> None:
    model = natvi.glm("y ~ x", TABLE)
    for name, value in (("optimizer", "adam"), ("order", 2), ("num_samples", 3)):
        with pytest.raises(ValueError, match=rf"{name}.* is for noisy steps"):
            model.fit(**{name: value})
    with pytest.raises(ValueError, match=r"optimizer must be one of 'ascent', .*, not 'bogus'"):
        model.fit(optimizer="bogus")


@pytest.mark.parametrize(
    ("family", "name"),
    [("normal", "gaussian"), ("gaussian ", "gaussian"), ("Gaussian", "gaussian"), ("binary", "bernoulli")]
    + [("nbinom2", "negative_binomial"), ("negative-binomial", "negative_binomial"), ("logistic", "bernoulli")],
)
def test_families_by_other_names(family: str, name: str) -> None:
    assert natvi.glm("event ~ x", TABLE, family=family).family.name == name


def test_families_that_are_not_there() -> None:
    for family, words in (("probit", "link='probit'"), ("quasipoisson", "negative_binomial"), ("cauchy", "Known:")):
        with pytest.raises(ValueError) as caught:
            natvi.glm("event ~ x", TABLE, family=family)
        assert words in str(caught.value)


def test_effects_without_a_column() -> None:
    for formula in ("y ~ x + (1 + zero | g)", "y ~ x + (0 + zero | g)"):
        with pytest.raises(ValueError, match=r"'zero' has a column that is zero in every row.*Leave it out"):
            natvi.glmm(formula, TABLE)


def test_numbers_whose_squares_overflow() -> None:
    huge = TABLE.assign(y=TABLE["y"] * 1e155)
    for call in (lambda: natvi.glm("y ~ x", huge), lambda: natvi.glmm("y ~ x + (1 | g)", huge)):
        with pytest.raises(ValueError, match=r"'y' holds numbers up to .*e\+155.*divide it by 1e155"):
            call()
    with pytest.raises(ValueError, match="'x' holds numbers"):
        natvi.glm("event ~ x", TABLE.assign(x=TABLE["x"] * 1e155), family="binary")


def test_cross_validation_by_few_draws(events: natvi.Result) -> None:
    for fit in (events, natvi.glm("y ~ x", TABLE).fit()):
        assert np.all(np.isinf(fit.loo(num_draws=3).pareto_k))
        plenty = fit.loo(num_draws=400)
        each = fit.log_likelihood(num_draws=400)
        assert np.isfinite(plenty.elpd) and plenty.elpd < np.sum(np.log(np.mean(np.exp(each), axis=0)))


def test_inferencedata_of_older_arviz(events: natvi.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'datatree' or 'inferencedata'"):
        events.to_arviz(5, kind="xarray")
    old: Any = types.ModuleType("arviz")
    old.InferenceData, old.from_dict = object, lambda **groups: groups
    monkeypatch.setitem(sys.modules, "arviz", old)
    made = events.to_arviz(5, log_likelihood=True, kind="inferencedata")
    assert made["posterior"]["x"].shape == (1, 5) and made["log_likelihood"]["y"].shape == (1, 5, 48)
    assert made["dims"] == {"Intercept|g": ["g"]}
    del old.InferenceData
    with pytest.raises(ImportError, match="no InferenceData any more"):
        events.to_arviz(5, kind="inferencedata")
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="pip install 'arviz<1'"):
        events.to_arviz(5, kind="inferencedata")


SWITCHES = {
    "debug_nans": lambda: jax.debug_nans(True),
    "types": lambda: jax.numpy_dtype_promotion("strict"),
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "transfers": lambda: jax.transfer_guard("disallow"),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_fits_run_under_the_switches_of_a_developer(switch: str, events: natvi.Result) -> None:
    with SWITCHES[switch]():
        linear = natvi.glm("y ~ x", TABLE).fit()
        mixed = natvi.glmm("event ~ x + (1 | g)", TABLE, family="binary").fit(method="gva")
        assert linear.trust and np.all(np.isfinite(linear.predict()))
        mixed.sample(4)
        assert np.all(np.isfinite(mixed.predict()))
    assert mixed.elbo == events.elbo
