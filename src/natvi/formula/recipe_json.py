"""Reading stored recipes: every value is checked, nothing is executed."""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any


def to_plain(value: Any) -> Any:
    """Dataclasses to dicts (empty fields left out), tuples to lists."""
    if is_dataclass(value):
        items = {field.name: getattr(value, field.name) for field in fields(value)}
        kind = getattr(value, "kind", None)
        return ({"kind": kind} if kind else {}) | {
            name: to_plain(item) for name, item in items.items() if item not in ((), "", None)
        }
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def get_field(data: Any, key: str, kind: type, default: Any = None) -> Any:
    """Returns a field of the wanted type; raises if it is another."""
    if not isinstance(data, dict):
        raise ValueError(f"a column recipe needs a dict with {key!r} here, not {type(data).__name__}.")
    value = data.get(key, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{key!r} in a column recipe must be of type {kind.__name__}, not {type(value).__name__}.")
    return value


def get_items(data: Any, key: str, kind: Any) -> tuple[Any, ...]:
    """Returns a list field as a tuple; raises if an entry is of another type."""
    items = get_field(data, key, list)
    if not all(isinstance(item, kind) for item in items):
        raise ValueError(f"{key!r} in a column recipe has entries of the wrong type.")
    return tuple(items)


def _floats(values: Any) -> Iterator[float]:
    items: list[Any] = values if isinstance(values, list) else [None]
    for value in items:
        if type(value) not in (int, float) or abs(value) > sys.float_info.max:
            raise ValueError("a column recipe needs a list of finite numbers here.")
        yield float(value)


def get_numbers(data: Any, key: str) -> tuple[float, ...]:
    """Returns a list of numbers, empty if it is absent."""
    return tuple(_floats(get_field(data, key, list, [])))


def get_table(data: Any, key: str) -> tuple[tuple[float, ...], ...]:
    """Returns a list of lists of numbers."""
    return tuple(tuple(_floats(row)) for row in get_field(data, key, list))


def require_finite(values: Iterable[float]) -> None:
    """Raises if a number is not finite."""
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a column recipe must hold finite numbers only.")


def require_table(rows: tuple[tuple[float, ...], ...], count: int) -> None:
    """Raises unless there are `count` rows of finite numbers, all of one length."""
    if len(rows) != count or count < 1 or len({len(row) for row in rows}) != 1:
        raise ValueError("a matrix in a column recipe has the wrong shape.")
    require_finite(value for row in rows for value in row)
