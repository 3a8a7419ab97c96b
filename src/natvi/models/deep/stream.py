"""A deep GLM that learns from rows as they come, piece by piece; the rows at hand stand for all seen so far."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natvi.gaussian import CovarianceGaussian
from natvi.linalg import DiagonalFactor
from natvi.models.deep.bnn import concerns
from natvi.models.deep.deep_glm import DeepGlmState, deep_glm_algorithm
from natvi.models.deep.dispersion import Dispersion
from natvi.models.deep.glm_door import Scales, check_rows, fit_of
from natvi.models.deep.glm_fit import DeepGlmFit
from natvi.models.deep.training import Annealing, Training
from natvi.result import Result
from natvi.run import Outcome
from natvi.x64 import float32

ANNEALED_STEPS = 1000  # nobody knows how long a stream is


class Stream(NamedTuple):
    """What is known after some pieces: the state, and how many steps and rows it took."""

    state: DeepGlmState
    scales: Scales
    sizes: tuple[int, ...]
    response: str
    num_steps: int
    num_rows: int

    @classmethod
    def of(cls, fit: DeepGlmFit, num_steps: int, training: Training) -> "Stream":
        """Return what a fitted model knows, to go on from; the rule starts without a memory, annealing is over."""
        with float32():
            nothing = {"x": jnp.zeros((1, fit.sizes[0])), "y": jnp.zeros(1)}
            algorithm, _ = deep_glm_algorithm(fit.sizes, fit.response, nothing, fit.num_rows, training)
            state: Any = algorithm.init(CovarianceGaussian(jnp.asarray(fit.mean), DiagonalFactor(jnp.asarray(fit.sds))))
            if state.dispersion is not None:
                state = state._replace(dispersion=Dispersion(jnp.float32(fit.shape), jnp.float32(fit.scale)))
            state = state._replace(count=jnp.asarray(ANNEALED_STEPS, jnp.int32))
        scales = Scales(fit.x_mean, fit.x_scale, fit.y_mean, fit.y_scale)
        return cls(state, scales, fit.sizes, fit.response, num_steps, fit.num_rows)

    def fit(self, names: tuple[str, ...]) -> DeepGlmFit:
        """Return the model as it is now."""
        return fit_of(self.state, self.sizes, self.response, names, self.scales, self.num_rows)

    def result(self, names: tuple[str, ...], optimizer: str, seconds: dict[str, float]) -> Result:
        """Return a result of the model as it is now; its bound is that of the last step."""
        elbo = float(self.state.elbo) - self.num_rows * float(np.log(self.scales.y_scale))
        return Result(
            model=self.fit(names),
            method=f"gva, {optimizer}, row by row",
            structure="diagonal",
            outcome=Outcome.MAX_STEPS,
            elbo=elbo,
            elbo_se=float("nan"),
            seconds=seconds,
            trace=np.array([elbo]),
            check=lambda: concerns(np.array([elbo])),
            steps=self.num_steps,
        )


@partial(jax.jit, static_argnums=0)
def _step(move: Any, target: Any, state: DeepGlmState, key: Any) -> DeepGlmState:
    moved = move(target, state, key)
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(moved)]
    finite = jnp.all(jnp.stack(leaves))
    return jax.tree.map(lambda a, b: jnp.where(finite, b, a), state, moved)


def learn(
    stream: Stream | None,
    X: np.ndarray,
    y: np.ndarray,
    response: str,
    hidden: tuple[int, ...],
    training: Training,
    num_classes: int = 2,
) -> Stream:
    """Take one pass over a piece of the data; the first piece sets the scales.

    Args:
        stream: What earlier pieces left, or None.
        X: Inputs of this piece.
        y: Responses of this piece.
        response: "normal", "bernoulli", "poisson" or "categorical".
        hidden: Units of the hidden layers.
        training: Optimizer, step size and batch size; the step size is constant.
        num_classes: Of a categorical response.
    """
    X, y = check_rows(X, y, response, num_classes)
    scales = Scales.of(X, y, response) if stream is None else stream.scales
    rows = scales.rows(X, y, response)
    seen = len(y) + (0 if stream is None else stream.num_rows)
    size = min(training.batch_size, len(y))
    settings = training._replace(schedule="constant", batch_size=size, epochs=1)
    sizes = (X.shape[1], *hidden, num_classes if response == "categorical" else 1)
    annealing = Annealing(ANNEALED_STEPS if training.annealing > 0 else 0)
    with float32():
        few = jax.tree.map(lambda a: a[:size], rows)
        algorithm, start = deep_glm_algorithm(sizes, response, few, seen, settings, annealing)
        state: Any = algorithm.init(start) if stream is None else stream.state
        count = 0 if stream is None else stream.num_steps
        order = np.random.default_rng((training.seed, count)).permutation(len(y))
        for k in range(len(y) // size):
            batch = jax.tree.map(lambda a, k=k: jnp.asarray(a[order[k * size : (k + 1) * size]]), rows)
            key = jax.random.fold_in(jax.random.key(training.seed), count)
            state = _step(algorithm.move, algorithm.target.with_rows(batch), state, key)
            count += 1
    return Stream(state, scales, sizes, response, count, seen)
