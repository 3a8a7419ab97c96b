"""Fits of the suite in a process of their own: natvi's, the peers', and the NUTS draws they are held against.

A fit is compiled anew each time: its CPU seconds hold tracing and compilation, but not the import of the libraries.
"""

import platform
import time
from functools import lru_cache
from importlib import metadata, util
from typing import Any, NamedTuple

import numpy as np

import natvi
from benchmarks.answering import Answer, answer_commands
from benchmarks.posteriors import peers
from benchmarks.posteriors.measure import can_serve, flat
from benchmarks.posteriors.nuts import Program, data_of, free_draws, quality, true_draws
from benchmarks.posteriors.suite import find_member
from natvi.models.density.programs import forget_programs

PACKAGES = ("natvi", "jax", "jaxlib", "numpy", "numpyro", "blackjax", "optax", "pymc")


@lru_cache(maxsize=2)
def sampler(module: str, slug: str) -> Program:
    """Return the member's sampler, which is compiled once for all of its data sets."""
    return Program(find_member(module, slug))


def truth(module: str, slug: str, seed: str) -> Answer:
    """Make the true draws, or read them: their moments, and whether a Gaussian can serve."""
    member = find_member(module, slug)
    data, draws = data_of(member, int(seed)), true_draws(member, int(seed), sampler(module, slug))
    free, carry, names = free_draws(member, data, draws)
    columns = flat(draws, names)
    found = {"served": can_serve(free, carry, columns), "dimensions": free.shape[1]}
    found |= quality(draws) if member.exact is None and free.shape[1] <= 500 else {"rhat": None, "ess": None}
    return found | {"mean": _digits(columns.mean(axis=0)), "sd": _digits(columns.std(axis=0))}


def _digits(values: np.ndarray) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


class Timed(NamedTuple):
    """A fit, its CPU seconds and those of the clock."""

    result: natvi.Result
    cpu: float
    wall: float


def fit_timed(module: str, slug: str, data_seed: str, fit_seed: str, times: int = 1) -> list[Timed]:
    """Fit with the defaults: nothing is compiled, as in a new process; then once more, all compiled."""
    import jax

    member = find_member(module, slug)
    data = data_of(member, int(data_seed))
    forget_programs()
    jax.clear_caches()

    def logdensity(p: Any) -> Any:
        return member.logdensity(p, data)

    found = []
    for _ in range(times):
        start, constrain = _floats(member.start(data)), member.constrain or None
        cpu, wall = time.process_time(), time.perf_counter()
        result = natvi.fit(logdensity, start, constrain=constrain, seed=int(fit_seed))
        found.append(Timed(result, time.process_time() - cpu, time.perf_counter() - wall))
    return found


def fit(module: str, slug: str, data_seed: str, fit_seed: str) -> Answer:
    """Fit, and say what came of it."""
    result, cpu, wall = fit_timed(module, slug, data_seed, fit_seed)[0]
    table = result.summary()
    return {
        "mean": _finite(table["mean"].to_numpy()),
        "sd": _finite(table["sd"].to_numpy()),
        "trust": result.trust,
        "outcome": result.outcome,
        "method": result.method,
        "structure": result.structure,
        "reasons": list(result.trust_reasons)[:3],
        "cpu_seconds": round(cpu, 4),
        "wall_seconds": round(wall, 4),
    }


def seconds(module: str, slug: str, data_seed: str, fit_seed: str) -> Answer:
    """Return the CPU seconds of a fit, and of the same fit once more."""
    cold, warm = fit_timed(module, slug, data_seed, fit_seed, 2)
    dimensions, method = len(cold.result.model.mean), cold.result.method
    found = {"dimensions": dimensions, "method": method, "trust": cold.result.trust}
    return found | {"cpu_seconds": round(cold.cpu, 4), "warm_cpu_seconds": round(warm.cpu, 4)}


def peer(module: str, slug: str, tool: str, data_seed: str) -> Answer:
    """Fit once by another tool."""
    member = find_member(module, slug)
    data = data_of(member, int(data_seed))
    cpu = time.process_time()
    mean, sd, _ = peers.fit(tool, member, data, _floats(member.start(data)))
    return {"mean": _finite(mean), "sd": _finite(sd), "cpu_seconds": round(time.process_time() - cpu, 4)}


def _floats(start: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value, dtype=float) for name, value in start.items()}


def _finite(values: np.ndarray) -> list[float | None]:
    """Return numbers that JSON holds: None for what is no number."""
    return [float(value) if np.isfinite(value) else None for value in values]


def warm_up() -> None:
    """Import what a fit imports, so that it is not part of the first one's time."""
    import jax.numpy as jnp

    natvi.fit(lambda x: -jnp.sum(x**4) + x[0] ** 2 * x[1], np.zeros(2), method="psis")


def main() -> None:
    """Answer commands until there are no more."""
    found = [name for name in PACKAGES if util.find_spec(name) is not None]
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in found}
    warm_up()
    answer_commands({"truth": truth, "fit": fit, "peer": peer, "time": seconds}, versions)


if __name__ == "__main__":
    main()
