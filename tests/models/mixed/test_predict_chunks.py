"""Very many rows and very many groups: predictions and criticism work through slices of one size, to the same end."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import kurtosis

import natvi
from natvi.families.table import find_family
from natvi.models.mixed import predict as mixed_predict
from natvi.models.mixed.marginal import method as mixed_marginal
from natvi.models.regression import predict
from natvi.run import kept_programs


def small_binary() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(30), 4), "x": rng.uniform(-1, 1, 120)})
    eta = -0.5 + data["x"] + 1.5 * rng.standard_normal(30)[data["g"]]
    return data.assign(y=(rng.uniform(size=120) < expit(eta)).astype(int))


@pytest.fixture(scope="module", params=["gva", "marginal"])
def result(request: pytest.FixtureRequest) -> natvi.Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed_marginal, "MOST_DRAWS", 2048)
        return natvi.glmm("y ~ x + (1 | g)", small_binary(), family="bernoulli").fit(method=request.param)


def programs() -> int:
    """How many programs there are of a slice of rows."""
    plain = mixed_predict._exact_slice.__wrapped__  # type: ignore[attr-defined]
    [kept] = [kept for kept in kept_programs._all if kept._function is plain]
    return len(kept._found) + kept.usual._cache_size()


@pytest.mark.parametrize("kind", ["link", "response"])
def test_slices_change_nothing(result: natvi.Result, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = small_binary().sample(frac=1.0, random_state=1).head(23)
    rows.loc[rows.index[:3], "g"] = [100, 101, 100]
    whole = result.predict(rows, kind=kind)
    monkeypatch.setattr(predict, "CHUNK_ROWS", 7)
    table = result.predict(rows, kind=kind)
    pd.testing.assert_frame_equal(table, whole, rtol=1e-12)
    compiled = programs()
    pd.testing.assert_frame_equal(result.predict(rows.iloc[5:16], kind=kind), whole.iloc[5:16], rtol=1e-12)
    assert programs() == compiled  # another number of rows, the same program


# log g of the inverse link g
LOG_INVERSE = {
    "logit": lambda eta: -np.logaddexp(0.0, -eta),
    "cloglog": lambda eta: np.log(-np.expm1(-np.exp(np.clip(eta, -700.0, 700.0)))),
    "log": lambda eta: eta,
}


def brute_moments(link: str, m: float, s: float) -> tuple[float, float]:
    """Return mean and sd of g(eta) from a fine grid that reaches to where e^(2 eta) has its mass."""
    z = np.linspace(-12.0, 2 * s + 12.0, 200_001)
    log_weight = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + np.log(z[1] - z[0])
    log_g = LOG_INVERSE[link](m + s * z)
    first, second = logsumexp(log_weight + log_g), logsumexp(log_weight + 2 * log_g)
    return np.exp(first), np.exp(second / 2) * np.sqrt(-np.expm1(2 * first - second))


@pytest.mark.parametrize("result", ["gva"], indirect=True)
@pytest.mark.parametrize(
    ("family", "link"), [("bernoulli", "logit"), ("bernoulli", "cloglog"), ("binomial", "logit"), ("poisson", "log")]
)
def test_expected_responses_of_narrow_and_wide_predictors(result: natvi.Result, family: str, link: str) -> None:
    """The Gaussian of the fit serves every family: what counts is the way from the predictor to the response."""
    model: Any = replace(result.model, family=find_family(family, link))  # type: ignore[type-var]
    unit = result.fixed_effects().loc["x", "sd"]
    rows = pd.DataFrame({"x": np.array([0.0, 1.0, 8.0, -20.0, 20.0]) / unit, "g": [3, 3, 7, 0, 29]})
    m, s = (model.predict(rows, "link", "known", 0.9)[name].to_numpy() for name in ("mean", "sd"))
    assert s[0] < 3 and np.all(s[3:] > 19)
    table = model.predict(rows, "response", "known", 0.9)
    expected = np.array([brute_moments(link, *row) for row in zip(m, s, strict=True)])
    np.testing.assert_allclose(table["mean"], expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(table["sd"], expected[:, 1], rtol=1e-6)
    edge = m - 1.6448536269514722 * s
    np.testing.assert_allclose(table["q5"], np.exp(LOG_INVERSE[link](edge)), rtol=1e-9)


def test_new_groups_are_named(result: natvi.Result) -> None:
    rows = small_binary().head(6)
    assert result.predict(rows).attrs == {"new_groups": []}
    unseen = rows.assign(g=[0, 77, 5, 41, 77, 1])
    assert result.predict(unseen).attrs["new_groups"] == [77, 41]
    assert result.predict(unseen, groups="new").attrs["new_groups"] == []
    assert result.predict(unseen, groups="population").attrs["new_groups"] == []


def test_groups_at_hand_are_kept_when_all_are_too_many(result: natvi.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = small_binary().iloc[[3, 50, 51, 118]].assign(g=lambda d: [*d["g"].iloc[:3], 1000])
    whole = result.log_likelihood(1500, data=rows)
    monkeypatch.setattr(mixed_predict, "LARGEST_DRAW", 0)
    monkeypatch.setattr(mixed_predict, "PIECE_BYTES", 8 * 30 * 400)  # 400 draws at a time
    pieces = result.log_likelihood(1500, data=rows)
    assert pieces.shape == (1500, 4) and len(np.unique(pieces[:, 0])) > 1000
    error = np.sqrt((whole.var(axis=0) + pieces.var(axis=0)) / 1500)
    np.testing.assert_array_less(np.abs(pieces.mean(axis=0) - whole.mean(axis=0)) / error, 4.0)
    # the log of an sd has variance (kurtosis - 1) / 4n
    fourth = kurtosis(whole, axis=0, fisher=False) + kurtosis(pieces, axis=0, fisher=False)
    off = np.log(pieces.std(axis=0) / whole.std(axis=0)) / np.sqrt((fourth - 2.0) / (4 * 1500))
    np.testing.assert_array_less(np.abs(off), 4.0)
    np.testing.assert_array_equal(result.log_likelihood(1500, data=rows), pieces)
