"""`Result`: one contract for every fit."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from natvi.judge.predictive import ModelCheck
from natvi.result import registry
from natvi.result.model import (
    AnswersQuestions,
    FittedModel,
    HasConstraints,
    HasRandomEffects,
    Predicts,
    ask,
)
from natvi.result.old_words import words_of_today
from natvi.result.page import build_page
from natvi.result.questions import Questions, check_probability
from natvi.result.text import html_page, text_summary
from natvi.result.trust import Trust
from natvi.run import Outcome, storage
from natvi.run.settings import check_count, check_seed
from natvi.show import arviz_export, glm_plots, plots
from natvi.show.report import write_page

KIND = "fit"
PREDICTIVE_DRAWS = 4000


@dataclass(frozen=True, repr=False, eq=False)
class Result(Questions):
    """The outcome of a fit, ready to be read, sampled, plotted, saved and continued.

    Attributes:
        model: The fitted model behind the tables and predictions.
        method: How the posterior was approximated.
        structure: The shape of the Gaussian.
        outcome: How the optimisation ended.
        elbo: The evidence lower bound on the user's scale, constants included.
        elbo_se: Its Monte Carlo error; 0 when exact.
        seconds: Time by `compile`, `run` and `total`.
        trace: The bound after every iteration.
        state: The optimizer's state; `fit(state=result.state)` goes on from it bit for bit.
        steps: The number of steps, where the trace does not hold every one of them.
        optimizer: The rule that made the steps: "ascent" for exact ones, "snngm" and others for noisy ones.
    """

    def tables(self, prob: float = 0.95) -> dict[str, pd.DataFrame]:
        """Return mean, sd and interval of the parameters in tables by role, "coefficients" for example."""
        return self.model.tables(check_probability(prob))

    def summary(self, prob: float = 0.95) -> pd.DataFrame:
        """Return mean, sd and a central interval of every parameter but the random effects."""
        return pd.concat(self.tables(prob).values())

    def fixed_effects(self, prob: float = 0.95) -> pd.DataFrame:
        """Return the fixed effects as a tidy frame; in a model without random effects, the coefficients."""
        tables = self.tables(prob)
        if "coefficients" not in tables:
            raise ValueError(
                f"A {type(self.model).__name__} has no coefficients; what it has is in summary(). Fits of natvi.glm "
                "and natvi.glmm have them."
            )
        return tables["coefficients"]

    def variance_components(self, prob: float = 0.95) -> pd.DataFrame:
        """Return sds and correlations of the random effects, and the residual sd where there is one."""
        tables = self.tables(prob)
        if "variance_components" not in tables:
            raise ValueError(
                "This model has no random effects; a dispersion parameter, if it has one, is in summary(). Fits of "
                "natvi.glmm have variance components."
            )
        return tables["variance_components"]

    def random_effects(self, prob: float = 0.95) -> pd.DataFrame:
        """Return the random effects of every group as a tidy frame."""
        return ask(self.model, HasRandomEffects).random_effects(check_probability(prob))

    def constraints(self) -> dict[str, str]:
        """Return the constraint of every parameter of a log-density, "real" where there is none."""
        return ask(self.model, HasConstraints).constraints()

    def sample(self, num_samples: int = 1000, seed: int = 0, random_effects: bool = True) -> dict[str, np.ndarray]:
        """Draw from the approximate posterior.

        Args:
            num_samples: The number of draws.
            seed: The same seed gives the same draws.
            random_effects: Whether to draw the random effects too.

        Returns:
            Arrays by name with leading axis `num_samples`.
        """
        return self.model.sample(check_count("num_samples", num_samples), check_seed(seed), random_effects)

    def predict(
        self,
        new_data: Any = None,
        *,
        kind: str = "response",
        groups: str = "known",
        prob: float = 0.95,
        draws: int | None = None,
        seed: int = 0,
    ) -> Any:
        """Predict the expected response, or a new response, for new rows.

        Args:
            new_data: A data frame with the columns of the formula; for a model from arrays an array `(n, p)`, or
                {"X": X, "offset": offset}. By default the training rows.
            kind: "response" for the expected response, "link" for the linear predictor, "predictive" for a response
                that would be observed: its interval holds new observations, not only their mean; "probabilities" of
                ordered categories, a column each; "zero" or "sigma", "phi", "shape" where that has its own formula.
            groups: "known" uses each group's own effects and averages over new effects for groups never seen;
                "new" treats every row as from a new group; "population" sets the random effects to zero.
            prob: The probability of the central interval.
            draws: Ask for this many draws in place of a summary.
            seed: For draws: the same seed gives the same ones.

        Returns:
            A frame with mean, sd and interval, one row per row of `new_data`; with `draws` an array `(draws, rows)`.

        Example:
            >>> import natvi
            >>> crabs = natvi.data.load_crabs()
            >>> fit = natvi.glm("sat ~ width", crabs, family="poisson").fit()
            >>> fit.predict(crabs.head(2), kind="predictive", prob=0.9).columns.tolist()
            ['mean', 'sd', 'q5', 'q95']
            >>> fit.predict(crabs.head(2), draws=50).shape
            (50, 2)
        """
        prob = check_probability(prob)
        if draws is not None:
            num_draws, seed = check_count("draws", draws), check_seed(seed)
            return ask(self.model, AnswersQuestions).row_draws(new_data, kind, groups, num_draws, seed)
        if kind == "predictive":
            model = ask(self.model, AnswersQuestions)
            return model.predictive_table(new_data, groups, prob, PREDICTIVE_DRAWS, check_seed(seed))
        return ask(self.model, Predicts).predict(new_data, kind, groups, prob)

    def to_arviz(
        self, num_samples: int = 1000, seed: int = 0, log_likelihood: bool = False, kind: str = "datatree"
    ) -> Any:
        """Return draws for ArviZ, with the log-likelihood of every row where asked for.

        Args:
            num_samples: The number of draws.
            seed: The same seed gives the same draws.
            log_likelihood: Whether to add the log-likelihood of every row, for `loo` and the like.
            kind: "datatree", for ArviZ from 1.0 on; "inferencedata" for the package arviz up to 0.23.
        """
        if kind not in ("datatree", "inferencedata"):
            raise ValueError(f"kind must be 'datatree' or 'inferencedata', not {kind!r}.")
        coords, dims = self.model.dimensions()
        draws = self.sample(num_samples, seed)
        rows = {"y": self.log_likelihood(num_samples, seed)} if log_likelihood else None
        export = arviz_export.to_datatree if kind == "datatree" else arviz_export.to_inferencedata
        return export(draws, coords, dims, rows)

    def plot_trace(self, ax: Any = None) -> Any:
        """Plot the bound against the iterations."""
        return plots.trace(self.trace, ax)

    def plot_fixed_effects(self, prob: float = 0.95, ax: Any = None) -> Any:
        """Plot the fixed effects, or coefficients, with their intervals."""
        title = "fixed effects" if "variance_components" in self.tables(prob) else "coefficients"
        return plots.intervals(self.fixed_effects(prob), ax, title)

    def plot_random_effects(self, prob: float = 0.95, ax: Any = None) -> Any:
        """Plot the random effects, ordered, with their intervals (a caterpillar plot)."""
        return plots.caterpillar(self.random_effects(prob), ax)

    def plot_posterior(self, names: Any = None, prob: float = 0.95, columns: int = 4) -> Any:
        """Plot the density of each parameter with its interval; by default of the first dozen, four side by side."""
        draws = self.sample(4000, seed=0, random_effects=False)
        return glm_plots.posteriors(self.summary(prob), draws, names, self._bounds(), columns)

    def _bounds(self) -> dict[str, tuple[float, float]]:
        """Return between which numbers parameters lie that cannot be any number, by name."""
        tables = self.tables()
        roles = [tables[role] for role in ("variance_components", "dispersion") if role in tables]
        positive = [str(name) for table in roles for name in table.index]
        bounds = {name: (-1.0, 1.0) if name.startswith("corr(") else (0.0, np.inf) for name in positive}
        kinds = self.model.constraints() if isinstance(self.model, HasConstraints) else {}
        return bounds | {name: (0.0, np.inf) for name, kind in kinds.items() if kind == "positive"}

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page about the fit and return its path.

        Verdicts first, then the model in words and mathematics, its prior, the estimates, checks against the data and
        what moves the answer. Nothing is fetched when it is opened.
        """
        return write_page(Path(path), *build_page(self))

    def save(self, path: str | Path) -> Path:
        """Save the fit; `natvi.load(path)` brings it back without running any code."""
        storage.write(path, KIND, *self.contents())
        return Path(path)

    def contents(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which `restore` makes the result again, once its model is there."""
        arrays, document = self.model.store()
        document |= {
            "method": self.method,
            "optimizer": self.optimizer,
            "structure": self.structure,
            "outcome": str(self.outcome),
            "trust": self.trust,
            "trust_reasons": list(self.trust_reasons),
            "trust_numbers": _plain(self._trust.numbers),
            "model_check": self.model_check,
            "model_check_reasons": list(self.model_check_reasons),
            "model_check_numbers": _plain(self._model_check.numbers),
            "elbo": self.elbo,
            "elbo_se": self.elbo_se,
            "seconds": self.seconds,
            "steps": self.steps,
        }
        return {**arrays, "trace": self.trace}, document

    @classmethod
    def restore(cls, model: FittedModel, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> "Result":
        """Rebuild a saved result around its model."""
        outcome = Outcome(document["outcome"])
        method, optimizer, structure = words_of_today(document["method"], document["structure"])
        verdict = Trust(document["trust"], tuple(document["trust_reasons"]), _numbers(document, "trust_numbers"))
        result = cls(
            model=model,
            method=method,
            structure=structure,
            optimizer=document.get("optimizer", optimizer),
            outcome=outcome,
            elbo=float(document["elbo"]),
            elbo_se=float(document["elbo_se"]),
            seconds=dict(document["seconds"]),
            trace=arrays["trace"],
            steps=document.get("steps"),
        )
        result.__dict__["_trust"] = verdict
        if "model_check" in document:  # earlier files have none
            result.__dict__["_model_check"] = ModelCheck(
                document["model_check"],
                tuple(document["model_check_reasons"]),
                _numbers(document, "model_check_numbers"),
            )
        return result

    def __reduce__(self) -> tuple[Callable[..., "Result"], tuple[Any, ...]]:
        """Travel between processes with what `save` keeps; the module that restores the model travels by its name."""
        arrays, document = self.contents()
        if document["model"] not in registry.MODULES:
            raise TypeError(
                f"a fit of {type(self.model).__name__} cannot be pickled, since functions of yours belong to it. Save "
                "it with fit.save(path) and load it with the model it came from."
            )
        return _unpickle, (registry.MODULES[document["model"]], arrays, document)

    def __repr__(self) -> str:
        """Return the summary a statistician reads."""
        return text_summary(self)

    def _repr_html_(self) -> str:
        return html_page(self)


def _plain(numbers: tuple[tuple[str, float], ...]) -> list[list[Any]]:
    """Return numbers as a file holds them: null in place of what is not finite."""
    return [[label, float(value) if np.isfinite(value) else None] for label, value in numbers]


def _numbers(document: dict[str, Any], name: str) -> tuple[tuple[str, float], ...]:
    return tuple((str(label), float("nan" if value is None else value)) for label, value in document.get(name, ()))


def _unpickle(module: str, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> Result:
    return Result.restore(import_module(module).restore(arrays, document), arrays, document)
