"""Models written in PyMC, Bambi's among them: `from_pymc(model).fit()`.

PyMC hands out its log-density of unconstrained numbers as a function of JAX; natvi fits that, and hands everything back
under the model's own names, coordinates and dimensions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from natvi.models.density.door import fit
from natvi.result import Result
from natvi.x64 import float64

HINT = "models of PyMC need PyMC, which is not installed: pip install 'natvi[pymc]'."


def from_pymc(model: Any) -> "PymcModel":
    """Take a model of PyMC, or one of Bambi, which holds one.

    Args:
        model: A `pymc.Model`, or a Bambi model, which is built if that has not been done.

    Returns:
        The model; `.fit()` fits it.

    Raises:
        ValueError: For discrete variables that are not observed, or a model without parameters, with what to do.
        ImportError: Without PyMC.
    """
    try:
        import pymc as _  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        raise ImportError(HINT) from error
    if hasattr(model, "backend") and hasattr(model, "build"):  # Bambi's
        if model.backend is None:
            model.build()
        model = getattr(model.backend, "model", model)
    return PymcModel(model)


class PymcModel:
    """A model of PyMC."""

    def __init__(self, model: Any) -> None:
        """Check the model."""
        if not hasattr(model, "value_vars"):
            raise ValueError(f"from_pymc needs a pymc.Model, or a model of Bambi, not {type(model).__name__}.")
        if model.discrete_value_vars:
            name = model.values_to_rvs[model.discrete_value_vars[0]].name
            raise ValueError(
                f"the variable {name!r} is discrete and not observed: a log-density of it has no gradient. Sum over "
                "its values, e.g. by pymc.Mixture or pymc_extras.marginalize."
            )
        if not model.value_vars:
            raise ValueError("the model has no variable that is not observed: there is nothing to fit.")
        self.model = model

    def fit(self, **options: Any) -> Result:
        """Fit by `natvi.fit`, whose options these are: seed, method, structure and so on."""
        model = self.model
        free = [value.name for value in model.value_vars]
        # what PyMC shows: variables in their own space, and deterministic ones
        shown = [variable for variable in model.unobserved_value_vars if variable.name not in set(free)]
        plain = [value for value in model.value_vars if model.values_to_rvs[value].name == value.name]
        read = [*plain, *shown]
        with _precision_as_it_was(), float64():
            from pymc.sampling.jax import get_jaxified_graph, get_jaxified_logp  # type: ignore[import-not-found]

            log_p = get_jaxified_logp(model)
            carry = get_jaxified_graph(inputs=model.value_vars, outputs=read)
        start = {name: np.asarray(value, dtype=float) for name, value in model.initial_point().items()}
        result = fit(
            _of_dict(log_p, free),
            {name: start[name] for name in free},
            constrain=lambda p: dict(
                zip((variable.name for variable in read), carry(*(p[name] for name in free)), strict=True)
            ),
            **options,
        )
        return replace(result, model=replace(result.model, labels=self._labels()))  # type: ignore[type-var]

    def _labels(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        known = {name: list(dims) for name, dims in self.model.named_vars_to_dims.items() if None not in dims}
        coords = {name: list(values) for name, values in self.model.coords.items() if values is not None}
        return coords, known


@contextmanager
def _precision_as_it_was() -> Iterator[None]:
    """Undo that PyTensor sets JAX to double precision for the whole process when it is first asked for JAX."""
    import jax

    before = jax.config.read("jax_enable_x64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def _of_dict(log_p: Callable[[list[Any]], Any], names: list[str]) -> Callable[[dict[str, Any]], Any]:
    def logdensity(p: dict[str, Any]) -> Any:
        return log_p([p[name] for name in names])

    return logdensity
