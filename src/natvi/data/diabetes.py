"""Hospital readmissions of diabetic patients (UCI "Diabetes 130-US hospitals").

Preprocessing after Strack et al. (2014), *BioMed Research International*, article 781670.
"""

import numpy as np
import pandas as pd

from natvi.data.external import data_file

FILE = "diabetes130/diabetic_data.csv.gz"
SOURCE = (
    'Download "Diabetes 130-US Hospitals for Years 1999-2008" from the UCI repository '
    "(archive.ics.uci.edu), and put diabetic_data.csv there, packed with gzip."
)

# Discharged to a hospice, or died.
EXCLUDED_DISPOSITIONS = (11, 13, 14, 19, 20, 21)

# Diagnosis group, first and last ICD-9 category (whole numbers, inclusive).
ICD9_GROUPS: tuple[tuple[str, int, int], ...] = (
    ("circulatory", 390, 459),
    ("circulatory", 785, 785),
    ("respiratory", 460, 519),
    ("respiratory", 786, 786),
    ("digestive", 520, 579),
    ("digestive", 787, 787),
    ("diabetes", 250, 250),
    ("injury", 800, 999),
    ("musculoskeletal", 710, 739),
    ("genitourinary", 580, 629),
    ("genitourinary", 788, 788),
    ("neoplasms", 140, 239),
)


def load_diabetes() -> pd.DataFrame:
    """Hospital encounters of 16,341 diabetic patients with at least two encounters each (45,694 rows).

    `y` is 1 when the patient came back within 30 days. `hba1c` is `absent` (not measured), `below_8`
    (normal, or above 7 only), `over_8_changed` or `over_8_unchanged` (by whether the medication was
    changed). `diagnosis` is the group of the primary diagnosis, one of nine. In alphabetical order
    `absent` and `circulatory`, the largest groups, come first and serve as references.

    The file is large and not part of the package: see `natvi.data.external.data_folder`.

    Returns:
        Columns `y`, `hba1c`, `diagnosis`, `patient_nbr`, rows in the order of the file.

    Raises:
        FileNotFoundError: The file is not there; the message says how to provide it.

    Paper: Section 8.5, formula `y ~ hba1c*diagnosis + (1 | patient_nbr)`, Bernoulli, 36 columns.
    """
    columns = ["patient_nbr", "discharge_disposition_id", "diag_1", "A1Cresult", "change", "readmitted"]
    path = data_file(FILE, SOURCE)
    raw = pd.read_csv(path, usecols=columns, dtype={"diag_1": str}, keep_default_na=False)
    record = {name: raw[name].to_numpy() for name in columns}
    eligible = ~np.isin(record["discharge_disposition_id"], EXCLUDED_DISPOSITIONS)
    kept = eligible & _repeated(record["patient_nbr"], eligible)
    record = {name: values[kept] for name, values in record.items()}
    return pd.DataFrame(
        {
            "y": (record["readmitted"] == "<30").astype(int),
            "hba1c": hba1c_level(record["A1Cresult"], record["change"]),
            "diagnosis": diagnosis_group(record["diag_1"]),
            "patient_nbr": record["patient_nbr"],
        }
    )


def hba1c_level(result: np.ndarray, change: np.ndarray) -> np.ndarray:
    """The four HbA1c levels, from the test result and the change of medication.

    Args:
        result: "None", "Norm", ">7" or ">8".
        change: "Ch" when the medication was changed, "No" when not.

    Returns:
        Names of the levels.

    Example:
        >>> hba1c_level(np.array([">7", ">8"]), np.array(["Ch", "No"])).tolist()
        ['below_8', 'over_8_unchanged']
    """
    high = np.where(change == "Ch", "over_8_changed", "over_8_unchanged")
    return np.select([result == "None", result == ">8"], ["absent", high], "below_8")


def diagnosis_group(code: np.ndarray) -> np.ndarray:
    """The nine groups of the primary diagnosis.

    Args:
        code: ICD-9 codes such as "250.83" or "V57"; "?" when missing.

    Returns:
        Names of the groups; supplementary (V, E) and missing codes are "other".

    Example:
        >>> diagnosis_group(np.array(["250.83", "786", "V57", "?"])).tolist()
        ['diabetes', 'respiratory', 'other', 'other']
    """
    number = np.asarray(pd.to_numeric(pd.Series(code), errors="coerce"), dtype=float)
    inside = [(first <= number) & (number < last + 1) for _, first, last in ICD9_GROUPS]
    return np.select(inside, [name for name, _, _ in ICD9_GROUPS], "other")


def _repeated(patient: np.ndarray, eligible: np.ndarray) -> np.ndarray:
    """Which rows belong to patients with at least two eligible encounters."""
    _, index = np.unique(patient, return_inverse=True)
    return np.bincount(index, weights=eligible)[index] >= 2
