"""The options that several doors have, checked before any work is done."""

from typing import Any

import numpy as np

from natvi.run.settings import check_seconds

STRUCTURES = ("dense", "diagonal")  # of the covariance of a model without groups


def check_structure(structure: str) -> None:
    """Say what is wrong with the structure of a model without groups."""
    if structure not in STRUCTURES:
        raise ValueError(f"structure must be one of {', '.join(map(repr, STRUCTURES))}, not {structure!r}.")


def check_options(max_steps: int | None, usual_steps: int, tolerance: float, **keeping: Any) -> dict[str, Any]:
    """Return the options of the loop, or say what is wrong with them.

    Args:
        max_steps: As the user gave it.
        usual_steps: What None stands for.
        tolerance: As the user gave it.
        keeping: `state`, `progress` and `checkpoint`, which the loop checks itself, and `checkpoint_seconds`.

    Returns:
        `max_steps` and what was in `keeping`; the tolerance is left out, since noisy steps have none.
    """
    steps = usual_steps if max_steps is None else max_steps
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"max_steps must be a whole number of at least 1; got {max_steps!r}.")
    if not isinstance(tolerance, float) or not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be a number between 0 and 1, e.g. 1e-8; got {tolerance!r}.")
    if "checkpoint_seconds" in keeping:
        keeping["checkpoint_seconds"] = check_seconds("checkpoint_seconds", keeping["checkpoint_seconds"])
    return {"max_steps": int(steps), **keeping}


def refuse_noise(given: dict[str, Any], usual: dict[str, Any]) -> None:
    """Say which setting of noisy steps was given to a fit that takes exact ones.

    Args:
        given: Settings by name, None where nothing was given.
        usual: What stands for nothing in the settings that are never None.
    """
    for name, value in given.items():
        if value is not None and value != usual.get(name):
            raise ValueError(
                f"{name} is for noisy steps, and this method takes exact ones: give method='stochastic' too, or leave "
                f"{name} out."
            )
