"""One data set of the study of verdicts: what `method="auto"` gives and says, beside the truth."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import natvi
from experiments.memory import Arrays, recall
from experiments.mixed_problems import MixedProblem
from experiments.verdict_data import Design, problem
from experiments.verdict_truth import SETTINGS, find_truth, moments
from natvi.models.mixed.check import judge_data, look_at_marginal
from natvi.models.mixed.marginal.posterior import MarginalFit
from natvi.models.mixed.posterior import MixedFit
from natvi.models.mixed.variance import component_names
from natvi.result.trust import GOOD

ALLOWED = 0.2  # posterior sds
# what decides method and verdict: other sources are another outcome
JUDGED = (
    *(f"models/mixed/{name}.py" for name in ("auto", "check", "conditional", "door", "posterior", "start", "target")),
    *("models/mixed/marginal/*.py", "metrics/psis.py", "target/marginal.py", "derivatives/*.py", "quadrature/*.py"),
    *("optimize/ascent.py", "run/loop.py"),
)


class Outcome(NamedTuple):
    """What came out for one data set.

    Attributes:
        name: Of the data set.
        family: Of the responses.
        slopes: Whether there are random slopes.
        method: With which `auto` ended.
        trust: Its verdict.
        reasons: Those that are not good, one a line.
        about_data: Whether all of these are about the data: what the prior decides, whatever the method.
        errors: Means minus true means of fixed effects and variance components, in true posterior sds.
        gaussian_errors: The same of the Gaussian fit with which `auto` began.
        coordinates: The same of the shared coordinates, where sds stand as logarithms.
        spreads: Logarithm of sd over true sd, of fixed effects and variance components.
        names: Of the entries of `errors`.
        effective: What the draws behind the truth are worth.
        by_nuts: Whether NUTS had to find the truth.
    """

    name: str
    family: str
    slopes: bool
    method: str
    trust: str
    reasons: tuple[str, ...]
    about_data: bool
    errors: np.ndarray
    gaussian_errors: np.ndarray
    coordinates: np.ndarray
    spreads: np.ndarray
    names: tuple[str, ...]
    effective: float
    by_nuts: bool

    @property
    def trusted(self) -> bool:
        """Whether the verdict is good."""
        return self.trust == GOOD

    @property
    def worst(self) -> float:
        """The largest error of a mean, in posterior sds; a mean that is not a number is as wrong as can be."""
        return _largest(self.errors)

    @property
    def off(self) -> bool:
        """Whether a mean is off by more than is allowed."""
        return self.worst > ALLOWED

    @property
    def gaussian_off(self) -> bool:
        """Whether a mean of the Gaussian fit is off by more than is allowed."""
        return _largest(self.gaussian_errors) > ALLOWED

    @property
    def worst_name(self) -> str:
        """The parameter with the largest error."""
        return self.names[int(np.argmax(np.abs(self.errors)))]


def _largest(errors: np.ndarray) -> float:
    return float(np.max(np.where(np.isfinite(errors), np.abs(errors), np.inf)))


def outcome(design: Design, number: int, seed: int) -> Outcome:
    """Fit one data set with `auto` and compare with the truth; both are kept by `experiments.memory`."""
    case = problem(design, number, seed)
    settings = {"design": [str(part) for part in design], "number": number, "seed": seed}
    truth = recall("verdict-truth", settings | SETTINGS, lambda: find_truth(case, seed))
    found = recall("verdict-auto", settings | {"sources": source_digest()}, lambda: judge(case))
    sd = truth["table_sd"]
    return Outcome(
        name=case.name,
        family=design.family,
        slopes=design.slopes,
        method=str(found["method"]),
        trust=str(found["trust"]),
        reasons=tuple(filter(None, str(found["alarms"]).split("\n"))),
        about_data=bool(found["about_data"]),
        errors=(found["table_mean"] - truth["table_mean"]) / sd,
        gaussian_errors=(found["gaussian_mean"] - truth["table_mean"]) / sd,
        coordinates=(found["shared_mean"] - truth["shared_mean"]) / truth["shared_sd"],
        spreads=np.log(found["table_sd"] / sd),
        names=tuple(map(str, found["names"])),
        effective=float(truth["effective"]),
        by_nuts=bool(truth["by_nuts"]),
    )


def audit(design: Design, number: int, seed: int) -> float:
    """Return the largest difference of a mean between the truth by importance sampling and NUTS, in posterior sds."""
    case = problem(design, number, seed)
    settings = {"design": [str(part) for part in design], "number": number, "seed": seed} | SETTINGS
    weighted = recall("verdict-truth", settings, lambda: find_truth(case, seed))
    chains = recall("verdict-nuts", settings, lambda: find_truth(case, seed, force_nuts=True))
    return float(np.max(np.abs(weighted["table_mean"] - chains["table_mean"]) / chains["table_sd"]))


def judge(case: MixedProblem) -> Arrays:
    """Return means, sds and verdict of `auto`, and what its check of the Gaussian saw."""
    result = case.model.fit(method="auto")
    fit = result.model
    assert isinstance(fit, MixedFit)
    alarms = [reason for part in result.check() if part.level != GOOD for reason in part.reasons]
    known = [reason for part in judge_data(case.built.target, fit) for reason in part.reasons]
    seen = look_at_marginal(case.built.target, case.posterior, case.gva.model)  # type: ignore[arg-type]
    looked = {} if seen is None else {f"look_{name}": value for name, value in seen._asdict().items()}
    return {
        "method": result.method,
        "trust": result.trust,
        "alarms": "\n".join(alarms),
        "about_data": bool(alarms) and set(alarms) <= set(known),
        "names": [*fit.fixed_names, *component_names(fit)],
        "gaussian_mean": _moments(case.gva, case.gva.model)["table_mean"],  # type: ignore[arg-type]
        **looked,
        **_moments(result, fit),
    }


def _moments(result: natvi.Result, fit: MixedFit) -> dict[str, Any]:
    """Return means and sds as the tables show them, and those of the shared coordinates."""
    if isinstance(fit, MarginalFit):
        return moments(fit, fit.shared, fit.weights)
    mean, covariance = fit.shared_moments()
    tables = list(fit.tables(0.95).values())
    shown = {f"table_{part}": np.concatenate([table[part].to_numpy() for table in tables]) for part in ("mean", "sd")}
    return {"shared_mean": mean, "shared_sd": np.sqrt(np.diag(covariance)), **shown}


def source_digest() -> str:
    """Return a digest of the sources that decide method and verdict."""
    root = Path(natvi.__file__).parent
    digest = hashlib.sha256()
    for pattern in JUDGED:
        for path in sorted(root.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
