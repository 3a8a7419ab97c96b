"""What stands right of `|`: columns, their interactions, and nesting, with the names that lme4 gives them."""

from dataclasses import dataclass
from typing import Any

import formulae.expr as syntax
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from natvi.formula.raw_columns import listing, plain_level, read_column
from natvi.formula.syntax import is_binary, render, ungroup


@dataclass(frozen=True)
class RandomTerm:
    """One random term of a formula.

    Attributes:
        effects: Left of `|`, with its intercept spelled out, such as `"1 + Days"`.
        columns: The columns whose combinations are its groups; more than one for an interaction.
        correlated: False for `||`.
    """

    effects: str
    columns: tuple[str, ...]
    correlated: bool = True

    @property
    def group(self) -> str:
        """The name of the grouping factor."""
        return ":".join(self.columns)

    @property
    def text(self) -> str:
        """The term as it could be written."""
        return f"({self.effects} {'|' if self.correlated else '||'} {self.group})"


@dataclass(frozen=True, eq=False)
class TermDesign:
    """One random term with its data.

    Attributes:
        group: The name of the grouping factor.
        columns: The columns whose combinations are its groups.
        first: Its first column of Z.
        stop: The column after its last one.
        names: Of its effects.
        codes: The level of every row.
        labels: Of the levels.
        correlated: Whether its effects may be correlated.
    """

    group: str
    columns: tuple[str, ...]
    first: int
    stop: int
    names: tuple[str, ...]
    codes: NDArray[np.int64]
    labels: NDArray[Any]
    correlated: bool

    @property
    def r(self) -> int:
        """The number of its effects."""
        return self.stop - self.first

    @property
    def num_levels(self) -> int:
        """The number of levels of its factor."""
        return len(self.labels)


def groupings(node: Any) -> list[tuple[str, ...]]:
    """Returns the columns of every grouping factor that an expression right of `|` stands for.

    `a/b` means `a` and the levels of b within a, which lme4 calls `b:a`; `a:b` means all combinations.

    Example:
        >>> from natvi.formula.syntax import parse
        >>> groupings(parse("a/b/c"))
        [('a',), ('b', 'a'), ('c', 'b', 'a')]
    """
    node = ungroup(node)
    if is_binary(node, "SLASH"):
        outer = groupings(node.left)
        return [*outer, *((*inner, *outer[-1]) for inner in groupings(node.right))]
    if is_binary(node, "COLON"):
        left, right = groupings(node.left), groupings(node.right)
        if len(left) == len(right) == 1:
            return [left[0] + right[0]]
    if isinstance(node, syntax.QuotedName):
        return [(node.expression.lexeme[1:-1],)]
    if isinstance(node, syntax.Variable) and node.level is None:
        return [(node.name.lexeme,)]
    raise ValueError(
        f"cannot group by {render(node)!r}. Right of '|' stand columns, a:b for their combinations, or a/b for b "
        "within a, as in (1 | a) + (1 | b) for two crossed factors; anything else is computed as a column first."
    )


def level_rows(frame: pd.DataFrame, columns: tuple[str, ...]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Returns the level of every row and the label of every level; those of several columns are joined by ':'."""
    if len(columns) == 1:
        codes, labels = pd.factorize(read_column(frame, columns[0]), sort=True)
        labels = np.asarray(labels)
    else:
        codes, labels = _combined(frame, columns)
    if len(labels) < 2:
        name = ":".join(columns)
        raise ValueError(
            f"the grouping factor {name!r} has one level only ({listing(labels)}); a random effect needs at least "
            f"two. Leave out the term (... | {name})."
        )
    return codes.astype(np.int64, copy=False), labels


def level_labels(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.Series:
    """Returns the label of every row's level."""
    if len(columns) == 1:
        return read_column(frame, columns[0])
    codes, labels = _combined(frame, columns)
    found = labels.astype(object)[np.maximum(codes, 0)]
    found[codes < 0] = None
    return pd.Series(found, index=frame.index)


def _combined(frame: pd.DataFrame, columns: tuple[str, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    total, missing, levels = np.zeros(len(frame), dtype=np.int64), np.zeros(len(frame), dtype=bool), []
    for column in columns:
        codes, found = pd.factorize(read_column(frame, column), sort=True)
        missing |= codes < 0
        total = total * (len(found) + 1) + codes
        levels.append([str(plain_level(level)) for level in found])
    codes, keys = pd.factorize(np.where(missing, -1, total), sort=True)
    if missing.any():  # the key -1 sorts first
        codes, keys = np.where(missing, -1, codes - 1), keys[1:]
    labels = []
    for key in keys.tolist():
        parts = []
        for found in reversed(levels):
            key, at = divmod(key, len(found) + 1)
            parts.append(found[at])
        labels.append(":".join(reversed(parts)))
    return codes, np.asarray(labels, dtype=object)
