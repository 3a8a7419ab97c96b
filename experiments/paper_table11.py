"""The figures that the paper prints in Table 11, in the order of its columns."""

PROBLEMS = ("Epilepsy", "Toenail", "HERS", "Diabetes")
WAYS = ("GVA", "RVB1", "RVB2")
WHOLE = "no Gaussian"  # the column of rows that do not choose among the three
COLUMNS = [(problem, way) for problem in PROBLEMS for way in WAYS]

_ROWS = {
    "M": """
Adam  4.77 9.22 7.59 3.35 3.04 3.58 0.20 5.71 5.65 0.84 8.44 5.77
PGA   4.47 2.67 0.51 3.59 2.01 0.54 4.48 0.90 0.78 2.68 0.80 -
nAdam 4.85 9.02 9.51 3.48 3.23 3.59 0.19 5.75 5.68 0.84 8.62 6.45
Snngm 8.79 8.66 8.66 3.64 3.54 3.70 5.80 5.73 5.75 0.84 9.10 9.34
VOGN  4.47 5.88 5.90 2.37 2.43 3.15 0.49 4.77 3.94 0.84 1.41 1.03
""",
    "seconds": """
Adam  4.2 0.5 1.4 42.6 5.3 19.8 107.0 17.5 66.7 979.1 147.8 421.7
PGA   3.9 0.5 1.4 43.9 5.3 19.0 103.9 17.4 72.3 964.4 146.9 -
nAdam 7.6 0.6 1.5 72.4 5.7 20.4 146.0 19.1 68.9 2638.9 153.6 451.7
Snngm 7.3 0.6 1.5 71.4 5.7 20.3 156.3 19.6 69.4 2288.3 152.6 450.2
VOGN  6.0 1.3 1.8 52.4 11.3 21.1 104.3 41.1 77.6 1509.5 1787.3 1831.2
""",
}
# one figure for each data set
_WHOLE = {
    "M": {"NVP": (5.61, 3.67, 5.52, None)},
    "seconds": {"NVP": (295.6, 347.4, 4109.8, None), "NUTS": (191.9, 293.8, 1431.9, 13462.3)},
}


def paper(row: str, problem: str, way: str, metric: str) -> float | None:
    """Return the paper's figure, or None where it prints none; rows NVP and NUTS stand in the column `WHOLE`."""
    if metric not in _ROWS:
        return None
    if way == WHOLE:
        figures = _WHOLE[metric].get(row)
        return None if figures is None else figures[PROBLEMS.index(problem)]
    rows = {name: values for name, *values in (line.split() for line in _ROWS[metric].strip().splitlines())}
    if row not in rows or (problem, way) not in COLUMNS:
        return None
    text = rows[row][COLUMNS.index((problem, way))]
    return None if text == "-" else float(text)
