"""What else gives a posterior of a log-density in one call, each at its usual settings, in double precision.

All are given the same unconstrained log-density and start from zeros; what they find is carried to the user's space by
the same map. BlackJAX's Pathfinder is run as it is; where its path stops early, the mean of its draws looks wrong.
"""

from collections.abc import Callable
from importlib import util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.posteriors.posterior import Data, Posterior
from natvi.models.density.space.maps import open_space
from natvi.x64 import float64

STEPS = 10_000
ADAM = (0.01, 0.0001)  # first and last step size
DRAWS, FEW = 8192, 10  # draws that moments are taken of, and draws of a step of BlackJAX's
LARGEST = 1000  # dimensions of a full covariance

Density = Callable[[Any], Any]


def fit(tool: str, member: Posterior, data: Data, start: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return means and sds in the user's space, and the names of the parameters in their order."""
    with float64():
        space = open_space(start, member.constrain or None)

        def density(theta: Any) -> Any:
            tree, log_det = space.tree(theta)
            return member.logdensity(tree, data) + log_det

        theta = np.asarray(TOOLS[tool](density, jnp.asarray(space.start)))
        read = jax.jit(jax.vmap(space.read))
        values = np.concatenate([np.asarray(read(jnp.asarray(part))) for part in np.array_split(theta, 8)])
    return values.mean(axis=0), values.std(axis=0), space.parameters.names


def around(mean: Any, root: Any) -> np.ndarray:
    """Return antithetic draws of a Gaussian, whose mean is exact; a root of one axis is a vector of sds."""
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, len(mean)))
    z = np.concatenate([half, -half])
    root = np.asarray(root)
    return np.asarray(mean) + (z * root if root.ndim == 1 else z @ root.T)


def guide(name: str) -> Callable[[Density, Any], np.ndarray]:
    """An automatic guide of NumPyro."""

    def run(density: Density, start: Any) -> np.ndarray:
        import numpyro
        import numpyro.distributions as dist
        import optax
        from numpyro.infer import SVI, Trace_ELBO, autoguide, init_to_value

        def model() -> None:
            shape = (len(start),)
            theta = numpyro.sample("theta", dist.ImproperUniform(dist.constraints.real_vector, (), shape))
            numpyro.factor("log_density", density(theta))

        adam = optax.adam(optax.exponential_decay(ADAM[0], STEPS, ADAM[1] / ADAM[0]))
        made = getattr(autoguide, name)(model, init_scale=0.1, init_loc_fn=init_to_value(values={"theta": start}))
        svi = SVI(model, made, adam, Trace_ELBO())
        params = svi.run(jax.random.key(0), STEPS, progress_bar=False).params
        names = ("theta_auto_loc", "theta_auto_scale") if name == "AutoNormal" else ("auto_loc", "auto_scale_tril")
        return around(*(params[name] for name in names))

    return run


def full_rank(density: Density, start: Any) -> np.ndarray:
    """Full-rank variational inference of BlackJAX."""
    import optax
    from blackjax.vi import fullrank_vi

    adam = optax.adam(optax.exponential_decay(ADAM[0], STEPS, ADAM[1] / ADAM[0]))
    algorithm = fullrank_vi.as_top_level_api(density, adam, FEW)

    @jax.jit
    def run(state: Any, keys: Any) -> Any:
        return jax.lax.scan(lambda s, key: (algorithm.step(key, s)[0], None), state, keys)[0]

    state = run(algorithm.init(start), jax.random.split(jax.random.key(0), STEPS))
    keys = jax.random.split(jax.random.key(1), 2)
    return np.asarray(algorithm.sample(keys[0], state, DRAWS))


def pathfinder(density: Density, start: Any) -> np.ndarray:
    """Pathfinder of BlackJAX, a single path."""
    from blackjax.vi import pathfinder

    state, _ = jax.jit(lambda key: pathfinder.approximate(key, density, start))(jax.random.key(0))
    return np.asarray(pathfinder.sample(jax.random.key(1), state, DRAWS)[0])


def laplace(density: Density, start: Any) -> np.ndarray:
    """The mode by BFGS, and the curvature there."""
    from scipy.optimize import minimize

    slope = jax.jit(jax.value_and_grad(lambda theta: -density(theta)))
    found = minimize(lambda x: [np.asarray(v) for v in slope(jnp.asarray(x))], np.asarray(start), jac=True)
    mode = jnp.asarray(found.x)
    H = np.asarray(jax.jit(jax.hessian(lambda theta: -density(theta)))(mode))
    return around(mode, np.linalg.cholesky(np.linalg.inv(H)))


def advi(density: Density, start: Any) -> np.ndarray:
    """Mean-field ADVI of PyMC on the log-density as a potential."""
    import pymc as pm  # type: ignore[import-not-found]
    import pytensor.tensor as pt  # type: ignore[import-not-found]
    from pytensor.graph.op import Op  # type: ignore[import-not-found]

    value, slope = jax.jit(density), jax.jit(jax.grad(density))

    class Slope(Op):
        itypes, otypes = [pt.dvector], [pt.dvector]

        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            outputs[0][0] = np.array(slope(inputs[0]))

    class Value(Op):
        itypes, otypes = [pt.dvector], [pt.dscalar]

        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            outputs[0][0] = np.array(value(inputs[0]))

        def grad(self, inputs: Any, outputs: Any) -> Any:
            return [outputs[0] * Slope()(inputs[0])]

    with pm.Model():
        theta = pm.Flat("theta", shape=len(start), initval=np.asarray(start))
        pm.Potential("density", Value()(theta))
        found = pm.fit(STEPS, method="advi", progressbar=False, random_seed=0)
    return around(found.mean.eval(), found.std.eval())


TOOLS: dict[str, Callable[[Density, Any], np.ndarray]] = {
    "Laplace": laplace,
    "BlackJAX Pathfinder": pathfinder,
    "NumPyro AutoNormal": guide("AutoNormal"),
    "NumPyro AutoMultivariateNormal": guide("AutoMultivariateNormal"),
    "BlackJAX full rank": full_rank,
    "PyMC ADVI": advi,
}
NEEDS = {"NumPyro": "numpyro", "BlackJAX": "blackjax", "PyMC": "pymc"}
FULL = ("Laplace", "NumPyro AutoMultivariateNormal", "BlackJAX full rank", "BlackJAX Pathfinder")


def installed() -> list[str]:
    """Return the tools that are here."""
    return [tool for tool in TOOLS if (need := NEEDS.get(tool.split()[0])) is None or util.find_spec(need)]
