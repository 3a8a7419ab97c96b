"""The further families inside models: recovery, questions, files, wrong responses, verdicts that name them."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import natvi
from natvi.families.table import find_family

N, GROUPS = 320, 40
BETA, EFFECT_SD = (0.4, 0.5), 0.6


class Case(NamedTuple):
    family: str
    link: str | None
    left: str
    truth: dict[str, float]


CASES = {
    "geometric": Case("geometric", None, "y", {}),
    "lognormal": Case("lognormal", None, "y", {"sigma": 0.5}),
    "gaussian-log": Case("gaussian", "log", "y", {"sigma": 0.5}),
    "exponential": Case("exponential", None, "cens(y, status)", {}),
    "weibull": Case("weibull", None, "cens(y, status)", {"shape": 1.7}),
    "student_t(4)": Case("student_t(4)", None, "y", {"sigma": 0.5}),
    "student_t": Case("student_t", None, "y", {"sigma": 0.5, "1/nu": 0.25}),
    "beta": Case("beta", None, "y", {"1/sqrt(phi)": 6**-0.5}),
    "zip": Case("zero_inflated_poisson", None, "y", {"zero": 0.3}),
    "zinb": Case("zero_inflated_negative_binomial", None, "y", {"1/sqrt(phi)": 2**-0.5, "zero": 0.3}),
    "hurdle": Case("hurdle_poisson", None, "y", {"zero": 0.3}),
    "hurdle-nb": Case("hurdle_negative_binomial", None, "y", {"1/sqrt(phi)": 2**-0.5, "zero": 0.3}),
    "ordinal": Case("ordinal", "logit", "y", {"width(2)": 1.2, "width(3)": 0.9}),
    "ordinal-probit": Case("ordinal", "probit", "y", {"width(2)": 1.2, "width(3)": 0.9}),
}
GROUPED = ("ordinal", "zip", "student_t", "weibull")


@cache
def simulate(name: str, grouped: bool) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    g, x = np.repeat(np.arange(GROUPS), N // GROUPS), rng.standard_normal(N)
    eta = BETA[0] + BETA[1] * x + (EFFECT_SD * rng.standard_normal(GROUPS))[g] * grouped
    mu, case = np.exp(eta), CASES[name]

    def counts() -> np.ndarray:
        return rng.poisson(mu * rng.gamma(2.0, 0.5, N) if "negative" in case.family else mu)

    def positive() -> np.ndarray:
        y = counts()
        while (y == 0).any():
            y = np.where(y == 0, counts(), y)
        return y

    latent = eta + (rng.standard_normal(N) if case.link == "probit" else rng.logistic(size=N))
    y = {
        "geometric": lambda: rng.geometric(1 / (1 + mu)) - 1,
        "lognormal": lambda: np.exp(eta + 0.5 * rng.standard_normal(N)),
        "gaussian-log": lambda: mu + 0.5 * rng.standard_normal(N),
        "exponential": lambda: rng.exponential(mu),
        "weibull": lambda: (rng.exponential(size=N) / mu) ** (1 / 1.7),
        "beta": lambda: rng.beta(6 * expit(eta), 6 * expit(-eta)),
        "zip": lambda: np.where(rng.uniform(size=N) < 0.3, 0, counts()),
        "zinb": lambda: np.where(rng.uniform(size=N) < 0.3, 0, counts()),
        "hurdle": lambda: np.where(rng.uniform(size=N) < 0.3, 0, positive()),
        "hurdle-nb": lambda: np.where(rng.uniform(size=N) < 0.3, 0, positive()),
    }.get(name, lambda: eta + 0.5 * rng.standard_t(4, size=N))()
    if case.family == "ordinal":
        y = 1 + np.sum(latent[:, None] > np.array([0.0, 1.2, 2.1]), axis=1)
    frame = pd.DataFrame({"y": y, "x": x, "g": g})
    if case.left != "y":
        end = rng.exponential(4.0, N)
        frame["status"] = (frame["y"] <= end).astype(int)
        frame["y"] = np.minimum(frame["y"], end)
    return frame


@cache
def fitted(name: str, grouped: bool = False) -> natvi.Result:
    case, data = CASES[name], simulate(name, grouped)
    if grouped:
        return natvi.glmm(f"{case.left} ~ x + (1 | g)", data, family=case.family, link=case.link).fit(method="gva")
    return natvi.glm(f"{case.left} ~ x", data, family=case.family, link=case.link).fit(method="gva")


@pytest.mark.parametrize("name", CASES)
def test_converges_and_recovers(name: str):
    result, case = fitted(name), CASES[name]
    assert result.outcome == "converged" and np.all(np.diff(result.trace) >= -1e-9 * abs(result.elbo))
    table = result.summary()
    truth = {"Intercept": BETA[0], "x": BETA[1]} | case.truth
    assert list(table.index) == list(truth)
    z = (table["mean"] - pd.Series(truth)) / table["sd"]
    if name == "weibull":  # its unit of time is the longest time of the data
        z = z.drop("Intercept")
    assert z.abs().max() < 4


@pytest.mark.parametrize("name", CASES)
def test_questions(name: str):
    """Expected responses agree with replicated ones, residuals are standard normal, loo is finite."""
    result, data = fitted(name), simulate(name, False)
    replicated = result.posterior_predictive(800, seed=1)
    expected = result.predict()["mean"].to_numpy()
    if "student" not in name:
        z = (replicated.mean() - expected.mean()) / np.std(replicated.mean(axis=1)) * np.sqrt(800)
        assert abs(z) < 5
    quantile = result.model.residuals(0).quantile
    assert abs(quantile.mean()) < 0.25 and 0.8 < quantile.std() < 1.2
    assert np.isfinite(result.loo().elpd)
    assert np.isfinite(result.log_likelihood(5, data=data.head(7)) if hasattr(result, "log_likelihood") else 0.0).all()
    check = result.model.check_model()
    assert check.level == ("not checked" if CASES[name].left != "y" else "good"), check.reasons


@pytest.mark.parametrize("name", GROUPED)
def test_in_groups(name: str, tmp_path: Path):
    result, case = fitted(name, True), CASES[name]
    assert result.outcome == "converged"
    table = result.summary()
    truth = pd.Series({"x": BETA[1], "sd(Intercept|g)": EFFECT_SD} | case.truth)
    assert ((table["mean"] - truth) / table["sd"]).abs().max() < 4
    back = natvi.load(result.save(tmp_path / "fit"))
    pd.testing.assert_frame_equal(back.summary(), table)
    assert back.model.family == result.model.family


def test_two_factors():
    """Widths of categories beside the effects of crossed factors: the bound rises, and is close to that of one."""
    data = simulate("ordinal", True).assign(h=np.arange(N) % 8)
    result = natvi.glmm("y ~ x + (1 | g) + (1 | h)", data, family="ordinal").fit(method="gva")
    assert result.outcome == "converged" and np.all(np.diff(result.trace) >= -1e-9 * abs(result.elbo))
    one = fitted("ordinal", True).summary()
    both = result.summary().loc[one.index]
    assert np.max(np.abs(both["mean"] - one["mean"]) / one["sd"]) < 1.0
    assert np.allclose(result.predict(data.head(3), kind="probabilities").sum(axis=1), 1.0)


def test_probabilities_of_categories():
    result, data = fitted("ordinal", True), simulate("ordinal", True)
    found = result.predict(data.head(6), kind="probabilities")
    assert list(found.columns) == [1, 2, 3, 4] and np.allclose(found.sum(axis=1), 1.0)
    expected = result.predict(data.head(6))["mean"]
    np.testing.assert_allclose(found @ np.arange(1.0, 5.0), expected, rtol=0.02)
    with pytest.raises(ValueError, match="family='ordinal'"):
        fitted("zip").predict(kind="probabilities")


def test_other_codes_are_the_same_model():
    """Codes from 0 on, and an ordered categorical, say the same as codes from 1 on."""
    data = simulate("ordinal", False)
    labels = pd.Categorical.from_codes(data["y"] - 1, ["low", "fair", "good", "best"], ordered=True)
    tables = [
        natvi.glm("y ~ x", data.assign(y=y), family="ordinal").fit(method="gva").summary()
        for y in (data["y"] - 1, labels)
    ]
    for table in tables:
        pd.testing.assert_frame_equal(table, fitted("ordinal").summary(), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "scale"), [("student_t", 10.0), ("lognormal", 10.0), ("gaussian-log", 10.0), ("exponential", 10.0)]
)
def test_units_change_nothing(name: str, scale: float):
    case, data = CASES[name], simulate(name, False)
    other = natvi.glm(f"{case.left} ~ x", data.assign(y=scale * data["y"]), family=case.family, link=case.link)
    ours, theirs = fitted(name).summary(), other.fit(method="gva").summary()
    factor = scale if name == "student_t" else 1.0
    np.testing.assert_allclose(theirs.loc["x", ["mean", "sd"]], factor * ours.loc["x", ["mean", "sd"]], rtol=1e-4)


COUNTS = np.array([0, 1, 2, 3, 1, 2, 0, 4])
BAD = [
    ("ordinal", [1, 2, 4, 1, 2, 4, 1, 2], "code 3", "rank"),
    ("ordinal", [1, 2, 1, 2, 1, 2, 1, 2], "2 categories", "bernoulli"),
    ("ordinal", [1.5, 2, 3, 1, 2, 3, 1, 2], "not whole", "rank"),
    ("ordinal", list("abcabcab"), "ordered category", "ordered=True"),
    ("ordinal", list(range(1, 9)) * 2, "at most 12", "gaussian"),
    ("beta", [0.0, 0.5, 0.2, 0.4, 0.3, 0.1, 0.9, 0.8], "both left out", "bernoulli"),
    ("beta", [50, 40, 30, 20, 10, 5, 8, 1], "both left out", "divide by 100"),
    ("zero_inflated_poisson", COUNTS + 1, "No value", "family='poisson'"),
    ("hurdle_poisson", COUNTS * 0, "nothing to learn", "Check"),
    ("weibull", [1.0, 0.0, 2.0, 3.0, 1.0, 2.0, 2.0, 1.0], "greater than zero", "half a unit"),
    ("lognormal", [1.0, 0.0, 2.0, 3.0, 1.0, 2.0, 2.0, 1.0], "greater than zero", "bernoulli"),
    ("geometric", [1.5, 0.0, 2.0, 3.0, 1.0, 2.0, 2.0, 1.0], "count", "whole"),
]


@pytest.mark.parametrize(("family", "y", "what", "cure"), BAD)
def test_wrong_responses_are_told_what_to_do(family: str, y: list, what: str, cure: str):
    data = pd.DataFrame({"y": y, "x": np.arange(float(len(y)))})
    if what == "at most 12":
        data["y"] = np.arange(len(y))
    with pytest.raises(ValueError, match=what) as caught:
        natvi.glm("y ~ x", data, family=family)
    assert cure in str(caught.value)


def test_wrong_status_and_families_that_are_not_there():
    data = pd.DataFrame({"t": [1.0, 2.0, 3.0, 4.0], "status": [1, 2, 1, 2], "x": [0.0, 1.0, 0.5, 2.0]})
    with pytest.raises(ValueError, match=r"status - 1"):
        natvi.glm("cens(t, status) ~ x", data, family="weibull")
    with pytest.raises(ValueError, match="all status are 0"):
        natvi.glm("cens(t, status - status) ~ x", data, family="exponential")
    with pytest.raises(ValueError, match="all status are 0"):
        natvi.glm("cens(t, status - status) ~ x", data, family="weibull")
    with pytest.raises(ValueError, match="waiting times"):
        natvi.glm("cens(t, status) ~ x", data, family="binomial")
    with pytest.raises(ValueError, match="reference"):
        find_family("multinomial")
    with pytest.raises(ValueError, match="link='log'"):
        find_family("gamma", "inverse")
    with pytest.raises(ValueError, match="at least"):
        find_family("student_t(0)")


def test_the_verdict_names_the_family_to_try():
    rng = np.random.default_rng(4)
    x = rng.standard_normal(N)
    inflated = pd.DataFrame({"x": x, "y": np.where(rng.uniform(size=N) < 0.3, 0, rng.poisson(np.exp(1.2 + 0.4 * x)))})
    counts = natvi.glm("y ~ x", inflated, family="poisson").fit(method="gva").model.check_model()
    assert counts.level == "doubtful" and "try family='zero_inflated_poisson'" in counts.reasons[0]
    ratings = natvi.glm("y ~ x", simulate("ordinal", False), family="gaussian").fit(method="gva").model.check_model()
    assert "try family='ordinal'" in ratings.reasons[0]
    wild = pd.DataFrame({"x": rng.standard_normal(300), "y": rng.standard_t(2, 300)})
    tails = natvi.glm("y ~ x", wild).fit(method="gva").model.check_model()
    assert any("student_t" in reason for reason in tails.reasons)
