"""Draws as an ArviZ DataTree, for every plot and diagnostic of that library."""

from typing import Any

import numpy as np


def to_datatree(
    draws: dict[str, np.ndarray],
    coords: dict[str, list[Any]],
    dims: dict[str, list[str]],
    log_likelihood: dict[str, np.ndarray] | None = None,
) -> Any:
    """Return the draws as one chain in the group `posterior`, and log-likelihoods in the group of that name."""
    import arviz_base

    groups = {"posterior": {name: values[None] for name, values in draws.items()}}
    if log_likelihood is not None:
        groups["log_likelihood"] = {name: values[None] for name, values in log_likelihood.items()}
    return arviz_base.from_dict(groups, coords=coords, dims=dims)
