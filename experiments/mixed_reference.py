"""`python -m experiments.mixed_reference NAME`: draws of NUTS from the posteriors of the mixed models.

The random effects are integrated out by adaptive quadrature and NUTS samples the shared coordinates; given these, the
random effects are drawn exactly (`MixedProblem.conditional_draws`). The exact Gaussian fit gives starts and the first
mass matrix; where that is not adapted, it is that of natvi's weighted draws. Each problem has two runs that share
nothing but that. Draws are kept in the folder of `experiments.memory`. With two correlated random effects NUTS walks in
the coordinates of `experiments.slope_coordinates`; starts and first mass matrix then are those of the weighted draws.
"""

import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.memory import Arrays, recall
from experiments.mixed_problems import PROBLEMS, SLOPES, MixedProblem
from experiments.nuts_reference import describe
from experiments.slope_coordinates import to_shared, to_walk
from natvi.linalg import small_blocks
from natvi.reference import nuts
from natvi.reference.nuts import NutsDraws
from natvi.target.mixed.marginal import marginal_log_density
from natvi.x64 import float64

# the second run of Diabetes is only compared with the first, by 2,000 draws
DRAWS = {("Diabetes", 0): 3_000, ("Diabetes", 1): 1_000, ("contraception", 0): 9_000}
# Where a gradient is slow, the quadrature takes 7 nodes per random effect: next to 21 and 9 the log-density changes by
# at most 4e-4 (Diabetes) and 5e-6 nats (contraception), its slope by 2e-5 and 8e-5 per sd. With 37 shared coordinates
# the mass matrix is kept as it is: warm-up is too short to find a better one.
SLOW = {"Diabetes": {"nodes": 7, "adapt_mass": False, "warmup": 200}, "contraception": {"nodes": 7}}
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
        "draws": QUICK_DRAWS if quick else DRAWS.get((problem.name, run), DEFAULT_DRAWS),
        "warmup": QUICK_WARMUP if quick else WARMUP,
        "chains": CHAINS,
        "target_accept": 0.8,
        "seed": run,
    }

    sloped = problem.name in SLOPES
    if sloped:
        settings |= {"coordinates": "slopes", "target_accept": 0.9}
    settings |= {} if quick else SLOW.get(problem.name, {})

    def compute() -> Arrays:
        found = sample_slopes(problem, settings) if sloped else sample(problem, settings)
        keys = ("ess", "rhat", "num_divergent", "num_steps")
        return {"draws": found.draws, "seconds": found.seconds["total"], **{key: getattr(found, key) for key in keys}}

    return recall(f"nuts-{problem.name}", settings, compute)


def sample(problem: MixedProblem, settings: dict[str, Any]) -> NutsDraws:
    """Run NUTS on the shared coordinates."""
    target, q = problem.built.target, problem.posterior
    with float64():
        # theta_i given theta_g has mean mu_i - T_i^-T T_gi' (theta_g - mu_g)
        slopes = small_blocks.solve_upper(q.factor.local, q.factor.cross.swapaxes(0, 1))
        centre = q.mean.shared

        def log_density(shared: Any) -> Any:
            near = q.mean.local - jnp.einsum("rgn,g->rn", slopes, jax.lax.stop_gradient(shared) - centre)
            return marginal_log_density(target, shared, near, settings.get("nodes"))

        if settings.get("adapt_mass", True):
            covariance = np.asarray(q.inverse_shared).T @ np.asarray(q.inverse_shared)
        else:
            fit: Any = problem.model.fit(method="marginal").model
            covariance = np.cov(fit.shared_draws(2048, np.random.default_rng(settings["seed"])).T)
        return nuts(log_density, np.asarray(centre), covariance=covariance, **options(settings))


def sample_slopes(problem: MixedProblem, settings: dict[str, Any]) -> NutsDraws:
    """Run NUTS in the coordinates of `experiments.slope_coordinates` and return draws of the shared coordinates."""
    target, local = problem.built.target, problem.posterior.mean.local
    fit: Any = problem.model.fit(method="marginal").model
    near = to_walk(fit.shared_draws(2048, np.random.default_rng(settings["seed"])))
    with float64():

        def log_density(x: Any) -> Any:
            shared, volume = to_shared(x)
            return marginal_log_density(target, shared, local, settings.get("nodes")) + volume

        found = nuts(
            log_density,
            near.mean(axis=0),
            covariance=np.cov(near.T),
            positions=near[: settings["chains"]],
            **options(settings),
        )
        draws = np.asarray(jax.vmap(jax.vmap(lambda x: to_shared(x)[0]))(jnp.asarray(found.draws)))
    return replace(found, draws=draws)


def options(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as NUTS takes them."""
    names = {"num_draws": "draws", "num_warmup": "warmup", "num_chains": "chains"}
    same = {name: settings[name] for name in ("target_accept", "seed", "adapt_mass") if name in settings}
    return {name: settings[own] for name, own in names.items()} | same


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
