"""The titles under which tables are shown: a table carries a role, and the reader sees words."""

import pandas as pd

TITLES = {
    "arrays": "Parameters (averages over arrays)",
    "inputs": "Inputs: length of their weights",
}


def titled(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return tables by title; beside variance components the coefficients are called fixed effects.

    Example:
        >>> list(titled({"coefficients": pd.DataFrame(), "variance_components": pd.DataFrame()}))
        ['Fixed effects', 'Variance components']
    """
    words = {role: TITLES.get(role, role.replace("_", " ").capitalize()) for role in tables}
    if "variance_components" in tables:
        words["coefficients"] = "Fixed effects"
    return {words[role]: table for role, table in tables.items()}
