"""Deep GLMs from arrays: scales, the loop, and a result."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from natvi.hosts.collect import require_one
from natvi.models.deep.bnn import concerns, diverged
from natvi.models.deep.bnn_fit import check_examples
from natvi.models.deep.deep_glm import RESPONSES, DeepGlmState, deep_glm_algorithm
from natvi.models.deep.glm_fit import DeepGlmFit
from natvi.models.deep.likelihoods import LIKELIHOODS, check_response
from natvi.models.deep.training import Training, check_training, train
from natvi.result import Result
from natvi.result.trust import REFUSE, Trust
from natvi.run.clock import Stopwatch
from natvi.run.fitted import Fitted
from natvi.x64 import float32

WATCH_DRAWS = 8
BETA2 = 0.999  # small nets take few steps, and a normal response's curvature rises as its variance falls
LARGEST_NOISE = 1.2  # sd of the noise by the sd of the responses
WARMUP = 0.2  # of IVON: long steps before its curvature has followed switch units off (experiments.warmup_study)


class Scales(NamedTuple):
    """What standardises inputs and normal responses."""

    x_mean: np.ndarray
    x_scale: np.ndarray
    y_mean: float
    y_scale: float

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, response: str) -> "Scales":
        """Return means and sds; a column that does not vary keeps its scale."""
        sd = X.std(axis=0)
        y_sd = float(y.std()) if response == "normal" else 1.0
        mean = float(y.mean()) if response == "normal" else 0.0
        return cls(X.mean(axis=0), np.where(sd > 0, sd, 1.0), mean, y_sd if y_sd > 0 else 1.0)

    def rows(self, X: np.ndarray, y: np.ndarray, response: str) -> dict[str, np.ndarray]:
        """Return rows on the net's scale."""
        scaled = ((X - self.x_mean) / self.x_scale).astype(np.float32)
        y = np.asarray((y - self.y_mean) / self.y_scale)
        return {"x": scaled, "y": y.astype(np.int32 if response == "categorical" else np.float32)}


def fit_deep_glm(
    X: Any,
    y: Any,
    response: str = "normal",
    *,
    hidden: tuple[int, ...] = (20, 20),
    training: Training | None = None,
    validation: tuple[Any, Any] | None = None,
    names: tuple[str, ...] | None = None,
    num_classes: int = 2,
    state: Any = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
) -> Result:
    """Fit a deep GLM: a perceptron whose inputs are shrunk by what they are worth.

    Args:
        X: Inputs `(n, p)`.
        y: Responses; classes as 0, 1, ...
        response: "normal", "bernoulli", "poisson" or "categorical".
        hidden: Units of the hidden layers.
        training: Optimizer, epochs, batch size and the rest.
        validation: (X, y) to hold the model against after every epoch.
        names: Of the inputs.
        num_classes: Of a categorical response.
        state: `result.state` of an earlier fit, to go on from.
        progress: Whether to show progress.
        checkpoint: A file to keep the state in; if it exists the fit goes on from it.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(500, 3)); y = X[:, 0] ** 2 + 0.1 * rng.normal(size=500)
        >>> result = fit_deep_glm(X, y, training=Training(epochs=30, batch_size=50))
        >>> result.model.relevance.index[0]
        'x1'

    Paper: Section 8.4.
    """
    require_one("A deep GLM")
    if response not in RESPONSES:
        raise ValueError(f"response must be one of {', '.join(map(repr, RESPONSES))}, not {response!r}.")
    training = training or Training(beta2=BETA2, warmup=WARMUP)
    X, y = check_rows(X, y, response, num_classes)
    check_training(training, len(X))
    check_hidden(hidden)
    if training.patience is not None and validation is None:
        raise ValueError("patience needs a validation set: validation=(X, y).")
    names = names or tuple(f"x{j}" for j in range(1, X.shape[1] + 1))
    sizes = (X.shape[1], *hidden, num_classes if response == "categorical" else 1)
    scales, clock = Scales.of(X, y, response), Stopwatch()
    rows = scales.rows(X, y, response)
    with float32():
        few = jax.tree.map(lambda a: a[:1], rows)
        algorithm, start = deep_glm_algorithm(sizes, response, few, len(X), training)
        held = None if validation is None else check_rows(*validation, response, num_classes)

        def value(now: Any) -> float:
            assert held is not None
            fit = fit_of(now, sizes, response, names, scales, len(X))
            return float(np.mean(fit.log_density(*held, num_draws=WATCH_DRAWS)))

        watch = None if held is None else value
        keeping = {"state": state, "progress": progress, "checkpoint": checkpoint}
        fitted = train(algorithm.target, start, rows, training, watch=watch, algorithm=algorithm, **keeping)
    model = fit_of(fitted.kept, sizes, response, names, scales, len(X), fitted.watched)
    return result_of(fitted, model, training, clock)


def fit_of(
    state: DeepGlmState,
    sizes: tuple[int, ...],
    response: str,
    names: tuple[str, ...],
    scales: Scales,
    num_rows: int,
    validation: np.ndarray | None = None,
) -> DeepGlmFit:
    """Return the fitted model of a state."""
    a, b = (1.0, 1.0) if state.dispersion is None else map(float, state.dispersion)
    return DeepGlmFit(
        response=response,
        sizes=sizes,
        names=names,
        mean=np.asarray(state.gaussian.mean),
        sds=np.abs(np.asarray(state.gaussian.factor.values)),
        gamma=np.asarray(state.shrinkage.gamma),
        gamma_w=float(state.shrinkage.gamma_w),
        shape=a,
        scale=b,
        validation=np.empty(0) if validation is None else validation,
        num_rows=num_rows,
        **scales._asdict(),
    )


def result_of(fitted: Fitted, model: DeepGlmFit, training: Training, clock: Stopwatch) -> Result:
    """Return the result, its bound on the scale of the responses as they were given."""
    shift = model.num_rows * float(np.log(model.y_scale))
    trace = np.asarray(fitted.trace, dtype=np.float64) - shift
    weight = float(training.annealing_of(model.num_rows)(int(fitted.kept.count)))
    return Result(
        model=model,
        method=f"gva, {training.optimizer}",
        structure="diagonal",
        outcome=fitted.outcome,
        elbo=fitted.elbo - shift,
        elbo_se=fitted.elbo_se,
        seconds=clock.read(),
        trace=trace,
        state=fitted.state,
        check=lambda: (*diverged(fitted), *astray(model), *concerns(trace, fitted.elbo_se), *unfinished(weight)),
        steps=fitted.steps,
    )


def astray(model: DeepGlmFit) -> tuple[Trust, ...]:
    """Say so where the noise is taken to be larger than the responses themselves vary, which no data ask for."""
    ratio = (model.scale / model.shape) ** 0.5
    if model.response != "normal" or ratio < LARGEST_NOISE:
        return ()
    text = f"the noise sd came out {ratio:.1f} times as large as the responses' own sd: sds of weights have run away"
    return (Trust(REFUSE, (f"{text}, try optimizer='ivon', fewer epochs or a shorter step_size",)),)


def unfinished(weight: float) -> tuple[Trust, ...]:
    """Say so where a fit ended while rows weighed more than once."""
    if weight <= 1.0:
        return ()
    text = f"the fit ended while every row weighed {weight:.2g} times: sds are too small, go on with state=result.state"
    return (Trust(REFUSE, (text,)),)


def check_rows(X: Any, y: Any, response: str, num_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and responses as arrays of double precision, or say what is wrong with them."""
    X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix with one row per example; got shape {X.shape}.")
    check_examples(X)
    columns = num_classes if response == "categorical" else 1
    likelihood = LIKELIHOODS[response]
    check_response(y, len(X), likelihood, columns)
    return X.astype(np.float64), np.asarray(y).astype(np.float64)


def check_hidden(hidden: Any) -> None:
    """Refuse hidden layers that are not whole numbers."""
    sizes = tuple(hidden) if isinstance(hidden, tuple | list) else (hidden,)
    if not sizes or any(isinstance(h, bool) or not isinstance(h, int | np.integer) or h < 1 for h in sizes):
        raise ValueError(f"hidden must hold the units of each hidden layer, e.g. (20, 20); got {hidden!r}.")
