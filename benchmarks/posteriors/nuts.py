"""NUTS draws of a member of the suite, kept in a folder: made once, in coordinates in which NUTS mixes.

The program is compiled once for each member; its data sets are arguments. Chains go on until every parameter has some
thousand effective draws.
"""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.posteriors.posterior import Data, Draws, Posterior
from natvi.models.density.space.maps import Space, open_space
from natvi.x64 import float64

CHAINS, WARM_UP, KEPT = 4, 1000, 2000  # draws of a round
ENOUGH, MOST_ROUNDS, MEASURED = 1500, 12, 500  # effective draws; rounds; dimensions in which they are counted
EXACT_DRAWS = 20_000
TARGET_ACCEPTANCE = 0.9
VARIABLE, DEFAULT = "NATVI_REFERENCE", "~/.cache/natvi/reference"


def folder() -> Path:
    """Return where draws are kept: below NATVI_REFERENCE, or in a folder of the user's cache."""
    return Path(os.environ.get(VARIABLE) or DEFAULT).expanduser() / "posteriors"


def data_of(member: Posterior, seed: int) -> Data:
    """Return a data set of the member."""
    return member.simulate(np.random.default_rng([seed, 17]))


def true_draws(member: Posterior, seed: int, program: Any = None) -> Draws:
    """Return draws of the posterior, from the folder where they are, else drawn now and kept there."""
    data = data_of(member, seed)
    if member.exact is not None:
        return member.exact(data, np.random.default_rng([seed, 18]), EXACT_DRAWS)
    path = folder() / f"{member.slug}-{seed}.npz"
    if not path.exists():
        draws = (program or Program(member)).draw(data, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **draws)  # type: ignore[arg-type]
        part.replace(path)
    with np.load(path) as kept:
        return {name: kept[name] for name in kept.files}


def free_draws(member: Posterior, data: Data, draws: Draws) -> tuple[np.ndarray, Any, tuple[str, ...]]:
    """Return draws in the free space, the map from there to the user's, and the names in the order of both."""
    start = {name: np.asarray(value, dtype=float) for name, value in member.start(data).items()}
    with float64():
        space = open_space(start, member.constrain or None)
    parts = []
    for name, shape, bijector in zip(space.parameters.names, space.parameters.shapes, space.bijectors, strict=True):
        one = np.asarray(draws[name], dtype=float).reshape(-1, *shape)
        parts.append(np.stack([np.ravel(bijector.inverse(np.asarray(x))) for x in one]))

    def carry(theta: np.ndarray) -> np.ndarray:
        with float64():
            read = jax.jit(jax.vmap(space.read))
            return np.concatenate([np.asarray(read(jnp.asarray(part))) for part in np.array_split(theta, 8)])

    return np.concatenate(parts, axis=1), carry, space.parameters.names


class Program:
    """The compiled sampler of one member."""

    def __init__(self, member: Posterior) -> None:
        self.member = member
        self.sampler: Any = None
        self.warm_up: Any = None
        self.read: Any = None

    def draw(self, data: Data, seed: int) -> Draws:
        """Return completed draws of one data set."""
        member, other = self.member, self.member.reference
        start = (other or member).start(data)
        constrain = (other or member).constrain
        logdensity = (other or member).logdensity
        with float64():
            space = open_space(jax.tree.map(lambda leaf: np.asarray(leaf, dtype=float), start), constrain)
            if self.sampler is None:
                self.sampler = jax.jit(lambda *args: _sample(logdensity, space, *args))
                self.warm_up = jax.jit(lambda *args: _warm_up(logdensity, space, *args))
                self.read = jax.jit(jax.vmap(space.read))
            keys = jax.vmap(jax.random.split)(jax.random.split(jax.random.key(seed), CHAINS))
            first = space.start + 0.5 * np.random.default_rng(seed).uniform(-1, 1, (CHAINS, len(space.start)))
            data = jax.tree.map(jnp.asarray, data)
            states, parameters = self.warm_up(keys[:, 0], jnp.asarray(first), data)
            rounds: list[np.ndarray] = []
            for k in range(MOST_ROUNDS):
                own = keys[:, 1] if k == 0 else jax.vmap(lambda key, k=k: jax.random.fold_in(key, k))(keys[:, 1])
                states, theta = self.sampler(own, states, parameters, data)
                flat = np.asarray(theta).reshape(CHAINS * KEPT, -1)
                values = np.concatenate([np.asarray(self.read(jnp.asarray(part))) for part in np.array_split(flat, 8)])
                rounds.append(values.reshape(CHAINS, KEPT, -1))
                values = np.concatenate(rounds, axis=1).reshape(CHAINS * KEPT * len(rounds), -1)
                if values.shape[1] > MEASURED or quality({"all": values})["ess"] >= ENOUGH:
                    break
        draws = space.parameters.split(values)
        return other.complete(draws, data, np.random.default_rng([seed, 19])) if other else draws


def _density(logdensity: Any, space: Space, data: Any) -> Any:
    def density(theta: Any) -> Any:
        tree, log_det = space.tree(theta)
        return logdensity(tree, data) + log_det

    return density


def _warm_up(logdensity: Any, space: Space, keys: Any, first: Any, data: Any) -> Any:
    """Return a state, a step size and a metric of every chain."""
    import blackjax

    adaptation = blackjax.window_adaptation(
        blackjax.nuts,
        _density(logdensity, space, data),
        is_mass_matrix_diagonal=True,
        target_acceptance_rate=TARGET_ACCEPTANCE,
    )

    def chain(key: Any, theta: Any) -> Any:
        (state, parameters), _ = adaptation.run(key, theta, num_steps=WARM_UP)
        return state, {name: parameters[name] for name in ("step_size", "inverse_mass_matrix")}

    return jax.lax.map(lambda both: chain(*both), (keys, first))


def _sample(logdensity: Any, space: Space, keys: Any, states: Any, parameters: Any, data: Any) -> Any:
    """Return the last states of a round, and its draws."""
    import blackjax

    def chain(key: Any, state: Any, parameters: Any) -> Any:
        kernel = blackjax.nuts(_density(logdensity, space, data), **parameters)

        def step(state: Any, key: Any) -> Any:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, KEPT))

    return jax.lax.map(lambda all_three: chain(*all_three), (keys, states, parameters))


def quality(draws: Draws) -> dict[str, float]:
    """Return the worst split R-hat and the least effective number of the draws of NUTS."""
    from arviz_stats.base import array_stats

    worst, least = 1.0, np.inf
    for values in draws.values():
        columns = values.reshape(CHAINS, len(values) // CHAINS, -1)
        for j in range(columns.shape[2]):
            if np.ptp(columns[:, :, j]) > 0:
                worst = max(worst, float(array_stats.rhat(columns[:, :, j], chain_axis=0, draw_axis=1)))
                least = min(least, float(array_stats.ess(columns[:, :, j], chain_axis=0, draw_axis=1)))
    return {"rhat": worst, "ess": least}
