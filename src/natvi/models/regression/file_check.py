"""What every file of a regression must hold."""

from collections.abc import Sequence
from typing import Any

from natvi.formula.columns import ColumnRecipe
from natvi.result.file_check import Check, is_count, is_text

PRIOR_FIELDS: dict[str, Check] = {
    "family": is_text,
    "prior": lambda value: isinstance(value, str | dict),  # read and checked by `restore_prior`
}
FIELDS: dict[str, Check] = {**PRIOR_FIELDS, "num_rows": is_count}


def check_columns(columns: Any, fixed: Sequence[str], random: Sequence[str] = ()) -> None:
    """Raise unless the recipe makes as many columns as the model has names."""
    recipe = ColumnRecipe.from_dict(columns)
    if len(recipe.fixed_names) != len(fixed) or len(recipe.random_names) != len(random):
        raise ValueError("the columns of the model are not as many as its parameters")
