"""Income above 50,000 dollars: the UCI "Adult" data, whole (a9a) or as a4a, in the binary coding of LIBSVM."""

import gzip
from pathlib import Path

import numpy as np

from natvi.data.external import data_file
from natvi.data.glm_data import GlmData

TRAIN = "adult_libsvm/a4a.gz"
TEST = "adult_libsvm/a4a.t.gz"
TRAIN_A9A, TEST_A9A = "adult_libsvm/a9a.gz", "adult_libsvm/a9a.t.gz"
SOURCE = (
    "Download a4a and a4a.t from the binary data sets of LIBSVM (www.csie.ntu.edu.tw/~cjlin/libsvmtools), "
    "and put them there, packed with gzip."
)
NUM_FEATURES = 123


def load_a4a() -> tuple[GlmData, GlmData]:
    """Design matrices of the a4a data: 4781 rows to fit and 27,780 to test, 124 columns.

    Intercept, then 123 indicators `feature_1` ... `feature_123`. `y` is 1 for an income above 50,000 dollars. The last
    feature never occurs in the rows to fit, so its coefficient is known through the prior alone.

    The files are not part of the package: see `natvi.data.external.data_folder`.

    Returns:
        The rows to fit and the rows to test.

    Raises:
        FileNotFoundError: A file is not there; the message says how to provide it.

    Paper: Section 8.2 and Table 8, logistic regression with d = 124.
    """
    return read_indicators(data_file(TRAIN, SOURCE)), read_indicators(data_file(TEST, SOURCE))


def load_a9a() -> tuple[GlmData, GlmData]:
    """Design matrices of the whole data: 32,561 rows to fit and 16,281 to test, 124 columns.

    Paper: Section 8.4 and Table 10.
    """
    whole = SOURCE.replace("a4a", "a9a")
    return read_indicators(data_file(TRAIN_A9A, whole)), read_indicators(data_file(TEST_A9A, whole))


def read_indicators(path: Path, num_features: int = NUM_FEATURES) -> GlmData:
    """Read a gzip file of lines `label index:1 index:1 ...` into a dense design with intercept.

    Args:
        path: The file; labels are +1 and -1, indices begin at 1.
        num_features: Width without the intercept; a file need not contain the last features.

    Returns:
        X `(rows, num_features + 1)`, y in {0, 1}, names.

    Raises:
        ValueError: A line is not of this form; the message names it.
    """
    with gzip.open(path, "rt", encoding="ascii") as file:
        lines = [line.split() for line in file if line.strip()]
    X = np.zeros((len(lines), num_features + 1))
    X[:, 0] = 1.0
    y = np.empty(len(lines))
    for i, (label, *active) in enumerate(lines):
        pairs = [entry.partition(":") for entry in active]
        indices = [int(index) for index, _, _ in pairs if index.isdigit()]
        proper = len(indices) == len(pairs) and all(value == "1" for _, _, value in pairs)
        if label not in ("+1", "-1") or not proper or not all(1 <= index <= num_features for index in indices):
            raise ValueError(
                f"Line {i + 1} of {path.name} is not of the form '+1 3:1 11:1 ...' with indices from 1 to "
                f"{num_features}. Download the file again. {SOURCE}"
            )
        X[i, indices] = 1.0
        y[i] = label == "+1"
    return GlmData(X, y, ("intercept", *(f"feature_{j}" for j in range(1, num_features + 1))))
