"""What every fit says about itself, whatever was fitted."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from natvi.judge.predictive import DOUBTFUL, GOOD, UNCHECKED, ModelCheck
from natvi.result.model import FittedModel, HoldsRows
from natvi.result.trust import Trust, combine
from natvi.run import Outcome

DESCRIBED = (Outcome.CONVERGED, Outcome.MAX_STEPS, Outcome.STOPPED_EARLY, Outcome.INTERRUPTED, Outcome.STALLED)


@dataclass(frozen=True, repr=False, eq=False)
class Core:
    """How a fit was made, how it ended, and how far it can be trusted. `Result` tells what the fields are."""

    model: FittedModel
    method: str
    structure: str
    outcome: Outcome
    elbo: float
    elbo_se: float
    seconds: dict[str, float]
    trace: np.ndarray
    state: Any = None
    check: Callable[[], tuple[Trust, ...]] = field(default=tuple)
    steps: int | None = None
    optimizer: str | None = None

    @cached_property
    def _trust(self) -> Trust:
        return combine(self.outcome, self.check())

    @cached_property
    def _model_check(self) -> ModelCheck:
        unknown = ModelCheck(UNCHECKED, ("the fit does not hold its training data",))
        if not isinstance(self.model, HoldsRows) or self.outcome not in DESCRIBED:
            return unknown
        return self.model.check_model() or unknown

    @cached_property
    def _prior_check(self) -> ModelCheck:
        unknown = ModelCheck(UNCHECKED, ("the prior of this fit is not at hand",))
        if not isinstance(self.model, HoldsRows) or self.outcome not in DESCRIBED:
            return unknown
        reasons = self.model.check_prior()
        if reasons is None:
            return unknown
        return ModelCheck(DOUBTFUL, reasons) if reasons else ModelCheck(GOOD, ("the data outweigh the prior",))

    @property
    def predicts(self) -> bool:
        """Whether the model generates responses that data can be held against."""
        return isinstance(self.model, HoldsRows)

    @property
    def trust(self) -> str:
        """How well the posterior is approximated: "good", "use with care" or "do not use"."""
        return self._trust.level

    @property
    def trust_reasons(self) -> tuple[str, ...]:
        """The reasons for the verdict, the weightiest first."""
        return self._trust.reasons

    @property
    def model_check(self) -> str:
        """How well the model describes the data: "good", "doubtful" or "not checked".

        Mean, sd, zeros, extremes and dispersion of the responses are held against those of responses that the fitted
        model generates. A model can be doubtful though its posterior is approximated well, and the reverse.
        """
        return self._model_check.level

    @property
    def prior_check(self) -> str:
        """Whether the prior leaves the word to the data: "good", "doubtful" or "not checked".

        It is doubtful where prior and data contradict each other, where the prior pulls a parameter by more than half a
        posterior sd, and where the data add little to what the prior says.
        """
        return self._prior_check.level

    @property
    def prior_check_reasons(self) -> tuple[str, ...]:
        """In which ways the prior decides, with parameter, size and cure."""
        return self._prior_check.reasons

    @property
    def model_check_reasons(self) -> tuple[str, ...]:
        """What of the data the model does not describe, and what to try."""
        return self._model_check.reasons

    def diagnostics(self) -> pd.DataFrame:
        """Return the numbers behind the verdicts and about the fit, one a line: what the summary leaves out.

        Example:
            >>> import natvi
            >>> result = natvi.glm("y ~ width", natvi.data.load_crabs(), family="bernoulli").fit()
            >>> bool(result.diagnostics().loc["Pareto k of the check", "value"] < 0.7)
            True
        """
        about = {
            "ELBO": self.elbo,
            "standard error of the ELBO": self.elbo_se,
            "steps": float(self.steps or len(self.trace)),
            **{f"seconds, {part}": value for part, value in self.seconds.items()},
        }
        numbers = {**about, **dict(self._trust.numbers), **dict(self._model_check.numbers)}
        return pd.DataFrame({"value": pd.Series(numbers, dtype=float)})
