"""The model against its data: what is wrong is named with a cure, and what is right is left alone."""

import os

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.judge.predictive import Replicated, check_model
from natvi.judge.replicate import CHECK_ROWS, draw_responses

N, DRAWS = 400, 200


def replicated(y: np.ndarray, family: str, mean: np.ndarray, log_dispersion: float | None = None) -> Replicated:
    means = np.tile(mean, (DRAWS, 1))
    disp = None if log_dispersion is None else np.full((DRAWS, 1), log_dispersion)
    variance = {
        "poisson": means,
        "bernoulli": means * (1 - means),
        "gaussian": np.full_like(means, np.exp(2 * (log_dispersion or 0.0))),
        "negative_binomial": means + means**2 * np.exp(-(log_dispersion or 0.0)),
        "gamma": means**2 * np.exp(-(log_dispersion or 0.0)),
    }[family]
    return Replicated(y, draw_responses(family, means, disp, None, np.random.default_rng(1)), means, variance)


@pytest.mark.parametrize(
    ("family", "log_dispersion"),
    [("poisson", None), ("gaussian", 0.4), ("negative_binomial", 0.3), ("gamma", 1.0), ("bernoulli", None)],
)
def test_data_of_the_model_are_good(family: str, log_dispersion: float | None) -> None:
    mean = np.linspace(0.1, 0.9, N) * (1.0 if family == "bernoulli" else 8.0)
    disp = None if log_dispersion is None else np.full((1, 1), log_dispersion)
    alarms = 0
    for seed in range(20):
        y = draw_responses(family, mean[None], disp, None, np.random.default_rng(seed))[0]
        alarms += check_model(replicated(y, family, mean, log_dispersion), family).level != "good"
    assert alarms <= 1


@pytest.mark.parametrize(("curve", "verdict"), [(0.0, "good"), (1.0, "doubtful")], ids=["right", "wrong"])
def test_effects_of_groups_drawn_towards_their_mean_raise_no_alarm(curve: float, verdict: str) -> None:
    """Estimated from ten yes/no responses each, they leave gaps wherever rows are put together by them."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        g, x = np.repeat(np.arange(200), 10), rng.normal(size=2000)
        eta = 0.7 * x - 0.3 + curve * (x**2 - 1.0) + 0.8 * rng.normal(size=200)[g]
        frame = pd.DataFrame({"y": (rng.logistic(size=2000) < eta).astype(int), "x": x, "g": g})
        assert natvi.glmm("y ~ x + (1 | g)", frame, family="bernoulli").fit(method="gva").model_check == verdict


def test_replicated_responses_have_the_moments_of_their_family() -> None:
    rng, mean = np.random.default_rng(0), np.full((20_000, 1), 3.0)
    for family, variance in (
        ("poisson", 3.0),
        ("negative_binomial", 3.0 + 9.0 / 2),
        ("gamma", 9.0 / 2),
        ("gaussian", 4),
    ):
        disp = None if family == "poisson" else np.full((20_000, 1), np.log(2.0))
        drawn = draw_responses(family, mean, disp, None, rng)
        assert drawn.mean() == pytest.approx(3.0, abs=0.1) and drawn.var() == pytest.approx(variance, rel=0.06)
    drawn = draw_responses("binomial", np.full((20_000, 1), 0.3), None, np.array([10.0]), rng)
    assert drawn.mean() == pytest.approx(3.0, abs=0.1) and drawn.var() == pytest.approx(2.1, rel=0.06)


def words(y: np.ndarray, family: str, mean: np.ndarray, log_dispersion: float | None = None) -> str:
    found = check_model(replicated(y, family, mean, log_dispersion), family)
    assert found.level == "doubtful"
    return " | ".join(found.reasons)


def test_overdispersion_asks_for_the_negative_binomial() -> None:
    mean = np.full(N, 5.0)
    y = draw_responses("negative_binomial", mean[None], np.zeros((1, 1)), None, np.random.default_rng(2))[0]
    assert "family='negative_binomial'" in words(y, "poisson", mean)


def test_too_many_zeros_ask_for_zero_inflation() -> None:
    rng, mean = np.random.default_rng(3), np.full(N, 4.0)
    y = rng.poisson(6.0, N) * (rng.uniform(size=N) < 2 / 3)
    assert "zero inflation" in words(y.astype(float), "negative_binomial", mean, 1.0)


def test_outliers_are_named() -> None:
    y = np.random.default_rng(4).standard_normal(N)
    y[7] = 25.0
    assert "the largest response is 25" in words(y, "gaussian", np.zeros(N), float(np.log(y.std())))


def test_curvature_shows_in_the_calibration() -> None:
    x = np.linspace(-3, 3, N)
    y = (np.random.default_rng(5).uniform(size=N) < 1 / (1 + np.exp(-(x**2 - 3)))).astype(float)
    assert "another link" in words(y, "bernoulli", np.linspace(0.3, 0.7, N))


def test_ratings_ask_for_an_ordinal_model() -> None:
    y = np.random.default_rng(6).integers(1, 6, N).astype(float)
    found = words(y, "gaussian", np.full(N, 3.0), float(np.log(y.std())))
    assert "whole values 1 to 5" in found and "try family='ordinal'" in found
    assert "family='bernoulli'" in words((y > 3).astype(float), "gaussian", np.full(N, 0.4), -0.7)


@pytest.mark.skipif("NATVI_DATA" not in os.environ, reason="NATVI_DATA is not set: InstEval is not here")
def test_insteval_under_a_gaussian_is_doubtful() -> None:
    frame = pd.read_csv(f"{os.environ['NATVI_DATA']}/insteval/InstEval.csv.gz")
    result = natvi.glmm("y ~ service + (1 | s)", frame).fit(method="gva")
    assert result.model_check == "doubtful" and "ordinal" in result.model_check_reasons[0]
    text = repr(result)
    assert "Model against the data: ! doubtful" in text and "1 to 5" in text


def test_many_rows_are_thinned_and_the_check_is_kept_with_the_fit(tmp_path) -> None:
    rng = np.random.default_rng(7)
    data = pd.DataFrame({"x": rng.normal(size=3 * CHECK_ROWS)})
    data["y"] = rng.poisson(np.exp(0.5 + 0.3 * data["x"]) * rng.gamma(1.0, 1.0, len(data)))
    result = natvi.glm("y ~ x", data, family="poisson").fit()
    assert result.model_check == "doubtful" and result.model_check_reasons
    result.save(tmp_path / "fit")
    back = natvi.load(tmp_path / "fit")
    assert (back.model_check, back.model_check_reasons) == (result.model_check, result.model_check_reasons)
    assert back.diagnostics().equals(result.diagnostics())
    assert natvi.glm("y ~ x", data, family="negative_binomial").fit().model_check == "good"
    # a file of an earlier natvi has no such verdict
    back.__dict__.pop("_model_check")
    assert back.model_check == "not checked"
