"""Two trials with many visits, yes or no at each: the paper's binary examples. Their files are not in the package."""

import numpy as np
import pandas as pd

from natvi.data.external import data_file

TOENAIL, HERS = "toenail/toenail.csv", "hers/hers.csv"
TOENAIL_SOURCE = (
    "Save the data set toenail of the R package glmmAK as CSV with columns idnr, infect, trt, time, visit, or "
    "write.csv(mice::toenail) with these names."
)
HERS_SOURCE = (
    "Take hersdata of the book Regression Methods in Biostatistics (Vittinghoff and others): women without diabetes, "
    "rows with sbp, bmi, htnmeds, age and visit, and y = 1 where sbp is above 140."
)


def load_toenail() -> pd.DataFrame:
    """Nail infection of 294 patients at up to seven visits (1908 rows).

    `infect` is 1 for moderate or severe separation, `trt` is 1 for terbinafine, `time` is in months.
    The file is not part of the package: see `natvi.data.external.data_folder`.

    Returns:
        Columns `infect`, `trt`, `time`, `visit`, `idnr`.

    Example:
        >>> load_toenail()["idnr"].nunique()  # doctest: +SKIP
        294

    Paper: Section 8.5, formula `infect ~ trt*time + (1 | idnr)`, Bernoulli.
    """
    raw = pd.read_csv(data_file(TOENAIL, TOENAIL_SOURCE))
    return pd.DataFrame(raw, columns=["infect", "trt", "time", "visit", "idnr"])


def load_hers() -> pd.DataFrame:
    """High blood pressure of 2031 women at up to six visits (9172 rows).

    `y` is 1 when the systolic pressure is above 140. `age` and `bmi` are standardised over the rows
    (standard deviation with n - 1), `visit` is (visit - 2.5) / 2.5.
    The file is not part of the package: see `natvi.data.external.data_folder`.

    Returns:
        Columns `y`, `age`, `bmi`, `htnmeds`, `visit`, `pptid`.

    Example:
        >>> load_hers().shape  # doctest: +SKIP
        (9172, 6)

    Paper: Section 8.5, formula `y ~ age + bmi + htnmeds + visit + (1 | pptid)`, Bernoulli.
    """
    raw = pd.read_csv(data_file(HERS, HERS_SOURCE))
    return pd.DataFrame(
        {
            "y": raw["y"],
            "age": _standardise(raw["age"].to_numpy()),
            "bmi": _standardise(raw["bmi"].to_numpy()),
            "htnmeds": raw["htnmeds"],
            "visit": (raw["visit"] - 2.5) / 2.5,
            "pptid": raw["pptid"],
        }
    )


def _standardise(column: np.ndarray) -> np.ndarray:
    return (column - column.mean()) / column.std(ddof=1)
