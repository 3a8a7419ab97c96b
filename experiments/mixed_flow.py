"""The row NVP of Table 11: a real NVP flow for all variables of a mixed model.

Its networks have 2d hidden units: time grows with the square of the number of variables, so that only the two smaller
data sets are done (d = 66 and 299; the others have 2037 and 16,378).
"""

from typing import Any

from experiments.memory import Arrays, recall
from experiments.mixed_problems import MixedProblem
from natvi.linalg import ArrowVector
from natvi.reference import real_nvp
from natvi.x64 import float64

FLOWS = ("Epilepsy", "Toenail")
STEPS, SAMPLES, DRAWS = 20_000, 40, 5_000


def flow_draws(problem: MixedProblem) -> Arrays:
    """Return draws `(DRAWS, r n + g)` of the trained flow with `elbo`, `elbo_se` and `seconds`."""
    settings = {"formula": problem.formula, "family": problem.family, "prior": problem.prior}
    settings |= {"steps": STEPS, "samples": SAMPLES, "draws": DRAWS, "seed": 0}

    def compute() -> Arrays:
        start = problem.posterior.mean
        (r, n), g = start.local.shape, start.shared.shape[0]
        target = problem.built.target

        def log_density(theta: Any) -> Any:
            return target.value(ArrowVector(theta[: r * n].reshape(r, n), theta[r * n :]))

        with float64():
            fit = real_nvp(log_density, r * n + g, num_steps=STEPS, num_samples=SAMPLES, seed=0)
        about = {"elbo": fit.elbo, "elbo_se": fit.elbo_se, "seconds": fit.seconds["run"]}
        return about | {"draws": fit.sample(DRAWS)}

    return recall(f"nvp-{problem.name}", settings, compute)
