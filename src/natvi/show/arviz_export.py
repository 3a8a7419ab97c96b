"""Draws as an ArviZ DataTree, for every plot and diagnostic of that library."""

from typing import Any

import numpy as np


def to_datatree(draws: dict[str, np.ndarray], coords: dict[str, list[Any]], dims: dict[str, list[str]]) -> Any:
    """Return the draws as one chain in the group `posterior`."""
    import arviz_base

    posterior = {name: values[None] for name, values in draws.items()}
    return arviz_base.from_dict({"posterior": posterior}, coords=coords, dims=dims)
