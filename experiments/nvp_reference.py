"""`python -m experiments.nvp_reference NAME`: real NVP flows for German credit and a4a, the paper's rows NVP."""

import sys
from typing import Any

import numpy as np

from experiments.memory import Arrays, recall
from experiments.nuts_reference import PAPER
from experiments.problems import Problem, log_density
from experiments.scores import MMD_DRAWS
from natvi.reference import real_nvp
from natvi.x64 import float64

STEPS, QUICK_STEPS = 20_000, 20
SAMPLES, QUICK_SAMPLES = 40, 2


def flow_draws(problem: Problem, quick: bool = False) -> Arrays:
    """Return draws `(MMD_DRAWS, d)` of the trained flow with `elbo`, `elbo_se` and `seconds`."""
    settings: dict[str, Any] = {key: problem.settings[key] for key in ("problem", "n", "d")}
    settings |= {"steps": QUICK_STEPS if quick else STEPS, "samples": QUICK_SAMPLES if quick else SAMPLES, "seed": 0}

    def compute() -> Arrays:
        with float64():
            fit = real_nvp(
                log_density(problem), problem.d, num_steps=settings["steps"], num_samples=settings["samples"], seed=0
            )
        draws = fit.sample(MMD_DRAWS)
        return {"draws": draws, "elbo": fit.elbo, "elbo_se": fit.elbo_se, "seconds": fit.seconds["run"]}

    return recall(f"nvp-{problem.name}", settings, compute)


def main(names: list[str]) -> int:
    """Train the flows of these names, or of all."""
    for name in names or PAPER:
        if name not in PAPER:
            print(f"no problem {name!r}; known: {', '.join(PAPER)}", file=sys.stderr)
            return 2
        with float64():
            found = flow_draws(PAPER[name](False))
        print(name, {key: float(np.round(found[key], 3)) for key in ("elbo", "elbo_se", "seconds")}, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
