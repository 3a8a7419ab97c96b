"""Physicochemical properties of protein structures (CASP): 45,730 rows, nine inputs, a real response."""

import gzip

import numpy as np
import pandas as pd

from natvi.data.external import data_file

FILE = "casp/CASP.csv.gz"
SOURCE = "Download CASP.csv (Physicochemical Properties of Protein Tertiary Structure, UCI), packed with gzip."


def load_protein() -> pd.DataFrame:
    """Rows of the protein data: `RMSD`, the response, and `F1` to `F9`.

    The file is not part of the package: see `natvi.data.external.data_folder`.

    Paper: Section 8.4 and Table 10, which takes 80% of the rows at random to fit.
    """
    with gzip.open(data_file(FILE, SOURCE), "rt", encoding="ascii") as file:
        frame = pd.read_csv(file)
    return frame.astype(np.float64)
