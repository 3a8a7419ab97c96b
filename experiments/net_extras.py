"""Rows of Table 9 made of nets that are trained already: an ensemble of three, and a Gaussian over the last layer.

Both start from plain Adam's nets, whose weights are in the checkpoints of their runs.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natvi
from experiments.kept import keep
from experiments.memory import folder
from experiments.net_runs import LABEL, ROWS, SETS, images, model_of, run, run_name
from natvi.metrics import accuracy, calibration_error
from natvi.models.deep.nets import lenet5_features
from natvi.models.deep.predictive import over_draws
from natvi.models.deep.training import Training, train
from natvi.x64 import float32, float64

MEMBERS = ("plain Adam", "plain Adam, 2nd", "plain Adam, 3rd")
ENSEMBLE, LAST_LAYER = "ensemble of three", "last layer, natvi.glm"


def trained(name: str, row_name: str) -> tuple[Any, Any]:
    """Return a model and its trained weights; the run's checkpoint is at its end, so that no step is taken."""
    run(name, row_name)
    row, epochs = ROWS[row_name], SETS[name].epochs
    train_images, _ = images(name)
    rows = {"x": train_images.X, "y": train_images.y.astype(np.int32)}
    training = Training(row.optimizer, row.grid[0], row.schedule, epochs=epochs, seed=row.seed)
    model = model_of(name, row.seed)
    with float32():
        target, start = model.prepare(rows, training)
        path = folder() / f"{LABEL}-{run_name(name, row_name)}.checkpoint"
        fitted = train(target, start, rows, training, watch=lambda _: 0.0, checkpoint=path)
    return model, fitted.gaussian.mean


def ensemble(name: str) -> dict[str, Any]:
    """Return the scores of the average of three nets' probabilities."""

    def compute(_: Path) -> dict[str, Any]:
        _, test = images(name)
        members = [trained(name, row_name) for row_name in MEMBERS]
        with float32():
            sums = over_draws(members[0][0].net, [mean for _, mean in members], test.X, test.y.astype(np.int32))
        return scores(sums.mean / 3, test.y)

    return keep(LABEL, f"{name}-ensemble", {"members": list(MEMBERS)}, compute)


def last_layer(name: str) -> dict[str, Any]:
    """Return the scores of ten exact logistic regressions on a net's last features, their probabilities normalised."""

    def compute(_: Path) -> dict[str, Any]:
        train_images, test = images(name)
        model, mean = trained(name, MEMBERS[0])
        params = model.net.layout.unravel(jnp.asarray(mean))
        features, test_features = (_features(params, part.X) for part in (train_images, test))
        columns = []
        with float64():
            for k in range(10):
                fit = natvi.glm_arrays(features, train_images.y == k, family="bernoulli", intercept=True).fit()
                columns.append(fit.predict(test_features)["mean"].to_numpy())
        table = np.column_stack(columns)
        return scores(table / table.sum(axis=1, keepdims=True), test.y)

    return keep(LABEL, f"{name}-last-layer", {"features_of": MEMBERS[0], "regressions": 10}, compute)


def scores(table: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return test log-likelihood, accuracy in percent and calibration error of predictive probabilities."""
    chosen = np.maximum(table[np.arange(len(y)), y], 1e-12)
    return {
        "tll": float(np.log(chosen).mean()),
        "acc": 100 * accuracy(table, y),
        "ece": calibration_error(table, y),
        "curve": [],
        "cpu_seconds": None,
    }


def _features(params: Any, X: np.ndarray) -> np.ndarray:
    with float32():
        find = jax.jit(lenet5_features)
        return np.concatenate([np.asarray(find(params, jnp.asarray(X[k : k + 500]))) for k in range(0, len(X), 500)])
