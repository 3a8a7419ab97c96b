"""Priors that the user sets for sds, correlations and the dispersion: read and checked.

In a dict of priors, `"sd"` stands for the sds of all random effects, `"sd(Intercept|subject)"` for one, `"corr"` for
the correlations, and the dispersion goes by its name, such as `"sigma"`. A number c is a half-normal of scale c; any
other density is a list or tuple of its name and its parameters, such as `("half_t", 3, 2.5)`.
"""

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, NamedTuple

from natvi.formula.raw_columns import listing
from natvi.target.priors.scale_density import DENSITIES, ScaleDensity

LKJ_FORM = "('lkj', eta) with eta > 0, e.g. ('lkj', 2); eta = 1 is uniform, larger values pull towards zero"


class ScaleNames(NamedTuple):
    """The positive parameters of a model, by the names under which they are reported.

    Attributes:
        sds: Of the random effects' sds, in their order.
        dispersions: Of the dispersion parameter, and whatever else all rows share.
        probabilities: Which of these are probabilities, whose priors are normals of the logit.
        correlated: Whether the random effects have correlations.
    """

    sds: tuple[str, ...] = ()
    dispersions: tuple[str, ...] = ()
    correlated: bool = True
    probabilities: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """What a dict of priors may name."""
        return (
            *(("sd", *self.sds) if self.sds else ()),
            *(("corr",) if self.has_correlations else ()),
            *self.dispersions,
        )

    @property
    def has_correlations(self) -> bool:
        """Whether there is a correlation to set a prior for."""
        return self.correlated and len(self.sds) > 1


class ScaleSettings(NamedTuple):
    """The densities asked for: by the position of the sd and of the dispersion, and LKJ's eta for the correlations."""

    sds: Mapping[int, ScaleDensity] = {}
    dispersions: Mapping[int, ScaleDensity] = {}
    lkj: float | None = None

    def __bool__(self) -> bool:
        """Whether anything was asked for."""
        return bool(self.sds) or bool(self.dispersions) or self.lkj is not None


def read_scales(asked: Mapping[str, Any], names: ScaleNames) -> ScaleSettings:
    """Read the entries of a dict of priors that name sds, correlations or the dispersion.

    Args:
        asked: Those entries; every key is one of `names.keys`.
        names: The positive parameters of the model.

    Returns:
        The densities, all of them valid; an sd's own entry wins over `"sd"`.

    Raises:
        ValueError: For a value that is no density, with the forms it can have.

    Example:
        >>> read_scales({"sd": 2}, ScaleNames(("sd(Intercept|g)",))).sds
        {0: ScaleDensity(name='half_normal', parameters=(2.0,))}
    """
    every = {k: read_density("sd", asked["sd"]) for k in range(len(names.sds))} if "sd" in asked else {}
    single = {k: read_density(key, asked[key]) for k, key in enumerate(names.sds) if key in asked}
    own = {k: _read_own(key, asked[key], names) for k, key in enumerate(names.dispersions) if key in asked}
    lkj = _read_lkj(asked["corr"]) if "corr" in asked else None
    return ScaleSettings(every | single, own, lkj)


def _read_own(key: str, value: Any, names: ScaleNames) -> ScaleDensity:
    """Read the density of a dispersion; of a probability the sd, or mean and sd, of its logit."""
    if key not in names.probabilities:
        return read_density(key, value)
    pair = (0.0, value) if isinstance(value, Real) else value
    if isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(each, Real) for each in pair):
        return _checked(key, "lognormal", tuple(pair))  # of the odds
    raise ValueError(
        f"the prior of {key!r}, a probability, must be the sd of its logit or a pair (mean, sd) of it, e.g. (0, 1.5); "
        f"not {value!r}."
    )


def read_density(key: str, value: Any) -> ScaleDensity:
    """Read the density of one positive parameter."""
    if isinstance(value, Real) and not isinstance(value, bool):
        return _checked(key, "half_normal", (value,))
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        name, *parameters = value
        if name == "lkj":
            raise ValueError(f"('lkj', eta) is a prior of correlations, not of {key!r}. Give it for 'corr'.")
        if name not in DENSITIES:
            raise ValueError(f"the prior of {key!r} names {name!r}, which is no density. Known: {_forms()}.")
        return _checked(key, name, tuple(parameters))
    raise ValueError(
        f"the prior of {key!r} must be a number (the scale of a half-normal) or a density, {_forms()}; not {value!r}."
    )


def _checked(key: str, name: str, parameters: tuple[Any, ...]) -> ScaleDensity:
    kind = DENSITIES[name]
    numbers = all(isinstance(value, Real) and not isinstance(value, bool) for value in parameters)
    if len(parameters) != len(kind.parameters) or not numbers:
        raise ValueError(
            f"the prior of {key!r}: {name} takes {_count(kind.parameters)}, {_form(name)}; got {(name, *parameters)}."
        )
    for label, value in zip(kind.parameters, parameters, strict=True):
        if not math.isfinite(value) or (label not in kind.real and value <= 0):
            need = "a finite number" if label in kind.real else "finite and greater than zero"
            raise ValueError(f"the prior of {key!r}: {label} of {name} must be {need}, not {value}.")
    return ScaleDensity(name, tuple(map(float, parameters)))


def _read_lkj(value: Any) -> float:
    if isinstance(value, list | tuple) and len(value) == 2 and value[0] == "lkj":
        eta = value[1]
        if isinstance(eta, Real) and not isinstance(eta, bool) and math.isfinite(eta) and float(eta) > 0:
            return float(eta)
    raise ValueError(f"the prior of 'corr' must be {LKJ_FORM}; not {value!r}.")


def _form(name: str) -> str:
    return f"({', '.join([repr(name), *DENSITIES[name].parameters])})"


def _forms() -> str:
    return _alternatives(_form(name) for name in DENSITIES)


def _alternatives(items: Iterable[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} or {last}"


def _count(names: tuple[str, ...]) -> str:
    return f"{len(names)} parameter{'s' if len(names) > 1 else ''} ({', '.join(names)})"


def refuse_correlation(key: str, names: ScaleNames) -> None:
    """Explain why one correlation, or any in a model without them, cannot have a prior of its own."""
    if names.has_correlations:
        raise ValueError(f"correlations have one prior together: give 'corr' in place of {key!r}, {LKJ_FORM}.")
    has = f" Sds and dispersion: {listing(names.keys)}." if names.keys else ""
    raise ValueError(f"the prior names {key!r}, but the model has no correlations: leave it out.{has}")
