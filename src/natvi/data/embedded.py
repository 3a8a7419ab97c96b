"""Small data sets that travel inside the package.

Files hold the data as published; the transformations of the paper happen here, in sight.
Origin, columns and licence of each file are in the `README.md` beside this module.
"""

from importlib import resources
from typing import Any

import numpy as np
import pandas as pd


def load_epilepsy() -> pd.DataFrame:
    """Seizure counts of 59 epileptics at four clinic visits (236 rows).

    `base` is log(baseline count / 4), `age` is log(age) minus its mean over the rows, `trt` is 1
    for progabide and `visit` runs through -0.3, -0.1, 0.1, 0.3.

    Returns:
        Columns `y`, `base`, `trt`, `age`, `visit`, `subject`.

    Example:
        >>> load_epilepsy().shape
        (236, 6)

    Paper: Section 8.5, formula `y ~ base*trt + age + visit + (1 | subject)`, Poisson.
    """
    raw = _read("epilepsy.csv")
    log_age = np.log(raw["age"])
    return pd.DataFrame(
        {
            "y": raw["y"],
            "base": np.log(raw["base"] / 4),
            "trt": (raw["trt"] == "progabide").astype(int),
            "age": log_age - log_age.mean(),
            "visit": (2 * raw["period"] - 5) / 10,
            "subject": raw["subject"],
        }
    )


def load_sleepstudy() -> pd.DataFrame:
    """Reaction times (ms) of 18 people over ten days of short sleep (180 rows).

    Returns:
        Columns `Reaction`, `Days`, `Subject` (labels such as "308").

    Example:
        >>> load_sleepstudy()["Subject"].iloc[0]
        '308'
    """
    return _read("sleepstudy.csv", dtype={"Subject": str})


def load_crabs() -> pd.DataFrame:
    """Satellites of 173 female horseshoe crabs.

    Returns:
        Columns `crab`, `sat` (count), `y` (1 if any), `weight` (kg), `width` (cm), `color` (1-4),
        `spine` (1-3).

    Example:
        >>> int(load_crabs()["sat"].sum())
        505

    Paper: Section 4.1 and Table 2 (intercept-only Poisson model of `sat`).
    """
    return _read("crabs.csv")


def load_contraception() -> pd.DataFrame:
    """Use of contraception by 1934 women in 60 districts of Bangladesh.

    Returns:
        Columns `woman`, `district`, `use` ("N", "Y"), `livch` ("0", "1", "2", "3+"), `age` (centred),
        `urban` ("N", "Y").

    Example:
        >>> load_contraception()["district"].nunique()
        60
    """
    return _read("contraception.csv.gz")


def _read(name: str, **options: Any) -> pd.DataFrame:
    compression = "gzip" if name.endswith(".gz") else None
    with (resources.files("natvi.data") / "files" / name).open("rb") as file:
        return pd.read_csv(file, compression=compression, **options)
