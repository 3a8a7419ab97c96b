"""Stochastic variational methods for mixed models in a process of its own; see `workers` for how it is spoken to.

Commands: `load FAMILY FORMULA CSV`, `ascent RUNS`, `snngm ALPHA STEPS LIMIT`, `stages ALPHA STEPS`, `guide NAME STEPS`,
`advi STEPS`. All work on natvi's own log-density in float64, so that bounds can be compared; replies name a file of
draws in the order (random effects, shared coordinates). Looks at the bound are not part of the time.
"""

import platform
import tempfile
import time
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import natvi
from benchmarks.answering import Answer, answer_commands
from natvi import optimize, recipes
from natvi.derivatives import exact_derivatives
from natvi.linalg import ArrowVector
from natvi.models.mixed.noisy.stochastic import default_start, fit_mixed_stochastic
from natvi.models.mixed.target import build_target
from natvi.run import climb_groups, wander
from natvi.x64 import float64

PACKAGES = ("natvi", "jax", "jaxlib", "numpy", "numpyro", "optax", "pymc")
NEAR = 0.1  # nats from the best bound
WINDOW = 500  # steps between two looks
LOOKS = 20  # at a guide
MOST_RUNS, MOST_SECONDS = 200, 1.0  # of an ascent that takes a millisecond
ADAM = (0.01, 0.0001)  # first and last step size
BOUND_DRAWS, KEPT = 1000, 2000


class Session:
    """A model, its exact Gaussian, and a folder for draws."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, family: str, formula: str, path: str) -> Answer:
        """Read the data, build the target and find the best bound."""
        frame = pd.read_csv(path, float_precision="round_trip")
        self.model = natvi.glmm(formula, frame, family=family, prior="paper")
        self.best = self.model.fit(method="gva").elbo
        model = self.model
        self.target, self.start, _ = build_target(
            model.design, model.y, model.family, model.prior, model.weight, model.constant
        )
        mean = default_start(self.target, "gva").mean
        self.shape, self.size = mean.local.shape, mean.local.size + mean.shared.size
        self.bound = jax.jit(lambda q: exact_derivatives(self.target, q).value)
        return {"best": self.best, "coordinates": self.size}

    def ascent(self, runs: str) -> Answer:
        """The exact ascent on the built target: the shortest time to the end, and to a bound near the best one."""
        fit = climb_groups(self.target, self.start)
        # the bound after k steps may be the start's, so look at what k steps give
        steps = 1
        while self.best - float(climb_groups(self.target, self.start, max_steps=steps).elbo) >= NEAR:
            steps += 1
        times: dict[int, list[float]] = {steps: [], 500: []}
        enough = time.perf_counter() + MOST_SECONDS
        while len(times[steps]) < int(runs) or (time.perf_counter() < enough and len(times[steps]) < MOST_RUNS):
            for most, taken in times.items():
                began = time.perf_counter()
                climb_groups(self.target, self.start, max_steps=most)
                taken.append(time.perf_counter() - began)
        found = {"seconds_to_0.1_nat": min(times[steps]), "steps_to_0.1_nat": steps, "seconds": min(times[500])}
        return found | {"steps": len(fit.trace), "elbo": float(fit.elbo)}

    def snngm(self, alpha: str, steps: str, limit: str) -> Answer:
        """Take first-order steps until the bound is near the best one; after so many steps or seconds it is over."""

        def go(upto: int, state: Any = None) -> Any:
            return fit_mixed_stochastic(
                *(self.target, "gva", "snngm"),
                **{"step_size": float(alpha), "steps": upto, "window": WINDOW, "state": state, "elbo_draws": 1},
            )

        _ready(go(WINDOW).gaussian)  # compiles
        fit, seconds, count, gaps = None, 0.0, 0, []
        while count < int(steps) and seconds < float(limit):
            count += WINDOW
            began = time.perf_counter()
            fit = go(count, None if fit is None else fit.state)
            _ready(fit.gaussian)
            seconds += time.perf_counter() - began
            gaps.append(self.best - float(self.bound(fit.gaussian)))
            if gaps[-1] < NEAR:
                break
        return self._answer(seconds, count, gaps, fit.gaussian if fit else None)

    def stages(self, alpha: str, steps: str) -> Answer:
        """The library's own way to stop: steps halved in stages, iterates averaged."""
        algorithm = recipes.algorithm_2s(self.target, optimize.snngm(float(alpha)))
        start = default_start(self.target, "gva")
        wander(algorithm, start, max_steps=WINDOW, window=200)
        began = time.perf_counter()
        fit = wander(algorithm, start, max_steps=int(steps), window=200)
        seconds = time.perf_counter() - began
        gap = self.best - float(self.bound(fit.gaussian))
        return self._answer(seconds, int(fit.state.count), [gap], fit.gaussian)

    def _answer(self, seconds: float, steps: int, gaps: list[float], gaussian: Any) -> Answer:
        draws = None
        if gaussian is not None and np.isfinite(gaps[-1]):
            sample = jax.jit(lambda keys: jax.lax.map(jax.device_put(gaussian).sample, keys, batch_size=16))
            kept = sample(jax.random.split(jax.random.key(1), KEPT))
            draws = self._keep(np.concatenate([np.asarray(kept.local).reshape(KEPT, -1), kept.shared], axis=1))
        finite = [gap for gap in gaps if np.isfinite(gap)]
        return {
            "seconds": seconds,
            "steps": steps,
            "near": bool(gaps and gaps[-1] < NEAR),
            "gap": min(finite) if finite else None,
            "elbo": self.best - min(finite) if finite else None,
            "draws": draws,
        }

    def guide(self, name: str, steps: str) -> Answer:
        """An automatic guide of NumPyro: Adam from zero, one draw a step; the best of some looks counts."""
        import numpyro
        import numpyro.distributions as dist
        import optax
        from numpyro.infer import SVI, Trace_ELBO, autoguide, init_to_value

        def log_density(theta: Any) -> Any:
            split = int(np.prod(self.shape))
            return self.target.value(ArrowVector(theta[:split].reshape(self.shape), theta[split:]))

        def model() -> None:
            theta = numpyro.sample("theta", dist.ImproperUniform(dist.constraints.real_vector, (), (self.size,)))
            numpyro.factor("log_density", log_density(theta))

        total = int(steps)
        adam = optax.adam(optax.exponential_decay(ADAM[0], total, ADAM[1] / ADAM[0]))
        start = init_to_value(values={"theta": np.zeros(self.size)})
        guide = getattr(autoguide, name)(model, init_scale=0.1, init_loc_fn=start)
        svi = SVI(model, guide, adam, Trace_ELBO())
        state = svi.init(jax.random.key(0))
        careful = Trace_ELBO(num_particles=BOUND_DRAWS, vectorize_particles=False)
        loss = jax.jit(lambda params: careful.loss(jax.random.key(2), params, model, guide))
        chunk = max(1, total // LOOKS)
        advance = jax.jit(lambda s: jax.lax.fori_loop(0, chunk, lambda _, s: svi.update(s)[0], s))
        _ready(svi.get_params(advance(state)))  # compiles
        seconds, best, kept, at = 0.0, -np.inf, svi.get_params(state), 0.0
        for _ in range(LOOKS):
            began = time.perf_counter()
            state = advance(state)
            _ready(svi.get_params(state))
            seconds += time.perf_counter() - began
            bound = -float(loss(svi.get_params(state)))  # type: ignore[arg-type]
            if bound > best:
                best, kept, at = bound, svi.get_params(state), seconds
        draws = guide.sample_posterior(jax.random.key(1), kept, sample_shape=(KEPT,))["theta"]
        return {
            "seconds": seconds,
            "seconds_to_best": at,
            "steps": chunk * LOOKS,
            "elbo": best if np.isfinite(best) else None,
            "gap": self.best - best if np.isfinite(best) else None,
            "draws": self._keep(np.asarray(draws)),
        }

    def advi(self, steps: str) -> Answer:
        """Mean-field ADVI of PyMC, for random intercepts and responses without a dispersion parameter."""
        if util.find_spec("pymc") is None:
            raise ValueError("pymc is not installed")
        design, family = self.model.design, self.model.family.name
        if family not in ("poisson", "bernoulli") or design.Z.shape[1] != 1:
            raise ValueError("written for random intercepts of poisson and bernoulli responses only")
        import pymc as pm  # type: ignore[import-not-found]

        prior, p = self.model.prior, design.X.shape[1]
        with pm.Model():
            theta = pm.Normal("theta", prior.mean, prior.sd, shape=p + 1)
            b = pm.Normal("b", 0.0, pm.math.exp(-theta[p]), shape=len(design.group_labels))  # type: ignore[arg-type]
            eta = design.offset + pm.math.dot(design.X, theta[:p]) + b[design.group_codes]
            if family == "poisson":
                pm.Poisson("y", pm.math.exp(eta), observed=self.model.y)
            else:
                pm.Bernoulli("y", logit_p=eta, observed=self.model.y)
            times: list[float] = []
            clock = [lambda *_: times.append(time.perf_counter())]
            fit = pm.fit(int(steps), method="advi", progressbar=False, random_seed=0, callbacks=clock)
        seconds = (times[-1] - times[0]) * len(times) / (len(times) - 1)  # from the first step on: it is compiled then
        elbo = -float(np.mean(fit.hist[-1000:]))
        return {"seconds": seconds, "steps": int(steps), "elbo": elbo, "gap": self.best - elbo, "draws": None}

    def _keep(self, draws: np.ndarray) -> str:
        path = self.folder / f"draws-{time.monotonic_ns()}.npy"
        np.save(path, draws)
        return str(path)


def _ready(tree: Any) -> None:
    jax.block_until_ready(jax.tree.map(jnp.asarray, tree))


def main() -> None:
    """Answer commands until there are no more."""
    found = [name for name in PACKAGES if util.find_spec(name) is not None]
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in found}
    with tempfile.TemporaryDirectory() as folder, float64():
        session = Session(Path(folder))
        names = ("load", "ascent", "snngm", "stages", "guide", "advi")
        commands: dict[str, Callable[..., Answer]] = {name: getattr(session, name) for name in names}
        answer_commands(commands, versions)


if __name__ == "__main__":
    main()
