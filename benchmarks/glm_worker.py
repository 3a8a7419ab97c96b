"""One tool of the benchmark `glm` in a process of its own; see `workers` for how it is spoken to.

    python -m benchmarks.glm_worker TOOL

Commands: `load NAME`, `fit`; the reply has the seconds and, for Bayesian tools, a file with mean and covariance. Calls
of NumPyro and BlackJAX are too long to be made twice: they are compiled outside the seconds, and the reply has
`compile_seconds` beside them.
"""

import platform
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.answering import Answer, answer_commands
from benchmarks.glm_problems import PRIOR_SD, Problem, load

VI_STEPS = 20_000
VI_CHECKS = 20  # the bound is looked at this often; time to the best look counts


def fit_natvi(**options: Any) -> Callable[[Problem], Callable[[], Answer]]:
    """From arrays to the full posterior."""

    def make(problem: Problem) -> Callable[[], Answer]:
        import natvi

        def fit() -> Answer:
            result = natvi.glm_arrays(problem.X, problem.y, family="bernoulli", prior=PRIOR_SD).fit(**options)
            model: Any = result.model
            moments = {"_mean": model.mean, "_root": model.factor}
            return {"elbo": result.elbo, "iterations": len(result.trace), "outcome": str(result.outcome)} | moments

        return fit

    return make


def fit_sklearn(solver: str, tolerance: float) -> Callable[[Problem], Callable[[], Answer]]:
    """The penalised point estimate: C = 1 / (1 / sd^2) on every column."""

    def make(problem: Problem) -> Callable[[], Answer]:
        from sklearn.linear_model import LogisticRegression

        def fit() -> Answer:
            model = LogisticRegression(
                C=PRIOR_SD**2, fit_intercept=False, solver=solver, tol=tolerance, max_iter=10_000
            ).fit(problem.X, problem.y)
            return {"iterations": int(np.max(model.n_iter_)), "_mean": model.coef_[0]}

        return fit

    return make


def fit_statsmodels(problem: Problem) -> Callable[[], Answer]:
    """The unpenalised estimate with its covariance, by iteratively reweighted least squares."""
    import statsmodels.api as sm

    def fit() -> Answer:
        model = sm.GLM(problem.y, problem.X, family=sm.families.Binomial()).fit(tol=1e-8)
        return {"iterations": int(model.fit_history["iteration"])}

    return fit


def log_density_of(problem: Problem) -> Callable[[Any], Any]:
    """Return log p(y, theta) with all constants."""
    import jax
    import jax.numpy as jnp

    X, sign = jnp.asarray(problem.X), jnp.asarray(1.0 - 2.0 * problem.y)

    def log_density(theta: Any) -> Any:
        prior = -0.5 * jnp.sum(theta**2) / PRIOR_SD**2 - len(theta) * (0.5 * np.log(2 * np.pi) + np.log(PRIOR_SD))
        return prior - jnp.sum(jax.nn.softplus(sign * (X @ theta)))

    return log_density


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """Return the function compiled for arguments like these, and the seconds that took."""
    import jax

    began = time.perf_counter()
    ready = jax.jit(function).lower(*arguments).compile()
    return ready, time.perf_counter() - began


def fit_numpyro(problem: Problem) -> Callable[[], Answer]:
    """AutoMultivariateNormal: 20,000 steps of Adam, one draw each, step size 0.01 decaying to 0.0001."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    import optax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal
    from numpyro.optim import optax_to_numpyro

    log_density = log_density_of(problem)
    d = problem.X.shape[1]

    def model() -> None:
        theta = numpyro.sample("theta", dist.ImproperUniform(dist.constraints.real_vector, (), (d,)))
        numpyro.factor("log_density", log_density(theta))

    schedule = optax.exponential_decay(0.01, VI_STEPS, 0.01)
    guide = AutoMultivariateNormal(
        model, init_scale=len(problem.y) ** -0.5, init_loc_fn=numpyro.infer.init_to_value(values={"theta": np.zeros(d)})
    )
    svi = SVI(model, guide, optax_to_numpyro(optax.adam(schedule)), Trace_ELBO())
    state = svi.init(jax.random.key(0))
    advance = compiled(
        lambda state: jax.lax.fori_loop(0, VI_STEPS // VI_CHECKS, lambda _, s: svi.update(s)[0], state), state
    )

    def look(state: Any) -> tuple[np.ndarray, np.ndarray]:
        params = svi.get_params(state)
        posterior = guide.get_posterior(params)
        root = np.asarray(posterior.scale_tril)
        return np.asarray(posterior.loc), root @ root.T

    return lambda: _climb(problem, state, *advance, look)


def fit_blackjax(problem: Problem) -> Callable[[], Answer]:
    """Full-rank variational inference: 20,000 steps of Adam, one draw each, step size 0.01 decaying to 0.0001."""
    import blackjax
    import jax
    import jax.numpy as jnp
    import optax

    log_density = log_density_of(problem)
    schedule = optax.exponential_decay(0.01, VI_STEPS, 0.01)
    algorithm = blackjax.fullrank_vi(log_density, optax.adam(schedule), 1)
    first = (algorithm.init(jnp.zeros(problem.X.shape[1])), jax.random.key(0))  # N(0, I), its own start

    def step(_: Any, carry: Any) -> Any:
        state, key = carry
        key, now = jax.random.split(key)
        return algorithm.step(now, state)[0], key

    advance = compiled(lambda carry: jax.lax.fori_loop(0, VI_STEPS // VI_CHECKS, step, carry), first)
    draw = jax.jit(lambda key, state: algorithm.sample(key, state, 20_000))

    def look(carry: Any) -> tuple[np.ndarray, np.ndarray]:
        # mean and covariance from its own draws, whatever its parametrisation
        draws = np.asarray(draw(jax.random.key(1), carry[0]))
        return draws.mean(0), np.cov(draws.T)

    return lambda: _climb(problem, first, *advance, look)


def fit_pathfinder(problem: Problem) -> Callable[[], Answer]:
    """Pathfinder: the best Gaussian along an L-BFGS path, judged by its own draws."""
    import blackjax.vi.pathfinder as pathfinder
    import jax
    import jax.numpy as jnp

    log_density = log_density_of(problem)
    run, compile_seconds = compiled(
        lambda key: pathfinder.approximate(key, log_density, jnp.zeros(problem.X.shape[1]), 100)[0], jax.random.key(0)
    )
    draw = jax.jit(lambda key, state: pathfinder.sample(key, state, 20_000))

    def fit() -> Answer:
        began = time.perf_counter()
        state = jax.block_until_ready(run(jax.random.key(0)))
        seconds = time.perf_counter() - began  # without the draws that judge it
        draws, log_q = draw(jax.random.key(1), state)
        values = jax.lax.map(log_density, draws, batch_size=64) - log_q
        return {
            "_seconds": seconds,
            "compile_seconds": compile_seconds,
            "elbo": float(jnp.mean(values)),
            "elbo_se": float(jnp.std(values) / len(values) ** 0.5),
            "_mean": np.asarray(draws).mean(0),
            "_covariance": np.cov(np.asarray(draws).T),
        }

    return fit


def fit_nuts(problem: Problem) -> Callable[[], Answer]:
    """NUTS from NumPyro, two chains, 1,000 warm-up steps and 1,000 draws each, no warm start."""
    from natvi.reference import nuts

    def fit() -> Answer:
        found = nuts(log_density_of(problem), np.zeros(problem.X.shape[1]), num_draws=1000, num_warmup=1000)
        spent = {
            "compile_seconds": found.seconds["compile"],
            "_seconds": found.seconds["total"] - found.seconds["compile"],
        }
        return spent | {"least_ess": float(np.min(found.ess)), "_mean": found.flat().mean(0)}

    return fit


def _climb(
    problem: Problem, state: Any, advance: Callable[[Any], Any], compile_seconds: float, look: Callable[[Any], Any]
) -> Answer:
    """Run a stochastic method, looking at its exact bound now and then with the clock stopped."""
    import jax

    from benchmarks.glm_problems import exact_bound

    seconds, best = 0.0, {"elbo": -np.inf}
    for _ in range(VI_CHECKS):
        began = time.perf_counter()
        state = jax.block_until_ready(advance(state))
        seconds += time.perf_counter() - began
        mean, covariance = look(state)
        try:
            elbo = exact_bound(problem, mean, covariance)
        except np.linalg.LinAlgError:  # a covariance without a factor has no bound
            continue
        if elbo > best["elbo"]:
            best = {"elbo": elbo, "seconds_to_best": seconds, "_mean": mean, "_covariance": covariance}
    if "seconds_to_best" not in best:
        raise ValueError(f"none of {VI_CHECKS} looks found a covariance with a finite bound")
    return best | {"iterations": VI_STEPS, "_seconds": seconds, "compile_seconds": compile_seconds}


TOOLS: dict[str, tuple[Callable[[Problem], Callable[[], Answer]], tuple[str, ...]]] = {
    "natvi exact": (fit_natvi(method="gva"), ("natvi", "jax", "jaxlib")),
    "natvi, first look at the bound": (fit_natvi(method="gva", max_steps=1), ("natvi", "jax", "jaxlib")),
    "sklearn newton-cholesky": (fit_sklearn("newton-cholesky", 1e-8), ("scikit-learn",)),
    "sklearn lbfgs": (fit_sklearn("lbfgs", 1e-6), ("scikit-learn",)),
    "statsmodels GLM": (fit_statsmodels, ("statsmodels",)),
    "numpyro AutoMultivariateNormal": (fit_numpyro, ("numpyro", "jax")),
    "blackjax full-rank VI": (fit_blackjax, ("blackjax", "jax")),
    "blackjax Pathfinder": (fit_pathfinder, ("blackjax", "jax")),
    "NUTS (numpyro)": (fit_nuts, ("numpyro", "jax")),
}


def main(tool: str) -> None:
    """Answer commands until there are no more."""
    import warnings

    warnings.simplefilter("ignore")  # scikit-learn on iterations, statsmodels on separation
    make, packages = TOOLS[tool]
    if any(word in tool for word in ("numpyro", "blackjax")):
        import jax

        jax.config.update("jax_enable_x64", True)  # the peers' own switch; natvi never needs it
    names = ("numpy", *packages)
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in names}
    fits: list[Callable[[], Answer]] = []

    def prepare(problem: str) -> Answer:
        fits[:] = [make(load(problem))]
        return {}

    with tempfile.TemporaryDirectory(prefix="natvi-glm-") as folder:
        answer_commands({"load": prepare, "fit": lambda: _timed(fits[0], Path(folder))}, versions)


def _timed(fit: Callable[[], Answer], folder: Path) -> Answer:
    began = time.perf_counter()
    answer = fit()
    seconds = answer.pop("_seconds", time.perf_counter() - began)
    if "_root" in answer:
        root = answer.pop("_root")
        answer["_covariance"] = root @ root.T
    arrays = {name[1:]: answer.pop(name) for name in list(answer) if name.startswith("_")}
    if arrays:
        path = folder / "last.npz"
        np.savez(path, **arrays)
        answer["arrays"] = str(path)
    return answer | {"seconds": seconds}


if __name__ == "__main__":
    main(sys.argv[1])
