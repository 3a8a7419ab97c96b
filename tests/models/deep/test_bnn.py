"""Nets with Gaussian weights: fits, predictions, what they do not know, resuming, and input that is refused."""

import signal
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natvi
from natvi.models.deep import bnn as door
from natvi.models.deep.nets import init_lenet5, init_mlp, lenet5, mlp
from natvi.models.deep.training import Training, check_training
from natvi.run import storage
from natvi.run.outcome import Outcome
from natvi.run.stochastic.loop import _Runner

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 2)).astype(np.float32)
y = (X[:, 0] + X[:, 1] > 0).astype(int)
SMALL = {"epochs": 4, "batch_size": 40}


@pytest.fixture(scope="module")
def model():
    return natvi.bnn(mlp, init_mlp(jax.random.key(0), (2, 8, 2)))


@pytest.fixture(scope="module")
def fit(model):
    return model.fit(X, y, epochs=60, batch_size=40, validation=(X[:60], y[:60]))


def same(a, b):
    pairs = zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True)
    return all(np.array_equal(p, q, equal_nan=True) for p, q in pairs)


def test_a_net_learns_and_says_so(fit):
    scores = fit.model.evaluate(X, y)
    assert scores["accuracy"] > 0.93 and scores["log_likelihood"] > -0.25
    assert 0 <= scores["calibration_error"] < 0.2
    assert fit.outcome is Outcome.MAX_STEPS and fit.trust == "use with care"
    assert np.isfinite(fit.model.validation).sum() == 60 and "validation" in repr(fit)
    assert len(fit.trace) == 60 and fit.steps == 360


def test_probabilities_entropy_and_the_other_ways_to_predict(fit):
    table = fit.model.probabilities(X[:9], num_draws=20)
    assert table.shape == (9, 2)
    np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-5)
    point = fit.model.probabilities(X[:9], weights="mean")
    one, other = (fit.model.probabilities(X[:9], weights="draw", seed=k) for k in (0, 1))
    assert not np.allclose(point, one) and not np.allclose(one, other)
    frame = fit.predict(X[:9])
    assert list(frame["label"]) == list(table.argmax(axis=1))


def test_uncertainty_splits_into_noise_and_weights(fit):
    parts = fit.model.uncertainty(X[:50], num_draws=50)
    np.testing.assert_allclose(parts["total"], parts["noise"] + parts["weights"], atol=1e-6)
    assert (parts["weights"] >= 0).all() and (parts["total"] <= np.log(2) + 1e-6).all()
    # near the border the net knows least
    margin = np.abs(X[:, 0] + X[:, 1])
    score = fit.model.ood_score(X, num_draws=20)
    assert score[margin < 0.1].mean() > 2 * score[margin > 1].mean()


@pytest.mark.parametrize("optimizer", ["adam", "nadam", "snngm", "nagm", "pga", "vogn", "point"])
def test_every_optimizer_raises_the_bound(model, optimizer):
    result = model.fit(X, y, optimizer=optimizer, epochs=12, batch_size=40)
    assert result.trace[-1] > result.trace[0]
    assert (result.model.sds == 0).all() == (optimizer == "point")


@pytest.mark.parametrize("optimizer", ["ivon", "snngm"])
def test_resume_in_mid_epoch_is_bit_for_bit(model, optimizer, monkeypatch):
    options = SMALL | {"optimizer": optimizer, "validation": (X[:40], y[:40])}
    whole = model.fit(X, y, **options)
    monkeypatch.setattr(_Runner, "run", interrupted_after(8))  # an epoch has 6 steps
    part = model.fit(X, y, **options)
    assert part.outcome is Outcome.INTERRUPTED and part.steps == 8
    monkeypatch.undo()
    assert same(model.fit(X, y, **options, state=part.state), whole)


def interrupted_after(count):
    """One step per call, and Ctrl-C after some."""
    plain = _Runner.run

    def run(self, state, stop):
        state = plain(self, state, int(state.count) + 1)
        if int(state.count) == count:
            signal.raise_signal(signal.SIGINT)
        return state

    return run


def test_a_checkpoint_goes_on(model, tmp_path, monkeypatch):
    path = tmp_path / "net.checkpoint"
    monkeypatch.setattr(_Runner, "run", interrupted_after(9))
    model.fit(X, y, **SMALL, checkpoint=path)
    monkeypatch.undo()
    assert same(model.fit(X, y, **SMALL, checkpoint=path), model.fit(X, y, **SMALL))
    with pytest.raises(storage.StorageError, match="another model or other data"):
        model.fit(X, y, **SMALL, checkpoint=path, step_size=0.2)


def test_early_stopping_keeps_the_best(model):
    other = 1 - y[:60]  # labels that training makes worse and worse
    result = model.fit(X, y, epochs=60, batch_size=40, validation=(X[:60], other), patience=3)
    assert result.outcome is Outcome.STOPPED_EARLY and len(result.trace) < 60
    seen = result.model.validation
    assert np.argmax(seen) == len(seen) - 4


def test_saving_and_loading(model, fit, tmp_path):
    path = fit.save(tmp_path / "net.fit")
    again = model.load(path)
    np.testing.assert_array_equal(again.model.probabilities(X, 5), fit.model.probabilities(X, 5))
    assert again.elbo == fit.elbo
    with pytest.raises(storage.StorageError, match=r"natvi.bnn\(apply, params\).load"):
        natvi.load(path)
    with pytest.raises(storage.StorageError, match="other shapes"):
        natvi.bnn(mlp, init_mlp(jax.random.key(0), (2, 9, 2))).load(path)


def test_an_equinox_module_and_a_normal_response():
    net = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
    params, static = eqx.partition(net, eqx.is_inexact_array)
    model = natvi.bnn(lambda p, x: jax.vmap(eqx.combine(p, static))(x), params, "normal")
    target = X[:, 0] + 0.1 * rng.normal(size=len(X))
    result = model.fit(X, target, epochs=60, batch_size=40, optimizer="snngm", step_size=0.01)
    frame = result.predict(X[:30])
    assert np.mean((frame["q2.5"] < target[:30]) & (target[:30] < frame["q97.5"])) > 0.7
    parts = result.model.uncertainty(X[:5])
    assert (parts["total"] > 0).all()
    draws = result.sample(3)
    assert all(len(draw) == 3 for draw in draws.values())
    with pytest.raises(ValueError, match=r"eqx\.partition"):
        natvi.bnn(lambda p, x: x, net)


def test_lenet5_has_the_parameters_of_the_paper():
    for side, channels, d in ((28, 1, 61_706), (32, 3, 83_126)):
        params = init_lenet5(jax.random.key(0), side, channels)
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == d
    images = rng.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    out = lenet5(params, jnp.asarray(images))
    assert out.shape == (3, 10)
    np.testing.assert_allclose(out, lenet5(params, jnp.asarray(images / 255, jnp.float32)), atol=1e-5)


def test_the_convolution_is_that_of_xla():
    params = init_lenet5(jax.random.key(0), 12, 1)["convolutions"][1]
    x = jax.random.normal(jax.random.key(1), (2, 9, 9, 6))
    expected = jax.lax.conv_general_dilated(x, params["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    from natvi.models.deep.nets import convolve

    found = convolve(jnp.transpose(x, (3, 1, 2, 0)), params, padding=0)
    np.testing.assert_allclose(jnp.transpose(found, (3, 1, 2, 0)), expected, atol=1e-4)


# --- input that is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": y + 1}, r"Labels must be 0, ..., 1"),
        ({"y": y - 0.5}, "Labels must be"),
        ({"y": np.eye(2)[y]}, "one response for each"),
        ({"y": y.astype(str)}, "y must hold numbers"),
        ({"y": np.where(y > 0, np.nan, 0.0)}, "missing or infinite"),
        ({"X": np.where(X > 2, np.nan, X)}, "NaN or infinite"),
        ({"X": X[:, 0]}, "examples along the first axis"),
        ({"X": rng.normal(size=(240, 5))}, "apply could not be evaluated"),
        ({"batch_size": 241}, "larger than the data"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"optimizer": "sgd"}, "optimizer must be one of"),
        ({"schedule": "steps"}, "schedule must be"),
        ({"step_size": -1.0}, "step_size must be positive"),
        ({"warmup": 1.0}, "warmup"),
        ({"patience": 3}, "patience needs a validation set"),
        ({"validation": X}, "a pair"),
        ({"validation": (X[:, :1], y)}, "the net was trained on"),
    ],
)
def test_mistakes_are_explained(model, change, message):
    arguments = {"X": X, "y": y} | SMALL | change
    with pytest.raises(ValueError, match=message):
        model.fit(**arguments)


def test_draws_that_cannot_be_counted(fit):
    with pytest.raises(ValueError, match="num_draws must be a whole number"):
        fit.model.probabilities(X[:3], num_draws=0)


def test_images_in_the_wrong_layout():
    model = natvi.bnn(lenet5, init_lenet5(jax.random.key(0), 12, 1))
    with pytest.raises(ValueError, match="height, width, channels"):
        model.fit(np.zeros((8, 1, 12, 12)), np.zeros(8, int), batch_size=4)


@pytest.mark.parametrize(
    ("apply", "likelihood", "message"),
    [
        (lambda p, x: x @ p["w"], "bernoulli", "apply returned shape"),
        (lambda p, x: (x @ p["w"])[:, 0], "categorical", "apply returned shape"),
        (lambda p, x: p["w"], "categorical", "apply returned shape"),
        (lambda p, x: (x, x), "categorical", "one array"),
        (lambda p, x: x @ p["w"], "gamma", "likelihood must be one of"),
        ("net", "categorical", "apply must be a function"),
    ],
)
def test_a_net_of_the_wrong_shape(apply, likelihood, message):
    with pytest.raises(ValueError, match=message):
        natvi.bnn(apply, {"w": jnp.ones((2, 3))}, likelihood).fit(X[:7], y[:7], batch_size=7)


def test_a_learning_rate_that_diverges_keeps_the_last_good_state(model):
    result = model.fit(X, y, optimizer="nagm", step_size=1e30, schedule="constant", **SMALL)
    assert result.outcome is Outcome.NONFINITE and result.trust == "do not use"
    assert np.isfinite(result.model.mean).all() and "step_size" in repr(result)


def test_a_bound_that_fell_is_noticed():
    level = [trust.level for trust in door.concerns(np.array([-100.0, -50.0, -400.0]))]
    assert level[0] == "do not use"
    assert door.concerns(np.array([-100.0, -50.0, -60.0]))[0].level == "use with care"


def test_progress_tells_rows_per_second(model, capsys, monkeypatch):
    monkeypatch.setattr("natvi.run.progress.PATIENCE", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    model.fit(X, y, **SMALL, validation=(X, y), progress=True)
    shown = capsys.readouterr().err
    assert "rows/s" in shown and "validation" in shown
    model.fit(X, y, **SMALL)
    assert capsys.readouterr() == ("", "")


def test_a_batch_is_no_larger_than_the_data_unless_asked_for(model):
    assert model.fit(X[:40], y[:40], epochs=1).steps == 1


def test_a_step_size_that_diverges_in_finite_numbers_is_told(model):
    fit = model.fit(X, y, **SMALL, step_size=1e6, schedule="constant")
    assert fit.trust == "do not use"
    assert "a tenth of the step size" in " ".join(fit.trust_reasons)
    assert np.isfinite(fit.model.mean).all()


@pytest.mark.parametrize("name", ["step_size", "warmup", "patience", "start_sd", "annealing", "epochs"])
def test_options_that_are_no_numbers(name):
    training: Any = Training()
    with pytest.raises(ValueError, match=name):
        check_training(training._replace(**{name: "a"}), 1_000)
