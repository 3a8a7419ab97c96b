"""Models written in NumPyro: `from_numpyro(model, *args).fit()`.

NumPyro traces the model, finds the constraints and gives the log-density of unconstrained numbers; natvi fits that, and
hands everything back under the model's own names, with its plates as dimensions.
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

HINT = "models of NumPyro need NumPyro, which is not installed: pip install 'natvi[numpyro]'."
MOST_DETERMINISTIC = 1000  # numbers of deterministic sites that are read along


def from_numpyro(model: Any, *args: Any, **kwargs: Any) -> "NumpyroModel":
    """Take a model of NumPyro, with the arguments it is to be called with.

    Args:
        model: A function with `numpyro.sample` statements; every unobserved variable is continuous.
        args: Its arguments, data among them.
        kwargs: Its arguments by name.

    Returns:
        The model; `.fit()` fits it.

    Raises:
        ValueError: For discrete latent variables, subsampled plates or parameters without a prior, with what to do.
        ImportError: Without NumPyro.

    Example:
        >>> import numpy as np
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> def model(y):
        ...     mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
        ...     with numpyro.plate("row", len(y)):
        ...         numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> result = from_numpyro(model, np.array([1.0, 2.0, 3.0])).fit()
        >>> round(float(result.summary().loc["mean", "mean"]), 1)
        2.0
    """
    try:
        import numpyro as _  # noqa: F401
    except ImportError as error:
        raise ImportError(HINT) from error
    if not callable(model):
        raise ValueError(f"from_numpyro needs a model, a function with numpyro.sample, not {type(model).__name__}.")
    return NumpyroModel(model, args, kwargs)


class NumpyroModel:
    """A model of NumPyro with its arguments."""

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Trace the model and check it."""
        from numpyro.handlers import seed, substitute, trace
        from numpyro.infer.initialization import init_to_uniform

        self.model, self.args, self.kwargs = model, args, kwargs
        with float64(), _keys_asked_for() as asked:
            # improper distributions cannot be drawn from: they are given a point of their support
            drawn_or_given = substitute(seed(model, 0), substitute_fn=init_to_uniform(radius=0))
            sites = trace(drawn_or_given).get_trace(*args, **kwargs)
        _check(sites, bool(asked))
        drawn = {name: site for name, site in sites.items() if site["type"] == "sample"}
        self.latent = [name for name, site in drawn.items() if not site["is_observed"]]
        self.observed = {name: np.asarray(site["value"]) for name, site in drawn.items() if site["is_observed"]}
        fixed = {name: site for name, site in sites.items() if site["type"] == "deterministic"}
        small = sum(np.size(site["value"]) for site in fixed.values()) <= MOST_DETERMINISTIC
        self.read = [*self.latent, *(fixed if small else ())]
        self.labels = _labels({name: sites[name] for name in [*self.read, *self.observed]})

    def fit(self, **options: Any) -> Result:
        """Fit by `natvi.fit`, whose options these are: seed, method, structure and so on."""
        potential, constrain, start = self._potential()
        result = fit(
            lambda z: -potential(z),
            start,
            constrain=lambda z: {name: value for name, value in constrain(z).items() if name in self.read},
            **options,
        )
        return replace(result, model=replace(result.model, labels=self.labels))  # type: ignore[type-var]

    def _potential(self) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, np.ndarray]]:
        """Return NumPyro's potential, its map to constrained values, and a start: zeros where they will do."""
        import jax
        from numpyro.infer.initialization import init_to_uniform
        from numpyro.infer.util import initialize_model

        with float64():
            for radius in (0, 2):
                try:
                    info = initialize_model(
                        jax.random.PRNGKey(0),
                        self.model,
                        init_strategy=init_to_uniform(radius=radius),
                        model_args=self.args,
                        model_kwargs=self.kwargs,
                    )
                    break
                except RuntimeError as error:
                    found = error
            else:
                raise ValueError(
                    "NumPyro finds no point at which the model's log-density is finite: look for missing values, and "
                    f"for data outside of the support of their distribution ({str(found).partition(chr(10))[0]})."
                ) from found
            start = {name: np.asarray(value, dtype=float) for name, value in info.param_info.z.items()}
        return info.potential_fn, info.postprocess_fn, start

    def posterior_predictive(
        self, result: Result, *args: Any, num_samples: int = 1000, seed: int = 0, **kwargs: Any
    ) -> dict[str, np.ndarray]:
        """Draw what is observed anew, by name; with arguments, for these in place of the model's own.

        Args:
            result: Of `fit`.
            args: Other arguments of the model, e.g. new rows.
            num_samples: The number of draws.
            seed: The same seed gives the same draws.
            kwargs: Other arguments by name.
        """
        import jax
        from numpyro.handlers import uncondition
        from numpyro.infer import Predictive

        own = not (args or kwargs)
        model = uncondition(self.model) if own else self.model
        with float64():
            predictive = Predictive(model, self._latent_draws(result, num_samples, seed))
            args, kwargs = (self.args, self.kwargs) if own else (args, kwargs)
            drawn = predictive(jax.random.PRNGKey(seed), *args, **kwargs)
            return {name: np.asarray(drawn[name]) for name in self.observed if name in drawn}

    def log_likelihood(self, result: Result, num_samples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
        """Return the log-likelihood of what is observed, by name, `(num_samples, ...)`."""
        from numpyro.infer import log_likelihood

        with float64():
            found = log_likelihood(self.model, self._latent_draws(result, num_samples, seed), *self.args, **self.kwargs)
            return {name: np.asarray(values) for name, values in found.items()}

    def to_arviz(self, result: Result, num_samples: int = 1000, seed: int = 0) -> Any:
        """Return posterior, posterior predictive, log-likelihood and data as one DataTree, by the model's names."""
        parts = {
            "posterior": result.sample(num_samples, seed),
            "posterior_predictive": self.posterior_predictive(result, num_samples=num_samples, seed=seed),
            "log_likelihood": self.log_likelihood(result, num_samples, seed),
        }
        return to_tree(parts, self.observed, *self.labels)

    def _latent_draws(self, result: Result, num_samples: int, seed: int) -> dict[str, np.ndarray]:
        draws = result.sample(num_samples, seed)
        return {name: draws[name] for name in self.latent}


@contextmanager
def _keys_asked_for() -> Iterator[list[str]]:
    """Collect what a model asks for random numbers by itself, beside its distributions."""
    from numpyro.primitives import Messenger

    found: list[str] = []

    class Listener(Messenger):
        def process_message(self, msg: Any) -> None:
            if msg["type"] == "prng_key":
                found.append("prng_key")

    with Listener():
        yield found


def _check(sites: dict[str, Any], is_random: bool) -> None:
    """Refuse what has no differentiable log-density of all data."""
    if is_random:
        raise ValueError(
            "the model draws random numbers of its own (numpyro.prng_key): its log-density would be another one each "
            "time. Draw them once, outside of the model, or by numpyro.sample."
        )
    for name, site in sites.items():
        if site["type"] == "plate" and site["args"][1] is not None and site["args"][1] < site["args"][0]:
            raise ValueError(
                f"the plate {name!r} takes {site['args'][1]:,} of {site['args'][0]:,} rows at random: the log-density "
                "would be another one each time. Leave subsample_size out; for large data give natvi.fit data= and "
                "batch_size=."
            )
        if site["type"] == "param":
            raise ValueError(
                f"{name!r} is a numpyro.param, which has no prior. Give it one: numpyro.sample({name!r}, ...)."
            )
        if site["type"] == "sample" and not site["is_observed"] and _is_discrete(site):
            raise ValueError(
                f"the variable {name!r} is discrete and not observed: a log-density of it has no gradient. Sum over "
                "its values, e.g. by numpyro.distributions.MixtureSameFamily."
            )
    if not any(site["type"] == "sample" and not site["is_observed"] for site in sites.values()):
        raise ValueError("the model has no variable that is not observed: there is nothing to fit.")


def _is_discrete(site: dict[str, Any]) -> bool:
    support = getattr(site["fn"], "support", None)
    return bool(getattr(support, "is_discrete", False)) or "enumerate" in site.get("infer", {})


def _labels(sites: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
    """Return coordinates and dimensions: plates by their names, what an event has by numbers."""
    coords: dict[str, list[Any]] = {}
    dims: dict[str, list[str]] = {}
    for name, site in sites.items():
        ndim = np.ndim(site["value"])
        if not ndim:
            continue
        event = len(site["fn"].event_shape) if site["type"] == "sample" else 0
        own = [f"{name}_dim_{k}" for k in range(ndim)]
        for frame in site.get("cond_indep_stack", ()):
            place = ndim - event + frame.dim
            if 0 <= place < ndim and np.shape(site["value"])[place] == frame.size:
                own[place] = frame.name
        dims[name] = own
        coords |= {one: list(range(size)) for one, size in zip(own, np.shape(site["value"]), strict=True)}
    return coords, dims
