"""`python -m experiments.nuts_reference NAME`: draws of NUTS from three posteriors of logistic regression.

German credit and a4a are the paper's; the simulation is that of the benchmark `glm`. The exact dense Gaussian gives
starts and the first mass matrix. Draws are kept in the folder of `experiments.memory`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments import problems
from experiments.memory import Arrays, recall
from experiments.problems import Problem, log_density
from natvi.reference import nuts
from natvi.run.exact.rows import climb_rows
from natvi.x64 import float64

PAPER: dict[str, Callable[[bool], Problem]] = {"German": problems.german, "a4a": problems.a4a}
PROBLEMS = PAPER | {"simulated": problems.simulated}
# two chains, as in the paper, and its 50,000 and 10,000 draws; a gradient of the simulation takes milliseconds
DRAWS, QUICK_DRAWS = {"German": 25_000, "a4a": 5_000, "simulated": 1_000}, 1_000
WARMUP, QUICK_WARMUP = {"German": 1_000, "a4a": 1_000, "simulated": 200}, 100
# 200 draws say less of 100 dimensions than the exact Gaussian: there its covariance stays, and warm-up finds the step
FIXED_MASS = ("simulated",)
CHAINS = 2


def reference(problem: Problem, quick: bool = False) -> Arrays:
    """Return draws `(chains, draws, d)` with `ess`, `rhat`, `num_divergent`, `num_steps` and `seconds`."""
    settings = {
        **{key: problem.settings[key] for key in ("problem", "n", "d")},
        "draws": QUICK_DRAWS if quick else DRAWS[problem.name],
        "warmup": QUICK_WARMUP if quick else WARMUP[problem.name],
        "chains": CHAINS,
        "target_accept": 0.8,
        "seed": 0,
    }
    adapt_mass = problem.name not in FIXED_MASS
    settings |= {} if adapt_mass else {"adapt_mass": False}

    def compute() -> Arrays:
        with float64():
            q = climb_rows(problem.target).gaussian
            C = np.asarray(q.factor.matrix)
            run = nuts(
                log_density(problem),
                np.asarray(q.mean),
                covariance=C @ C.T,
                adapt_mass=adapt_mass,
                num_draws=settings["draws"],
                num_warmup=settings["warmup"],
                num_chains=CHAINS,
                seed=settings["seed"],
            )
        diagnostics = {"ess": run.ess, "rhat": run.rhat, "num_divergent": run.num_divergent, "num_steps": run.num_steps}
        return {"draws": run.draws, "seconds": run.seconds["total"], **diagnostics}

    return recall(f"nuts-{problem.name}", settings, compute)


def describe(found: Arrays) -> dict[str, Any]:
    """Return the diagnostics as plain numbers."""
    chains, draws, _ = found["draws"].shape
    return {
        "chains": chains,
        "draws_each": draws,
        "smallest_ess": float(found["ess"].min()),
        "largest_rhat": float(found["rhat"].max()),
        "divergent": int(found["num_divergent"]),
        "leapfrog_steps": int(found["num_steps"]),
        "seconds": float(found["seconds"]),
    }


def main(names: list[str]) -> int:
    """Sample the posteriors of these names, or of all."""
    for name in names or PROBLEMS:
        if name not in PROBLEMS:
            print(f"no problem {name!r}; known: {', '.join(PROBLEMS)}", file=sys.stderr)
            return 2
        with float64():
            print(name, describe(reference(PROBLEMS[name](False))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
