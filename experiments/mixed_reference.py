"""`python -m experiments.mixed_reference NAME`: draws of NUTS from the posteriors of the mixed models.

The random effects are integrated out by adaptive quadrature and NUTS samples the shared coordinates; given these, the
random effects are drawn exactly (`MixedProblem.conditional_draws`). The exact Gaussian fit gives starts and the first
mass matrix. Each problem has two runs that share nothing but that. Draws are kept in the folder of
`experiments.memory`.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.memory import Arrays, recall
from experiments.mixed_problems import PROBLEMS, MixedProblem
from experiments.nuts_reference import describe
from natvi.linalg import small_blocks
from natvi.precision import float64
from natvi.reference import nuts
from natvi.target.marginal import marginal_log_density

DRAWS = {"Diabetes": 2_500, "contraception": 2_000}
DEFAULT_DRAWS, QUICK_DRAWS = 5_000, 200
WARMUP, QUICK_WARMUP = 500, 100
CHAINS = 2
RUNS = (0, 1)


def reference(problem: MixedProblem, run: int = 0, quick: bool = False) -> Arrays:
    """Return draws `(chains, draws, g)` of the shared coordinates with their diagnostics."""
    settings = {
        "formula": problem.formula,
        "family": problem.family,
        "prior": problem.prior,
        "draws": QUICK_DRAWS if quick else DRAWS.get(problem.name, DEFAULT_DRAWS),
        "warmup": QUICK_WARMUP if quick else WARMUP,
        "chains": CHAINS,
        "target_accept": 0.8,
        "seed": run,
    }

    def compute() -> Arrays:
        target, q = problem.built.target, problem.posterior
        with float64():
            # theta_i given theta_g has mean mu_i - T_i^-T T_gi' (theta_g - mu_g)
            slopes = small_blocks.solve_upper(q.factor.local, q.factor.cross.swapaxes(0, 1))
            centre = q.mean.shared

            def log_density(shared: Any) -> Any:
                near = q.mean.local - jnp.einsum("rgn,g->rn", slopes, jax.lax.stop_gradient(shared) - centre)
                return marginal_log_density(target, shared, near)

            found = nuts(
                log_density,
                np.asarray(centre),
                covariance=np.asarray(q.inverse_shared).T @ np.asarray(q.inverse_shared),
                num_draws=settings["draws"],
                num_warmup=settings["warmup"],
                num_chains=CHAINS,
                seed=settings["seed"],
            )
        keys = ("ess", "rhat", "num_divergent", "num_steps")
        return {"draws": found.draws, "seconds": found.seconds["total"], **{key: getattr(found, key) for key in keys}}

    return recall(f"nuts-{problem.name}", settings, compute)


def main(names: list[str]) -> int:
    """Sample the posteriors of these names, or of all, twice each."""
    for run in RUNS:
        for name in names or PROBLEMS:
            if name not in PROBLEMS:
                print(f"no problem {name!r}; known: {', '.join(PROBLEMS)}", file=sys.stderr)
                return 2
            print(name, run, describe(reference(PROBLEMS[name], run)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
