"""The door for nets: any function of a pytree of parameters becomes a net with Gaussian weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.gaussian import CovarianceGaussian
from natvi.gaussian.starts import diagonal_covariance
from natvi.models.deep.bnn_fit import BnnFit, check_examples
from natvi.models.deep.layout import Layout
from natvi.models.deep.likelihoods import Likelihood, check_output, check_response, find_likelihood
from natvi.models.deep.net_rows import NetRows
from natvi.models.deep.predictive import over_draws, weight_draws
from natvi.models.deep.training import POINT, Training, check_training, train
from natvi.result import Result
from natvi.result.result import KIND
from natvi.result.trust import CARE, REFUSE, Trust
from natvi.run import Outcome, storage
from natvi.run.clock import Stopwatch
from natvi.run.fitted import Fitted
from natvi.run.settings import is_real
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.rows import FunctionRows
from natvi.x64 import float32

WATCH_DRAWS = 8
LARGEST_BATCH = 128  # unless asked for
INDEPENDENT = "weights are taken as independent: the spread of predictions is a lower bound of what is not known"


def bnn(
    apply: Any,
    params: Any,
    likelihood: str | Likelihood = "categorical",
    *,
    prior_sd: float = 10.0,
) -> "BnnModel":
    """Make a Bayesian net of a function of parameters and examples.

    Args:
        apply: (params, X) -> output, one row per example: class scores, or as the likelihood says.
        params: A pytree of float arrays, where the means start (Xavier or any other usual initialisation).
        likelihood: "categorical" (class scores), "bernoulli" (one logit), "poisson" (one log rate), "normal" (mean and
            log sd), or a `Likelihood` of your own.
        prior_sd: The sd of the prior N(0, sd^2) of every parameter.

    Returns:
        A model with `fit(X, y)`.

    Example:
        >>> from natvi.models.deep.nets import init_mlp, mlp
        >>> X = np.random.default_rng(0).normal(size=(200, 2)); y = (X[:, 0] * X[:, 1] > 0).astype(int)
        >>> model = bnn(mlp, init_mlp(jax.random.key(0), (2, 16, 2)))
        >>> fit = model.fit(X, y, epochs=50, batch_size=50)
        >>> fit.model.evaluate(X, y)["accuracy"] > 0.9
        True

    Paper: Section 8.3.
    """
    if not callable(apply):
        raise ValueError(f"apply must be a function of (params, X); got a {type(apply).__name__}.")
    if not is_real(prior_sd) or not 0 < prior_sd < np.inf:
        raise ValueError(f"prior_sd must be positive and finite; got {prior_sd!r}.")
    layout = Layout.of(params)
    with float32():
        start = np.asarray(layout.ravel(params))
    return BnnModel(NetRows(apply, layout, find_likelihood(likelihood)), start, float(prior_sd))


class BnnModel:
    """A net before it is trained."""

    def __init__(self, net: NetRows, start: np.ndarray, prior_sd: float) -> None:
        """Bind the net, its first means and its prior."""
        self.net, self._start, self._prior_sd = net, start, prior_sd

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        optimizer: str = "ivon",
        step_size: float | None = None,
        schedule: str = "cosine",
        warmup: float = 0.0,
        epochs: int = 20,
        batch_size: int | None = None,
        num_samples: int = 1,
        start_sd: float | None = None,
        validation: Any = None,
        patience: int | None = None,
        seed: int = 0,
        state: Any = None,
        progress: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 2.0,
    ) -> Result:
        """Train on examples and responses.

        Ctrl-C keeps what was reached. `state` or a `checkpoint` goes on from any step, in mid-epoch too, bit for bit.

        Args:
            X: Examples along the first axis.
            y: Responses, classes as 0, 1, ...
            optimizer: `ivon`, `adam`, `nadam`, `snngm`, `nagm`, `pga` or `vogn`; or `point` for a point estimate, the
                most likely weights by Adam, to compare with.
            step_size: The largest step size; by default the optimizer's usual one.
            schedule: "cosine" comes down to zero over all epochs, "constant" does not.
            warmup: The share of all steps over which the step size rises first.
            epochs: Passes over the data.
            batch_size: Examples per step; by default 128, or all where there are fewer.
            num_samples: Draws of the weights per step.
            start_sd: The sd of every parameter before the first step; by default 1 / sqrt(n), of IVON 1 / sqrt(0.1 n).
            validation: (X, y) to hold the net against after every epoch.
            patience: Epochs without a better validation log-likelihood after which training stops.
            seed: The same seed gives the same bits.
            state: `result.state` of an earlier fit, to go on from.
            progress: Whether to show progress, with examples per second and the validation log-likelihood.
            checkpoint: A file to keep the state in; if it exists training goes on from it.
            checkpoint_seconds: The least time between two writes.

        Returns:
            A `Result`; its `model` predicts and evaluates (`BnnFit`).
        """
        X = check_examples(X)
        columns = self._columns(X)
        y = check_response(y, len(X), self.net.likelihood, columns)
        batch_size = min(LARGEST_BATCH, len(X)) if batch_size is None else batch_size
        training = Training(
            optimizer, step_size, schedule, warmup, epochs, batch_size, num_samples, start_sd, patience, seed
        )
        check_training(training, len(X))
        if patience is not None and validation is None:
            raise ValueError("patience needs a validation set: validation=(X, y).")
        watch = None if validation is None else self._watch(validation, X.shape[1:], columns)
        clock = Stopwatch()
        rows = {"x": X, "y": y}
        with float32():
            target, start = self.prepare(rows, training)
            keeping = {"state": state, "progress": progress, "checkpoint": checkpoint}
            fitted = train(target, start, rows, training, watch=watch, checkpoint_seconds=checkpoint_seconds, **keeping)
        few = jax.tree.map(lambda a: a[: training.batch_size], rows)
        return self._result(fitted, X, columns, training, clock, lambda: first_bound(target, start, few))

    def prepare(self, rows: dict[str, np.ndarray], training: Training) -> tuple[FunctionRows, CovarianceGaussian]:
        """Return the log-density, with one row standing for all, and the Gaussian to start from."""
        prior = IndependentNormal.around_zero(len(self._start), self._prior_sd)
        num_rows = len(rows["y"])
        first = jax.tree.map(lambda a: jnp.asarray(a[:1]), rows)
        target = FunctionRows(self.net, first, prior, num_rows)
        return target, diagonal_covariance(jnp.asarray(self._start), training.first_sd(num_rows))

    def load(self, path: str | Path) -> Result:
        """Load a fit of this very net that `Result.save` wrote; nothing in the file is executed."""
        arrays, document = storage.read(path, KIND)
        layout = self.net.layout
        if document.get("model") != "bnn" or document["shapes"] != [list(shape) for shape in layout.shapes]:
            raise storage.StorageError(f"{path} does not hold a fit of this net: its parameters have other shapes.")
        fit = BnnFit(
            net=self.net,
            mean=arrays["mean"],
            sds=arrays["sds"],
            columns=document["columns"],
            example_shape=tuple(document["example_shape"]),
            num_rows=document["num_rows"],
            prior_sd=document["prior_sd"],
            validation=arrays["validation"],
            notes=tuple(document["notes"]),
        )
        return Result.restore(fit, arrays, document)

    def _columns(self, X: np.ndarray) -> int:
        """Return the net's number of outputs, or say why it cannot be evaluated."""
        few = X[:3]
        try:
            with float32():
                shape = jax.eval_shape(self.net.output, jnp.asarray(self._start), jnp.asarray(few))
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(
                f"apply could not be evaluated on examples of shape {X.shape[1:]}: {str(error).splitlines()[0]} Are "
                "they in the layout the net expects, e.g. (n, height, width, channels)?"
            ) from error
        if not hasattr(shape, "shape"):
            raise ValueError(f"apply must return one array of outputs; got a {type(shape).__name__}.")
        return check_output(tuple(shape.shape), len(few), self.net.likelihood)

    def _watch(self, validation: Any, example_shape: tuple[int, ...], columns: int) -> Callable[[Any], float]:
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise ValueError("validation must be a pair (X, y).")
        X = check_examples(validation[0], example_shape)
        y = check_response(validation[1], len(X), self.net.likelihood, columns)

        def value(state: Any) -> float:
            gaussian = state.gaussian
            draws = weight_draws(gaussian.mean, gaussian.factor.values, WATCH_DRAWS, seed=0)
            sums = over_draws(self.net, draws, X, y)
            return float(np.mean(sums.log_density - np.log(WATCH_DRAWS)))

        return value

    def _result(
        self,
        fitted: Fitted,
        X: np.ndarray,
        columns: int,
        training: Training,
        clock: Stopwatch,
        at_start: Callable[[], float],
    ) -> Result:
        fit = BnnFit(
            net=self.net,
            mean=np.asarray(fitted.gaussian.mean),
            sds=np.abs(np.asarray(fitted.gaussian.factor.values)) * (training.optimizer != POINT),
            columns=columns,
            example_shape=X.shape[1:],
            num_rows=len(X),
            prior_sd=self._prior_sd,
            validation=fitted.watched,
        )
        return Result(
            model=fit,
            method="point estimate, adam" if training.optimizer == POINT else f"gva, {training.optimizer}",
            structure="diagonal",
            outcome=fitted.outcome,
            elbo=fitted.elbo,
            elbo_se=fitted.elbo_se,
            seconds=clock.read(),
            trace=np.asarray(fitted.trace, dtype=np.float64),
            state=fitted.state,
            check=lambda: (
                *diverged(fitted),
                *worse_than_start(fitted.elbo, at_start()),
                *concerns(fitted.trace, fitted.elbo_se),
            ),
            steps=fitted.steps,
        )


def first_bound(target: FunctionRows, start: CovarianceGaussian, rows: dict[str, np.ndarray]) -> float:
    """Return the bound before the first step, roughly: the log-density of one batch at the mean, and the entropy."""
    with float32():
        here = target.with_rows(jax.tree.map(jnp.asarray, rows))
        value = jax.jit(lambda target, mean: target.value(mean))(here, start.mean)
        d = start.mean.shape[0]
        return float(value + start.factor.log_determinant() + 0.5 * d * (1 + np.log(2 * np.pi)))


def diverged(fitted: Fitted) -> tuple[Trust, ...]:
    """Say which state was kept where training diverged, and how to go on."""
    if fitted.outcome is not Outcome.NONFINITE:
        return ()
    good = int(fitted.state.count) // len(fitted.state.window)
    kept = f"this is the net at the end of epoch {good}" if good else "this is the net before the first step"
    text = f"training diverged in epoch {len(fitted.trace)}: {kept}. Go on with fit(state=result.state, step_size=...)"
    return (Trust(REFUSE, (f"{text} and a tenth of the step size",)),)


def worse_than_start(elbo: float, at_start: float) -> tuple[Trust, ...]:
    """Say so where training ended far below where it began, which numbers that stay finite do not betray.

    Example:
        >>> worse_than_start(-900.0, -1000.0)
        ()
    """
    if not np.isfinite(elbo) or elbo >= at_start - 0.5 * abs(at_start):
        return ()
    text = f"the bound ended at {elbo:,.4g}, and was {at_start:,.4g} before the first step: the step size is too long"
    return (Trust(REFUSE, (f"{text}, try a tenth of it",)),)


def concerns(trace: np.ndarray, elbo_se: float = 0.0) -> tuple[Trust, ...]:
    """Say what a net's posterior is, and whether the bound fell, which is how a step size that is too long shows.

    The bound of an epoch is noisy: it has to have lost half of all that it had gained, and six standard errors.
    """
    found = [Trust(CARE, (INDEPENDENT,))]
    seen = trace[np.isfinite(trace)]
    if len(seen) > 1 and seen[-1] < 0.5 * (seen[0] + seen.max()) - 6 * np.nan_to_num(elbo_se):
        text = f"the bound fell from {seen.max():,.0f} to {seen[-1]:,.0f}: the step size is too long, try a tenth of it"
        found.insert(0, Trust(REFUSE, (text,)))
    return tuple(found)
