"""One data set of the study of verdicts: what `method="auto"` gives and says, beside the truth."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import natvi
from experiments.kept import keep
from experiments.memory import Arrays, recall
from experiments.mixed_problems import MixedProblem
from experiments.verdict_data import DESIGNS, Design, problem
from experiments.verdict_truth import SETTINGS, find_truth, moments
from natvi.judge.trust import GOOD
from natvi.models.mixed.check import judge_data
from natvi.models.mixed.marginal.posterior import MarginalFit
from natvi.models.mixed.posterior import MixedFit
from natvi.models.mixed.variance import component_names

ARRAYS = ("errors", "gaussian_errors", "gaussian_spreads", "coordinates", "spreads")
ALLOWED, ALLOWED_SPREAD = 0.2, 0.15  # of a mean, in posterior sds; of an sd, relative to the true one
# what decides method and verdict: other sources are another outcome
JUDGED = (
    *(f"models/mixed/{name}.py" for name in ("auto", "check", "conditional", "door", "posterior", "start", "target")),
    *(
        "judge/*.py",
        "models/mixed/marginal/*.py",
        "metrics/psis.py",
        "metrics/t_mixture.py",
        "target/mixed/marginal.py",
        "derivatives/*.py",
        "quadrature/*.py",
    ),
    *("optimize/ascent.py", "run/exact/loop.py"),
)
# what decides the posterior, and with it the truth
PRIORS = ("models/regression/*.py", "models/mixed/target.py", "target/*prior*.py")


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
        gaussian_spreads: Logarithm of its sds over the true ones.
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
    gaussian_spreads: np.ndarray
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
    def worst_spread(self) -> float:
        """The largest relative error of an sd."""
        return _largest(np.expm1(self.spreads))

    @property
    def off(self) -> bool:
        """Whether a mean or an sd is off by more than is allowed."""
        return self.worst > ALLOWED or self.worst_spread > ALLOWED_SPREAD

    @property
    def gaussian_off(self) -> bool:
        """Whether a mean or an sd of the Gaussian fit is off by more than is allowed."""
        spread = _largest(np.expm1(self.gaussian_spreads))
        return _largest(self.gaussian_errors) > ALLOWED or spread > ALLOWED_SPREAD

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
    posterior = settings | SETTINGS | {"priors": source_digest(PRIORS)}
    truth = recall("verdict-truth", posterior, lambda: find_truth(case, seed))
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
        gaussian_spreads=np.log(found["gaussian_sd"] / sd),
        coordinates=(found["shared_mean"] - truth["shared_mean"]) / truth["shared_sd"],
        spreads=np.log(found["table_sd"] / sd),
        names=tuple(map(str, found["names"])),
        effective=float(truth["effective"]),
        by_nuts=bool(truth["by_nuts"]),
    )


def kept_outcome(design: Design, number: int, seed: int) -> tuple[Outcome, str]:
    """Return what came out for one data set, and a digest of the sources that found it.

    It is kept in the repository, since all data sets take hours: what is kept stands until it is deleted.
    """
    settings = {"design": [str(part) for part in design], "number": number, "seed": seed, "truth": SETTINGS}

    def compute(_: Path) -> dict[str, Any]:
        found = outcome(design, number, seed)._asdict()
        return {"sources": source_digest(), "outcome": {name: _plain(value) for name, value in found.items()}}

    kept = keep("verdicts", f"{DESIGNS.index(design):02d}-{number}", settings, compute)
    fields = {name: _read(name, value) for name, value in kept["outcome"].items()}
    return Outcome(**fields), kept["sources"]


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it: arrays as a line of numbers."""
    return " ".join(map(repr, value.tolist())) if isinstance(value, np.ndarray) else value


def _read(name: str, value: Any) -> Any:
    if name in ARRAYS:
        return np.array(value.split(), dtype=float)
    return tuple(value) if isinstance(value, list) else value


def audit(design: Design, number: int, seed: int) -> float:
    """Return the largest difference of a mean between the truth by importance sampling and NUTS, in posterior sds."""
    case = problem(design, number, seed)
    settings = {"design": [str(part) for part in design], "number": number, "seed": seed} | SETTINGS
    settings |= {"priors": source_digest(PRIORS)}
    weighted = recall("verdict-truth", settings, lambda: find_truth(case, seed))
    chains = recall("verdict-nuts", settings, lambda: find_truth(case, seed, force_nuts=True))
    return float(np.max(np.abs(weighted["table_mean"] - chains["table_mean"]) / chains["table_sd"]))


def judge(case: MixedProblem) -> Arrays:
    """Return means, sds and verdict of `auto`, and those of the Gaussian with which it began."""
    result = case.model.fit(method="auto")
    fit = result.model
    assert isinstance(fit, MixedFit)
    alarms = [reason for part in result.check() if part.level != GOOD for reason in part.reasons]
    known = [reason for part in judge_data(fit) for reason in part.reasons]
    gaussian = _moments(case.gva, case.gva.model)  # type: ignore[arg-type]
    return {
        "method": result.method,
        "trust": result.trust,
        "alarms": "\n".join(alarms),
        "about_data": bool(alarms) and set(alarms) <= set(known),
        "names": [*fit.fixed_names, *component_names(fit)],
        "gaussian_mean": gaussian["table_mean"],
        "gaussian_sd": gaussian["table_sd"],
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


def source_digest(patterns: tuple[str, ...] = (*JUDGED, *PRIORS)) -> str:
    """Return a digest of the sources that decide method and verdict, or of others."""
    root = Path(natvi.__file__).parent
    digest = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
