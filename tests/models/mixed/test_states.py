"""A noisy fit goes on from its own state only: methods and optimizers with arrays of equal shapes are told apart."""

import pickle
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.models.mixed.noisy import method as mixed_methods
from natvi.models.mixed.noisy import stochastic as mixed_stochastic
from natvi.models.mixed.noisy.stochastic import fit_mixed_stochastic
from natvi.models.mixed.target import build_target
from natvi.x64 import float64


@pytest.fixture(autouse=True, scope="module")
def quick() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed_methods, "WINDOW", 10)
        patch.setattr(mixed_methods, "estimate_elbo", lambda *_: (-1.0, 0.1))
        patch.setattr(mixed_stochastic, "estimate_elbo", lambda *_: (-1.0, 0.1))
        yield


@pytest.fixture(scope="module")
def model() -> natvi.MixedModel:
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(8), 4)
    data = pd.DataFrame({"y": rng.poisson(np.exp(0.5 + 0.6 * rng.standard_normal(8)))[g], "g": g})
    return natvi.glmm("y ~ 1 + (1 | g)", data, family="poisson")


@pytest.fixture(scope="module")
def states(model: natvi.MixedModel) -> dict[str, Any]:
    return {way: model.fit(method=way, optimizer="adam", max_steps=20).state for way in ("gva", "rvb1")}


@pytest.mark.parametrize(
    ("came", "method", "optimizer"),
    [
        ("rvb1", "rvb2", "adam"),  # equal shapes, other coordinates
        ("rvb1", "rvb1", "nadam"),  # equal shapes, other moments
        ("rvb1", "gva", "adam"),
        ("gva", "rvb1", "adam"),
        ("gva", "rvb2", "snngm"),
    ],
)
def test_states_of_another_method_or_optimizer_are_refused(
    model: natvi.MixedModel, states: dict[str, Any], came: str, method: str, optimizer: str
) -> None:
    words = (
        f"comes from method='{came}' with optimizer='adam', and this fit has method='{method}' with "
        f"optimizer='{optimizer}'. Fit with the former to go on from it, or leave state out to start afresh"
    )
    with pytest.raises(ValueError, match=words):
        model.fit(method=method, optimizer=optimizer, state=states[came])


def test_a_state_serves_its_own_fit_also_from_a_file(model: natvi.MixedModel, states: dict[str, Any]) -> None:
    kept = pickle.loads(pickle.dumps(states["rvb1"]))
    assert jax.tree.structure(kept) == jax.tree.structure(states["rvb1"]) != jax.tree.structure(states["gva"])
    result = model.fit(method="rvb1", optimizer="adam", max_steps=30, state=kept)
    assert result.steps == 30 and result.state.count == 30


def test_states_of_other_models_are_refused(model: natvi.MixedModel, states: dict[str, Any]) -> None:
    plain = states["rvb1"]._replace(algorithm=states["rvb1"].algorithm.step)
    with pytest.raises(ValueError, match="by the same method and optimizer, not that of another one"):
        model.fit(method="rvb1", optimizer="adam", state=plain)
    with pytest.raises(ValueError, match="not int"):
        model.fit(method="rvb1", optimizer="adam", state=3)


def test_fixed_numbers_of_steps_know_their_states_too(model: natvi.MixedModel) -> None:
    with float64():
        target = build_target(model.design, model.y, model.family, model.prior, None, 0.0).target
    options: dict[str, Any] = {"window": 5, "elbo_draws": 2}
    part = fit_mixed_stochastic(target, "rvb1", "adam", steps=5, **options)
    rest = fit_mixed_stochastic(target, "rvb1", "adam", steps=10, state=part.state, **options)
    assert int(rest.state.count) == 10
    with pytest.raises(
        ValueError, match="comes from method='rvb1' with optimizer='adam', and this fit has method='rvb2'"
    ):
        fit_mixed_stochastic(target, "rvb2", "adam", steps=10, state=part.state, **options)
