"""The runs of Table 9: LeNet-5 on MNIST and CIFAR-10, every algorithm, resumable at any step.

    python -m experiments.net_runs mnist           all runs that are not kept yet, pilots first
    python -m experiments.net_runs cifar10 IVON    one of them

Adam, PGA and nAdam keep the paper's rate; those of Snngm, Nagm and VOGN come from pilots of a few epochs on all
but the last 5,000 training images, by their log-likelihood of those; where the whole run diverges nevertheless, it is
made again at the next smaller rate. The paper's rows have constant step sizes. Rows beyond the paper come down to zero
along a cosine: IVON, also with steps that rise over the first tenth, Nagm once more, and plain Adam, a point estimate.
"""

import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.kept import is_kept, keep, set_aside
from natvi import data
from natvi.metrics import accuracy, calibration_error
from natvi.models.deep.bnn import bnn
from natvi.models.deep.nets import init_lenet5, lenet5
from natvi.models.deep.predictive import over_draws, weight_draws
from natvi.models.deep.training import POINT, Training, train
from natvi.run import Outcome
from natvi.x64 import float32

LABEL = "table9"
DRAWS, CURVE_DRAWS = 50, 4
HELD_OUT = 5_000
SEED, PILOT_SEED = 0, 1


class Images(NamedTuple):
    """A data set and how long it is trained on."""

    name: str
    epochs: int
    pilot_epochs: int
    vogn_epochs: int


SETS = {"mnist": Images("mnist", 20, 3, 1), "cifar10": Images("cifar10", 40, 6, 2)}
LOADERS = {"mnist": data.load_mnist, "cifar10": data.load_cifar10}


class Row(NamedTuple):
    """A row of the table: optimizer, learning rates to choose from, and what else differs."""

    optimizer: str
    grid: tuple[float, ...]
    schedule: str = "constant"
    seed: int = SEED
    warmup: float = 0.0


ROWS = {
    "IVON": Row("ivon", (0.1,), "cosine"),
    "IVON, warm-up": Row("ivon", (0.1,), "cosine", warmup=0.1),
    "plain Adam": Row(POINT, (0.001,), "cosine"),
    "Nagm": Row("nagm", (0.002, 0.01, 0.05, 0.1, 0.2)),
    "Snngm": Row("snngm", (0.0005, 0.001)),
    "Adam": Row("adam", (0.001,)),
    "nAdam": Row("nadam", (0.001,)),
    "VOGN": Row("vogn", (0.05, 0.1, 0.2)),
    "PGA": Row("pga", (0.001,)),
    "plain Adam, 2nd": Row(POINT, (0.001,), "cosine", 2),
    "plain Adam, 3rd": Row(POINT, (0.001,), "cosine", 3),
    "Nagm, cosine": Row("nagm", (0.002, 0.01, 0.05, 0.1, 0.2), "cosine"),
}


@cache
def images(name: str) -> Any:
    """Return training and test images."""
    return LOADERS[name]()


def model_of(name: str, seed: int) -> Any:
    """Return LeNet-5 for a data set, its means drawn from the seed."""
    (train_images, _) = images(name)
    _, side, _, channels = train_images.X.shape
    with float32():
        return bnn(lenet5, init_lenet5(jax.random.key(seed), side, channels), prior_sd=10.0)


def score(model: Any, mean: Any, sds: Any, X: np.ndarray, y: np.ndarray, draws: int) -> dict[str, float]:
    """Return test log-likelihood, accuracy in percent and calibration error; sds of None stand for a point."""
    thetas = [mean] if sds is None else weight_draws(mean, sds, draws, seed=1)
    sums = over_draws(model.net, thetas, X, y.astype(np.int32))
    table = sums.mean / sums.num_draws
    return {
        "tll": float(np.mean(sums.log_density - np.log(sums.num_draws))),
        "acc": 100 * accuracy(table, y),
        "ece": calibration_error(table, y),
    }


def fit(name: str, row: Row, alpha: float, epochs: int, seed: int, checkpoint: Path, held_out: bool) -> dict[str, Any]:
    """Train one net and score it, on held-out training images or on the test images."""
    (training_images, test) = images(name)
    X, y = training_images.X, training_images.y.astype(np.int32)
    if held_out:
        X, y, test = X[:-HELD_OUT], y[:-HELD_OUT], data.Images(X[-HELD_OUT:], y[-HELD_OUT:])
    training = Training(
        row.optimizer,
        alpha,
        row.schedule,
        row.warmup,
        epochs=epochs,
        batch_size=16 if row.optimizer == "vogn" else 128,
        seed=seed,
    )
    model = model_of(name, seed)
    notes = checkpoint.with_suffix(".curve.json")
    curve = json.loads(notes.read_text()) if checkpoint.exists() and notes.exists() else []
    earlier = len(curve)
    spent = {"seconds": sum(point["seconds"] for point in curve), "began": time.process_time()}

    def watch(state: Any) -> float:
        """Note the curve on the way: at every second epoch."""
        gaussian = state.gaussian
        seconds = time.process_time() - spent["began"]
        epoch = len(curve) + 1
        seen: dict[str, float] = {}
        if not held_out and (epoch == 1 or epoch % 2 == 0 or epoch == epochs):
            sds = None if row.optimizer == POINT else gaussian.factor.values
            seen = score(model, gaussian.mean, sds, test.X, test.y, CURVE_DRAWS)
        curve.append({"epoch": epoch, "seconds": round(seconds, 2)} | {k: v for k, v in seen.items() if np.isfinite(v)})
        notes.write_text(json.dumps(curve))
        spent["began"] = time.process_time()
        return seen.get("tll", 0.0)

    with float32():
        rows = {"x": X, "y": y}
        target, start = model.prepare(rows, training)
        fitted = train(target, start, rows, training, watch=watch, checkpoint=checkpoint, checkpoint_seconds=60.0)
        point = row.optimizer == POINT
        sds = np.asarray(fitted.gaussian.factor.values)
        found = score(model, fitted.gaussian.mean, None if point else sds, test.X, test.y, DRAWS)
        curve = joined(curve[:earlier], curve[earlier:], len(fitted.trace))
        average = fitted.state.average
        averaged = {}
        if row.schedule == "constant" and not held_out:
            averaged = score(model, average.mean, None if point else average.factor.values, test.X, test.y, DRAWS)
    return {
        **{key: value if np.isfinite(value) else None for key, value in found.items()},
        "averaged": {key: value if np.isfinite(value) else None for key, value in averaged.items()},
        "outcome": str(fitted.outcome),
        "bound": [float(v) if np.isfinite(v) else None for v in fitted.trace],
        "sd": float(np.abs(sds).mean()),
        "curve": curve,
        "cpu_seconds": round(sum(p["seconds"] for p in curve), 1),
    }


def joined(before: list[Any], after: list[Any], epochs: int) -> list[Any]:
    """Return the points of all epochs; a run that was killed may have noted more than its checkpoint holds.

    Example:
        >>> joined([{"tll": -3}, {"tll": -2}], [{"tll": -2}, {"tll": -1}], 3)
        [{'tll': -3, 'epoch': 1}, {'tll': -2, 'epoch': 2}, {'tll': -1, 'epoch': 3}]
    """
    points = [*before[: max(0, epochs - len(after))], *after]
    return [point | {"epoch": k} for k, point in enumerate(points, 1)]


def pilot(name: str, row_name: str, say: Any = print) -> float:
    """Return the learning rate of a row: the best of its grid after a few epochs."""
    row, images_of = ROWS[row_name], SETS[name]
    if len(row.grid) == 1:
        return row.grid[0]
    epochs = images_of.vogn_epochs if row.optimizer == "vogn" else images_of.pilot_epochs
    scores = {}
    for alpha in row.grid:
        settings = {"alpha": alpha, "epochs": epochs, "seed": PILOT_SEED, "schedule": row.schedule, "pilot": True}
        label = f"pilot-{name}-{_plain(row_name)}-{alpha:g}"
        found = keep(LABEL, label, settings, lambda path, a=alpha: fit(name, row, a, epochs, PILOT_SEED, path, True))
        scores[alpha] = -np.inf if found["tll"] is None else found["tll"]
        say(f"{label}: validation log-likelihood {scores[alpha]:.4f}")
    return max(scores, key=lambda a: scores[a])


def run(name: str, row_name: str, say: Any = print) -> dict[str, Any]:
    """Return what a row found, training it if it is not kept yet; where it diverges, a smaller rate of the grid."""
    row, images_of = ROWS[row_name], SETS[name]
    best, label = pilot(name, row_name, say), run_name(name, row_name)
    epochs = images_of.vogn_epochs if row.optimizer == "vogn" else images_of.epochs
    rates = [alpha for alpha in sorted(row.grid, reverse=True) if alpha <= best]
    alpha = next((a for a in rates if not is_kept(LABEL, _diverged(label, a))), rates[-1])
    settings = {"alpha": alpha, "epochs": epochs, "seed": row.seed, "schedule": row.schedule, "draws": DRAWS}
    settings |= {"warmup": row.warmup} if row.warmup else {}
    fresh = not is_kept(LABEL, label)
    found = keep(LABEL, label, settings, lambda path: fit(name, row, alpha, epochs, row.seed, path, False))
    if fresh:
        say(f"{label}: alpha {alpha:g}, tll {found['tll']}, accuracy {found['acc']}, ece {found['ece']}")
    if found["outcome"] == str(Outcome.NONFINITE) and alpha > rates[-1]:
        set_aside(LABEL, label, _diverged(label, alpha))
        return run(name, row_name, say)
    return found


def _diverged(label: str, alpha: float) -> str:
    return f"diverged-{label}-{alpha:g}"


def run_name(name: str, row_name: str) -> str:
    """Return the file name of a run."""
    return f"{name}-{_plain(row_name)}"


def _plain(text: str) -> str:
    return text.lower().replace(",", "").replace(" ", "-")


def main(arguments: list[str]) -> None:
    """Run what is asked for."""
    name, *rows = arguments
    for row_name in rows or ROWS:
        run(name, row_name, lambda text: print(text, flush=True))


if __name__ == "__main__":
    main(sys.argv[1:])
