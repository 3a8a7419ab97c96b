"""Ctrl-C while the marginal method is at work: the Gaussian fit comes back and says so."""

import signal
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.models.mixed import auto as mixed_auto
from natvi.models.mixed.marginal import method as mixed_marginal
from natvi.models.mixed.marginal.posterior import MarginalFit


@pytest.fixture(scope="module")
def model() -> natvi.MixedModel:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(40), 4), "x": rng.uniform(-1, 1, 160)})
    eta = -0.5 + data["x"] + 2.0 * rng.standard_normal(40)[data["g"]]
    data["y"] = (rng.uniform(size=160) < 1 / (1 + np.exp(-eta))).astype(int)
    return natvi.glmm("y ~ x + (1 | g)", data, family="bernoulli")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_marginal, "FIRST_DRAWS", 256)
    monkeypatch.setattr(mixed_marginal, "MOST_DRAWS", 256)


def press_after(points: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the progress line press Ctrl-C once; returns where it will be told how many points were evaluated."""
    seen: list[int] = []

    def update(self: object, evaluated: int, value: float) -> None:
        seen.append(evaluated)
        if evaluated >= points and len(seen) == 1 + sum(at < points for at in seen):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(mixed_auto.StepProgress, "update", update)
    return seen


@pytest.mark.parametrize("method", ["marginal", "auto"])
@pytest.mark.parametrize("points", [0, 300])
def test_the_gaussian_fit_comes_back(
    model: natvi.MixedModel, monkeypatch: pytest.MonkeyPatch, method: str, points: int
) -> None:
    plain = model.fit(method="gva")
    handler = signal.getsignal(signal.SIGINT)
    seen = press_after(points, monkeypatch)
    result = model.fit(method=method)
    assert signal.getsignal(signal.SIGINT) is handler
    assert seen[-1] <= points + 64  # it stopped with the piece at work
    assert (result.method, str(result.outcome)) == ("gva", "interrupted")
    assert result.elbo == plain.elbo and result.structure == plain.structure
    assert "the marginal method was interrupted" in dict(result.model.headline)["choice"]
    assert result.trust != "good" and "nterrupted" in repr(result)
    pd.testing.assert_frame_equal(result.summary(), plain.summary())


def test_the_state_takes_it_up_again(model: natvi.MixedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        press_after(0, patch)
        stopped = model.fit(method="marginal")
    result = model.fit(method="marginal", state=stopped.state)
    assert isinstance(result.model, MarginalFit) and str(result.outcome) == "converged"


def test_ctrl_c_during_the_check_is_no_loss(model: natvi.MixedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    judge: Callable = mixed_auto.judge_shape

    def pressed(*args: object) -> object:
        signal.raise_signal(signal.SIGINT)
        return judge(*args)

    monkeypatch.setattr(mixed_auto, "judge_shape", pressed)
    result = model.fit()
    assert (result.method, str(result.outcome)) == ("gva", "interrupted")
    assert "interrupted before it was checked" in dict(result.model.headline)["choice"]


def test_a_second_ctrl_c_ends_at_once(model: natvi.MixedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(self: object, evaluated: int, value: float) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(mixed_auto.StepProgress, "update", update)
    with pytest.raises(KeyboardInterrupt):
        model.fit(method="marginal")
