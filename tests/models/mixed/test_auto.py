"""`method="auto"`: stays with the Gaussian where it passes its check, goes on where it does not, and says why."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.data import load_epilepsy, load_hers, load_sleepstudy, load_toenail
from natvi.models.mixed import auto as mixed_auto
from natvi.models.mixed.marginal import method as mixed_marginal

EPILEPSY = "y ~ base*trt + age + visit + (1 | subject)"
TOENAIL = "infect ~ trt*time + (1 | idnr)"
HERS = "y ~ age + bmi + htnmeds + visit + (1 | pptid)"


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen does not depend on how many draws the marginal method takes."""
    monkeypatch.setattr(mixed_marginal, "FIRST_DRAWS", 256)
    monkeypatch.setattr(mixed_marginal, "MOST_DRAWS", 256)


def choice(result: natvi.Result) -> str:
    return dict(result.model.headline)["choice"]


def test_stays_with_the_gaussian_on_epilepsy() -> None:
    model = natvi.glmm(EPILEPSY, load_epilepsy(), family="poisson", prior="paper")
    result, plain = model.fit(), model.fit(method="gva")
    assert result.method == "gva" and result.trust == "good" and result.elbo == plain.elbo
    assert "passes the check" in choice(result) and "choice:    gva, since" in repr(result)
    assert any("3 starts of the variance components" in reason for reason in result.trust_reasons)
    assert "choice" not in dict(plain.model.headline)
    assert any("no mean is off" in reason for reason in plain.trust_reasons)


@pytest.mark.parametrize(
    ("formula", "load", "name"),
    [
        pytest.param(TOENAIL, load_toenail, "sd(Intercept|idnr)", marks=pytest.mark.needs_data),
        pytest.param(HERS, load_hers, "sd(Intercept|pptid)", marks=[pytest.mark.slow, pytest.mark.needs_data]),
    ],
)
def test_goes_on_where_the_sd_is_off(formula: str, load, name: str) -> None:
    result = natvi.glmm(formula, load(), family="bernoulli", prior="paper").fit()
    assert (result.method, result.structure) == ("marginal", "arrow")
    assert choice(result).startswith("marginal, since") and name in choice(result)
    assert max(map(len, repr(result).splitlines())) < 200
    assert any("weighted draws" in reason for reason in result.trust_reasons)


def test_a_correlation_near_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_marginal, "MOST_DRAWS", 2048)
    result = natvi.glmm("Reaction ~ Days + (Days | Subject)", load_sleepstudy()).fit()
    assert result.method == "marginal" and result.trust == "good"


def test_an_sd_of_zero_is_no_trouble() -> None:
    """Counts without any difference between patients: the Gaussian fit cannot follow, the marginal can."""
    data = load_epilepsy()
    data["y"] = np.random.default_rng(0).poisson(np.exp(0.2 + 0.5 * data["base"]))
    result = natvi.glmm(EPILEPSY, data, family="poisson").fit()
    assert result.method == "marginal" and result.outcome == "converged"
    row = result.variance_components().loc["sd(Intercept|subject)"]
    assert row["q2.5"] < 0.01 and row["q97.5"] < 0.2


def test_three_effects_stay_and_say_so() -> None:
    rng = np.random.default_rng(1)
    n = 40
    data = pd.DataFrame({"g": np.repeat(np.arange(n), 4), "x": rng.normal(size=4 * n), "z": rng.normal(size=4 * n)})
    data["y"] = (rng.uniform(size=4 * n) < 1 / (1 + np.exp(-2 * rng.normal(size=n)[data["g"]]))).astype(int)
    model = natvi.glmm("y ~ x + (1 + x + z || g)", data, family="bernoulli")
    with pytest.raises(ValueError, match=r"at most two unless.*method='gva'"):
        model.fit(method="marginal")
    result = model.fit()
    assert result.method == "gva"
    if result.trust == "good":
        assert "passes the check" in choice(result)
    else:
        assert "too many random effects" in choice(result)


def not_positive(*args: object) -> None:
    raise np.linalg.LinAlgError("Matrix is not positive definite")


@pytest.mark.needs_data
@pytest.mark.parametrize(
    ("part", "stand_in", "words"),
    [("weigh", lambda *args: None, "not finite around its mode"), ("propose", not_positive, "has no factor")],
)
def test_trouble_of_the_marginal_method_gives_the_gaussian_back(
    part: str, stand_in: Callable, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = natvi.glmm(TOENAIL, load_toenail(), family="bernoulli")
    plain = model.fit(method="gva")
    monkeypatch.setattr(mixed_marginal, part, stand_in)
    result = model.fit()
    assert (result.method, result.elbo) == ("gva", plain.elbo) and "gave no draws" in choice(result)
    assert result.trust != "good" and any(words in reason for reason in result.trust_reasons)
    assert any("does not fit" in reason for reason in result.trust_reasons)  # the verdict on the Gaussian stays
    with pytest.raises(FloatingPointError, match=rf"method='marginal' gave no draws.*{words}.*method='gva'"):
        model.fit(method="marginal")


@pytest.mark.needs_data
def test_limits_of_rows_and_steps_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = natvi.glmm(TOENAIL, load_toenail(), family="bernoulli")
    assert model.fit(max_steps=3).method == "gva"
    monkeypatch.setattr(mixed_auto, "MOST_ROWS", 100)
    result = model.fit()
    assert result.method == "gva" and "not considered" in choice(result) and result.trust == "use with care"


def test_other_starts_that_end_elsewhere_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_auto, "APART", -1.0)  # whatever the bounds, they are too far apart
    result = natvi.glmm(EPILEPSY, load_epilepsy(), family="poisson", prior="paper").fit()
    assert result.trust == "use with care" and "another start" in result.trust_reasons[0]


@pytest.mark.slow
def test_an_sd_that_is_too_small_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-normal sds and LKJ(1): the Gaussian's means are right, its sds are a tenth too small and more."""
    monkeypatch.setattr(mixed_marginal, "FIRST_DRAWS", 2048)
    monkeypatch.setattr(mixed_marginal, "MOST_DRAWS", 2048)
    prior = {"sd": ("half_normal", 30.0), "corr": ("lkj", 1.0)}
    model = natvi.glmm("Reaction ~ Days + (Days | Subject)", load_sleepstudy(), prior=prior)
    result, plain = model.fit(), model.fit(method="gva")
    assert result.method == "marginal" and result.trust == "good" and plain.trust == "use with care"
    assert "times as large" in choice(result)
    days, gaussian = result.fixed_effects().loc["Days", "sd"], plain.fixed_effects().loc["Days", "sd"]
    assert 1.65 < days < 1.85 and gaussian < days / 1.05


@pytest.mark.needs_data
def test_the_first_screen_is_plain() -> None:
    model = natvi.glmm(TOENAIL, load_toenail(), family="bernoulli", prior={"sd": ("half_normal", 5.0)})
    for method in ("auto", "gva"):
        text = repr(model.fit(method=method))
        assert not any(word in text for word in ("nats", "Pareto", "worth", "omega"))
        assert "Approximation of the posterior:" in text and "Model against the data:" in text
        assert max(map(len, text.splitlines())) <= 120
