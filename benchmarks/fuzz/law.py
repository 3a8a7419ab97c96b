"""The same data in other units: predictions must not know the difference."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.fuzz.cases import Case

SCALES = {"x": 1000.0, "z": 0.02}
SHIFTS = {"x": 40.0, "z": -7.0}  # in sds of the column
RESPONSE = 250.0


class Changed(NamedTuple):
    """A case in other units, what was done to it, and how its predictors are brought back."""

    case: Case
    words: str
    factor: float
    constant: float

    def predictor_back(self, mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd of the linear predictor in the units of the first case."""
        return (mean - self.constant) / self.factor, sd / self.factor


def other_units(case: Case) -> Changed | None:
    """Rescale and shift the numeric columns and the response, each where the model allows it."""
    frame, words = case.frame.copy(), []
    for name in case.numeric:
        values = frame[name].to_numpy(float)
        finite = values[np.isfinite(values)]
        spread = float(np.std(finite)) if len(finite) else 0.0
        if not spread > 1e-7 * float(np.max(np.abs(finite), initial=0.0)):
            continue  # its coefficient is the prior's alone
        shift = SHIFTS[name] * spread if case.shift else 0.0
        frame[name] = SCALES[name] * (values + shift)
        words.append(f"{name} times {SCALES[name]:g}{f', shifted by {SHIFTS[name]:g} sds' if shift else ''}")
    factor = constant = None
    if case.family in ("gaussian", "gamma") and _may_be_scaled(case, frame):
        frame["y"] = RESPONSE * frame["y"]
        words.append(f"y times {RESPONSE:g}")
        factor, constant = (RESPONSE, 0.0) if case.family == "gaussian" else (1.0, float(np.log(RESPONSE)))
    if not words:
        return None
    return Changed(case._replace(frame=frame), "; ".join(words), factor or 1.0, constant or 0.0)


def _may_be_scaled(case: Case, frame: pd.DataFrame) -> bool:
    """Whether the units of the response are free: an offset is on the predictor's scale, a log needs an intercept."""
    if case.family == "gaussian":
        return "off" not in frame
    return case.shift
