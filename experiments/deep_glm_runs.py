"""The runs of Table 10: deep GLMs on four data sets, every algorithm and three seeds, kept one by one.

    python -m experiments.deep_glm_runs                 all that are not kept yet, the strongest rows first
    python -m experiments.deep_glm_runs protein IVON    one row of a data set
    python -m experiments.deep_glm_runs pilots real     validation scores of all rows after a fifth of the length

The paper gives the batches; lengths, a_0, b_0, the first gamma and how often gamma and b change are ours: inputs and
real responses standardised inside, a_0 = b_0 = 1, gamma started at its fixed point and updated with every step, b an
average with weight 0.05 of the newest estimate. Learning rates of Snngm, Nagm and VOGN are chosen by the log-likelihood
of a tenth of the training rows, after a fifth of the length, from the grids below. IVON's warm-up over a fifth of all
steps was found on a tenth of the training rows of the real simulation too (`python -m experiments.warmup_study`).
"""

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.deep_glm_problems import DeepProblem, problem
from experiments.kept import is_kept, keep
from natvi.metrics import accuracy
from natvi.models.deep.glm_door import fit_deep_glm
from natvi.models.deep.training import Training

LABEL = "table10"
DRAWS = 1000
SEEDS = (0, 1, 2)
PILOT_SEED = 9
WATCHED_ROWS = 5_000
PILOT_SHARE, PILOT_HELD_OUT = 5, 10
PROBLEMS = ("binary", "a9a", "real", "protein")


class Row(NamedTuple):
    """A row of the table: optimizer, learning rates to choose from, schedule and what else differs."""

    optimizer: str
    grid: tuple[float, ...]
    schedule: str = "constant"
    beta2: float = 0.9999
    warmup: float = 0.0


ROWS = {
    "IVON, warm-up": Row("ivon", (0.1,), "cosine", 0.999, 0.2),
    "IVON": Row("ivon", (0.1,), "cosine"),
    "Nagm": Row("nagm", (0.005, 0.01, 0.05, 0.2)),
    "Snngm": Row("snngm", (0.0005, 0.002, 0.005, 0.01)),
    "nAdam": Row("nadam", (0.001,)),
    "Adam": Row("adam", (0.001,)),
    "PGA": Row("pga", (0.001,)),
    "VOGN": Row("vogn", (0.01, 0.05, 0.2)),
}


def training_of(data: DeepProblem, row: Row, alpha: float, epochs: int, seed: int) -> Training:
    """Return the settings of a run; VOGN's small batches get a tenth of the epochs, some ten times as many steps."""
    vogn = row.optimizer == "vogn"
    return Training(
        row.optimizer,
        alpha,
        row.schedule,
        row.warmup,
        epochs=max(1, epochs // 10) if vogn else epochs,
        batch_size=data.vogn_batch if vogn else data.batch,
        seed=seed,
        beta2=row.beta2,
    )


def fit(data: DeepProblem, row: Row, alpha: float, seed: int, checkpoint: Path | None) -> dict[str, Any]:
    """Fit one model and score it on the test rows, with v drawn from q(v)."""
    resumed = checkpoint is not None and checkpoint.exists()
    began = time.process_time()
    watched = (data.test_X[:WATCHED_ROWS], data.test_y[:WATCHED_ROWS])
    training = training_of(data, row, alpha, data.epochs, seed)
    result = fit_deep_glm(data.X, data.y, data.response, training=training, validation=watched, checkpoint=checkpoint)
    seconds = time.process_time() - began
    model = result.model
    tll = float(np.mean(model.log_density(data.test_X, data.test_y, DRAWS)))
    acc = None
    if data.response == "bernoulli":
        acc = 100 * accuracy(model.expected(data.test_X, 200), data.test_y.astype(int))
    order = np.argsort(model.gamma, kind="stable")
    return {
        "tll": tll if np.isfinite(tll) else None,
        "acc": acc,
        "elbo": result.elbo if np.isfinite(result.elbo) else None,
        "outcome": str(result.outcome),
        "gamma": [float(f"{g:.5g}") for g in model.gamma],
        "first_inputs": (1 + order[: max(data.relevant, 5)]).tolist(),
        "ranked_right": set(order[: data.relevant].tolist()) == set(range(data.relevant)) if data.relevant else None,
        "curve": [float(f"{v:.6g}") if np.isfinite(v) else None for v in thin(model.validation)],
        "cpu_seconds": None if resumed else round(seconds, 1),  # a resumed run does not know its whole
    }


def thin(curve: np.ndarray, length: int = 100) -> np.ndarray:
    """Return at most so many points of a curve, evenly spaced, its end among them."""
    if len(curve) <= length:
        return curve
    return curve[np.linspace(0, len(curve) - 1, length).round().astype(int)]


def pilot(data: DeepProblem, name: str, say: Any) -> float:
    """Return the learning rate of a row: the best of its grid after a fifth of the length."""
    grid = ROWS[name].grid
    if len(grid) == 1:
        return grid[0]
    return max(grid, key=lambda alpha: validation_score(data, name, alpha, say))


def validation_score(data: DeepProblem, name: str, alpha: float, say: Any) -> float:
    """Return the log-likelihood of a tenth of the training rows after a fifth of a run without them."""
    cut = len(data.y) - len(data.y) // PILOT_HELD_OUT
    epochs = max(10, data.epochs // PILOT_SHARE)
    label = f"pilot-{data.name}-{_plain(name)}-{alpha:g}"
    fresh = not is_kept(LABEL, label)

    def once(_: Path) -> dict[str, Any]:
        training = training_of(data, ROWS[name], alpha, epochs, PILOT_SEED)
        model = fit_deep_glm(data.X[:cut], data.y[:cut], data.response, training=training).model
        value = float(np.mean(model.log_density(data.X[cut:], data.y[cut:], 50)))
        return {"tll": value if np.isfinite(value) else None}

    settings = {"alpha": alpha, "epochs": epochs, "seed": PILOT_SEED, "pilot": True}
    found = keep(LABEL, label, settings, once)["tll"]
    if fresh:
        say(f"{label}: validation log-likelihood {found}")
    return -np.inf if found is None else found


def run(data: DeepProblem, name: str, seed: int, say: Any = print) -> dict[str, Any]:
    """Return what a run found, fitting it if it is not kept yet."""
    alpha = pilot(data, name, say)
    row = ROWS[name]
    settings = {"alpha": alpha, "epochs": data.epochs, "seed": seed, "schedule": row.schedule, "draws": DRAWS}
    settings |= {"beta2": row.beta2, "warmup": row.warmup} if row.warmup else {}
    label = run_name(data.name, name, seed)
    fresh = not is_kept(LABEL, label)
    found = keep(LABEL, label, settings, lambda path: fit(data, row, alpha, seed, path))
    if fresh:
        say(f"{label}: alpha {alpha:g}, tll {found['tll']}, accuracy {found['acc']}, {found['cpu_seconds']} s")
    return found


def run_name(problem_name: str, name: str, seed: int) -> str:
    """Return the file name of a run."""
    return f"{problem_name}-{_plain(name)}-{seed}"


def _plain(name: str) -> str:
    return name.lower().replace(", ", "-")


def main(arguments: list[str]) -> None:
    """Run what is asked for."""
    if arguments[:1] == ["pilots"]:
        for name in arguments[2:] or ROWS:
            for alpha in ROWS[name].grid:
                validation_score(problem(arguments[1]), name, alpha, lambda text: print(text, flush=True))
        return
    problems = arguments[:1] or PROBLEMS
    for name in arguments[1:] or ROWS:
        for seed in SEEDS:
            for problem_name in problems:
                run(problem(problem_name), name, seed, lambda text: print(text, flush=True))


if __name__ == "__main__":
    main(sys.argv[1:])
