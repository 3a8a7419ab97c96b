"""Expressions: trees of known operations on numeric columns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from natvi.formula.raw_columns import Array, read_numeric
from natvi.formula.recipe_json import get_field, get_numbers, require_finite

FUNCTIONS: dict[str, Callable[..., Array]] = {
    name: getattr(np, name)
    for name in ("log", "log2", "log10", "log1p", "sqrt", "exp", "expm1", "abs", "sin", "cos", "tanh")
}
UNARY: dict[str, Callable[..., Array]] = {"neg": np.negative, "pos": np.positive}
BINARY: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "pow": np.power,
}
# 1 where true, else 0
COMPARISONS: dict[str, Callable[..., Array]] = {
    "gt": lambda a, b: np.greater(a, b).astype(np.float64),
    "ge": lambda a, b: np.greater_equal(a, b).astype(np.float64),
    "lt": lambda a, b: np.less(a, b).astype(np.float64),
    "le": lambda a, b: np.less_equal(a, b).astype(np.float64),
    "eq": lambda a, b: np.equal(a, b).astype(np.float64),
    "ne": lambda a, b: np.not_equal(a, b).astype(np.float64),
}
BINARY |= COMPARISONS
# Operation -> (number of arguments, number of stored values).
SHAPES: dict[str, tuple[int, int]] = {"column": (0, 0), "number": (0, 1), "center": (1, 1), "scale": (1, 2)}
SHAPES |= dict.fromkeys([*FUNCTIONS, *UNARY], (1, 0)) | dict.fromkeys(BINARY, (2, 0))
_CALLS = FUNCTIONS | UNARY | BINARY
_MAX_DEPTH = 200


@dataclass(frozen=True)
class Expression:
    """A tree of known operations on numeric columns.

    Attributes:
        op: `"column"`, `"number"`, `"center"`, `"scale"`, or a name in `FUNCTIONS`, `UNARY`, `BINARY`.
        args: The operands.
        name: The column name, for `"column"` only.
        values: Stored numbers: the number itself, the mean, or the mean and standard deviation.
    """

    op: str
    args: tuple["Expression", ...] = ()
    name: str = ""
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.op not in SHAPES:
            raise ValueError(f"unknown operation {self.op!r} in a column recipe. Known: {', '.join(SHAPES)}.")
        if (len(self.args), len(self.values)) != SHAPES[self.op] or bool(self.name) != (self.op == "column"):
            raise ValueError(f"operation {self.op!r} in a column recipe has the wrong arguments.")
        require_finite(self.values)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns the expression reads."""
        return frozenset({self.name} if self.name else ()).union(*(arg.columns for arg in self.args))

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the values for the rows of `frame`; a constant has no row axis."""
        if self.op == "column":
            return read_numeric(frame, self.name)
        if self.op == "number":
            return np.asarray(self.values[0])
        args = [arg.evaluate(frame) for arg in self.args]
        if self.op == "center":
            return args[0] - self.values[0]
        if self.op == "scale":
            return (args[0] - self.values[0]) / self.values[1]
        return np.asarray(_CALLS[self.op](*args))

    def constant(self) -> float:
        """Returns the value of an expression that reads no column; not always finite."""
        with np.errstate(all="ignore"):
            return float(self.evaluate(pd.DataFrame()))

    def rows(self, frame: pd.DataFrame) -> Array:
        """Returns the values with one entry per row of `frame`."""
        return np.broadcast_to(self.evaluate(frame), (len(frame),))

    @classmethod
    def from_dict(cls, data: Any, depth: int = 0) -> "Expression":
        """Reads what `to_dict` of a recipe wrote; anything unknown raises."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"an expression in a column recipe is nested more than {_MAX_DEPTH} deep.")
        args = tuple(cls.from_dict(arg, depth + 1) for arg in get_field(data, "args", list, []))
        op, name = get_field(data, "op", str), get_field(data, "name", str, "")
        return cls(op, args, name, get_numbers(data, "values"))
