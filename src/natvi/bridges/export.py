"""Several groups of draws, and the data, as one ArviZ DataTree."""

from typing import Any

import numpy as np

Draws = dict[str, np.ndarray]


def to_tree(groups: dict[str, Draws], observed: Draws, coords: dict[str, list[Any]], dims: dict[str, list[str]]) -> Any:
    """Return groups of draws `(s, ...)` as one chain each, and what was observed.

    Args:
        groups: By the name of the group, such as "posterior".
        observed: The data by name.
        coords: Labels of the dimensions.
        dims: Dimensions of the names.
    """
    import arviz_base

    parts: dict[str, Draws] = {
        group: {name: np.asarray(values)[None] for name, values in draws.items()} for group, draws in groups.items()
    }
    return arviz_base.from_dict(parts | {"observed_data": observed}, coords=coords, dims=dims)
