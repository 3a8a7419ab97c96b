"""Where a fit came from: data frame and words at the door, so that it can be asked about columns and changed."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from natvi.formula.columns import as_frame
from natvi.formula.dot import change_formula
from natvi.result.registry import describe


class Origin(NamedTuple):
    """The call that made a model.

    Attributes:
        formula: As it was given, dots written out.
        data: All rows and columns of the data frame.
        rows: Positions of the rows in use.
        options: Every other argument of the door, by name.
    """

    formula: str
    data: pd.DataFrame
    rows: np.ndarray
    options: dict[str, Any]

    @classmethod
    def of(cls, formula: str, data: Any, rows: np.ndarray, **options: Any) -> "Origin":
        """Remember a call; the frame is shared until somebody writes to it."""
        return cls(formula, as_frame(data).copy(deep=False), rows, options)

    def frame(self) -> pd.DataFrame:
        """Return the rows in use with all their columns."""
        return self.data if len(self.rows) == len(self.data) else self.data.iloc[self.rows]

    def given(self) -> dict[str, Any]:
        """Return the options that are short to write and not what they are by default; the family is told apart."""
        usual: dict[str, Any] = {
            "link": None,
            "prior": "default",
            "structure": "auto",
            "weights": None,
            "missing": "drop",
        }
        usual |= {"dispersion": None, "zero": None}
        plain = {
            k: v for k, v in self.options.items() if k in usual and isinstance(v, str | int | float | dict | tuple)
        }
        return {name: value for name, value in plain.items() if value != usual[name]}

    def again(self, formula: str | None, **changes: Any) -> Any:
        """Return a model like this one but for what is changed, by the door that its formula needs."""
        text = self.formula if formula is None else change_formula(self.formula, formula)
        data = changes.pop("data", None)
        options = self.options
        if "family" in changes:
            options = {k: v for k, v in options.items() if k != "link"}  # it was the link of another family
        return describe(text, self.data if data is None else data, **(options | changes))
