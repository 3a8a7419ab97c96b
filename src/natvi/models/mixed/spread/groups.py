"""This process's groups: rows read into memory, group by group, after a look at who else has them."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from natvi.hosts.collect import checked, collect, count
from natvi.hosts.tables import labels_hash
from natvi.models.regression.rows import Rows
from natvi.models.regression.spread.rows import TableRows


class OwnGroups(NamedTuple):
    """The rows of this process, and its groups.

    Attributes:
        rows: All of them.
        codes: The group of every row.
        labels: Of this process's groups, sorted.
        numbers: A number for each that is the same everywhere, never 0.
        num_groups: The number of groups in all processes.
    """

    rows: Rows
    codes: np.ndarray
    labels: np.ndarray
    numbers: np.ndarray
    num_groups: int


def read_groups(source: TableRows, group: str) -> OwnGroups:
    """Read this process's rows; a group that another process has too is refused in all of them."""

    def read() -> tuple[Rows, np.ndarray, np.ndarray]:
        pieces = list(source.read())
        rows = Rows(
            *(
                None if parts[0] is None else np.concatenate(parts)  # type: ignore[arg-type]
                for parts in zip(*(piece.rows for piece in pieces), strict=True)
            )
        )
        plain = [np.asarray(piece.labels.astype(object)) for piece in pieces if piece.labels is not None]
        codes, labels = pd.factorize(pd.Series(np.concatenate(plain)).infer_objects(), sort=True)
        source.forget()
        return rows, codes.astype(np.int64), np.asarray(labels)

    rows, codes, labels = checked(read)
    numbers = numbers_of(labels)
    num_groups = refuse_split_groups(labels, numbers, group)
    return OwnGroups(rows, codes, labels, numbers, num_groups)


def numbers_of(labels: np.ndarray) -> np.ndarray:
    """Return a number for every label, never 0: it stands for places without a group."""
    numbers = labels_hash(pd.Series(labels)).view(np.int64)
    return np.where(numbers == 0, 1, numbers)


def refuse_split_groups(labels: np.ndarray, numbers: np.ndarray, group: str) -> int:
    """Refuse groups whose rows lie in several processes; return the number of all groups."""
    everywhere = collect(numbers)
    together = np.concatenate(everywhere)
    values, times = np.unique(together, return_counts=True)
    split = values[times > 1]
    if len(split):
        found = [label for part in collect(labels[np.isin(numbers, split)][:5].tolist()) for label in part]
        where = [at for at, part in enumerate(everywhere) if np.isin(split[:1], part).any()]
        names = ", ".join(map(repr, dict.fromkeys(found)))
        raise ValueError(
            f"{len(split):,} of {len(values):,} groups of {group!r} have rows in several processes, e.g. "
            f"{names[:80]} (the first of them in processes {', '.join(map(str, where))}). Give every process whole "
            "groups: divide the rows by group, or give all processes the same Parquet files, hosts.parquet(path): "
            "each then takes the rows of its own groups."
        )
    if len(values) < 2:
        raise ValueError(
            f"the grouping column {group!r} has one group only in all {count()} processes; a random effect needs at "
            f"least two. Leave out the term (... | {group})."
        )
    return len(values)
