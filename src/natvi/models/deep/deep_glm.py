"""The steps of a deep GLM: a step of any rule for the weights, then the closed-form updates of everything else."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natvi.gaussian import CovarianceGaussian
from natvi.gaussian.starts import diagonal_covariance
from natvi.linalg import vector
from natvi.models.deep.dispersion import Dispersion, first_dispersion, update_dispersion
from natvi.models.deep.glm_rows import DeepGlmRows
from natvi.models.deep.layout import Layout
from natvi.models.deep.likelihoods import LIKELIHOODS
from natvi.models.deep.net_rows import NetRows
from natvi.models.deep.nets import init_mlp, mlp
from natvi.models.deep.shrinkage import (
    Places,
    Shrinkage,
    first_shrinkage,
    prior_of,
    shrinkage_bound,
    update_shrinkage,
)
from natvi.models.deep.training import Annealing, Training, recipe_of
from natvi.run.algorithm import Algorithm, State

RESPONSES = ("normal", "bernoulli", "poisson", "categorical")


class DeepGlmState(NamedTuple):
    """The Gaussian of the weights, the rule's state, the bound, the shrinkage, q(v) and the number of steps."""

    gaussian: CovarianceGaussian
    rule: Any
    elbo: Float[Array, ""]
    shrinkage: Shrinkage
    dispersion: Dispersion | None
    count: Int[Array, ""]


class DeepGlmMove(NamedTuple):
    """One step: the weights by the rule `inner`, then q(v), q(tau) and gamma in closed form."""

    inner: Any
    places: Places
    annealing: Annealing = Annealing()

    def __call__(self, target: DeepGlmRows, state: DeepGlmState, key: PRNGKeyArray) -> DeepGlmState:
        """Draw, differentiate, move, and update."""
        length = state.gaussian.mean.shape[0]
        prior = prior_of(state.shrinkage, self.places, length)
        precision = 1.0 if state.dispersion is None else state.dispersion.precision
        here = target.with_prior(prior, state.dispersion).weighted(self.annealing(state.count, precision))
        moved = self.inner(here, State(state.gaussian, state.rule, state.elbo), key)
        elbo = moved.elbo + self._rest(state, prior)
        mean, sds = moved.gaussian.mean, moved.gaussian.factor.values
        shrinkage = update_shrinkage(state.shrinkage, self.places, mean, sds)
        dispersion = state.dispersion
        if dispersion is not None:
            z = vector.standard_normal(jax.random.fold_in(key, 1), mean)
            squares = here.squares(moved.gaussian.push(z))
            dispersion = update_dispersion(dispersion, squares, here.num_rows)
        return DeepGlmState(moved.gaussian, moved.rule, elbo, shrinkage, dispersion, state.count + 1)

    def _rest(self, state: DeepGlmState, prior: Any) -> Float[Array, ""]:
        """Return what the bound has beyond E log p(y, theta | shrinkage) - E log q(theta)."""
        mean, sds = state.gaussian.mean, state.gaussian.factor.values
        rest = shrinkage_bound(state.shrinkage, self.places, mean, sds) - prior.expected_value(mean, sds**2)
        return rest if state.dispersion is None else rest + state.dispersion.bound()


def deep_glm_net(sizes: tuple[int, ...], response: str) -> NetRows:
    """Return a perceptron with layers of these sizes and a response."""
    if response not in RESPONSES:
        raise ValueError(f"response must be one of {', '.join(map(repr, RESPONSES))}, not {response!r}.")
    shapes = jax.eval_shape(lambda: init_mlp(jax.random.key(0), sizes))
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), shapes)
    return NetRows(mlp, Layout.of(blank), LIKELIHOODS[response])


def deep_glm_algorithm(
    sizes: tuple[int, ...],
    response: str,
    rows: Any,
    num_rows: int,
    training: Training,
    annealing: Annealing | None = None,
) -> tuple[Algorithm, CovarianceGaussian]:
    """Return the algorithm of a deep GLM and the Gaussian it starts from.

    Args:
        sizes: Of the layers, from inputs to outputs.
        response: "normal", "bernoulli", "poisson" or "categorical".
        rows: A few rows {"x", "y"}.
        num_rows: Of the whole data.
        training: How to train.
        annealing: How often rows count, step by step; by default as `training` says.
    """
    annealing = training.annealing_of(num_rows) if annealing is None else annealing
    net, places = deep_glm_net(sizes, response), Places.of(sizes)
    start = net.layout.ravel(init_mlp(jax.random.key(training.seed), sizes))
    gaussian = diagonal_covariance(start, training.first_sd(num_rows * annealing.start))
    shrinkage = first_shrinkage(places, gaussian.mean, gaussian.factor.values)
    dispersion = first_dispersion(num_rows * annealing.start) if response == "normal" else None
    target = DeepGlmRows(
        net, jax.tree.map(jnp.asarray, rows), prior_of(shrinkage, places, len(start)), dispersion, num_rows
    )
    recipe = recipe_of(target, training)

    def init(q: CovarianceGaussian) -> Any:
        base = recipe.init(q)
        first = first_shrinkage(places, q.mean, q.factor.values)
        return DeepGlmState(base.gaussian, base.rule, base.elbo, first, dispersion, jnp.zeros((), jnp.int32))

    return Algorithm(init, target, DeepGlmMove(recipe.move, places, annealing)), gaussian
