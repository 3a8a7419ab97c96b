"""What a response distribution consists of."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natvi.families.rows import PredictorMoments, RowExpectation


class Extra(NamedTuple):
    """A number that all rows share beside the predictor: one real coordinate, and how people read it.

    Attributes:
        name: Such as "sigma".
        scale: "log" for a positive number x, whose coordinate is log x; "logit" for a probability.
        power: Of a positive number that tables show and priors are set on by default: 1 for sigma; -1/2 for phi and
            shape, since 1/sqrt(phi) is the relative spread that they stand for. It is zero where the response is as
            even as can be, and there phi itself has neither mean nor sd.
        prior: Name and parameters of the default density of x to that power, or None for half-t(3, 2.5 s) of a plain
            positive number, s being the spread of the response, and half-t(3, 1) of a power. Of a probability mean and
            sd of the logit.
    """

    name: str
    scale: str = "log"
    power: float = 1.0
    prior: tuple[str, tuple[float, ...]] | None = None

    @property
    def coordinate(self) -> str:
        """The coordinate's name, such as "log sigma"."""
        return f"{self.scale} {self.name}"

    @property
    def shown(self) -> str:
        """What tables show."""
        return {1.0: "{}", -0.5: "1/sqrt({})", -1.0: "1/{}"}[self.power].format(self.name)


class Part(NamedTuple):
    """A number beside the mean with a linear predictor of its own, of its coordinate (`natvi.families.parts`).

    Attributes:
        place: Among the numbers that the family's functions take.
        extra: What it is.
        columns: How many coefficients it has.
        effects: How many random effects.
    """

    place: int
    extra: Extra
    columns: int
    effects: int


class Family(NamedTuple):
    """A response distribution with its link; hashable, so that compiled code is shared between fits.

    Attributes:
        name: Such as "poisson".
        link: Such as "log": which function of the mean is linear.
        extras: Numbers beside the predictor that all rows share: a dispersion, the probability of a further zero,
            distances of thresholds. Of one the functions below take its coordinate, of several a stack of them, first
            axis first; of none they take None. All of them are called the dispersion here.
        log_kernel: (y, eta, dispersion or None) -> the part of log p(y | eta, dispersion) in which eta takes part.
        log_normaliser: (y, dispersion or None) -> the rest of it. Whoever moves eta alone computes it once.
        expected: (y, PredictorMoments) -> E log p with its derivatives in the means.
        mean: eta -> the mean of the response (of one trial); where extras move it, that for none of their effect.
        variance: (mean, dispersion or None) -> the variance of the response (of one trial).
        start: y -> a rough predictor, finite for every y that the family takes.
        draw: (key, eta, dispersion or None) -> responses (of one trial).
        mean_given: (eta, dispersion) -> the mean, where the dispersion moves it; else None.
        variance_given: (eta, dispersion) -> the variance, where the mean does not tell it; else None.
        start_extras: (y, eta, weights) -> rough extras `(q,)`, or None for those of the Gaussian's kind.
        log_concave: Whether log p is concave in eta for every response.
        quadratic: Whether log p is quadratic in eta, so that Gaussian effects stay Gaussian.
        discrete: Whether responses are counts or classes.
        settings: Numbers that are part of the family: degrees of freedom, the number of categories.
        parts: Numbers beside the mean that have a linear predictor of their own; they are not among the extras, and
            stand where they did in the dispersion that the functions take.
    """

    name: str
    link: str
    extras: tuple[Extra, ...]
    log_kernel: Callable[..., Float[Array, "*rows"]]
    log_normaliser: Callable[..., Float[Array, "*rows"]]
    expected: Callable[[Float[Array, "*rows"], PredictorMoments], RowExpectation]
    mean: Callable[[Float[Array, "*rows"]], Float[Array, "*rows"]]
    variance: Callable[..., Float[Array, "*rows"]]
    start: Callable[[Float[Array, "*rows"]], Float[Array, "*rows"]]
    draw: Callable[..., Float[Array, "*rows"]]
    mean_given: Callable[..., Float[Array, "..."]] | None = None
    variance_given: Callable[..., Float[Array, "..."]] | None = None
    start_extras: Callable[..., Float[Array, " q"]] | None = None
    log_concave: bool = True
    quadratic: bool = False
    discrete: bool = False
    settings: tuple[float, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def full_name(self) -> str:
        """The name with its settings, as `find_family` reads it, such as "student_t(4)"."""
        return self.name + (f"({', '.join(map(repr, self.settings))})" if self.settings else "")

    @property
    def num_extras(self) -> int:
        """How many numbers all rows share beside the predictor."""
        return len(self.extras)

    @property
    def has_dispersion(self) -> bool:
        """Whether there are such numbers."""
        return bool(self.extras)

    def response_mean(self, eta: Float[Array, "..."], disp: Float[Array, "..."] | None) -> Float[Array, "..."]:
        """Return the mean of the response."""
        return self.mean(eta) if self.mean_given is None else self.mean_given(eta, disp)

    def response_variance(self, eta: Float[Array, "..."], disp: Float[Array, "..."] | None) -> Float[Array, "..."]:
        """Return the variance of the response."""
        if self.variance_given is not None:
            return self.variance_given(eta, disp)
        return self.variance(self.response_mean(eta, disp), disp)

    def log_density(
        self, y: Float[Array, "..."], eta: Float[Array, "..."], disp: Float[Array, "..."] | None
    ) -> Float[Array, "..."]:
        """Return log p(y | eta, dispersion) of every row."""
        return self.log_kernel(y, eta, disp) + self.log_normaliser(y, disp)


def no_normaliser(y: Float[Array, "*rows"], disp: Float[Array, "..."] | None) -> Float[Array, "*rows"]:
    """Return zeros: eta takes part in all of log p."""
    return jnp.zeros_like(y)


@cache
def concave(family: Any) -> Any:
    """Return the family with its expected curvature cut to where log p is concave: for places to start from."""
    if hasattr(family, "made_concave"):
        return family.made_concave()
    if not isinstance(family, Family) or family.log_concave:  # what is no row of the table counts as concave
        return family

    def expected(y: Float[Array, "*rows"], x: PredictorMoments) -> RowExpectation:
        found = family.expected(y, x)
        return found._replace(d_eta_eta=jnp.minimum(found.d_eta_eta, 0.0))

    return family._replace(expected=expected)
