"""The paper's tables and figures, one file each; `python -m experiments LABEL` runs one and writes its results."""
