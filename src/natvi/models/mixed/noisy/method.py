"""The paper's stochastic algorithms at the door of mixed models: Algorithm 2S (gva), Algorithm 1S (rvb1, rvb2).

Steps are noisy, so the loop is that of all stochastic fits (`natvi.run.wander`): steps are halved when the bound,
averaged over windows, no longer rises, and the iterates of the last stage are averaged.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.derivatives.exact import exact_derivatives
from natvi.gaussian import ArrowPrecision, CovarianceGaussian, PrecisionGaussian
from natvi.judge.trust import CARE, REFUSE, Trust
from natvi.linalg import ArrowVector, LocalGlobalFactor
from natvi.models.mixed.check import check_fit
from natvi.models.mixed.draws import effect_covariances
from natvi.models.mixed.noisy.rvb import RvbFit, first_order
from natvi.models.mixed.noisy.states import open_state, sign_state
from natvi.models.mixed.noisy.stochastic import estimate_elbo, mixed_algorithm
from natvi.models.mixed.posterior import MixedFit
from natvi.models.mixed.target import MixedTarget
from natvi.models.regression.options import Choice, find_rule
from natvi.optimize.arrow_system import Natural
from natvi.result import Result
from natvi.run import Fitted, Outcome, wander
from natvi.run.clock import Stopwatch
from natvi.run.compiled_code import quick_jit
from natvi.run.stochastic.loop import StochasticState
from natvi.target import SumOfTerms
from natvi.x64 import to_host

WINDOW = 100  # steps whose bounds are averaged
LOOKED_AT, LEAST_WINDOWS = 40, 10  # windows in which a rise is looked for
ELBO_DRAWS = 1000


class Noise(NamedTuple):
    """The settings of noisy steps; the defaults are those of the door."""

    order: int = 1
    step_size: float | None = None
    num_samples: int = 1
    seed: int = 0


def fit_with_noise(
    mixed: MixedTarget,
    named: Callable[[ArrowPrecision, np.ndarray], MixedFit],
    chosen: Choice,
    noise: Noise,
    watch: Stopwatch,
    **keeping: Any,
) -> Result:
    """Fit a mixed model by noisy steps; to be called inside `float64()`.

    Args:
        mixed: The model, a start, and where each group of the data stands in the target.
        named: Makes the fitted model of a Gaussian and the sds of its random effects, both in the target's order.
        chosen: "gva", "rvb1" or "rvb2", with a rule of noisy steps.
        noise: Order, step size, draws per step and seed.
        watch: Started when the fit was asked for.
        keeping: `max_steps`, `state`, `progress`, `checkpoint` and `checkpoint_seconds`, as for `wander`.

    Returns:
        The result.
    """
    (way, optimizer), (target, natural, place) = chosen, mixed
    rule = find_rule(optimizer, noise.step_size)
    algorithm = mixed_algorithm(target, way, rule, order=noise.order, num_samples=noise.num_samples)
    start = data_start(natural, way)
    keeping["state"] = open_state(keeping["state"], StochasticState, way, optimizer)
    fitted = wander(algorithm, start, seed=noise.seed, window=WINDOW, **keeping)
    gaussian = jax.device_put(fitted.gaussian)
    if way == "gva":
        posterior, elbo, elbo_se = _arrow(gaussian), float(_exact_bound(target, gaussian)), 0.0
    else:
        posterior = first_order(algorithm.target, gaussian)
        elbo, elbo_se = estimate_elbo(algorithm.target, gaussian, ELBO_DRAWS, noise.seed)
    posterior = to_host(posterior)
    model = named(posterior, effect_covariances(posterior))
    if way != "gva":
        model = RvbFit.of(model, target, place, way, fitted.gaussian)
    return Result(
        model=model,
        method=way,
        optimizer=optimizer,
        structure="arrow" if way == "gva" else "block",
        outcome=fitted.outcome,
        elbo=elbo,
        elbo_se=elbo_se,
        seconds=watch.read(),
        trace=fitted.trace,
        state=sign_state(fitted.state, way, optimizer),
        check=partial(judge_fit, target, posterior, model, fitted),
        steps=fitted.steps,
    )


def data_start(natural: Natural, way: str) -> PrecisionGaussian | CovarianceGaussian:
    """Return where the exact ascent starts too, with standard normal tilde for RVB: the scale of the data is known."""
    posterior = ArrowPrecision.from_natural(*natural)
    if way == "gva":
        return PrecisionGaussian(posterior.mean, posterior.factor)
    mean = ArrowVector(jnp.zeros_like(posterior.mean.local), posterior.mean.shared)
    standard = LocalGlobalFactor.identity(mean)
    return CovarianceGaussian(mean, standard._replace(shared=jnp.linalg.cholesky(posterior.shared_covariance())))


@quick_jit
def _arrow(gaussian: PrecisionGaussian) -> ArrowPrecision:
    return ArrowPrecision.from_factor(gaussian.mean, gaussian.factor)


@quick_jit
def _exact_bound(target: SumOfTerms, gaussian: PrecisionGaussian) -> Float[Array, ""]:
    return exact_derivatives(target, gaussian).value


# --- how far to trust it -------------------------------------------------------------------------------------


def judge_fit(target: SumOfTerms, posterior: ArrowPrecision, model: MixedFit, fitted: Fitted) -> tuple[Trust, ...]:
    """Return what the noise left open, and what the exact marginal says about the Gaussian of theta_g."""
    return (*judge_noise(fitted.outcome, fitted.trace), *check_fit(target, posterior, model))


def judge_noise(outcome: Outcome, trace: np.ndarray) -> tuple[Trust, ...]:
    """Return whether the bound was still rising when the steps ended, or the steps could not be taken.

    Args:
        outcome: How the loop ended.
        trace: The mean bound of every window.
    """
    if outcome is Outcome.NONFINITE:
        words = "most of the last steps were not finite: give a smaller step_size, more num_samples, or order=2"
        return (Trust(REFUSE, (words,)),)
    windows = trace[np.isfinite(trace)][-LOOKED_AT:]
    if outcome is Outcome.CONVERGED or len(windows) < LEAST_WINDOWS:
        return ()
    half = len(windows) // 2
    first, second = windows[:half], windows[half:]
    noise = np.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    gain = float(second.mean() - first.mean())
    if gain <= 2 * noise:
        return ()
    words = (
        f"the bound still rises, by about {2 * gain:.2g} in the last {WINDOW * len(windows):,} steps: more steps, "
        "or method='gva' with the exact ascent"
    )
    return (Trust(CARE, (words,)),)
