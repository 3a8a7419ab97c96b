"""Draws as an ArviZ DataTree, or as the InferenceData of ArviZ before 1.0, for every plot and diagnostic there."""

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

    return arviz_base.from_dict(_groups(draws, log_likelihood), coords=coords, dims=dims)


def to_inferencedata(
    draws: dict[str, np.ndarray],
    coords: dict[str, list[Any]],
    dims: dict[str, list[str]],
    log_likelihood: dict[str, np.ndarray] | None = None,
) -> Any:
    """Return the same as an InferenceData, the container of ArviZ up to 0.23, which Bambi and PyMC 5 hand out."""
    try:
        import arviz  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(
            "kind='inferencedata' needs the package arviz below 1.0: pip install 'arviz<1'. Without it "
            "kind='datatree' gives the container of ArviZ from 1.0 on."
        ) from error
    if not hasattr(arviz, "InferenceData"):
        raise ImportError(
            f"arviz {getattr(arviz, '__version__', '')} has no InferenceData any more: use kind='datatree', or install "
            "'arviz<1'."
        )
    groups: dict[str, Any] = _groups(draws, log_likelihood)
    return arviz.from_dict(**groups, coords=coords, dims=dims)


def _groups(
    draws: dict[str, np.ndarray], log_likelihood: dict[str, np.ndarray] | None
) -> dict[str, dict[str, np.ndarray]]:
    groups = {"posterior": {name: values[None] for name, values in draws.items()}}
    if log_likelihood is not None:
        groups["log_likelihood"] = {name: values[None] for name, values in log_likelihood.items()}
    return groups
