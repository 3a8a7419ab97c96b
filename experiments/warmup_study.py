"""Why deep GLMs warm up: IVON with and without, on rows held out of the training data.

    python -m experiments.warmup_study [real a9a ...]

The last tenth of the training rows is held out, runs have a fifth of their length in Table 10, seeds are none of the
table's. v starts at the responses' variance and falls by orders of magnitude; until IVON's curvature has followed,
steps are far too long and ReLU units end where no row reaches them. A rise of the step size over a fifth of all steps
keeps them alive.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.deep_glm_problems import DeepProblem, problem
from experiments.deep_glm_runs import PILOT_HELD_OUT, PILOT_SHARE, PROBLEMS
from experiments.kept import keep
from natvi.models.deep.deep_glm import deep_glm_net
from natvi.models.deep.glm_door import fit_deep_glm
from natvi.models.deep.glm_fit import DeepGlmFit
from natvi.models.deep.training import Training

LABEL = "warmup"
SEEDS, WARMUPS = (8, 9), (0.0, 0.2)
DRAWS, PROBED = 50, 5_000


def live_units(model: DeepGlmFit, X: np.ndarray) -> list[int]:
    """Return how many units of every hidden layer at least one row in a hundred reaches, at the mean weights."""
    layers: Any = deep_glm_net(model.sizes, model.response).layout.unravel(model.mean)
    h, counts = (X - model.x_mean) / model.x_scale, []
    for layer in layers[:-1]:
        h = np.maximum(h @ np.asarray(layer["w"]) + np.asarray(layer["b"]), 0)
        counts.append(int(((h > 0).mean(axis=0) > 0.01).sum()))
    return counts


def run(data: DeepProblem, warmup: float, seed: int) -> dict[str, Any]:
    """Return the log-likelihood of held-out rows and the units that are left."""
    cut = len(data.y) - len(data.y) // PILOT_HELD_OUT
    epochs = max(10, data.epochs // PILOT_SHARE)
    training = Training("ivon", 0.1, "cosine", warmup, epochs, data.batch, seed=seed, beta2=0.999)

    def once(_: Path) -> dict[str, Any]:
        model: Any = fit_deep_glm(data.X[:cut], data.y[:cut], data.response, training=training).model
        held_out = float(np.mean(model.log_density(data.X[cut:], data.y[cut:], DRAWS)))
        return {"held_out": held_out, "live_units": live_units(model, data.X[:PROBED])}

    settings = {"warmup": warmup, "seed": seed, "epochs": epochs, "alpha": 0.1, "beta2": 0.999}
    return keep(LABEL, f"{data.name}-{warmup:g}-{seed}", settings, once)


def main(names: list[str]) -> None:
    """Run what is asked for and say what came out."""
    for name in names or PROBLEMS:
        for seed in SEEDS:
            for warmup in WARMUPS:
                found = run(problem(name), warmup, seed)
                print(f"{name}, seed {seed}, warm-up {warmup:g}: {found['held_out']:.4f}, units {found['live_units']}")


if __name__ == "__main__":
    main(sys.argv[1:])
