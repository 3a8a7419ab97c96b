"""Where the ascent of a mixed model starts: rough values, and the expected information there."""

from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.table import Family
from natvi.linalg import ArrowMatrix, ArrowVector
from natvi.models.regression.prior.scales import ScalePriors
from natvi.optimize.arrow_system import Natural
from natvi.over_hosts import add_up
from natvi.run.compiled_code import quick_jit
from natvi.special import polygamma
from natvi.target import SumOfTerms
from natvi.target.mixed.marginal import mixed_parts
from natvi.target.mixed.modes import RowLikelihood
from natvi.target.mixed.random_effects import omega_positions
from natvi.target.point_mass import PointMass

LEAST_EXCESS, LARGEST_EXCESS = 1e-3, 1e2  # variance of a response relative to its squared mean


@runtime_checkable
class GroupedDesign(Protocol):
    """What a start is made of: the design, without its groups."""

    @property
    def X(self) -> np.ndarray:
        """The fixed-effects columns `(N, p)`."""
        ...

    @property
    def Z(self) -> np.ndarray:
        """The random-effects columns `(N, r)`."""
        ...

    @property
    def offset(self) -> np.ndarray:
        """The offset `(N,)`."""
        ...

    @property
    def correlated(self) -> bool:
        """Whether the random effects of a group may be correlated."""
        ...


class StartRows(NamedTuple):
    """Rows without a formula."""

    X: np.ndarray
    Z: np.ndarray
    offset: np.ndarray
    correlated: bool = True


class _Spread(NamedTuple):
    """Rough dispersions with their information, and an sd of the predictor between groups."""

    effect_sd: float
    dispersion: tuple[float, ...] = ()
    information: float = 0.0


def starting_values(
    design: GroupedDesign, y: np.ndarray, family: Family, weight: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Return rough (beta, dispersion, omega) and the information about the dispersion.

    Least squares on the link scale; what it leaves is shared between rows and groups.
    """
    X, r = design.X, design.Z.shape[1]
    filled = np.pad(y, (0, (1 << len(y).bit_length()) - len(y)), mode="edge")  # few sizes, as everywhere
    rough = np.asarray(_start(family, filled))[: len(y)] - design.offset
    weighted = X if weight is None else X * weight[:, None]
    gram = X.T @ weighted
    ridge = 1e-8 * np.trace(gram) / max(len(gram), 1) + 1e-300
    beta = np.linalg.solve(gram + ridge * np.eye(len(gram)), weighted.T @ rough)
    spread = _spread(family, y, rough, X @ beta, design.offset, weight)
    size = np.maximum(np.sqrt(np.mean(design.Z**2, axis=0)), 1e-300)
    positions = omega_positions(r, design.correlated)
    omega = np.zeros(len(positions))
    for k in range(r):
        omega[positions[k, k]] = -np.log(spread.effect_sd / size[k])
    return np.concatenate([beta, np.array(spread.dispersion), omega]), spread.information


@partial(quick_jit, static_argnums=0)
def _start(family: Family, y: Float[Array, " n"]) -> Float[Array, " n"]:
    return family.start(y)


def _spread(
    family: Family,
    y: np.ndarray,
    rough: np.ndarray,
    fitted: np.ndarray,
    offset: np.ndarray,
    weight: np.ndarray | None,
) -> _Spread:
    """Share the variance that the fixed effects leave in halves between the dispersion and the random effects."""
    total = float(len(y) if weight is None else np.sum(weight))
    if family.start_extras is not None:
        return _own_spread(family, y, fitted + offset, weight)
    if family.quadratic:
        error = rough - fitted
        error -= np.average(error, weights=weight)
        sd = float(np.sqrt(np.average(error**2, weights=weight))) + 1e-300
        return _Spread(0.7 * sd, (np.log(0.7 * sd),), 2.0 * total)  # the information about log sigma is 2 per row
    if not family.has_dispersion:
        return _Spread(1.0)
    counts = family.name == "negative_binomial"
    # a predictor beyond reason ends as an outcome of the fit, not here
    mean = np.exp(np.clip(fitted + offset, -100.0, 100.0))
    # Var y = mu + mu^2 / phi, or mu^2 / shape
    errors = (y - mean) ** 2 - (mean if counts else 0.0)
    excess = np.average(errors, weights=weight) / np.average(mean**2, weights=weight)
    half = 0.5 * float(np.clip(excess, LEAST_EXCESS, LARGEST_EXCESS))
    a = 1.0 / half
    if counts:
        # about that of a gamma variable, which the noise of the count hides unless mu is large beside phi
        information = 0.5 * float(np.average((mean / (mean + a)) ** 2, weights=weight))
    else:
        information = float(a**2 * polygamma(1, a) - a)  # E -d^2 log p / d (log a)^2
    return _Spread(np.sqrt(half), (np.log(a),), total * information)


def _own_spread(family: Family, y: np.ndarray, eta: np.ndarray, weight: np.ndarray | None) -> _Spread:
    """Ask the family for its extras; half an sd of the rough predictor lies between groups."""
    assert family.start_extras is not None
    w = np.ones(len(y)) if weight is None else weight
    size = (1 << len(y).bit_length()) - len(y)  # few sizes, as everywhere; rows of weight zero
    arrays = (jnp.asarray(np.pad(a, (0, size), mode=mode)) for a, mode in ((y, "edge"), (eta, "edge"), (w, "constant")))  # type: ignore[call-overload]
    found = np.asarray(family.start_extras(*arrays))
    # an sd in the response's unit, as the first of the extras is, or on the scale of the link
    apart = float(np.exp(found[0])) if family.link == "identity" else 0.7
    return _Spread(apart, tuple(map(float, found)), 0.3 * float(np.sum(w)))


def within_prior(shared: np.ndarray, scales: ScalePriors) -> np.ndarray:
    """Bring rough sds and a rough dispersion into the central interval of the priors that were set for them."""
    moved = shared.copy()
    places = [(found.position, found.power, found.density) for found in scales.placed]
    for start, densities, _ in scales.covariances:
        at = omega_positions(len(densities))
        places += [(start + at[k, k], -1.0, density) for k, density in enumerate(densities)]
    for position, power, density in places:
        low, high = np.log(density.interval())
        moved[position] = np.clip(power * moved[position], low, high) / power
    return moved


def starting_point(
    target: SumOfTerms, shared: Float[Array, " g"], information: Float[Array, ""], num_groups: int
) -> Natural:
    """Return N(mean, S^-1) with S the information at the rough values, positive definite by build.

    Args:
        target: A mixed model.
        shared: Rough (beta, dispersion, omega).
        information: About the dispersion parameter.
        num_groups: The number of groups.

    Returns:
        Natural parameters for the ascent.
    """
    likelihood, effects = mixed_parts(target)
    p, r, g = likelihood.p, effects.r, shared.shape[0]
    mean = ArrowVector(jnp.zeros((r, num_groups)), shared)
    bend = RowLikelihood(likelihood, shared).bends(likelihood.design.predictor(mean))[2]
    # where log p is not concave there is no information, and never less than none
    local, cross, corner = likelihood.design.gram(jnp.maximum(-bend, 0.0))
    corner, num_real = add_up((corner, effects.num_real(num_groups)))
    W = effects.precision_factor(shared)
    diagonal = _prior_precision(target, shared)
    for (row, column), position in effects.positions.items():
        # E[d^2] of the prior: 2 per group for log W_kk, Var theta_l for W_lk
        amount = 2.0 if row == column else W[row, row] ** -2.0
        diagonal = diagonal.at[effects.start + position].add(num_real * amount)
    if likelihood.family.has_dispersion:
        diagonal = diagonal.at[p : p + likelihood.family.num_extras].add(information)
    precision = ArrowMatrix(
        effects.where_real(local + (W @ W.T)[..., None], jnp.eye(r)[..., None]),
        jnp.zeros((g, r, num_groups)).at[:p].set(cross),
        jnp.diag(diagonal).at[:p, :p].add(corner),
    )
    return Natural(precision.matvec(mean), precision)


compiled_starting_point = quick_jit(starting_point, static_argnums=3)


def _prior_precision(target: SumOfTerms, shared: Float[Array, " g"]) -> Float[Array, " g"]:
    """Return the diagonal of minus the Hessian of the terms of theta_g alone, where it is positive."""
    point = PointMass(ArrowVector(jnp.zeros((1, 0)), shared))
    diagonal = jnp.zeros_like(shared)
    for term in target.shared:
        own = -jnp.diagonal(term.expected(point).hess.shared)
        diagonal = diagonal.at[term.start : term.start + own.shape[0]].add(jnp.maximum(own, 0.0))
    return diagonal
