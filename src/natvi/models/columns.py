"""Column recipes: how the design columns of a model are rebuilt from raw data.

A recipe is what is left of a formula once it has met its training data: for every term the columns it
reads, the functions it applies, the numbers it learned (means, knots) and the levels of its factors.
It is plain data. It goes through JSON, and applying it runs only the functions listed in this file.
"""

import difflib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
Level = str | int | float | bool

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
# Operation -> (number of arguments, number of stored values).
SHAPES: dict[str, tuple[int, int]] = {"column": (0, 0), "number": (0, 1), "center": (1, 1), "scale": (1, 2)}
SHAPES |= dict.fromkeys([*FUNCTIONS, *UNARY], (1, 0)) | dict.fromkeys(BINARY, (2, 0))
_CALLS = FUNCTIONS | UNARY | BINARY
_MAX_DEPTH = 200
_BLOCK = 2**18
_VERSION = 1


# --- reading raw columns ---------------------------------------------------------------------------


def as_frame(data: Any) -> pd.DataFrame:
    """Returns `data` as a DataFrame; dicts, records and other frames are converted."""
    if isinstance(data, pd.DataFrame):
        return data
    try:
        return data.to_pandas() if hasattr(data, "to_pandas") else pd.DataFrame(data)
    except Exception as error:
        raise ValueError(
            f"data of type {type(data).__name__} cannot be read as a table ({error}). "
            "Give a pandas DataFrame or a dict of equally long columns."
        ) from error


def listing(items: Iterable[object], limit: int = 20) -> str:
    """Returns the items as text, cut after `limit`."""
    texts = [repr(plain_level(item)) for item in items]
    more = f", ... ({len(texts)} in all)" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def read_column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Returns one column; an unknown name raises an error that suggests the nearest one."""
    if name not in frame.columns:
        known = {str(column).lower(): str(column) for column in frame.columns}
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f" Did you mean {known[close[0]]!r}?" if close else ""
        raise ValueError(f"there is no column {name!r} in the data.{hint} Columns: {listing(frame.columns)}.")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"the data has {column.shape[1]} columns named {name!r}. Rename all but one.")
    return column


def column_kind(column: pd.Series) -> str:
    """Returns `"numeric"` (numbers and booleans) or `"factor"` (text, categories) for a raw column."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or isinstance(dtype, pd.StringDtype):
        return "factor"
    if pd.api.types.is_complex_dtype(dtype):
        raise ValueError(
            f"column {column.name!r} holds complex numbers. Give real and imaginary parts apart."
        )
    if pd.api.types.is_numeric_dtype(dtype):
        return "numeric"
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred in ("string", "empty"):
        return "factor"
    if inferred in ("integer", "floating", "mixed-integer-float", "boolean", "decimal"):
        return "numeric"
    if "date" in inferred or "time" in inferred or "period" in inferred:
        raise ValueError(
            f"column {column.name!r} holds dates or times ({dtype}), which have no unit in a model. Make it "
            f"days, (df[{column.name!r}] - df[{column.name!r}].min()).dt.days, or text, for a factor."
        )
    raise ValueError(
        f"column {column.name!r} mixes types ({inferred}). Make it text, df[{column.name!r}].astype(str), "
        f"or numbers, pd.to_numeric(df[{column.name!r}])."
    )


def read_numeric(frame: pd.DataFrame, name: str) -> Array:
    """Returns a numeric or boolean column as float64, without a copy where possible."""
    column = read_column(frame, name)
    if column_kind(column) != "numeric":
        raise ValueError(
            f"column {name!r} must be numbers but holds text or categories such as {listing(column[:1])}. "
            f"Convert it with pd.to_numeric(df[{name!r}])."
        )
    return column.to_numpy(dtype=np.float64)


def missing_counts(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, int]:
    """Returns the number of missing values of every column that has any."""
    counts = {name: int(read_column(frame, name).isna().sum()) for name in names}
    return {name: count for name, count in counts.items() if count}


def check_complete(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Raises if one of the columns has missing values."""
    counts = missing_counts(frame, names)
    if counts:
        text = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise ValueError(
            f"the data has missing values: {text}. Fill them or drop the rows first, "
            f"e.g. df.dropna(subset={list(counts)})."
        )


def check_finite(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Raises if one of the columns has infinite values."""
    for name in names:
        column = read_column(frame, name)
        if pd.api.types.is_float_dtype(column.dtype):
            count = int(np.isinf(column.to_numpy(dtype=np.float64)).sum())
            if count:
                raise ValueError(f"column {name!r} has {count} infinite value(s). Remove or replace them.")


def plain_level(value: object) -> Level:
    """Returns a factor level as a JSON value; what JSON lacks (intervals, dates) becomes text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, Level) else str(value)


# --- expressions -----------------------------------------------------------------------------------


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
        _require_finite(self.values)

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
        return _CALLS[self.op](*args)

    def rows(self, frame: pd.DataFrame) -> Array:
        """Returns the values with one entry per row of `frame`."""
        return np.broadcast_to(self.evaluate(frame), (len(frame),))

    @classmethod
    def from_dict(cls, data: Any, depth: int = 0) -> "Expression":
        """Reads what `to_dict` of a recipe wrote; anything unknown raises."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"an expression in a column recipe is nested more than {_MAX_DEPTH} deep.")
        args = tuple(cls.from_dict(arg, depth + 1) for arg in _get(data, "args", list, []))
        return cls(_get(data, "op", str), args, _get(data, "name", str, ""), _numbers(data, "values"))


# --- components ------------------------------------------------------------------------------------


class Component(ABC):
    """Some columns of a term, computed from raw columns. Subclasses are frozen dataclasses."""

    kind: ClassVar[str]
    __match_args__: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def columns(self) -> frozenset[str]:
        """Names of the raw columns that are read."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns that are made."""

    @abstractmethod
    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the columns for the rows of `frame`, shape (rows, width)."""

    @classmethod
    def from_dict(cls, data: Any) -> "Component":
        """Reads what `to_dict` of a recipe wrote; an unknown kind raises."""
        kind = _get(data, "kind", str)
        if kind not in COMPONENTS:
            raise ValueError(
                f"unknown component {kind!r} in a column recipe. Known: {', '.join(COMPONENTS)}."
            )
        found = COMPONENTS[kind]
        names = [name for name in found.__match_args__ if name in data]
        try:
            return found(**{name: _READERS[name](data, name) for name in names})
        except TypeError as error:
            raise ValueError(f"component {kind!r} in a column recipe is incomplete: {error}.") from error


@dataclass(frozen=True)
class Computed(Component):
    """Columns computed from the values of one expression."""

    expression: Expression

    @property
    def columns(self) -> frozenset[str]:
        """Names of the raw columns that are read."""
        return self.expression.columns


@dataclass(frozen=True)
class Numeric(Computed):
    """One column: the expression itself."""

    kind: ClassVar[str] = "numeric"

    @property
    def width(self) -> int:
        """Always 1."""
        return 1

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the values of the expression, shape (rows, 1)."""
        return self.expression.rows(frame)[:, None]


@dataclass(frozen=True)
class Polynomial(Computed):
    """Polynomials p_k = (x - shift_k) p_{k-1} - ratio_k p_{k-2} with p_0 = 1, each divided by its norm."""

    shifts: tuple[float, ...]
    ratios: tuple[float, ...]
    norms: tuple[float, ...]
    kind: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        _require_finite(self.shifts + self.ratios + self.norms)
        if not len(self.shifts) == len(self.ratios) == len(self.norms) > 0:
            raise ValueError("a polynomial in a column recipe needs as many shifts as ratios and norms.")

    @property
    def width(self) -> int:
        """The degree."""
        return len(self.norms)

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns p_1 to p_degree, shape (rows, degree)."""
        x = self.expression.rows(frame)
        basis = [np.zeros_like(x), np.ones_like(x)]
        for shift, ratio in zip(self.shifts, self.ratios, strict=True):
            basis.append((x - shift) * basis[-1] - ratio * basis[-2])
        return np.stack(basis[2:], axis=1) / np.asarray(self.norms)


@dataclass(frozen=True)
class Spline(Computed):
    """A B-spline basis times a fixed matrix, which centres or drops columns."""

    knots: tuple[float, ...]
    degree: int
    transform: tuple[tuple[float, ...], ...]
    kind: ClassVar[str] = "spline"

    def __post_init__(self) -> None:
        _require_finite(self.knots)
        _require_table(self.transform, len(self.knots) - self.degree - 1)
        if self.degree < 0 or list(self.knots) != sorted(self.knots):
            raise ValueError("a spline in a column recipe needs sorted knots and a degree of 0 or more.")

    @property
    def width(self) -> int:
        """Number of columns of the matrix."""
        return len(self.transform[0])

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the transformed basis, shape (rows, width)."""
        from scipy.interpolate import BSpline

        basis = BSpline(np.asarray(self.knots), np.eye(len(self.transform)), self.degree)
        return basis(self.expression.rows(frame)) @ np.asarray(self.transform)


@dataclass(frozen=True)
class Factor(Component):
    """Indicator columns of a factor, or its rows of a contrast matrix.

    Attributes:
        column: Name of the raw column.
        levels: Known levels, in coding order.
        reference: Position of the level without a column; None gives every level its column.
        contrast: One row per level where the coding is not by indicators (sum contrasts).
    """

    column: str
    levels: tuple[Level, ...]
    reference: int | None = None
    contrast: tuple[tuple[float, ...], ...] | None = None
    kind: ClassVar[str] = "factor"

    def __post_init__(self) -> None:
        if not self.column or not self.levels or len(set(self.levels)) != len(self.levels):
            raise ValueError(f"factor {self.column!r} in a column recipe needs a column and distinct levels.")
        if self.reference is not None and not 0 <= self.reference < len(self.levels):
            raise ValueError(f"factor {self.column!r} in a column recipe has no level {self.reference}.")
        if self.contrast is not None:
            _require_table(self.contrast, len(self.levels))

    @property
    def columns(self) -> frozenset[str]:
        """Name of the raw column."""
        return frozenset({self.column})

    @property
    def width(self) -> int:
        """Number of levels with a column, or of contrasts."""
        return len(self.contrast[0]) if self.contrast else len(self.levels) - (self.reference is not None)

    def codes(self, frame: pd.DataFrame) -> NDArray[np.intp]:
        """Returns the level number of every row; a level not seen in training raises."""
        codes, values = pd.factorize(read_column(frame, self.column))
        known = {level: number for number, level in enumerate(self.levels)}
        numbers = np.array([known.get(plain_level(value), -1) for value in values], dtype=np.intp)
        if (numbers < 0).any():
            unseen = [value for value, number in zip(values, numbers, strict=True) if number < 0]
            raise ValueError(
                f"column {self.column!r} has level(s) that were not in the training data: {listing(unseen)}. "
                f"Known levels: {listing(self.levels)}. Drop these rows or fit again with them."
            )
        return numbers[codes]

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the coded columns, shape (rows, width)."""
        codes = self.codes(frame)
        if self.contrast is not None:
            return np.asarray(self.contrast)[codes]
        matrix = np.zeros((len(codes), self.width))
        rows = np.arange(len(codes))
        if self.reference is not None:
            rows = np.flatnonzero(codes != self.reference)
            codes = codes[rows] - (codes[rows] > self.reference)
        matrix[rows, codes] = 1.0
        return matrix


COMPONENTS: dict[str, type[Component]] = {cls.kind: cls for cls in (Numeric, Polynomial, Spline, Factor)}


# --- terms and the recipe --------------------------------------------------------------------------


@dataclass(frozen=True)
class TermRecipe:
    """One term of a model: the products of its components' columns; without components, the intercept.

    Attributes:
        names: Names of the columns, the last component's running fastest.
        components: The factors of the product.
    """

    names: tuple[str, ...]
    components: tuple[Component, ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) != math.prod(component.width for component in self.components):
            raise ValueError(f"term {listing(self.names)} in a column recipe has the wrong number of names.")

    def evaluate(self, frame: pd.DataFrame) -> Array:
        """Returns the columns of the term for the rows of `frame`, shape (rows, len(names))."""
        if not self.components:
            return np.ones((len(frame), 1))
        with np.errstate(all="ignore"):
            return reduce(_products, (component.evaluate(frame) for component in self.components))

    @classmethod
    def from_dict(cls, data: Any) -> "TermRecipe":
        """Reads what `to_dict` of a recipe wrote."""
        components = _get(data, "components", list, [])
        return cls(_items(data, "names", str), tuple(map(Component.from_dict, components)))


@dataclass(frozen=True)
class ColumnRecipe:
    """Rebuilds X, Z and the offset of a model for new data.

    Attributes:
        fixed: Terms of the fixed part, in the order of the columns of X.
        random: Terms left of `|`, in the order of the columns of Z.
        offset: Expressions whose sum is the offset.

    Example:
        >>> slope = TermRecipe(("x",), (Numeric(Expression("column", name="x")),))
        >>> recipe = ColumnRecipe(fixed=(TermRecipe(("Intercept",)), slope))
        >>> X, Z, offset = ColumnRecipe.from_dict(recipe.to_dict()).apply({"x": [2.0, 3.0]})
        >>> X.tolist()
        [[1.0, 2.0], [1.0, 3.0]]
    """

    fixed: tuple[TermRecipe, ...] = ()
    random: tuple[TermRecipe, ...] = ()
    offset: tuple[Expression, ...] = ()

    @property
    def fixed_names(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return tuple(name for term in self.fixed for name in term.names)

    @property
    def random_names(self) -> tuple[str, ...]:
        """Names of the columns of Z."""
        return tuple(name for term in self.random for name in term.names)

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Names of the raw columns that `apply` reads, sorted."""
        parts = [component for term in self.fixed + self.random for component in term.components]
        return tuple(sorted(frozenset().union(*(part.columns for part in [*parts, *self.offset]))))

    def apply(self, new_data: Any) -> tuple[Array, Array, Array]:
        """Builds the design for new data.

        Args:
            new_data: A DataFrame, or what can be made one, with the columns `used_columns`.

        Returns:
            X (rows, len(fixed_names)), Z (rows, len(random_names)) and the offset (rows,), in float64.

        Raises:
            ValueError: For an absent column, a missing or infinite value, or an unseen factor level.
        """
        frame = as_frame(new_data)
        check_complete(frame, self.used_columns)
        check_finite(frame, self.used_columns)
        return self.evaluate(frame)

    def evaluate(self, frame: pd.DataFrame) -> tuple[Array, Array, Array]:
        """Does the work of `apply` for a frame whose columns are known to have no gaps."""
        offset = np.zeros(len(frame))
        for expression in self.offset:
            offset += assemble((TermRecipe(("offset",), (Numeric(expression),)),), frame)[:, 0]
        return assemble(self.fixed, frame), assemble(self.random, frame), offset

    def to_dict(self) -> dict[str, Any]:
        """Returns the recipe as JSON values."""
        return {"version": _VERSION, **_plain(self)}

    @classmethod
    def from_dict(cls, data: Any) -> "ColumnRecipe":
        """Reads what `to_dict` wrote, from any source: all is checked, nothing is executed.

        Raises:
            ValueError: For anything that is not a well-formed recipe of known operations.
        """
        if _get(data, "version", int) != _VERSION:
            raise ValueError(
                f"column recipe of version {data['version']}; this natvi reads version {_VERSION}."
            )
        fixed, random = (
            tuple(TermRecipe.from_dict(term) for term in _get(data, key, list, []))
            for key in ("fixed", "random")
        )
        return cls(
            fixed, random, tuple(Expression.from_dict(item) for item in _get(data, "offset", list, []))
        )


def _products(left: Array, right: Array) -> Array:
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def assemble(terms: tuple[TermRecipe, ...], frame: pd.DataFrame) -> Array:
    """Returns the columns of all terms side by side, shape (rows, columns); raises if one is not finite.

    Rows are filled in blocks, so that factors and products need no second array of full size.
    """
    widths = [len(term.names) for term in terms]
    matrix = np.empty((len(frame), sum(widths)))
    stops = np.cumsum(widths, dtype=int)
    step = max(256, _BLOCK // max(1, matrix.shape[1]))
    for start in range(0, len(frame), step):
        rows = frame.iloc[start : start + step]
        for term, width, stop in zip(terms, widths, stops, strict=True):
            matrix[start : start + step, stop - width : stop] = term.evaluate(rows)
    _check_finite(matrix, [name for term in terms for name in term.names])
    return matrix


def _check_finite(matrix: Array, names: list[str]) -> None:
    if np.isfinite(matrix.sum()) or (finite := np.isfinite(matrix)).all():
        return
    column = int(np.argmin(finite.all(axis=0)))
    count = int((~finite[:, column]).sum())
    raise ValueError(
        f"{names[column]!r} is not a finite number in {count} of {len(matrix)} rows. Look for logarithms or "
        "roots of zero or negative numbers, division by zero, and scale() of a constant column."
    )


# --- JSON ------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Dataclasses to dicts (empty fields left out), tuples to lists."""
    if is_dataclass(value):
        items = {field.name: getattr(value, field.name) for field in fields(value)}
        kind = {"kind": value.kind} if isinstance(value, Component) else {}
        return kind | {name: _plain(item) for name, item in items.items() if item not in ((), "", None)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _get(data: Any, key: str, kind: type, default: Any = None) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"a column recipe needs a dict with {key!r} here, not {type(data).__name__}.")
    value = data.get(key, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(
            f"{key!r} in a column recipe must be of type {kind.__name__}, not {type(value).__name__}."
        )
    return value


def _items(data: Any, key: str, kind: Any) -> tuple[Any, ...]:
    items = _get(data, key, list)
    if not all(isinstance(item, kind) for item in items):
        raise ValueError(f"{key!r} in a column recipe has entries of the wrong type.")
    return tuple(items)


def _floats(values: Any) -> Iterator[float]:
    items: list[Any] = values if isinstance(values, list) else [None]
    for value in items:
        if type(value) not in (int, float) or abs(value) > sys.float_info.max:
            raise ValueError("a column recipe needs a list of finite numbers here.")
        yield float(value)


def _numbers(data: Any, key: str) -> tuple[float, ...]:
    return tuple(_floats(_get(data, key, list, [])))


def _table(data: Any, key: str) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(_floats(row)) for row in _get(data, key, list))


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "expression": lambda data, key: Expression.from_dict(data[key]),
    "column": lambda data, key: _get(data, key, str),
    "levels": lambda data, key: _items(data, key, Level),
    "reference": lambda data, key: _get(data, key, int),
    "degree": lambda data, key: _get(data, key, int),
    "contrast": _table,
    "transform": _table,
    **dict.fromkeys(("shifts", "ratios", "norms", "knots"), _numbers),
}


def _require_finite(values: Iterable[float]) -> None:
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a column recipe must hold finite numbers only.")


def _require_table(rows: tuple[tuple[float, ...], ...], count: int) -> None:
    if len(rows) != count or count < 1 or len({len(row) for row in rows}) != 1:
        raise ValueError("a matrix in a column recipe has the wrong shape.")
    _require_finite(value for row in rows for value in row)
