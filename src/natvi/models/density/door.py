"""The function door: the Gaussian posterior of any differentiable log-density, in one call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.judge import words
from natvi.judge.shape import look_closer
from natvi.judge.trust import Trust
from natvi.models.density.parameters import read_parameters
from natvi.models.density.posterior import DensityFit
from natvi.models.regression.options import check_options
from natvi.optimize.point_system import PointSystem, Start
from natvi.quadrature.fixed_points import fixed_points
from natvi.result import Result
from natvi.run import Fitted
from natvi.run.clock import Stopwatch
from natvi.run.loop import climb
from natvi.target.function import FunctionTarget
from natvi.x64 import float64, to_host

START_SD = 0.1
CLIMB_POINTS, POLISH_POINTS = 128, 512  # at least; two and four for every dimension
LARGEST = 1000  # dimensions of a full covariance
CURE = "the posterior is not a Gaussian: reparametrise, or sample it, e.g. natvi.reference.nuts"


def fit(
    logdensity: Callable[[Any], Any],
    init: Any,
    *,
    max_steps: int | None = None,
    tolerance: float = 1e-8,
    state: Any = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 2.0,
) -> Result:
    """Fit the Gaussian variational approximation with a full covariance to any log-density.

    Expectations are taken on fixed, evenly spread points, so that there is no noise and no step size: the bound is
    climbed from a narrow Gaussian around `init`, with few points first and more at the end, and the answer is
    held against the density itself. Everything is computed in float64.

    Args:
        logdensity: From a pytree shaped like `init` to the log of the density, a number; any constant may be missing.
            It is traced by JAX: write it with jax.numpy.
        init: Where to start: a float, an array of floats, or a dict (or other pytree) of them.
        max_steps: Steps at most; by default 500.
        tolerance: The fit stops when the bound will rise by no more than this, relative to its size.
        state: `result.state` of an earlier fit of the same log-density, to go on from.
        progress: Show progress when the fit takes over a second.
        checkpoint: A file that keeps the state, so that a killed fit goes on where it was.
        checkpoint_seconds: The least time between two writes of the checkpoint.

    Returns:
        The result, converged or not: nothing is thrown away.

    Raises:
        ValueError: For a log-density that cannot be used, with what came and what to do.

    Example:
        >>> import jax.numpy as jnp
        >>> import natvi
        >>> def logdensity(p):
        ...     return -0.5 * ((p["a"] - 1.0) / 2.0) ** 2 - 0.5 * jnp.sum((p["b"] - p["a"]) ** 2)
        >>> result = natvi.fit(logdensity, {"a": 0.0, "b": jnp.zeros(2)})
        >>> result.summary().round(3).loc["a", ["mean", "sd"]].tolist()
        [1.0, 2.0]
    """
    keeping = check_options(
        max_steps,
        500,
        tolerance,
        state=state,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
    )
    watch = Stopwatch()
    with float64():
        flat, parameters, back = read_parameters(init)
        if len(flat) > LARGEST:
            raise ValueError(
                f"not yet supported: {len(flat):,} parameters with a full covariance; {LARGEST:,} are possible. Write "
                "the model by a formula (natvi.glmm), or use the building blocks of natvi.recipes."
            )
        target = FunctionTarget(lambda theta: logdensity(back(theta)))
        _check_density(target, flat)
        fitted = _climb(target, jnp.asarray(flat), tolerance, keeping)
        gaussian = to_host(fitted.gaussian)
    count = max(POLISH_POINTS, 4 * len(flat))
    model = DensityFit(parameters, np.asarray(gaussian.mean), np.asarray(gaussian.factor.matrix), count)
    return Result(
        model=model,
        method="gaussian",
        structure="dense",
        outcome=fitted.outcome,
        elbo=fitted.elbo,
        elbo_se=0.0,
        seconds=watch.read(),
        trace=fitted.trace,
        state=fitted.state,
        check=lambda: _check(target, model),
        steps=fitted.steps,
    )


def _climb(target: FunctionTarget, init: jax.Array, tolerance: float, keeping: dict[str, Any]) -> Fitted:
    """Climb on few points from a narrow Gaussian, then on more from where that ended."""
    d = len(init)
    start = Start(init, START_SD * jnp.eye(d))
    many = PointSystem(target, _points(d, max(POLISH_POINTS, 4 * d)))
    if keeping["state"] is None and not (keeping["checkpoint"] and Path(keeping["checkpoint"]).exists()):
        few = PointSystem(target, _points(d, max(CLIMB_POINTS, 2 * d)))
        first = climb(few, start, max_steps=keeping["max_steps"], tolerance=max(tolerance, 1e-6))
        if np.all(np.isfinite(first.gaussian.mean)) and np.all(np.isfinite(first.gaussian.factor.matrix)):
            start = Start(jnp.asarray(first.gaussian.mean), jnp.asarray(first.gaussian.factor.matrix))
    return climb(many, start, tolerance=tolerance, **keeping)


def _points(d: int, count: int) -> jax.Array:
    return jnp.asarray(fixed_points(d, count + count % 2))


def _check_density(target: FunctionTarget, init: np.ndarray) -> None:
    """Try the log-density once, and say what is wrong with it."""
    try:
        value, grad = jax.value_and_grad(lambda t: jnp.asarray(target.function(t)))(jnp.asarray(init))
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise ValueError(
            "the log-density cannot be traced by JAX: it turns parameters into NumPy arrays or Python numbers. Write "
            "it with jax.numpy, jnp.where in place of if, and without float() or functions of NumPy "
            f"({type(error).__name__})."
        ) from error
    except TypeError as error:
        shape = jnp.shape(target.function(jnp.asarray(init)))
        if shape:
            raise ValueError(
                f"the log-density must return one number, and returned an array of shape {shape}. Sum over its "
                "entries: jnp.sum(...)."
            ) from error
        raise ValueError(f"the log-density cannot be differentiated at init: {error}.") from error
    if not np.isfinite(float(value)) or not np.all(np.isfinite(np.asarray(grad))):
        raise ValueError(
            f"the log-density is {float(value):g} at init, or its gradient is not finite there. Start where both are "
            "finite, and write constrained parameters through their logarithm or another unbounded scale."
        )


def _check(target: FunctionTarget, model: DensityFit) -> tuple[Trust, ...]:
    """Hold the Gaussian against the density by weighted draws."""
    with float64():
        batched = jax.jit(lambda t: jax.lax.map(target.value, t, batch_size=64))

        def log_density(theta: np.ndarray) -> np.ndarray:
            with float64():
                return np.asarray(batched(jnp.asarray(theta)))

        d = len(model.mean)
        shape = look_closer(log_density, model.mean, model.factor, lambda theta: theta, np.eye(d))
    one_mode = Trust("good", ("what was checked is the surroundings of one mode; others, far away, would not be seen",))
    return (words.judge_shape(shape, model.parameters.entries, CURE), one_mode)
