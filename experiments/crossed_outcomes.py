"""One crossed data set of the study of verdicts: what `method="auto"` gives and says, beside the truth."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import natvi
from experiments.crossed_data import DESIGNS, CrossedDesign, simulate
from experiments.crossed_truth import SETTINGS, find_truth
from experiments.kept import keep
from experiments.memory import Arrays, recall
from experiments.verdict_outcomes import ALLOWED, ALLOWED_SPREAD, PRIORS, source_digest
from natvi.judge.trust import GOOD
from natvi.models.mixed.crossed.door import CrossedModel

FOLDER = "crossed-verdicts"
# what decides method and verdict
JUDGED = (
    *("models/mixed/crossed/*.py", "models/mixed/crossed/integrated/*.py", "target/mixed/crossed*.py"),
    "target/mixed/largest_out.py",
    *("judge/thresholds.py", "quadrature/*.py", "optimize/ascent.py", "models/mixed/marginal/*.py", *PRIORS),
)


class CrossedOutcome(NamedTuple):
    """What came out for one data set.

    Attributes:
        name: Of the data set.
        family: Of the responses.
        kind: Crossed, nested, or crossed with slopes.
        method: With which `auto` ended.
        trust: Its verdict.
        reasons: Those that are not good.
        numbers: What the judge measured, by name.
        shifts: Means minus true means of coefficients and variance components, in true posterior sds.
        ratios: Sds over true ones.
        gaussian_shifts: The first of the Gaussian with which `auto` began.
        gaussian_ratios: The second of it.
        names: Of the entries of all four.
        effective: What the draws behind the truth are worth.
        rhat: The largest R-hat of the chains.
        divergent: Their divergent transitions.
    """

    name: str
    family: str
    kind: str
    method: str
    trust: str
    reasons: list[str]
    numbers: dict[str, float]
    shifts: list[float]
    ratios: list[float]
    gaussian_shifts: list[float]
    gaussian_ratios: list[float]
    names: list[str]
    effective: float
    rhat: float
    divergent: int

    @property
    def trusted(self) -> bool:
        """Whether the verdict is good."""
        return self.trust == GOOD

    @property
    def worst(self) -> float:
        """The largest error of a mean, in posterior sds."""
        return float(np.max(np.abs(self.shifts)))

    @property
    def worst_spread(self) -> float:
        """The largest relative error of an sd."""
        return float(np.max(np.abs(np.array(self.ratios) - 1.0)))

    @property
    def off(self) -> bool:
        """Whether a mean or an sd is off by more than is allowed; what is not a number is off."""
        return not (self.worst <= ALLOWED and self.worst_spread <= ALLOWED_SPREAD)

    @property
    def gaussian_off(self) -> bool:
        """The same of the Gaussian with which `auto` began."""
        spread = np.max(np.abs(np.array(self.gaussian_ratios) - 1.0))
        return not (np.max(np.abs(self.gaussian_shifts)) <= ALLOWED and spread <= ALLOWED_SPREAD)

    @property
    def worst_name(self) -> str:
        """The parameter with the largest error of its mean."""
        return self.names[int(np.argmax(np.abs(self.shifts)))]


def kept_outcome(design: CrossedDesign, number: int, seed: int) -> tuple[CrossedOutcome, str]:
    """Return what came out for one data set, kept in the repository, and a digest of the sources that found it."""
    settings = {"design": list(map(str, design)), "number": number, "seed": seed, "truth": SETTINGS}

    def compute(_: Path) -> dict[str, Any]:
        found = outcome(design, number, seed)
        return {"sources": source_digest(JUDGED), "outcome": found._asdict()}

    kept = keep(FOLDER, f"{seed}-{DESIGNS.index(design):02d}-{number}", settings, compute)
    return CrossedOutcome(**kept["outcome"]), kept["sources"]


def outcome(design: CrossedDesign, number: int, seed: int) -> CrossedOutcome:
    """Fit one data set with `auto` and compare with the truth, which is kept by `experiments.memory`."""
    frame = simulate(design, number, seed)
    model = natvi.glmm(design.formula, frame, family=design.family)
    assert isinstance(model, CrossedModel)
    settings = {"design": list(map(str, design)), "number": number, "seed": seed} | SETTINGS
    truth = recall("crossed-truth", settings | {"priors": source_digest(PRIORS)}, lambda: find_truth(model, seed))
    found = judge(model)
    mean, sd = truth["table_mean"], truth["table_sd"]
    return CrossedOutcome(
        name=f"{design.name}, number {number}",
        family=design.family,
        kind=design.kind,
        method=found["method"],
        trust=found["trust"],
        reasons=found["reasons"],
        numbers=found["numbers"],
        shifts=_short((found["mean"] - mean) / sd),
        ratios=_short(found["sd"] / sd),
        gaussian_shifts=_short((found["gaussian_mean"] - mean) / sd),
        gaussian_ratios=_short(found["gaussian_sd"] / sd),
        names=found["names"],
        effective=round(float(truth["effective"]), 1),
        rhat=round(float(truth["rhat"]), 4),
        divergent=int(truth["divergent"]),
    )


def judge(model: CrossedModel) -> Arrays:
    """Return means, sds and verdict of `auto`, and those of the Gaussian with which it began."""
    result, gaussian = model.fit(), model.fit(method="gva")
    table, first, concerns = result.summary(), gaussian.summary(), result.check()
    return {
        "method": result.method,
        "trust": result.trust,
        "reasons": [reason for part in concerns if part.level != GOOD for reason in part.reasons],
        "numbers": {name: round(float(value), 5) for part in concerns for name, value in part.numbers},
        "names": list(map(str, table.index)),
        "mean": table["mean"].to_numpy(),
        "sd": table["sd"].to_numpy(),
        "gaussian_mean": first["mean"].to_numpy(),
        "gaussian_sd": first["sd"].to_numpy(),
    }


def audit(design: CrossedDesign, number: int, seed: int) -> float:
    """Return the largest difference of a mean between the truth and chains in plain non-centred coordinates, in sds."""
    model = natvi.glmm(design.formula, simulate(design, number, seed), family=design.family)
    assert isinstance(model, CrossedModel)
    settings = {"design": list(map(str, design)), "number": number, "seed": seed} | SETTINGS
    settings |= {"priors": source_digest(PRIORS)}
    truth = recall("crossed-truth", settings, lambda: find_truth(model, seed))
    plain = recall("crossed-plain", settings, lambda: find_truth(model, seed, plain=True))
    return float(np.max(np.abs(plain["table_mean"] - truth["table_mean"]) / truth["table_sd"]))


def _short(values: np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in values]
