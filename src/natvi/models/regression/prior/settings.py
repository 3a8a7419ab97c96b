"""Priors that the user sets: read, checked against the names of the coefficients, and put in words."""

import difflib
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

from natvi.formula.raw_columns import listing
from natvi.models.regression.prior.scale_settings import ScaleNames, ScaleSettings, read_scales, refuse_correlation

_FORMS = (
    "'default' or 'paper', a number (the sd of every coefficient), or a dict from coefficients to an sd or a pair "
    "(mean, sd), and from sds, correlations and the dispersion to a density, e.g. {'x': 2.5, 'age': (0.1, 0.5), "
    "'sd': ('half_normal', 1), 'corr': ('lkj', 2)}"
)


class PriorSettings(NamedTuple):
    """What the user asked for: a base, and what replaces it for some parameters.

    Attributes:
        base: `"default"` or `"paper"`.
        every: Sd of every coefficient, or None.
        single: (mean, sd) of single coefficients by name.
        scales: Densities of sds, correlations and the dispersion.
    """

    base: str
    every: float | None = None
    single: Mapping[str, tuple[float, float]] = {}
    scales: ScaleSettings = ScaleSettings()


def read_settings(prior: Any, names: tuple[str, ...] | None, scales: ScaleNames | None = None) -> PriorSettings:
    """Read the `prior` argument of a model.

    Args:
        prior: A word, a number, or a dict by name.
        names: Names of the coefficients; needed for a dict only.
        scales: Names of the sds and of the dispersion; a coefficient of the same name comes first.

    Returns:
        The settings, all of them valid.

    Raises:
        ValueError: For anything else, with the forms a prior can have.

    Example:
        >>> read_settings({"x": 2}, ("Intercept", "x")).single
        {'x': (0.0, 2.0)}
    """
    if isinstance(prior, str) and prior in ("default", "paper"):
        return PriorSettings(prior)
    if isinstance(prior, Mapping):
        if names is None:
            raise ValueError("a prior by coefficient needs the names of the coefficients.")
        scales = scales or ScaleNames()
        known = {_known(key, names, scales): prior[key] for key in prior}
        single = {key: _normal(key, value) for key, value in known.items() if key in names}
        rest = {key: value for key, value in known.items() if key not in names}
        return PriorSettings("default", None, single, read_scales(rest, scales))
    if _is_number(prior):
        return PriorSettings("default", _sd(prior, "every coefficient"))
    raise ValueError(f"prior must be {_FORMS}; not {prior!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _known(key: object, names: tuple[str, ...], scales: ScaleNames) -> str:
    """Return the name of the parameter that a key stands for."""
    text = str(key)
    if isinstance(key, str) and (key in names or key in scales.keys):
        return key
    if text == "dispersion" and scales.dispersions:
        return scales.dispersions[0]
    if text == "corr" or text.startswith("corr("):
        refuse_correlation(text, scales)
    lower = {name.lower(): name for name in (*scales.keys, *names)}
    near = difflib.get_close_matches(text.lower(), lower, n=1)
    hint = f" Did you mean {lower[near[0]]!r}?" if near else ""
    others = f" Sds, correlations and dispersion: {listing(scales.keys)}." if scales.keys else ""
    raise ValueError(
        f"the prior names {key!r}, which is no parameter of the model.{hint} Coefficients: {listing(names)}.{others}"
    )


def _normal(key: object, value: Any) -> tuple[float, float]:
    if _is_number(value):
        return 0.0, _sd(value, repr(key))
    if isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_number, value)):
        if not math.isfinite(value[0]):
            raise ValueError(f"the prior mean of {key!r} must be a finite number, not {value[0]}.")
        return float(value[0]), _sd(value[1], repr(key))
    raise ValueError(f"the prior of {key!r} must be an sd or a pair (mean, sd), not {value!r}.")


def _sd(value: Any, what: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(
            f"the prior sd of {what} must be finite and greater than zero, not {value}. For a weak prior give a large "
            "sd, e.g. 100; to fix a coefficient at a value use offset() instead."
        )
    return float(value)


def normal_words(mean: float, sd: float) -> str:
    """Return a normal in words, such as `N(0, 2.5²)`."""
    return f"N({mean:.4g}, {sd:.4g}²)"
