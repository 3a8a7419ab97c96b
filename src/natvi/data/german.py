"""German credit risks (UCI "Statlog (German Credit Data)", H. Hofmann)."""

import numpy as np
import pandas as pd

from natvi.data.external import data_file
from natvi.data.glm_data import GlmData

FILE = "german_credit/german.data"
SOURCE = (
    'Download "Statlog (German Credit Data)" from the UCI repository (archive.ics.uci.edu), '
    "and put german.data there as it is."
)

# The 20 attributes in the order of the file. For a categorical one, the levels that occur, by code of the file;
# the first is the reference.
ATTRIBUTES: dict[str, dict[str, str] | None] = {
    "checking": {"A11": "negative", "A12": "below_200", "A13": "from_200", "A14": "none"},
    "duration": None,
    "history": {
        "A30": "no_credits",
        "A31": "all_paid_here",
        "A32": "paid_till_now",
        "A33": "past_delay",
        "A34": "critical",
    },
    "purpose": {
        "A40": "new_car",
        "A41": "used_car",
        "A42": "furniture",
        "A43": "television",
        "A44": "appliances",
        "A45": "repairs",
        "A46": "education",
        "A48": "retraining",
        "A49": "business",
        "A410": "other",
    },
    "amount": None,
    "savings": {"A61": "below_100", "A62": "below_500", "A63": "below_1000", "A64": "from_1000", "A65": "unknown"},
    "employment": {"A71": "none", "A72": "below_1", "A73": "below_4", "A74": "below_7", "A75": "from_7"},
    "rate": None,
    "status": {"A91": "man_divorced", "A92": "woman_not_single", "A93": "man_single", "A94": "man_married"},
    "debtors": {"A101": "none", "A102": "co_applicant", "A103": "guarantor"},
    "residence": None,
    "property": {"A121": "real_estate", "A122": "insurance", "A123": "car_or_other", "A124": "unknown"},
    "age": None,
    "instalments": {"A141": "bank", "A142": "stores", "A143": "none"},
    "housing": {"A151": "rent", "A152": "own", "A153": "free"},
    "credits": None,
    "job": {"A171": "none", "A172": "unskilled", "A173": "skilled", "A174": "management"},
    "liable": None,
    "telephone": {"A191": "none", "A192": "yes"},
    "foreign": {"A201": "yes", "A202": "no"},
}


def load_german_frame() -> pd.DataFrame:
    """Credit risks of 1000 people by 20 attributes, with readable levels.

    `y` is 1 for a bad risk (300 people), 0 for a good one. Seven attributes are numbers on their own scale: `duration`
    (months), `amount` (DM), `rate` (instalment in percent of income), `residence` and `age` (years), `credits` (at this
    bank), `liable` (people maintained). The other 13 are categorical, the reference level first.

    The file is not part of the package: see `natvi.data.external.data_folder`.

    Returns:
        Column `y`, then the attributes in the order of the file.

    Raises:
        FileNotFoundError: The file is not there; the message says how to provide it.
    """
    raw = pd.read_csv(data_file(FILE, SOURCE), sep=" ", header=None, names=[*ATTRIBUTES, "class"])
    columns: dict[str, object] = {"y": (raw["class"] == 2).astype(int)}
    for name, levels in ATTRIBUTES.items():
        if levels is None:
            columns[name] = raw[name].astype(float)
            continue
        unknown = set(raw[name]) - set(levels)
        if unknown:
            raise ValueError(f"{FILE} has codes {sorted(unknown)} for {name}; expected {list(levels)}. {SOURCE}")
        columns[name] = pd.Categorical([levels[code] for code in raw[name]], categories=list(levels.values()))
    return pd.DataFrame(columns)


def load_german() -> GlmData:
    """Design matrix of the German credit data: 1000 rows, 49 columns.

    Intercept; then the attributes in the order of the file: a number standardised (standard deviation with n - 1), a
    category with L levels as L - 1 indicators, the first level being the reference. `y` is 1 for a bad risk.

    Returns:
        X, y, and names such as `amount` or `purpose[education]`.

    Raises:
        FileNotFoundError: The file is not there; the message says how to provide it.

    Paper: Section 8.2 and Table 8, logistic regression with d = 49. The paper does not name the reference levels.
    """
    frame = load_german_frame()
    names, columns = ["intercept"], [np.ones(len(frame))]
    for name, levels in ATTRIBUTES.items():
        values = frame[name].to_numpy()
        if levels is None:
            names.append(name)
            columns.append((values - values.mean()) / values.std(ddof=1))
            continue
        for level in list(levels.values())[1:]:
            names.append(f"{name}[{level}]")
            columns.append((values == level).astype(np.float64))
    return GlmData(np.column_stack(columns), frame["y"].to_numpy(dtype=np.float64), tuple(names))
