"""What a reader of a mixed model should know about its data: rows left out, weights, and groups that say little."""

import numpy as np

from natvi.families.table import Family
from natvi.formula.design import Design
from natvi.formula.raw_columns import listing


def describe_data(
    design: Design, y: np.ndarray, group: str, family: Family, trials: np.ndarray | None
) -> tuple[str, ...]:
    """Return notes for the summary.

    Args:
        design: The arrays of the formula.
        y: The response as numbers.
        group: The name of the grouping column.
        family: The response distribution.
        trials: The trials of every row of a binomial response.

    Returns:
        The notes, each a phrase.

    Raises:
        ValueError: If the residual of a gaussian response cannot be told from the random effects, or is zero.
    """
    notes = [*_rows_left_out(design), *design.notes]
    if design.weights is not None:
        notes.append(f"weights: the {len(y):,} rows count as {design.weights.sum():,.6g}")
    notes += _small_groups(design, group, family, trials)
    if design.group_labels is not None and len(design.group_labels) < len(y):
        notes += _constant_slopes(design, group) + _constant_responses(design, y, group, family, trials)
    return tuple(notes)


def refuse_empty_effects(design: Design, group: str) -> None:
    """Refuse a random effect whose column is zero in every row: nothing is known about its sd."""
    empty = [name for name, column in zip(design.random_names, design.Z.T, strict=True) if not np.any(column)]
    if empty:
        raise ValueError(
            f"the random effect of {listing(empty)} has a column that is zero in every row, so the data say nothing "
            f"about it. Leave it out of (... | {group}), or check the column."
        )


def constant_within_groups(values: np.ndarray, codes: np.ndarray) -> bool:
    """Whether all rows of a group have the same value, in every group.

    Example:
        >>> constant_within_groups(np.array([1.0, 2.0, 1.0]), np.array([0, 1, 0]))
        True
    """
    one = np.empty(codes.max() + 1)
    one[codes] = values
    return bool(np.all(one[codes] == values))


def _rows_left_out(design: Design) -> list[str]:
    if not design.num_missing:
        return []
    total = design.num_missing + design.num_zero_weight + len(design.X)
    return [f"{design.num_missing:,} of {total:,} rows left out: missing values (missing='error' refuses them)"]


def _small_groups(design: Design, group: str, family: Family, trials: np.ndarray | None) -> list[str]:
    """A group of one row, or of one trial, says nothing about its own effect."""
    assert design.group_codes is not None
    if trials is None:
        sizes, unit = np.bincount(design.group_codes), "row"
    else:
        sizes, unit = np.bincount(design.group_codes, trials), "trial"
    single = int((sizes == 1).sum())
    if single == len(sizes):
        if family.name == "gaussian":
            raise ValueError(
                f"Every group of {group!r} has a single row: its random effects cannot be told from the "
                "residual. Check the grouping column, or leave the random effects out."
            )
        return [f"every group of {group} has a single {unit}: the variance is poorly determined"]
    return [f"{single:,} of {len(sizes):,} groups have a single {unit}"] if single else []


def _constant_slopes(design: Design, group: str) -> list[str]:
    """Two effects whose columns do not change within a group are one effect to the data."""
    assert design.group_codes is not None
    constant = [
        name
        for name, column in zip(design.random_names, design.Z.T, strict=True)
        if constant_within_groups(column, design.group_codes)
    ]
    if len(constant) < 2:
        return []
    first, others = constant[0], constant[1:]
    return [
        f"the random slope of {listing(others)} cannot be told from {first!r}: constant within every group of {group}, "
        "so the data hardly say how to split the variance between them; a fixed effect is enough"
    ]


def _constant_responses(
    design: Design, y: np.ndarray, group: str, family: Family, trials: np.ndarray | None
) -> list[str]:
    assert design.group_codes is not None
    if not constant_within_groups(y, design.group_codes):
        return []
    if family.name in ("gaussian", "gamma"):
        raise ValueError(
            f"The response {design.response_name!r} is the same in all rows of every group of {group!r}: there is no "
            "variation within groups to learn from. Check the grouping column, or keep one row per group and leave "
            "the random effects out."
        )
    binary = family.name == "bernoulli" or (trials is not None and np.all((y == 0) | (y == 1)))
    words = "nothing limits the variance between groups but the prior" if binary else "check the grouping column"
    return [f"the response is the same in all rows of every group of {group}: {words}"]
