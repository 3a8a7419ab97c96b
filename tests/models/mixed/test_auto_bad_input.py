"""Data that leave a mixed model open, by the default method: finite tables, and words that name the trouble."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import natvi
from natvi.models.mixed.marginal import density as density
from natvi.models.mixed.marginal import method as mixed_marginal


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws; the words are the same."""
    monkeypatch.setattr(mixed_marginal, "FIRST_DRAWS", 2048)
    monkeypatch.setattr(mixed_marginal, "MOST_DRAWS", 2048)
    monkeypatch.setattr(mixed_marginal, "MOST_ROUNDS", 1)
    monkeypatch.setattr(mixed_marginal, "MOST_MIXTURES", 0)


def fit_and_read(data: pd.DataFrame, formula: str = "y ~ x + (1 | g)") -> tuple[natvi.Result, str]:
    """Fit with all defaults; return the result and all that is said about it."""
    result = natvi.glmm(formula, data, family="bernoulli").fit()
    assert np.all(np.isfinite(result.summary().to_numpy(dtype=float)))
    assert np.all(np.isfinite(result.random_effects()[["mean", "sd"]].to_numpy()))
    assert np.all(np.isfinite(result.predict(data.head(3)).to_numpy()))
    notes = " ".join(text for label, text in result.model.headline if label == "note")
    return result, " ".join([notes, *result.trust_reasons])


@pytest.mark.slow
def test_equal_responses_within_every_group() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(40), 5), "x": rng.normal(size=200)})
    result, words = fit_and_read(data.assign(y=lambda d: rng.integers(0, 2, 40)[d["g"]]))
    assert result.trust != "good" and "nothing limits the variance between groups but the prior" in words
    assert "sd(Intercept|g) may be very large" in words and "prior={'sd': ('half_normal', 2.5)}" in words


def test_quasi_separation() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(40), 5), "z": 1 * (rng.uniform(size=200) < 0.2)})
    chance = expit(rng.standard_normal(40)[data["g"]])
    data["y"] = 1 * ((rng.uniform(size=200) < chance) | (data["z"] == 1))
    result, words = fit_and_read(data, "y ~ z + (1 | g)")  # of the same shapes as above: nothing new is compiled
    assert result.trust != "good" and "column 'z' separates the responses" in words and "separation" in words


def test_one_large_group_among_single_rows() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.r_[np.zeros(3000, int), 1:60]})
    data["x"] = rng.normal(size=len(data))
    chance = expit(rng.standard_normal(60)[data["g"]] + 0.5 * data["x"])
    result, words = fit_and_read(data.assign(y=1 * (rng.uniform(size=len(data)) < chance)))
    assert "59 of 60 groups have a single row" in words
    assert abs(result.summary().loc["x", "mean"] - 0.5) < 0.15


@pytest.mark.slow
def test_thousands_of_single_rows() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.arange(1500), "x": rng.normal(size=1500)})
    _, words = fit_and_read(data.assign(y=1 * (rng.uniform(size=1500) < expit(0.5 * data["x"]))))
    assert "every group of g has a single row: the variance is poorly determined" in words
