"""How far draws of a mixed model are from those of NUTS, over all variables, random effects included.

Every sample has its random effects in the target's order of groups, then theta_g = (beta, omega), on the raw scale.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.memory import Arrays, recall
from experiments.mixed_problems import MixedProblem
from experiments.mixed_reference import reference
from natvi.linalg import ArrowVector
from natvi.metrics import mmd_measure
from natvi.metrics.psis import resample
from natvi.x64 import float64

SIZE, QUICK_SIZE = 1000, 100
POOL, QUICK_POOL = {"Diabetes": 2_000}, 200  # draws from which the subsets are taken
DEFAULT_POOL = 5_000
EVALUATIONS = {"Diabetes": 5}
CAREFUL_EVALUATIONS = {"Diabetes": 20}  # of draws that may be near the ceiling, where one evaluation is noise
DEFAULT_EVALUATIONS = 50


class NotSampledError(Exception):
    """Draws of NUTS are not kept yet."""


class WeightedDraws(NamedTuple):
    """Draws of theta_g `(s, g)` and their weights."""

    shared: np.ndarray
    weights: np.ndarray


class _Known:
    """The settings of a problem without its target: enough to find kept draws, and too little to make new ones."""

    def __init__(self, problem: MixedProblem) -> None:
        self.name, self.formula, self.family, self.prior = problem.name, problem.formula, problem.family, problem.prior

    @property
    def built(self) -> Any:
        raise NotSampledError(self.name)


def kept_reference(problem: MixedProblem, run: int) -> Arrays | None:
    """Return the draws of a run of NUTS, or None where it has not been made: that takes long, and is not done here."""
    try:
        return reference(_Known(problem), run)  # type: ignore[arg-type]
    except NotSampledError:
        return None


def pool_size(problem: MixedProblem, quick: bool) -> int:
    """Return how many draws of each law the subsets are taken from."""
    return QUICK_POOL if quick else POOL.get(problem.name, DEFAULT_POOL)


def options(problem: MixedProblem, quick: bool, careful: bool = False) -> dict[str, int]:
    """Return the size of a subset and the number of evaluations."""
    counts = CAREFUL_EVALUATIONS if careful else EVALUATIONS
    evaluations = 2 if quick else counts.get(problem.name, DEFAULT_EVALUATIONS)
    return {"size": QUICK_SIZE if quick else SIZE, "evaluations": evaluations}


def join(draws: ArrowVector) -> np.ndarray:
    """Return random effects and theta_g side by side, `(s, r n + g)`."""
    local, shared = np.asarray(draws.local), np.asarray(draws.shared)
    return np.concatenate([local.reshape(len(local), -1), shared], axis=1)


@lru_cache(maxsize=2)
def nuts_draws(problem: MixedProblem, run: int, quick: bool = False) -> np.ndarray | None:
    """Return draws of all variables from a run of NUTS, thinned evenly, or None where it has not been made."""
    found = kept_reference(problem, run)
    if found is None:
        return None
    shared = found["draws"].reshape(-1, found["draws"].shape[-1])
    shared = shared[:: max(1, len(shared) // pool_size(problem, quick))][: pool_size(problem, quick)]
    return np.concatenate([problem.conditional_draws(shared, seed=100 + run), shared], axis=1)


def gaussian_draws(gaussian: Any, num_draws: int, seed: int) -> np.ndarray:
    """Draw all variables from a Gaussian in the target's order of groups."""
    with float64():
        return join(_draw(jax.device_put(gaussian), jax.random.split(jax.random.key(seed), num_draws)))


@jax.jit
def _draw(gaussian: Any, keys: Any) -> ArrowVector:
    return jax.lax.map(gaussian.sample, keys, batch_size=16)


def measure(
    problem: MixedProblem, what: str, draw: Any, settings: dict[str, Any], quick: bool, careful: bool = False
) -> Arrays | None:
    """Return mean and sd of M between draws and run 0 of NUTS, kept; None where there is no reference.

    Args:
        problem: The mixed model.
        what: Names what the draws come from.
        draw: Called for the draws, one in each row, or for `WeightedDraws`, of which every subset is resampled.
        settings: All that decides the draws.
        quick: Whether to take few.
        careful: Whether to evaluate more often where an evaluation takes long.
    """
    sampled = kept_reference(problem, 0)
    if sampled is None:
        return None
    chosen = options(problem, quick, careful)
    about = settings | chosen | {"problem": problem.name, "pool": pool_size(problem, quick)}
    about |= {"reference": float(sampled["draws"].sum()), "version": 1}

    def compute() -> Arrays:
        aim, draws = nuts_draws(problem, 0, quick), draw()
        assert aim is not None
        if isinstance(draws, WeightedDraws):
            return weighted_measure(problem, draws, aim, **chosen)
        if not np.isfinite(draws).all():
            return {"mean": np.nan, "sd": np.nan}
        return mmd_measure(draws, aim, **chosen)._asdict()

    return recall(f"mmd-{problem.name}-{what}", about, compute)


def weighted_measure(
    problem: MixedProblem, draws: WeightedDraws, aim: np.ndarray, size: int, evaluations: int
) -> Arrays:
    """Return M of weighted draws of theta_g; each evaluation resamples `size` of them and draws random effects anew.

    Points that come twice would look like a discrepancy: the estimate counts pairs of different draws.
    """
    rng = np.random.default_rng(0)
    values = []
    for k in range(evaluations):
        shared = draws.shared[resample(draws.weights, size, rng)]
        whole = np.concatenate([problem.conditional_draws(shared, seed=200 + k), shared], axis=1)
        values.append(mmd_measure(whole, aim, size=size, evaluations=1, seed=k).mean)
    return {"mean": np.mean(values), "sd": np.std(values, ddof=1)}
