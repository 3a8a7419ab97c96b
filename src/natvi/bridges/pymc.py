"""Models written in PyMC, Bambi's among them: `from_pymc(model).fit()`.

PyMC hands out its log-density of unconstrained numbers as a function of JAX; natvi fits that, and hands everything back
under the model's own names, coordinates and dimensions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from natvi.bridges.export import to_tree
from natvi.models.density.door import fit
from natvi.result import Result
from natvi.x64 import float64

MOST_DETERMINISTIC = 1000  # numbers of deterministic variables that are read along
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
        start = {name: np.asarray(value, dtype=float) for name, value in model.initial_point().items()}
        with _precision_as_it_was(), float64():
            import jax
            from pymc.sampling.jax import get_jaxified_graph, get_jaxified_logp  # type: ignore[import-not-found]

            try:
                log_p = get_jaxified_logp(model)
            except NotImplementedError as error:
                raise ValueError(
                    f"a part of the model is unknown to JAX ({error}). Write it with functions of pytensor.tensor, or "
                    "teach JAX the operation: pytensor.link.jax.dispatch.jax_funcify."
                ) from error
            except ValueError as error:
                if "RandomType" not in str(error):
                    raise
                raise ValueError(
                    "the model draws random numbers of its own, e.g. by pm.Minibatch: its log-density would be another "
                    "one each time. Give it all data; for large data give natvi.fit data= and batch_size=."
                ) from error
            carry = get_jaxified_graph(inputs=model.value_vars, outputs=read)
            sizes = [leaf.size for leaf in jax.eval_shape(carry, *(start[name] for name in free))]
            derived = {variable.name for variable in model.deterministics}
            if sum(size for size, one in zip(sizes, read, strict=True) if one.name in derived) > MOST_DETERMINISTIC:
                read = [variable for variable in read if variable.name not in derived]
                carry = get_jaxified_graph(inputs=model.value_vars, outputs=read)
        result = fit(
            _of_dict(log_p, free),
            {name: start[name] for name in free},
            constrain=lambda p: dict(
                zip((variable.name for variable in read), carry(*(p[name] for name in free)), strict=True)
            ),
            **options,
        )
        return replace(result, model=replace(result.model, labels=self._labels()))  # type: ignore[type-var]

    def posterior_predictive(self, result: Result, num_samples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
        """Draw what is observed anew, by name, `(num_samples, ...)`.

        Args:
            result: Of `fit`. For new data, `pymc.set_data` before this is called.
            num_samples: The number of draws.
            seed: The same seed gives the same draws.
        """
        import pymc as pm  # type: ignore[import-not-found]

        with _precision_as_it_was(), self.model:
            found: Any = pm.sample_posterior_predictive(
                self._draws(result, num_samples, seed), random_seed=seed, progressbar=False
            )
        drawn = found.posterior_predictive
        return {str(name): np.asarray(drawn[name])[0] for name in drawn.data_vars}

    def log_likelihood(self, result: Result, num_samples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
        """Return the log-likelihood of what is observed, by name, `(num_samples, ...)`."""
        import pymc as pm  # type: ignore[import-not-found]

        with _precision_as_it_was():
            found: Any = pm.compute_log_likelihood(
                self._draws(result, num_samples, seed),
                model=self.model,
                extend_inferencedata=False,
                progressbar=False,
            )
        return {str(name): np.asarray(found[name])[0] for name in found.data_vars}

    def to_arviz(self, result: Result, num_samples: int = 1000, seed: int = 0) -> Any:
        """Return posterior, posterior predictive, log-likelihood and data as one DataTree, by the model's names."""
        parts = {
            "posterior": result.sample(num_samples, seed),
            "posterior_predictive": self.posterior_predictive(result, num_samples, seed),
            "log_likelihood": self.log_likelihood(result, num_samples, seed),
        }
        model = self.model
        observed = {rv.name: np.asarray(model.rvs_to_values[rv].data) for rv in model.observed_RVs}
        return to_tree(parts, observed, *self._labels())

    def _draws(self, result: Result, num_samples: int, seed: int) -> Any:
        """Return draws of the variables in the form that PyMC takes."""
        import arviz

        draws = result.sample(num_samples, seed)
        return arviz.from_dict(posterior={rv.name: draws[rv.name][None] for rv in self.model.free_RVs})

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
