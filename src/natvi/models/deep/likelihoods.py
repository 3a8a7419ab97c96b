"""The response of a net: what its output means, one row of functions for each kind.

An output has one row per example. `log_density(output, y)` gives log p of each example, constants included.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Density = Callable[[Any, Any], Float[Array, " k"]]


class Likelihood(NamedTuple):
    """A kind of response.

    Attributes:
        name: Its word.
        log_density: (output, y) -> log p of every example.
        mean: output -> expected response, or the probability of every class.
        columns: The columns an output must have: a number, 0 for as many as there are classes.
        variance: output -> variance of a response given the weights; None for classes.
    """

    name: str
    log_density: Density
    mean: Callable[[Any], Any]
    columns: int
    variance: Callable[[Any], Any] | None = None

    @property
    def has_classes(self) -> bool:
        """Whether responses are classes."""
        return self.name in ("categorical", "bernoulli")


def _column(output: Any) -> Any:
    return output[:, 0] if output.ndim == 2 else output


def _categorical(output: Any, y: Any) -> Any:
    return jnp.take_along_axis(jax.nn.log_softmax(output), y[:, None].astype(jnp.int32), axis=1)[:, 0]


def _bernoulli(output: Any, y: Any) -> Any:
    # y eta - log(1 + e^eta)
    eta = _column(output)
    return y * eta - jax.nn.softplus(eta)


def _poisson(output: Any, y: Any) -> Any:
    eta = _column(output)
    return y * eta - jnp.exp(eta) - jax.scipy.special.gammaln(y + 1.0)


def _normal(output: Any, y: Any) -> Any:
    # two columns: mean and log sd
    mean, log_sd = output[:, 0], output[:, 1]
    return -0.5 * jnp.log(2 * jnp.pi) - log_sd - 0.5 * ((y - mean) * jnp.exp(-log_sd)) ** 2


LIKELIHOODS = {
    "categorical": Likelihood("categorical", _categorical, jax.nn.softmax, 0),
    "bernoulli": Likelihood("bernoulli", _bernoulli, lambda output: jax.nn.sigmoid(_column(output)), 1),
    "poisson": Likelihood(
        "poisson", _poisson, lambda output: jnp.exp(_column(output)), 1, lambda output: jnp.exp(_column(output))
    ),
    "normal": Likelihood("normal", _normal, lambda output: output[:, 0], 2, lambda output: jnp.exp(2 * output[:, 1])),
}


def find_likelihood(likelihood: str | Likelihood) -> Likelihood:
    """Return a likelihood by its word; a `Likelihood` of one's own passes."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    if likelihood not in LIKELIHOODS:
        raise ValueError(
            f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}, or a natvi.models.deep.likelihoods."
            f"Likelihood of your own; got {likelihood!r}."
        )
    return LIKELIHOODS[likelihood]


def check_output(shape: tuple[int, ...], num_rows: int, likelihood: Likelihood) -> int:
    """Refuse an output of the wrong shape; return the number of its columns."""
    needed = {0: "(examples, classes)", 1: "(examples,) or (examples, 1)", 2: "(examples, 2): mean and log sd"}
    columns = shape[1] if len(shape) == 2 else 1 if len(shape) == 1 and likelihood.columns == 1 else 0
    right = columns >= 2 if likelihood.columns == 0 else columns == likelihood.columns
    if not right or shape[0] != num_rows:
        raise ValueError(
            f"apply returned shape {shape} for {num_rows} examples; a {likelihood.name} response needs "
            f"{needed[likelihood.columns]}. Let apply map a whole batch, e.g. jax.vmap over examples, and end in a "
            "linear layer of that width."
        )
    return columns


def check_response(y: Any, num_rows: int, likelihood: Likelihood, columns: int) -> np.ndarray:
    """Return the responses as an array that the likelihood takes, or say what is wrong with them."""
    y = np.asarray(y)
    if y.shape != (num_rows,):
        raise ValueError(
            f"y must have one response for each of {num_rows:,} examples, shape ({num_rows},); got {y.shape}. One-hot "
            "labels become classes by y.argmax(axis=1)."
        )
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y must hold numbers; got {y.dtype}. Code labels as 0, 1, ..., one for each class.")
    if not np.isfinite(y).all():
        raise ValueError(f"y holds {int((~np.isfinite(y)).sum())} missing or infinite values. Remove those examples.")
    if likelihood.has_classes:
        classes = 2 if likelihood.name == "bernoulli" else columns
        strange = y[(y < 0) | (y >= classes) | (y != np.floor(y))]
        if strange.size:
            raise ValueError(
                f"Labels must be 0, ..., {classes - 1}, one for each of the net's {classes} classes; {strange.size:,} "
                f"of {y.size:,} are not, e.g. {strange[0]}. Recode them, or widen the net's last layer."
            )
        return y.astype(np.int32 if likelihood.name == "categorical" else np.float32)
    if likelihood.name == "poisson" and ((y < 0) | (y != np.floor(y))).any():
        raise ValueError("Poisson responses must be whole numbers of at least 0.")
    return y.astype(np.float32)
