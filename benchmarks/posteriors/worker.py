"""Fits of the suite in a process of their own: natvi's, the peers', and the NUTS draws they are held against.

A fit is compiled anew each time: its CPU seconds hold tracing and compilation, but not the import of the libraries.
"""

import platform
import time
from functools import cache, lru_cache
from importlib import metadata, util
from typing import Any

import numpy as np

import natvi
from benchmarks.answering import Answer, answer_commands
from benchmarks.posteriors import FIT_SEEDS, peers
from benchmarks.posteriors.measure import can_serve, compare, flat
from benchmarks.posteriors.nuts import Program, data_of, free_draws, quality, true_draws
from benchmarks.posteriors.suite import find_member
from natvi.models.density.programs import forget_programs

PACKAGES = ("natvi", "jax", "jaxlib", "numpy", "numpyro", "blackjax", "optax", "pymc")


@cache
def known(module: str, slug: str, seed: int) -> Any:
    """Return the member, its data and its true draws."""
    member = find_member(module, slug)
    return member, data_of(member, seed), true_draws(member, seed, sampler(module, slug))


@lru_cache(maxsize=2)
def sampler(module: str, slug: str) -> Program:
    """Return the member's sampler, which is compiled once for all of its data sets."""
    return Program(find_member(module, slug))


def truth(module: str, slug: str, seed: str) -> Answer:
    """Make the true draws, or read them, and decide by them whether a Gaussian can serve."""
    member, data, draws = known(module, slug, int(seed))
    free, carry, names = free_draws(member, data, draws)
    found = {"served": can_serve(free, carry, flat(draws, names)), "dimensions": free.shape[1]}
    return found | (quality(draws) if member.exact is None and free.shape[1] <= 500 else {"rhat": None, "ess": None})


def fit(module: str, slug: str, data_seed: str, fit_seed: str) -> Answer:
    """Fit with the defaults: nothing is compiled, as in a new process; with the first seed once more, all compiled."""
    import jax

    member, data, draws = known(module, slug, int(data_seed))
    forget_programs()
    jax.clear_caches()

    def logdensity(p: Any) -> Any:
        return member.logdensity(p, data)

    cpu, wall = time.process_time(), time.perf_counter()
    result = natvi.fit(logdensity, _floats(member.start(data)), constrain=member.constrain or None, seed=int(fit_seed))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    warm = None
    if int(fit_seed) == FIT_SEEDS[0]:
        warm = time.process_time()
        natvi.fit(logdensity, _floats(member.start(data)), constrain=member.constrain or None, seed=int(fit_seed))
        warm = time.process_time() - warm
    table = result.summary()
    accuracy = compare(table["mean"].to_numpy(), table["sd"].to_numpy(), flat(draws, result.model.parameters.names))
    return {
        "shift": _finite(accuracy.shift),
        "change": _finite(accuracy.change),
        "trust": result.trust,
        "outcome": result.outcome,
        "method": result.method,
        "structure": result.structure,
        "reasons": list(result.trust_reasons)[:3],
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "warm_cpu_seconds": warm,
    }


def peer(module: str, slug: str, tool: str, data_seed: str) -> Answer:
    """Fit once by another tool."""
    member, data, draws = known(module, slug, int(data_seed))
    cpu = time.process_time()
    mean, sd, names = peers.fit(tool, member, data, _floats(member.start(data)))
    accuracy = compare(mean, sd, flat(draws, names))
    return {
        "shift": _finite(accuracy.shift),
        "change": _finite(accuracy.change),
        "cpu_seconds": time.process_time() - cpu,
    }


def _floats(start: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value, dtype=float) for name, value in start.items()}


def _finite(value: float) -> float | None:
    """Return a number that JSON holds: None for an answer that is no number."""
    return float(value) if np.isfinite(value) else None


def warm_up() -> None:
    """Import what a fit imports, so that it is not part of the first one's time."""
    import jax.numpy as jnp

    natvi.fit(lambda x: -jnp.sum(x**4) + x[0] ** 2 * x[1], np.zeros(2), method="psis")


def main() -> None:
    """Answer commands until there are no more."""
    found = [name for name in PACKAGES if util.find_spec(name) is not None]
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in found}
    warm_up()
    answer_commands({"truth": truth, "fit": fit, "peer": peer}, versions)


if __name__ == "__main__":
    main()
