"""One case: fit it with the defaults, look for what must not be, and compare with a second method."""

import re
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import natvi
from benchmarks.fuzz.cases import Case
from benchmarks.fuzz.law import other_units
from benchmarks.fuzz.mixed_oracle import mixed_moments
from benchmarks.fuzz.oracle import posterior_moments

PACKAGE = Path(natvi.__file__).parent
OUTCOMES = ("right", "refused", "alarmed", "not compared", "crash", "nan", "hang", "silently off")
BAD = ("crash", "nan", "hang", "silently off")
MOST_SHIFT, MOST_CHANGE = 0.2, 0.15  # in posterior sds; of an sd
NOISE = 4.0  # standard errors of the second method
MIXED_NOISE = 0.1  # of draws behind a mixed model's answer


class Verdict(NamedTuple):
    """What came of a case.

    Attributes:
        outcome: One of `OUTCOMES`.
        words: The reason, in words.
        compared: With what the answer was compared.
        trust: The library's own verdict, or empty.
        warned: The first warning that was shown, or empty.
    """

    outcome: str
    words: str = ""
    compared: tuple[str, ...] = ()
    trust: str = ""
    warned: str = ""


def judge(case: Case) -> Verdict:
    """Return the verdict; whatever the library raises is part of it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            verdict = _judge(case)
        except Exception as error:
            verdict = refusal(error)
    own = [f"{w.category.__name__}: {w.message}" for w in caught if "/benchmarks/" not in w.filename]
    return verdict._replace(warned=own[0] if own else "")


def refusal(error: Exception) -> Verdict:
    """Tell a refusal, which is a sentence that the library wrote, from a crash."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = bool(frames) and Path(frames[-1].filename).is_relative_to(PACKAGE)
    if isinstance(error, ValueError) and ours and len(str(error)) > 30:
        return Verdict("refused", str(error))
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
    own = [f for f in frames if Path(f.filename).is_relative_to(PACKAGE)]
    via = f", called from {Path(own[-1].filename).relative_to(PACKAGE)}:{own[-1].lineno}" if own else ""
    return Verdict("crash", f"{type(error).__name__} at {where}{via}: {str(error)[:300]}")


class Fit(NamedTuple):
    """A fitted model with what a user reads first."""

    model: Any
    result: Any
    predictor: pd.DataFrame
    trust: str


def fit_case(case: Case) -> Fit:
    """Fit with the defaults, and predict the rows that were used."""
    door = natvi.glmm if case.mixed else natvi.glm
    model = door(case.formula, case.frame, family=case.family, link=case.link, weights=case.weights)
    result = model.fit()
    return Fit(model, result, result.predict(used_rows(case), kind="link"), result.trust)


def used_rows(case: Case) -> pd.DataFrame:
    """Return the rows of positive weight without missing values in columns of the model, which it has seen."""
    named = {*re.findall(r"\w+", case.formula), case.weights}
    frame = case.frame.dropna(subset=[name for name in case.frame if name in named])
    return frame if case.weights is None else frame[frame[case.weights] > 0]


def _judge(case: Case) -> Verdict:
    fit = fit_case(case)
    if missing := not_a_number(fit, case):
        return Verdict("nan", missing, trust=fit.trust)
    if fit.trust != "good":
        return Verdict("alarmed", _alarm(fit.result), trust=fit.trust)
    compared = []
    for name, compare in (("second method", _against_second_method), ("other units", _against_other_units)):
        found = compare(case, fit)
        if found is None:
            continue
        if found:
            return Verdict("silently off", found, (*compared, name), fit.trust)
        compared.append(name)
    return Verdict("right" if compared else "not compared", "", tuple(compared), fit.trust)


def _alarm(result: Any) -> str:
    return next((reason for reason in result.trust_reasons if reason != "converged"), "")


def not_a_number(fit: Fit, case: Case) -> str:
    """Name what is not a number, or return an empty text."""
    tables = {"summary": fit.result.summary(), "predicted link": fit.predictor}
    if case.mixed:
        tables["random effects"] = fit.result.random_effects().select_dtypes("number")
    for name, table in tables.items():
        bad = ~np.isfinite(table.to_numpy(float))
        if bad.any():
            return f"{name} holds {int(bad.sum())} numbers that are not finite; trust {fit.trust!r}"
    if not np.isfinite(fit.result.elbo):
        return f"the bound is {fit.result.elbo}; trust {fit.trust!r}"
    response = fit.result.predict(used_rows(case))
    if response.isna().to_numpy().any():
        return f"predicted responses hold NaN; trust {fit.trust!r}"
    return "nan in the summary as it is printed" if " nan" in repr(fit.result).lower() else ""


def _against_second_method(case: Case, fit: Fit) -> str | None:
    """Compare coefficients, and sds of random effects, with weighted draws; None where that is not possible."""
    truth = mixed_moments(fit.model, fit.result.model) if case.mixed else posterior_moments(fit.model)
    if truth is None:
        return None
    table = fit.result.summary().iloc[: len(truth.mean)]  # coefficients come first, then sds
    noise = NOISE / np.sqrt(truth.effective) + (MIXED_NOISE if case.mixed else 0.0)
    shift = (table["mean"].to_numpy() - truth.mean) / truth.sd
    change = np.log(table["sd"].to_numpy() / truth.sd)
    return _worst(list(table.index), shift, change, MOST_SHIFT + noise, MOST_CHANGE + noise, "the second method")


def _against_other_units(case: Case, fit: Fit) -> str | None:
    """Fit again with columns and response in other units: no prediction may change."""
    changed = other_units(case)
    if changed is None:
        return None
    again = fit_case(changed.case)
    if again.trust != "good":
        return None
    mean, sd = changed.predictor_back(again.predictor["mean"].to_numpy(), again.predictor["sd"].to_numpy())
    own = fit.predictor
    shift = (mean - own["mean"].to_numpy()) / np.maximum(own["sd"].to_numpy(), 1e-300)
    change = np.log(np.maximum(sd, 1e-300) / np.maximum(own["sd"].to_numpy(), 1e-300))
    noise = MIXED_NOISE if case.mixed else 0.0
    if again.result.method != fit.result.method:  # tables at another zero: a Gaussian that is good is within a tenth
        noise += 0.1
    names = [f"row {k}" for k in range(len(own))]
    return _worst(names, shift, change, 0.05 + noise, 0.05 + noise, f"the fit with {changed.words}")


def _worst(
    names: list[Any], shift: np.ndarray, change: np.ndarray, most_shift: float, most_change: float, other: str
) -> str:
    """Return words for the largest disagreement beyond what is allowed, or an empty text."""
    at = int(np.argmax(np.where(np.isfinite(shift), np.abs(shift), np.inf)))
    if not abs(shift[at]) <= most_shift:
        return f"{names[at]}: mean off by {shift[at]:+.3g} posterior sds from {other}"
    at = int(np.argmax(np.abs(change)))
    if not abs(change[at]) <= most_change:
        return f"{names[at]}: sd {np.exp(change[at]):.3g} times that of {other}"
    return ""
