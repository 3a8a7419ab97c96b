"""The no-U-turn sampler of NumPyro, started from a Gaussian fit.

A fit gives what warm-up has to find: where the posterior lies and how wide it is. Chains start at draws of the Gaussian
and the first mass matrix is the inverse of its covariance. Everything is computed in float64.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from natvi.reference.progress import DrawProgress
from natvi.run.clock import Stopwatch
from natvi.x64 import float64

HINT = 'NUTS needs NumPyro, which is not installed: pip install "natvi[numpyro]"'

# Draws per call of the compiled function at most, and the seconds such a call should take: Ctrl-C and the progress bar
# wait for it.
LONGEST_CHUNK = 200
CHUNK_SECONDS = 0.5


@dataclass(frozen=True)
class NutsDraws:
    """Draws of NUTS with their diagnostics."""

    draws: np.ndarray  # (chains, draws, d), float64
    num_divergent: int  # transitions after warm-up that met too large an energy error; should be 0
    accept_prob: np.ndarray  # (chains,), mean acceptance probability after warm-up
    num_steps: int  # leapfrog steps after warm-up, all chains: one gradient each
    step_size: np.ndarray  # (chains,)
    seconds: dict[str, float]  # compile, warmup, sampling, total

    @property
    def warmup_seconds(self) -> float:
        """Seconds of warm-up, compilation left out."""
        return self.seconds["warmup"]

    @cached_property
    def ess(self) -> np.ndarray:
        """Effective sample size of every coordinate: bulk, rank-normalised."""
        from arviz_stats.base import array_stats

        return _by_column(lambda x: array_stats.ess(x, chain_axis=0, draw_axis=1, method="bulk"), self.draws)

    @cached_property
    def rhat(self) -> np.ndarray:
        """Potential scale reduction of every coordinate, rank-normalised: good below 1.01; NaN for a single chain."""
        from arviz_stats.base import array_stats

        return _by_column(lambda x: array_stats.rhat(x, chain_axis=0, draw_axis=1, method="rank"), self.draws)

    def flat(self) -> np.ndarray:
        """Return the draws of all chains in one matrix, `(chains * draws, d)`, chain after chain."""
        return self.draws.reshape(-1, self.draws.shape[-1])


def nuts(
    log_density: Callable[[Any], Any],
    start: Any,
    *,
    covariance: Any = None,
    adapt_mass: bool = True,
    positions: Any = None,
    num_draws: int = 1000,
    num_warmup: int = 1000,
    num_chains: int = 2,
    thinning: int = 1,
    target_accept: float = 0.8,
    max_tree_depth: int = 10,
    seed: int = 0,
    progress: bool = False,
) -> NutsDraws:
    """Sample from a log-density by NUTS.

    For a structured Gaussian of high dimension, where a dense covariance is out of reach, sample z instead of
    theta = mu + F z: give `lambda z: log_density(mu + F z)` with `start` zero and covariance ones, and push the draws
    through.

    Args:
        log_density: Takes one point, shaped like `start`; any constant may be missing.
        start: Centre of the starts: a vector, or a pytree, whose leaves then make up the columns of the draws.
        covariance: Of the fit: dense `(d, d)`, or variances `(d,)`. It gives the first mass matrix, of the same shape;
            warm-up adapts it. Without it chains start at `start` with a unit diagonal.
        adapt_mass: Whether warm-up changes the mass matrix. A dense one from a good fit is better than what a few
            hundred transitions can tell in tens of dimensions; warm-up then finds the step size alone.
        positions: Where the chains start, `(num_chains, d)`, if not at draws from N(start, covariance).
        num_draws: Draws that each chain keeps.
        num_warmup: Transitions before that, in which step size and mass matrix are adapted.
        num_chains: Chains; they run in parallel threads.
        thinning: Keep every so-many-th draw, where memory is short.
        target_accept: Acceptance probability that the step size aims at.
        max_tree_depth: A transition takes at most 2^this leapfrog steps.
        seed: The same seed gives the same draws.
        progress: Whether to show progress.

    Returns:
        Draws, effective sample sizes, R-hat, divergences and seconds.

    Raises:
        ImportError: NumPyro is not installed.
        ValueError: Shapes do not fit, or the log-density is not finite at a start.

    Example:
        `nuts(lambda x: -0.5 * jnp.sum(x**2), np.zeros(3), num_draws=1000).flat()` is a `(2000, 3)` matrix.

    Paper: Section 8 uses two chains of Stan's NUTS with the first half discarded; this is NumPyro's.
    """
    try:
        from numpyro.infer import NUTS
    except ImportError as error:
        raise ImportError(HINT) from error
    counts = {"num_draws": num_draws, "num_chains": num_chains, "thinning": thinning, "num_warmup": num_warmup}
    for name, value in counts.items():
        if value < (name != "num_warmup"):
            raise ValueError(f"{name} must be at least {int(name != 'num_warmup')}; got {value}.")
    watch = Stopwatch()
    with float64():
        centre, unravel = ravel_pytree(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), start))
        covariance = _covariance(covariance, len(centre))
        key, *chain_keys = jax.random.split(jax.random.key(seed), num_chains + 1)
        if positions is None:
            positions = _starts(np.asarray(centre), covariance, num_chains, key)
        positions = np.asarray(positions, dtype=np.float64)
        if positions.shape != (num_chains, len(centre)):
            raise ValueError(
                f"positions must be {(num_chains, len(centre))}, a row for each chain; got {positions.shape}."
            )
        potential = jax.jit(lambda x: -jnp.asarray(log_density(unravel(x)), jnp.float64))
        _check_finite(potential, positions)
        kernel = NUTS(
            potential_fn=potential,
            inverse_mass_matrix=None if covariance is None else jnp.asarray(covariance),
            dense_mass=covariance is not None and covariance.ndim == 2,
            adapt_mass_matrix=adapt_mass,
            target_accept_prob=target_accept,
            max_tree_depth=max_tree_depth,
        )
        states = [
            kernel.init(key, num_warmup, jnp.asarray(z), (), {}) for key, z in zip(chain_keys, positions, strict=True)
        ]
        longest = min(LONGEST_CHUNK, max(num_draws, num_warmup))
        advance = _compile(kernel, states[0], longest)
    total = num_chains * (num_warmup + num_draws * thinning)
    with DrawProgress(progress, total) as bar, ThreadPoolExecutor(num_chains) as threads:
        chains = _Chains(advance, states, threads, bar)
        before = perf_counter()
        chains.run(num_warmup, 1, longest, "warm-up")
        chains.reset()
        middle = perf_counter()
        kept = chains.run(num_draws, thinning, longest, "sampling")
        after = perf_counter()
    seconds = {"compile": watch.read()["compile"], "warmup": middle - before, "sampling": after - middle}
    return NutsDraws(
        draws=kept,
        num_divergent=int(sum(chains.divergent)),
        accept_prob=np.asarray([float(state.mean_accept_prob) for state in chains.states]),
        num_steps=int(sum(chains.num_steps)),
        step_size=np.asarray([float(state.adapt_state.step_size) for state in chains.states]),
        seconds={**seconds, "total": watch.total()},
    )


class _Chains:
    """Advances all chains side by side, chunk by chunk; a chain's draws do not depend on the chunks."""

    def __init__(self, advance: Callable[..., Any], states: list[Any], threads: ThreadPoolExecutor, bar: DrawProgress):
        self.advance, self.states, self.threads, self.bar = advance, states, threads, bar
        self.done = 0
        self.reset()

    def reset(self) -> None:
        """Begin to count divergences and leapfrog steps."""
        self.divergent = [0] * len(self.states)
        self.num_steps = [0] * len(self.states)

    def run(self, num: int, thinning: int, longest: int, phase: str) -> np.ndarray:
        """Make `num` draws in every chain, each the last of `thinning` transitions, and return them."""
        d = self.states[0].z.shape[0]
        # draws of the warm-up are not kept
        kept = np.empty((len(self.states), num if phase == "sampling" else 0, d))
        made, size = 0, 1
        while made < num:
            size = min(size, longest, num - made)
            before = perf_counter()
            chunks = list(self.threads.map(lambda state, size=size: self._chunk(state, size, thinning), self.states))
            for c, (state, draws, divergent, num_steps) in enumerate(chunks):
                self.states[c] = state
                self.divergent[c] += divergent
                self.num_steps[c] += num_steps
                if kept.shape[1]:
                    kept[c, made : made + size] = draws[:size]
            made += size
            self.done += size * thinning * len(self.states)
            self.bar.update(self.done, phase)
            # the next chunk may be longer, or has to be shorter
            pace = (perf_counter() - before) / size
            size = max(1, min(4 * size, int(CHUNK_SECONDS / max(pace, 1e-9))))
        return kept

    def _chunk(self, state: Any, size: int, thinning: int) -> tuple[Any, np.ndarray, int, int]:
        with float64():  # the switch is local to a thread
            state, draws, divergent, num_steps = self.advance(state, jnp.asarray(size), jnp.asarray(thinning))
            return state, np.asarray(draws), int(divergent), int(num_steps)


def _compile(kernel: Any, state: Any, longest: int) -> Callable[..., Any]:
    """Compile once, for warm-up and sampling, the function that makes up to `longest` draws."""

    def transition(_: Any, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        state, divergent, num_steps = carry
        state = kernel.sample(state, (), {})
        return state, divergent + state.diverging, num_steps + state.num_steps

    def advance(state: Any, size: Any, thinning: Any) -> tuple[Any, Any, Any, Any]:
        def draw(i: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            chain, buffer = carry
            chain = jax.lax.fori_loop(0, thinning, transition, chain)
            return chain, buffer.at[i].set(chain[0].z)

        zero = jnp.zeros((), jnp.int64)
        buffer = jnp.zeros((longest, state.z.shape[0]))
        (state, divergent, num_steps), buffer = jax.lax.fori_loop(0, size, draw, ((state, zero, zero), buffer))
        return state, buffer, divergent, num_steps

    return jax.jit(advance).lower(state, jnp.asarray(1), jnp.asarray(1)).compile()


def _covariance(covariance: Any, d: int) -> np.ndarray | None:
    if covariance is None:
        return None
    covariance = np.asarray(covariance, dtype=np.float64)
    if covariance.shape not in ((d,), (d, d)):
        raise ValueError(
            f"covariance must be ({d}, {d}), or ({d},) for variances alone, to go with a start of {d} coordinates; got "
            f"{covariance.shape}."
        )
    variances = covariance.diagonal() if covariance.ndim == 2 else covariance
    if not (np.isfinite(covariance).all() and np.all(variances > 0)):
        raise ValueError("covariance needs finite entries and positive variances; see where the fit has none.")
    return covariance


def _starts(centre: np.ndarray, covariance: np.ndarray | None, num_chains: int, key: Any) -> np.ndarray:
    """Draw a start for each chain from N(centre, covariance)."""
    if covariance is None:
        return np.tile(centre, (num_chains, 1))
    z = np.asarray(jax.random.normal(key, (num_chains, len(centre)), jnp.float64))
    if covariance.ndim == 1:
        return centre + z * np.sqrt(covariance)
    try:
        return centre + z @ np.linalg.cholesky(covariance).T
    except np.linalg.LinAlgError:
        raise ValueError(
            "covariance is not positive definite. Give variances alone, as a vector, or add a little to the diagonal."
        ) from None


def _check_finite(potential: Callable[[Any], Any], positions: np.ndarray) -> None:
    for chain, position in enumerate(positions):
        value = float(potential(jnp.asarray(position)))
        if not np.isfinite(value):
            raise ValueError(
                f"The log-density is {-value} at the start of chain {chain}. Give `positions` where it is finite, or a "
                "smaller covariance."
            )


def _by_column(statistic: Callable[[np.ndarray], Any], draws: np.ndarray) -> np.ndarray:
    """Apply a statistic to blocks of columns, so that its temporary arrays stay small."""
    blocks = [draws[..., j : j + 64] for j in range(0, draws.shape[-1], 64)]
    return np.concatenate([np.atleast_1d(np.asarray(statistic(block), dtype=np.float64)) for block in blocks])
