"""Every family and link inside a mixed model: convergence from the default start, recovery, tables, predictions."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.special

import natvi
from natvi.families.table import find_family, links_of
from natvi.result.trust import Trust
from natvi.run import storage

INVERSE = {
    "identity": lambda eta: eta,
    "log": np.exp,
    "logit": scipy.special.expit,
    "probit": scipy.special.ndtr,
    "cloglog": lambda eta: -np.expm1(-np.exp(eta)),
}
BETA, EFFECT_SD, SIGMA, PHI, SHAPE = (0.3, 0.6), 0.7, 0.5, 3.0, 4.0
DISPERSION = {
    "gaussian": ("sigma", SIGMA),
    "negative_binomial": ("1/sqrt(phi)", PHI**-0.5),
    "gamma": ("1/sqrt(shape)", SHAPE**-0.5),
}
NAMES = ("gaussian", "poisson", "negative_binomial", "gamma", "bernoulli", "binomial")
CASES = [(name, link) for name in NAMES for link in links_of(name)]


@cache
def simulate(name: str, link: str) -> pd.DataFrame:
    """Draw 40 groups of 5 rows."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(40), 5)
    x, trials = rng.standard_normal(200), rng.integers(2, 12, 200)
    mu = INVERSE[link](BETA[0] + BETA[1] * x + EFFECT_SD * rng.standard_normal(40)[group])
    y = {
        "gaussian": lambda: rng.normal(mu, SIGMA),
        "poisson": lambda: rng.poisson(mu),
        "negative_binomial": lambda: rng.negative_binomial(PHI, PHI / (PHI + mu)),
        "gamma": lambda: rng.gamma(SHAPE, mu / SHAPE),
        "bernoulli": lambda: rng.binomial(1, mu),
        "binomial": lambda: rng.binomial(trials, mu),
    }[name]()
    return pd.DataFrame({"y": y, "n": trials, "x": x, "g": group})


@cache
def fitted(name: str, link: str) -> natvi.Result:
    left = "p(y, n)" if name == "binomial" else "y"
    model = natvi.glmm(f"{left} ~ x + (1 | g)", simulate(name, link), family=name, link=link)
    if name == "bernoulli":  # a binomial of one trial, whose code is compiled already
        model = dataclasses.replace(model, family=find_family("binomial", link), weight=np.ones(200))
    return model.fit(method="gva")


@pytest.mark.parametrize(("name", "link"), CASES)
def test_converges_from_the_default_start_and_recovers(name: str, link: str) -> None:
    result = fitted(name, link)
    assert result.outcome == "converged" and np.isfinite(result.elbo)
    assert np.all(np.diff(result.trace) >= -1e-12 * abs(result.elbo)) and len(result.trace) < 60
    truth = {"Intercept": BETA[0], "x": BETA[1], "sd(Intercept|g)": EFFECT_SD}
    if name in DISPERSION:
        parameter, value = DISPERSION[name]
        truth[parameter] = value
    table = result.summary()
    assert list(table.index) == list(truth)
    z = (table["mean"] - pd.Series(truth)) / table["sd"]
    assert z.abs().max() < 4
    assert table["sd"].max() < 1.5 + (0.5 * PHI if name == "negative_binomial" else 0.0)


@pytest.mark.parametrize(("name", "link"), [("binomial", "cloglog"), ("gamma", "log"), ("negative_binomial", "log")])
def test_predictions_agree_with_draws(name: str, link: str) -> None:
    """The expected response of a binomial row is the proportion of successes: no trials are asked for."""
    result, many = fitted(name, link), 4000
    rows = simulate(name, link).iloc[[0, 57, 123]][["x", "g"]]
    draws = result.sample(many, seed=2)
    eta = draws["Intercept"][:, None] + np.outer(draws["x"], rows["x"]) + draws["Intercept|g"][:, rows["g"]]
    for kind, values in (("link", eta), ("response", INVERSE[link](eta))):
        table = result.predict(rows, kind=kind)
        assert np.abs((values.mean(0) - table["mean"]) / (values.std(0) / np.sqrt(many))).max() < 4.5
        np.testing.assert_allclose(table["sd"], values.std(0), rtol=0.1)
    fresh = result.predict(rows, groups="new")
    assert np.all(fresh["q97.5"] - fresh["q2.5"] > table["q97.5"] - table["q2.5"])


class Stored(NamedTuple):
    name: str
    link: str
    words: str


@pytest.mark.parametrize(
    "case",
    [
        Stored("binomial", "probit", "binomial response (proportion of successes), probit link"),
        Stored("negative_binomial", "log", "negative_binomial response, log link"),
    ],
    ids=["binomial", "negative_binomial"],
)
def test_saved_fits_keep_their_link(case: Stored, tmp_path: Path) -> None:
    result, data = fitted(case.name, case.link), simulate(case.name, case.link)
    result.__dict__["_trust"] = Trust("good", ("not looked at here",))
    back = natvi.load(result.save(tmp_path / "fit"))
    assert case.words in repr(result) and repr(back) == repr(result)
    pd.testing.assert_frame_equal(back.predict(data.head(3)), result.predict(data.head(3)), check_exact=True)


def test_files_without_a_link_have_the_default_one(tmp_path: Path) -> None:
    result = fitted("poisson", "log")
    result.__dict__["_trust"] = Trust("good", ("not looked at here",))
    arrays, document = storage.read(result.save(tmp_path / "fit"), "fit")
    del document["link"], document["correlated"]
    storage.write(tmp_path / "old", "fit", arrays, document)
    back = natvi.load(tmp_path / "old")
    pd.testing.assert_frame_equal(back.summary(), result.summary(), check_exact=True)


def test_names_of_the_dispersion_keep_apart() -> None:
    data = simulate("gamma", "log").rename(columns={"x": "shape"})
    result = natvi.glmm("y ~ shape + (1 | g)", data, family="gamma").fit(method="gva")
    assert list(result.summary().index) == ["Intercept", "shape", "sd(Intercept|g)", "1/sqrt(residual shape)"]
    drawn = result.sample(10)
    np.testing.assert_allclose(drawn["1/sqrt(residual shape)"], drawn["residual shape"] ** -0.5)


def test_links_are_checked() -> None:
    with pytest.raises(ValueError, match=r"no link 'probit'.*Its only link is 'log'"):
        natvi.glmm("y ~ x + (1 | g)", simulate("poisson", "log"), family="poisson", link="probit")
