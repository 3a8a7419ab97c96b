"""The door for nets: any function of a pytree of parameters becomes a net with Gaussian weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.gaussian import CovarianceGaussian
from natvi.gaussian.starts import diagonal_covariance
from natvi.hosts.collect import checked, count, number, total
from natvi.models.deep.bnn_fit import BnnFit, check_examples
from natvi.models.deep.layout import Layout
from natvi.models.deep.likelihoods import Likelihood, check_output, check_response, find_likelihood
from natvi.models.deep.net_rows import NetRows
from natvi.models.deep.predictive import over_draws, weight_draws
from natvi.models.deep.spread.examples import join_examples, start_of_first
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
        After `natvi.hosts.join()` X, y and the validation set are this process's part, and the same net comes back in
        all processes.

        Args:
            X: Examples along the first axis; memory-mapped files will do.
            y: Responses, classes as 0, 1, ...
            optimizer: `ivon`, `adam`, `nadam`, `snngm`, `nagm`, `pga` or `vogn`; or `point` for a point estimate, the
                most likely weights by Adam, to compare with.
            step_size: The largest step size; by default the optimizer's usual one.
            schedule: "cosine" comes down to zero over all epochs, "constant" does not.
            warmup: The share of all steps over which the step size rises first.
            epochs: Passes over the data.
            batch_size: Examples per step, of all processes together; by default 128, or all where there are fewer.
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
        rows, columns = checked(lambda: self._rows(X, y))
        size = LARGEST_BATCH if batch_size is None else batch_size
        training = Training(optimizer, step_size, schedule, warmup, epochs, size, num_samples, start_sd, patience, seed)
        keeping: dict[str, Any] = {"state": state, "checkpoint": checkpoint}
        words = {"the net": (self.net.layout.names, self.net.layout.shapes, self.net.likelihood.name, self._prior_sd)}
        words |= {"training": training, "what is given": [name for name, x in keeping.items() if x is not None]}
        examples = join_examples(rows, words | {"validation": validation is not None})
        if batch_size is None:
            training = training._replace(batch_size=min(size, examples.num_rows))
        check_training(training, examples.num_rows)
        if patience is not None and validation is None:
            raise ValueError("patience needs a validation set: validation=(X, y).")
        watch = None if validation is None else self._watch(validation, rows["x"].shape[1:], columns)
        clock = Stopwatch()
        with float32():
            plain, start = self.prepare(rows, training, examples.num_rows)
            at_start = self._at_start(plain, start, jax.tree.map(lambda a: a[: training.batch_size], rows))
            target, sharing = examples.share(plain, training)
            if checkpoint is not None:
                keeping["mark"] = plain.with_rows(examples.mark()), start
            keeping |= {"progress": progress, "checkpoint_seconds": checkpoint_seconds}
            fitted = train(target, start, rows, training, watch=watch, **sharing, **keeping)
        return self._result(fitted, rows["x"].shape[1:], examples.num_rows, columns, training, clock, at_start)

    def prepare(
        self, rows: dict[str, np.ndarray], training: Training, num_rows: int | None = None
    ) -> tuple[FunctionRows, CovarianceGaussian]:
        """Return the log-density, with one row standing for all, and the Gaussian to start from."""
        prior = IndependentNormal.around_zero(len(self._start), self._prior_sd)
        num_rows = len(rows["y"]) if num_rows is None else num_rows
        first = jax.tree.map(lambda a: jnp.asarray(a[:1]), rows)
        target = FunctionRows(self.net, first, prior, num_rows)
        return target, diagonal_covariance(jnp.asarray(start_of_first(self._start)), training.first_sd(num_rows))

    def _rows(self, X: Any, y: Any) -> tuple[dict[str, np.ndarray], int]:
        """Return examples and responses as they are trained on, and the number of the net's outputs."""
        if count() > 1 and not len(X):
            raise ValueError(
                f"process {number()} of {count()} holds no examples. Give every process some, or start fewer of them."
            )
        X = check_examples(X)
        columns = self._columns(X)
        return {"x": X, "y": check_response(y, len(X), self.net.likelihood, columns)}, columns

    def _at_start(self, target: FunctionRows, start: CovarianceGaussian, rows: Any) -> Callable[[], float]:
        """Return what tells the bound before the first step; in many processes it is computed now, by all of them."""
        if count() == 1:
            return lambda: first_bound(target, start, rows)
        value = float(total(np.float64(first_bound(target, start, rows)))) / count()
        return lambda: value

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

        def look() -> tuple[np.ndarray, np.ndarray]:
            X = check_examples(validation[0], example_shape)
            return X, check_response(validation[1], len(X), self.net.likelihood, columns)

        X, y = checked(look)

        def value(state: Any) -> float:
            gaussian = state.gaussian
            draws = weight_draws(gaussian.mean, gaussian.factor.values, WATCH_DRAWS, seed=0)
            sums = over_draws(self.net, draws, X, y)
            found, rows = total((np.sum(sums.log_density - np.log(WATCH_DRAWS)), np.float64(len(X))))
            return float(found / rows)

        return value

    def _result(
        self,
        fitted: Fitted,
        example_shape: tuple[int, ...],
        num_rows: int,
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
            example_shape=example_shape,
            num_rows=num_rows,
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
