"""Groups of new rows: which the fit has seen, and which are new."""

from typing import Any

import numpy as np
import pandas as pd

from natvi.formula.columns import read_column
from natvi.formula.raw_columns import plain_level


def group_codes(frame: pd.DataFrame, group: str, known: Any) -> tuple[np.ndarray, list[Any]]:
    """Return each row's group, and the labels of groups never seen, each once, in the order of the rows.

    Args:
        frame: New rows.
        group: The name of the grouping column.
        known: The labels of the groups of the fit.

    Returns:
        Codes `(n,)`: from `len(known)` on groups never seen, in the order of their labels.
    """
    try:
        column = read_column(frame, group)
    except ValueError as error:
        raise ValueError(
            f"{error} Without it, groups='new' predicts for a group never seen, groups='population' for the "
            "typical one."
        ) from error
    return codes_of(column, group, known)


def codes_of(labels: pd.Series, group: str, known: Any) -> tuple[np.ndarray, list[Any]]:
    """Return what `group_codes` does, from the label of every row."""
    if labels.isna().any():
        raise ValueError(
            f"{int(labels.isna().sum())} rows have no value of the group {group!r}. Fill it in, or predict with "
            "groups='new' or groups='population'."
        )
    seen, asked = pd.Index(plain_labels(known)), pd.Index(plain_labels(labels))
    codes = np.array(seen.get_indexer(asked))
    unseen = codes < 0
    if not unseen.any():
        return codes, []
    fresh, new = pd.factorize(asked[unseen])
    _refuse_look_alikes(group, seen, pd.Index(new))
    codes[unseen] = len(seen) + fresh
    return codes, list(new)


def plain_labels(labels: Any) -> np.ndarray:
    """Return group labels as numbers or text, which a file can hold; dates, intervals and the like become text."""
    index = pd.Index(labels, tupleize_cols=False)
    if pd.api.types.is_numeric_dtype(index.dtype):
        return index.to_numpy()
    return np.array([plain_level(label) for label in index], dtype=object)


def _refuse_look_alikes(group: str, known: pd.Index, unseen: pd.Index) -> None:
    """Raise if a group counts as new only because its label is text and the known one a number, or the reverse."""
    texts = {str(label): label for label in known}
    for label in unseen:
        twin = texts.get(str(label))
        if twin is not None:
            cure = f"data[{group!r}].astype(str)" if isinstance(twin, str) else f"pd.to_numeric(data[{group!r}])"
            raise ValueError(
                f"the group {group!r} holds {plain_level(label)!r}, and the model was fitted to {plain_level(twin)!r}: "
                f"the same label as another type. Convert the column with {cure}."
            )
