"""Training that diverges: the last good epoch is kept, told, and can be gone on from."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import natvi
from natvi.gaussian import CovarianceGaussian
from natvi.models.deep.glm_door import astray, fit_deep_glm
from natvi.models.deep.nets import init_mlp, mlp
from natvi.models.deep.training import Training
from natvi.run import Outcome

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 5)).astype(np.float32)
y = (X[:, 0] + X[:, 1] > 0).astype(int)
MODEL: Any = natvi.bnn(mlp, init_mlp(jax.random.key(0), (5, 16, 2)))
OPTIONS: Any = {"optimizer": "nagm", "schedule": "constant", "batch_size": 40}


def poisoned(at: int):
    """The gradient of a net whose steps grow without bound from some step on, as those of a rate too high do."""
    from natvi.run.stochastic.loop import _Runner

    plain = _Runner.run

    def run(self, state, stop):
        before = int(state.count)
        state = plain(self, state, stop if before >= at else min(stop, at))
        if int(state.count) < at:
            return state
        gaussian = state.algorithm.gaussian
        far = CovarianceGaussian(gaussian.mean * np.float32(1e30), gaussian.factor)
        return state._replace(algorithm=state.algorithm._replace(gaussian=far))

    return run


@pytest.fixture
def diverging(monkeypatch):
    monkeypatch.setattr("natvi.run.stochastic.loop._Runner.run", poisoned(45))  # in the fifth epoch of ten steps


def test_the_last_good_epoch_is_kept(diverging, monkeypatch):
    found: Any = MODEL.fit(X, y, epochs=20, step_size=0.01, **OPTIONS)
    assert found.outcome is Outcome.NONFINITE and found.trust == "do not use"
    assert any("end of epoch 4" in reason and "a tenth of the step size" in reason for reason in found.trust_reasons)
    monkeypatch.undo()
    whole: Any = MODEL.fit(X, y, epochs=4, step_size=0.01, **OPTIONS)
    np.testing.assert_array_equal(found.model.mean, whole.model.mean)
    np.testing.assert_array_equal(found.model.sds, whole.model.sds)
    on: Any = MODEL.fit(X, y, epochs=20, step_size=0.01, state=found.state, **OPTIONS)
    straight: Any = MODEL.fit(X, y, epochs=20, step_size=0.01, **OPTIONS)
    assert on.outcome is Outcome.MAX_STEPS and on.steps == 200
    np.testing.assert_array_equal(on.model.mean, straight.model.mean)
    np.testing.assert_array_equal(on.trace, straight.trace)


def test_where_no_epoch_was_good_the_start_is_kept():
    found: Any = MODEL.fit(X, y, epochs=5, step_size=1e12, **OPTIONS)
    assert found.outcome is Outcome.NONFINITE
    assert np.abs(found.model.mean).max() < 2 and any("before the first step" in r for r in found.trust_reasons)


def test_a_deep_glm_too():
    training = Training("nagm", 1e12, "constant", epochs=5, batch_size=40)
    found: Any = fit_deep_glm(X, y, "bernoulli", hidden=(5,), training=training)
    assert found.outcome is Outcome.NONFINITE and np.abs(found.model.mean).max() < 2
    assert any("a tenth of the step size" in r for r in found.trust_reasons)


def test_noise_beyond_the_responses_is_told():
    training = Training(epochs=2, batch_size=40)
    model: Any = fit_deep_glm(X, X[:, 0], hidden=(5,), training=training).model
    assert astray(replace(model, shape=100.0, scale=110.0)) == ()
    told = astray(replace(model, shape=100.0, scale=400.0))
    assert told[0].level == "do not use" and "2.0 times as large" in told[0].reasons[0]
