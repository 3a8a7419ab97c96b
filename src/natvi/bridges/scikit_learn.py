"""Deep GLMs as scikit-learn estimators: `DeepGLMRegressor` and `DeepGLMClassifier`."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.model_selection import train_test_split
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "DeepGLMRegressor and DeepGLMClassifier need scikit-learn: pip install 'natvi[sklearn]'."
    ) from error

from natvi.bridges.estimator_inputs import check_labels, checked_inputs
from natvi.models.deep.glm_door import BETA2, WARMUP, fit_deep_glm
from natvi.models.deep.stream import Stream, learn
from natvi.models.deep.training import Training
from natvi.result import Result
from natvi.result.result import KIND
from natvi.run import storage
from natvi.run.clock import Stopwatch
from natvi.run.settings import check_count, is_real
from natvi.show.plots import relevance_bars

LARGEST_BATCH, STEPS_PER_EPOCH = 128, 20
MANY_ROWS = 10_000  # from here on data outweigh any shrinkage, and of a piece IVON's curvature has enough to go by
ANNEALING = 0.7
SNNGM_STEP = 0.01  # of small perceptrons; nets of many thousand parameters take less


class _DeepGLM(BaseEstimator):
    """What both estimators share; the parameters are told in their own docstrings."""

    n_features_in_: int
    feature_names_in_: Any
    classes_: Any
    result_: Result

    def __init__(
        self,
        hidden=(20, 20),
        *,
        optimizer="auto",
        step_size=None,
        schedule="cosine",
        epochs=100,
        batch_size=None,
        num_samples=1,
        annealing=None,
        early_stopping=False,
        validation_fraction=0.1,
        patience=10,
        num_draws=200,
        random_state=0,
        progress=False,
    ):
        self.hidden = hidden
        self.optimizer = optimizer
        self.step_size = step_size
        self.schedule = schedule
        self.epochs = epochs
        self.batch_size = batch_size
        self.num_samples = num_samples
        self.annealing = annealing
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.num_draws = num_draws
        self.random_state = random_state
        self.progress = progress

    # --- fitting -------------------------------------------------------------------------------------------------

    def _fit(self, X: np.ndarray, y: np.ndarray, response: str, num_classes: int = 2, state: Any = None) -> Any:
        held, patience = None, None
        if self.early_stopping:
            if not is_real(self.validation_fraction) or not 0 < self.validation_fraction < 1:
                raise ValueError(f"validation_fraction must lie between 0 and 1; got {self.validation_fraction!r}.")
            split = {"test_size": self.validation_fraction, "random_state": self._seed()}
            parts: Any = train_test_split(X, y, **split)
            X, y, held, patience = parts[0], parts[2], (parts[1], parts[3]), self.patience
        result = fit_deep_glm(
            X,
            y,
            response,
            hidden=tuple(np.atleast_1d(self.hidden).tolist()),
            training=self._training(len(y), patience, in_pieces=False),
            validation=held,
            names=self._names(),
            num_classes=num_classes,
            progress=self.progress,
            state=state,
        )
        self._stream = None
        return self._keep(result)

    def _learn(self, X: np.ndarray, y: np.ndarray, response: str, num_classes: int = 2) -> Any:
        """Take one pass over a piece of the data."""
        clock = Stopwatch()
        stream: Stream | None = getattr(self, "_stream", None)
        hidden = tuple(np.atleast_1d(self.hidden).tolist())
        training = self._training(len(y), None, in_pieces=True)
        if stream is None and hasattr(self, "result_"):  # after fit or load
            stream = Stream.of(self._model, self.result_.steps or 0, training)
        self._stream = learn(stream, X, y, response, hidden, training, num_classes)
        result = self._stream.result(self._names(), training.optimizer, clock.read())
        self.result_, self.n_iter_ = result, self._stream.num_steps
        return self

    def _keep(self, result: Result) -> Any:
        self.result_ = result
        self.n_iter_ = max(1, len(result.trace))
        return self

    def _training(self, num_rows: int, patience: int | None, in_pieces: bool) -> Training:
        usual = min(LARGEST_BATCH, max(1, num_rows // STEPS_PER_EPOCH))
        optimizer, step_size = self.optimizer, self.step_size
        if optimizer == "auto":
            optimizer = "snngm" if in_pieces and num_rows < MANY_ROWS else "ivon"
        if optimizer == "snngm" and step_size is None:
            step_size = SNNGM_STEP
        annealing = self.annealing
        if annealing is None:
            annealing = ANNEALING if num_rows < MANY_ROWS else 0.0
        return Training(
            optimizer,
            step_size,
            self.schedule,
            warmup=WARMUP if optimizer == "ivon" else 0.0,
            epochs=self.epochs,
            batch_size=usual if self.batch_size is None else self.batch_size,
            num_samples=self.num_samples,
            patience=patience,
            seed=self._seed(),
            beta2=BETA2,
            annealing=annealing,
        )

    def _seed(self) -> int:
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**31 - 1))
        if self.random_state is None:
            return int(np.random.default_rng().integers(2**31 - 1))
        if isinstance(self.random_state, bool) or not isinstance(self.random_state, int | np.integer):
            raise ValueError(f"random_state must be a whole number, a RandomState or None; got {self.random_state!r}.")
        return int(self.random_state)

    def _names(self) -> tuple[str, ...]:
        named = getattr(self, "feature_names_in_", None)
        return (
            tuple(map(str, named)) if named is not None else tuple(f"x{j}" for j in range(1, self.n_features_in_ + 1))
        )

    def _inputs(self, X: Any, *responses: Any, reset: bool = True, **checks: Any) -> Any:
        return checked_inputs(self, X, *responses, reset=reset, **checks)

    # --- what a fit has to say -----------------------------------------------------------------------------------

    @property
    def _model(self) -> Any:
        check_is_fitted(self, "result_")
        return self.result_.model

    @property
    def relevance_(self) -> pd.Series:
        """How much each input matters, the most relevant first and set to 1: 1 / gamma_j of its shrinkage."""
        return self._model.relevance

    def plot_relevance(self, top: int = 20, ax: Any = None) -> Any:
        """Draw the relevance of the most relevant inputs."""
        return relevance_bars(self.relevance_.head(top), ax)

    def log_score(self, X: Any, y: Any, num_draws: int = 1000) -> float:
        """Return the mean log-likelihood of rows under the posterior predictive."""
        check_is_fitted(self, "result_")
        X = self._inputs(X, reset=False)
        return float(np.mean(self._model.log_density(X, self._coded(y), check_count("num_draws", num_draws))))

    def _coded(self, y: Any) -> np.ndarray:
        return np.asarray(y, dtype=np.float64)

    # --- storage -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Save the estimator; `load` brings it back without running any code, and `natvi.load` its result."""
        check_is_fitted(self, "result_")
        arrays, document = self.result_.contents()
        fitted: dict[str, Any] = {"n_features_in_": self.n_features_in_, "n_iter_": self.n_iter_}
        if hasattr(self, "feature_names_in_"):
            fitted["feature_names_in_"] = [str(name) for name in self.feature_names_in_]
        if hasattr(self, "classes_"):
            fitted["classes_"] = self.classes_.tolist()
        params = {k: list(v) if isinstance(v, tuple) else v for k, v in self.get_params().items()}
        document["estimator"] = {"class": type(self).__name__, "params": params, "fitted": fitted}
        storage.write(path, KIND, arrays, document)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Any:
        """Load what `save` wrote; nothing in the file is executed."""
        from natvi.models.loading import rebuild

        arrays, document = storage.read(path, KIND)
        about = document.pop("estimator", None)
        if about is None or about["class"] != cls.__name__:
            raise storage.StorageError(f"{path} does not hold a {cls.__name__} that save() wrote.")
        params: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in about["params"].items()}
        estimator = cls(**params)
        for name, value in about["fitted"].items():
            setattr(estimator, name, np.asarray(value) if isinstance(value, list) else value)
        if "feature_names_in_" in about["fitted"]:
            estimator.feature_names_in_ = np.asarray(about["fitted"]["feature_names_in_"], dtype=object)
        estimator.result_, estimator._stream = rebuild(arrays, document), None
        return estimator


class DeepGLMRegressor(RegressorMixin, _DeepGLM):
    """A Bayesian perceptron for numbers, which finds the inputs that matter (paper, Section 8.4).

    Inputs and responses are standardised inside. Every input has a shrinkage parameter of its own.

    Args:
        hidden: Units of the hidden layers.
        response: "normal", or "poisson" for counts.
        optimizer: `ivon`, `adam`, `nadam`, `snngm`, `nagm`, `pga` or `vogn`; "auto" takes `ivon`, of
            `partial_fit` `snngm` where a piece has fewer than 10,000 rows.
        step_size: The largest step size; by default the optimizer's usual one, of `snngm` 0.01.
        schedule: "cosine" comes down to zero over all epochs, "constant" does not. Along a cosine the steps of `ivon`
            rise first, over a fifth of the epochs.
        epochs: Passes over the data.
        batch_size: Rows per step; by default 128, fewer where that would be less than 20 steps an epoch.
        num_samples: Draws of the weights per step.
        annealing: The share of all steps in which rows weigh more than once, ten times at first, so that shrinkage does
            not empty the net before it has learnt anything; None takes 0.7 below 10,000 rows and 0 from there on. Of
            `partial_fit` any share above 0 means 1,000 steps.
        early_stopping: Whether to hold rows out and stop when their log-likelihood no longer rises.
        validation_fraction: The share of rows held out.
        patience: Epochs without a rise after which to stop, counted from the end of the annealing.
        num_draws: Draws of the weights that predictions average over.
        random_state: The same whole number gives the same bits; None another seed every time.
        progress: Whether to show progress.

    Attributes:
        result_: The `natvi.Result`.
        relevance_: How much each input matters, the most relevant first.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 4)); y = X[:, 1] ** 2 + 0.1 * rng.normal(size=300)
        >>> model = DeepGLMRegressor(epochs=50).fit(X, y)
        >>> model.relevance_.index[0], model.score(X, y) > 0.8
        ('x2', True)
    """

    def __init__(
        self,
        hidden=(20, 20),
        *,
        response="normal",
        optimizer="auto",
        step_size=None,
        schedule="cosine",
        epochs=100,
        batch_size=None,
        num_samples=1,
        annealing=None,
        early_stopping=False,
        validation_fraction=0.1,
        patience=10,
        num_draws=200,
        random_state=0,
        progress=False,
    ):
        super().__init__(
            hidden,
            optimizer=optimizer,
            step_size=step_size,
            schedule=schedule,
            epochs=epochs,
            batch_size=batch_size,
            num_samples=num_samples,
            annealing=annealing,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            num_draws=num_draws,
            random_state=random_state,
            progress=progress,
        )
        self.response = response

    def fit(self, X: Any, y: Any) -> "DeepGLMRegressor":
        """Fit to rows `X` `(n, p)`, an array or a data frame, and responses `y`."""
        X, y = self._inputs(X, y, y_numeric=True)
        return self._fit(X, y, self._kind())

    def partial_fit(self, X: Any, y: Any) -> "DeepGLMRegressor":
        """Learn from one more piece of the data; the first piece sets the scales."""
        X, y = self._inputs(X, y, reset=not hasattr(self, "result_"), y_numeric=True)
        return self._learn(X, y, self._kind())

    def _kind(self) -> str:
        if self.response not in ("normal", "poisson"):
            raise ValueError(
                f"response must be 'normal' or 'poisson'; got {self.response!r}. Classes are for DeepGLMClassifier."
            )
        return self.response

    def predict(self, X: Any) -> np.ndarray:
        """Return the expected response of every row."""
        check_is_fitted(self, "result_")
        return self._model.expected(self._inputs(X, reset=False), check_count("num_draws", self.num_draws))

    def predict_interval(self, X: Any, prob: float = 0.95) -> pd.DataFrame:
        """Return mean, sd and a central interval of a new response for every row."""
        check_is_fitted(self, "result_")
        if not 0 < prob < 1:
            raise ValueError(f"prob must lie between 0 and 1, e.g. 0.95; got {prob!r}.")
        return self._model.predict(self._inputs(X, reset=False), "response", "known", prob)


class DeepGLMClassifier(ClassifierMixin, _DeepGLM):
    """A Bayesian perceptron for classes, which finds the inputs that matter (paper, Section 8.4).

    Two classes have a Bernoulli response, more a categorical one. Arguments and attributes are those of
    `DeepGLMRegressor`, `response` left out; `classes_` holds the labels.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 4)); y = np.where(X[:, 0] + X[:, 1] > 0, "above", "below")
        >>> model = DeepGLMClassifier(epochs=100).fit(X, y)
        >>> sorted(model.relevance_.index[:2]), model.score(X, y) > 0.9
        (['x1', 'x2'], True)
    """

    def fit(self, X: Any, y: Any) -> "DeepGLMClassifier":
        """Fit to rows `X` `(n, p)`, an array or a data frame, and labels `y`."""
        check_labels(y)
        X, y = self._inputs(X, y)
        check_classification_targets(y)
        self.classes_, coded = np.unique(y, return_inverse=True)
        return self._fit(X, coded, *self._kind())

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "DeepGLMClassifier":
        """Learn from one more piece of the data; the first call needs all `classes`."""
        first = not hasattr(self, "result_")
        X, y = self._inputs(X, y, reset=first)
        if first:
            if classes is None:
                raise ValueError("The first call of partial_fit needs classes, the labels of all classes.")
            self.classes_ = np.unique(classes)
        return self._learn(X, self._coded(y), *self._kind())

    def _kind(self) -> tuple[str, int]:
        if len(self.classes_) < 2:
            raise ValueError(
                f"A classifier needs at least two classes; the labels hold one class, {self.classes_[0]!r}."
            )
        return ("bernoulli" if len(self.classes_) == 2 else "categorical"), len(self.classes_)

    def _coded(self, y: Any) -> np.ndarray:
        y = np.asarray(y)
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        strange = y[self.classes_[places] != y]
        if len(strange):
            raise ValueError(
                f"The label {strange.tolist()[0]!r} is not among the classes of the fit, {self.classes_.tolist()}."
            )
        return places.astype(np.float64)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the predictive probability of every class, `(n, classes)`."""
        check_is_fitted(self, "result_")
        table = self._model.expected(self._inputs(X, reset=False), check_count("num_draws", self.num_draws))
        table = np.column_stack([1 - table, table]) if table.ndim == 1 else table
        return table / table.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely class of every row."""
        check_is_fitted(self, "result_")
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
