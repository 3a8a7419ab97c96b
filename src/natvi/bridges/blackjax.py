"""The paper's natural-gradient steps in BlackJAX's form: an algorithm is a triple of pure functions.

`init(position)`, `step(key, state)` and `sample(key, state, num_samples)` can be compiled, scanned and vectorised like
every algorithm of BlackJAX; the triple needs nothing of BlackJAX itself. Whoever wants an answer with a verdict takes
`natvi.fit`; whoever builds a sampler or a loop of their own takes this.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.gaussian import CovarianceGaussian
from natvi.gaussian.starts import dense_covariance, diagonal_covariance
from natvi.models.regression.options import find_rule
from natvi.run.algorithm import State, compose
from natvi.target.function import FunctionTarget

STARTS = {"dense": dense_covariance, "diagonal": diagonal_covariance}
START_SD = 0.1


class VIState(NamedTuple):
    """The Gaussian with the rule's memory, and a position that tells the shape of the parameters."""

    inner: State
    position: Any


class VIInfo(NamedTuple):
    """What a step found: the estimate of the bound before it."""

    elbo: Float[Array, ""]


class VITriple(NamedTuple):
    """`init(position)`, `step(rng_key, state)` and `sample(rng_key, state, num_samples)`."""

    init: Callable[[Any], VIState]
    step: Callable[[PRNGKeyArray, VIState], tuple[VIState, VIInfo]]
    sample: Callable[..., Any]


def vi_algorithm(
    logdensity: Any,
    *,
    structure: str = "dense",
    optimizer: str = "snngm",
    step_size: float | None = None,
    num_samples: int = 8,
    start_sd: float = START_SD,
) -> VITriple:
    """Return Gaussian variational inference by natural gradients as a triple of pure functions.

    Everything is computed in the precision that JAX is set to; a log-density of constrained parameters brings its own
    change of variables, as everywhere in BlackJAX.

    Args:
        logdensity: From a pytree to a number.
        structure: "dense" or "diagonal".
        optimizer: "snngm", "nagm", "adam", "nadam" or "pga".
        step_size: By default the optimizer's own.
        num_samples: Draws of a step, in antithetic pairs.
        start_sd: The sd of every number before the first step.

    Returns:
        The triple.

    Raises:
        ValueError: For words that are not known.

    Example:
        >>> vi = vi_algorithm(lambda p: -0.5 * jnp.sum((p["x"] - 3.0) ** 2), step_size=0.02)
        >>> state = vi.init({"x": jnp.zeros(2)})
        >>> state, infos = jax.lax.scan(lambda s, k: vi.step(k, s), state, jax.random.split(jax.random.key(0), 500))
        >>> [round(float(x)) for x in vi.sample(jax.random.key(1), state, 500)["x"].mean(axis=0)]
        [3, 3]

    Paper: Algorithm 1N with the rules of Table 5.
    """
    if structure not in STARTS:
        raise ValueError(f"structure must be 'dense' or 'diagonal', not {structure!r}.")
    if not callable(logdensity):
        raise ValueError(f"the log-density must be a function of the parameters; got {type(logdensity).__name__}.")
    rule = find_rule(optimizer, step_size, structure)
    if rule.curvature:
        raise ValueError(f"optimizer={optimizer!r} needs rows of data; take 'snngm', 'nagm', 'adam', 'nadam' or 'pga'.")

    def algorithm(position: Any) -> Any:
        unravel = ravel_pytree(position)[1]
        target = FunctionTarget(lambda theta: jnp.asarray(logdensity(unravel(theta))))
        return compose(target, rule, CovarianceGaussian, num_samples=num_samples, antithetic=num_samples % 2 == 0)

    def init(position: Any) -> VIState:
        mean = ravel_pytree(position)[0]
        return VIState(algorithm(position).init(STARTS[structure](mean, start_sd)), position)

    def step(rng_key: PRNGKeyArray, state: VIState) -> tuple[VIState, VIInfo]:
        inner = algorithm(state.position).step(state.inner, rng_key)
        # numbers of a fixed kind, so that the state can be carried through a scan
        inner = jax.tree.map(lambda new, old: new.astype(jnp.result_type(old)), inner, state.inner)
        return VIState(inner, state.position), VIInfo(inner.elbo)

    def sample(rng_key: PRNGKeyArray, state: VIState, num_samples: int = 1) -> Any:
        gaussian = state.inner.gaussian
        z = jax.random.normal(rng_key, (num_samples, len(gaussian.mean)), gaussian.mean.dtype)
        theta = gaussian.mean + jax.vmap(gaussian.factor.product)(z)
        return jax.vmap(ravel_pytree(state.position)[1])(theta)

    return VITriple(init, step, sample)
