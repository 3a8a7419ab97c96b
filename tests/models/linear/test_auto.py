"""`method="auto"` of linear models: the Gaussian where it passes its check, weighted draws where it does not."""

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.data import load_crabs
from natvi.models.linear.check import measure_shape
from natvi.models.linear.corrected import CorrectedFit


@pytest.fixture(scope="module")
def rare() -> pd.DataFrame:
    """Few counts, nearly all zero: the posterior of the intercept is lopsided."""
    return pd.DataFrame({"y": [0] * 11 + [1], "x": np.linspace(-1, 1, 12)})


def exact_moments(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, float]:
    """Means, sds and log evidence on a grid, under N(0, 10^2)."""
    axes = np.linspace(-45, 12, 500), np.linspace(-45, 45, 500)
    theta = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    eta = theta @ np.stack([np.ones(len(frame)), frame["x"]])
    log_p = eta @ frame["y"].to_numpy() - np.exp(eta).sum(axis=1)
    log_p += np.sum(-0.5 * (theta / 10) ** 2 - np.log(10 * np.sqrt(2 * np.pi)), axis=1)
    weight = np.exp(log_p - log_p.max())
    cell = np.prod([a[1] - a[0] for a in axes])
    mean = weight @ theta / weight.sum()
    sd = np.sqrt(weight @ (theta - mean) ** 2 / weight.sum())
    return mean, sd, float(log_p.max() + np.log(weight.sum() * cell))


def test_crabs_stay_with_the_gaussian_and_number_and_verdict_agree() -> None:
    result = natvi.glm("y ~ width", load_crabs(), family="bernoulli").fit()
    assert (result.method, result.optimizer) == ("gva", "ascent") and result.trust == "good"
    assert result.diagnostics().loc["Pareto k of the check", "value"] < 0.7
    assert measure_shape(result.model, result.model.rows).k < 0.7


def test_a_lopsided_posterior_goes_on_and_is_right(rare: pd.DataFrame, tmp_path) -> None:
    model = natvi.glm("y ~ x", rare, family="poisson", prior="paper")
    plain, result = model.fit(method="gva"), model.fit()
    mean, sd, evidence = exact_moments(rare)
    off = np.abs(np.log(plain.summary()["sd"] / sd)).max()
    assert off > 0.1 and plain.trust != "good" and "method='auto' or 'psis'" in " ".join(plain.trust_reasons)
    assert result.method == "psis" and isinstance(result.model, CorrectedFit) and result.trust == "good"
    table = result.summary()
    assert np.all(np.abs(table["mean"] - mean) < 0.1 * sd) and np.all(np.abs(np.log(table["sd"] / sd)) < 0.1)
    assert abs(result.elbo - evidence) < 4 * result.elbo_se + 0.01 and plain.elbo < evidence
    text = repr(result)
    assert "psis, since under the Gaussian" in text and "weighted draws" in text
    assert not any(word in text for word in ("Pareto", "nats", "omega", "worth"))
    # draws, predictions, cross-validation and files go with the corrected posterior
    draws = result.sample(4000)
    assert abs(draws["x"].mean() - mean[1]) < 0.15 * sd[1]
    assert result.predict().shape == (12, 4) and np.all(np.isfinite(result.predict(kind="link").to_numpy()))
    assert np.isfinite(result.loo().elpd) and result.model_check == "good"
    result.save(tmp_path / "fit")
    back = natvi.load(tmp_path / "fit")
    assert repr(back) == repr(result) and back.summary().equals(table)


def test_psis_may_be_asked_for(rare: pd.DataFrame) -> None:
    plain = natvi.glm("y ~ width", load_crabs(), family="bernoulli").fit(method="gva")
    asked = natvi.glm("y ~ width", load_crabs(), family="bernoulli").fit(method="psis")
    assert asked.method == "psis" and asked.trust == "good"
    np.testing.assert_allclose(asked.summary()["mean"], plain.summary()["mean"], atol=0.1 * plain.summary()["sd"].min())
    with pytest.raises(ValueError, match="'psis'"):
        natvi.glm("y ~ x", rare, family="poisson").fit(method="nuts")
