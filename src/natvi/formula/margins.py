"""Products of variables: which columns of a model a product is made of, and the columns with their variables centred.

A column of a design is a product of atoms: numbers (a column of the data, or a function of some), and levels of
factors. Where a model has the margins of a product, the same model can be written with its numbers centred,

    (x - c)(z - d) = x z - d x - c z + c d,

so that X K, with a square matrix K of such coefficients, spans what X spans.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

import numpy as np

from natvi.formula.columns import TermRecipe
from natvi.formula.components import Component, Factor

Weights = dict[int, float]  # of columns
MOST_NUMBERS = 10  # in one product: there are 2^10 margins
BLOCK = 4096  # rows


class Atom(NamedTuple):
    """A number, a level of a factor or a contrast: one column of one component."""

    kind: str
    source: str
    index: int


Key = frozenset[Atom]


class Products(NamedTuple):
    """The columns of a design by what they are products of, and the number of levels of every factor."""

    keys: tuple[Key, ...]
    levels: Mapping[str, int]


def products_of(terms: Iterable[TermRecipe]) -> Products:
    """Return what the columns of some terms are products of; the intercept is the empty product."""
    keys: list[Key] = []
    levels: dict[str, int] = {}
    for term in terms:
        atoms = [_atoms(component) for component in term.components]
        keys += [frozenset(chosen) for chosen in product(*atoms)]
        levels |= {
            component.column: len(component.levels)
            for component in term.components
            if isinstance(component, Factor) and component.contrast is None
        }
    return Products(tuple(keys), levels)


def plain_products(count: int) -> Products:
    """Return the columns of an array: numbers, each by itself.

    Example:
        >>> plain_products(2).keys[1]
        frozenset({Atom(kind='number', source='', index=1)})
    """
    return Products(tuple(frozenset({Atom("number", "", j)}) for j in range(count)), {})


def _atoms(component: Component) -> list[Atom]:
    if not isinstance(component, Factor):
        return [Atom("number", repr(component), j) for j in range(component.width)]
    if component.contrast is not None:
        return [Atom("contrast", component.column, j) for j in range(component.width)]
    coded = [level for level in range(len(component.levels)) if level != component.reference]
    return [Atom("level", component.column, level) for level in coded]


class Margins:
    """Writes products as sums of a model's columns.

    Args:
        products: Of the columns.
        X: The columns `(n, p)`: where no product of levels makes a constant, a constant column does.

    Example:
        >>> X = np.array([[1.0, 2.0], [1.0, 4.0]])
        >>> constant = frozenset()
        >>> Margins(Products((constant, *plain_products(1).keys), {}), X).express(constant)
        {0: 1.0}
    """

    def __init__(self, products: Products, X: np.ndarray) -> None:
        """Bind the columns."""
        self._products = products
        self._place = {key: at for at, key in enumerate(products.keys)}
        self._known: dict[Key, Weights | None] = {}
        self._constant = self.express(frozenset())
        if self._constant is None and len(X):
            maybe = np.flatnonzero((X[0] == X[-1]) & (X[0] != 0))
            flat = [at for at in maybe if np.all(X[:, at] == X[0, at])]
            if flat:
                self._constant = {int(flat[0]): 1.0 / float(X[0, flat[0]])}
                self._known = {frozenset(): self._constant}

    @property
    def constant(self) -> Weights | None:
        """The columns that add up to one in every row, with their weights; None where there are none."""
        return self._constant

    def express(self, key: Key) -> Weights | None:
        """Return weights of columns whose sum is the product, or None where the model does not have it."""
        if key not in self._known:
            self._known[key] = None  # while it is looked for: no way in a circle
            self._known[key] = self._find(key)
        return self._known[key]

    def _find(self, key: Key) -> Weights | None:
        if key in self._place:
            return {self._place[key]: 1.0}
        for atom in key:  # a level without a column is all rows less those of the other levels
            if atom.kind == "level":
                rest = key - {atom}
                others = self._levels_of(rest, atom.source, [m for m in self._numbers(atom.source) if m != atom.index])
                whole = self.express(rest)
                if others is not None and whole is not None:
                    return _added([(1.0, whole), *((-1.0, part) for part in others)])
        inside = {atom.source for atom in key}
        for factor in self._products.levels:  # the sum over all levels of a factor
            if factor not in inside:
                parts = self._levels_of(key, factor, list(self._numbers(factor)))
                if parts is not None:
                    return _added([(1.0, part) for part in parts])
        return None

    def _numbers(self, factor: str) -> range:
        return range(self._products.levels[factor])

    def _levels_of(self, key: Key, factor: str, levels: list[int]) -> list[Weights] | None:
        found = [self.express(key | {Atom("level", factor, level)}) for level in levels]
        return None if any(part is None for part in found) else [part for part in found if part is not None]


def _added(parts: Sequence[tuple[float, Weights]]) -> Weights:
    total: Weights = {}
    for sign, weights in parts:
        for at, weight in weights.items():
            total[at] = total.get(at, 0.0) + sign * weight
    return {at: weight for at, weight in total.items() if weight != 0.0}


def centring_map(products: Products, margins: Margins, X: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return K such that X K holds the columns with their numbers centred, where the margins allow it.

    Args:
        products: Of the columns.
        margins: Of the same columns.
        X: The columns `(n, p)`.
        weights: How often each row counts, for the means.

    Returns:
        K `(p, p)`, invertible; the identity where nothing can be centred.
    """
    K = np.eye(len(products.keys))
    averages = np.where(varies(X), column_means(X, weights), np.nan) if len(X) else np.full(len(K), np.nan)
    means: dict[Atom, float | None] = {}
    for at, key in enumerate(products.keys):
        chosen: list[Atom] = []
        for atom in sorted(atom for atom in key if atom.kind == "number")[:MOST_NUMBERS]:
            if atom not in means:
                means[atom] = _mean(margins, atom, X, weights, averages)
            tried = [*chosen, atom]
            if means[atom] is not None and all(margins.express(key - set(left)) is not None for left in _parts(tried)):
                chosen = tried
        if not chosen:
            continue
        total = []
        for left in _parts(chosen):
            factor = math.prod(-(means[atom] or 0.0) for atom in left)
            total.append((factor, margins.express(key - set(left)) or {}))
        column = np.zeros(len(K))
        for weight_at, weight in _added(total).items():
            column[weight_at] = weight
        K[:, at] = column
    return K


def _parts(atoms: list[Atom]) -> Iterable[tuple[Atom, ...]]:
    return chain.from_iterable(combinations(atoms, size) for size in range(len(atoms) + 1))


def varies(X: np.ndarray) -> np.ndarray:
    """Tell which columns have more than one value; the first rows answer for most.

    Example:
        >>> varies(np.array([[1.0, 2.0], [1.0, 3.0]])).tolist()
        [False, True]
    """
    constant = np.arange(X.shape[1])
    for rows in row_blocks(X):
        constant = constant[np.all(X[rows, constant] == X[0, constant], axis=0)]
    return ~np.isin(np.arange(X.shape[1]), constant)


def row_blocks(X: np.ndarray) -> Iterator[slice]:
    """Yield rows some at a time, so that what is computed of them stays near.

    Example:
        >>> list(row_blocks(np.zeros((5000, 1))))
        [slice(0, 4096, None), slice(4096, 8192, None)]
    """
    for start in range(0, len(X), BLOCK):
        yield slice(start, start + BLOCK)


def column_means(X: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return the mean of every column, by weight.

    Example:
        >>> column_means(np.array([[1.0, 2.0], [3.0, 6.0]]), np.array([3.0, 1.0])).tolist()
        [1.5, 3.0]
    """
    shares = np.ones(len(X)) if weights is None else weights
    return (shares / np.sum(shares)) @ X


def _mean(
    margins: Margins, atom: Atom, X: np.ndarray, weights: np.ndarray | None, averages: np.ndarray
) -> float | None:
    """Return the mean of a number that varies, or None; `averages` holds NaN for columns that do not."""
    found = margins.express(frozenset({atom}))
    if found is None:
        return None
    if list(found.values()) == [1.0]:
        average = float(averages[next(iter(found))])
        return None if np.isnan(average) else average
    values = sum((weight * X[:, at] for at, weight in found.items()), np.zeros(len(X)))
    return float(np.average(values, weights=weights)) if np.any(values != values[:1]) else None
