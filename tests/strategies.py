"""What the mathematical tests share: random structures, random grouped data, dense mirrors, exact quadrature.

Dense NumPy is the oracle. A vector on the arrow is laid out group by group, the shared coordinates last; every
generator takes a seed and gives NumPy float64, which JAX takes over with the width of the process.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats

from natvi.families.table import FAMILIES, Family
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowMatrix, ArrowVector, GroupedRows, layout_rows
from natvi.linalg.grouped_rows import RowLayout
from natvi.target import Expected, LikelihoodRows, NormalPrior, RandomEffectsPrior, SumOfTerms

# Data are tiny and compilation is the cost of a test: without optimisation it takes half the time.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


# --- the arrow and its dense mirror ------------------------------------------------------------------------


def dense_vector(x: ArrowVector) -> np.ndarray:
    """Lay an arrow vector out: the locals group by group, then the shared coordinates."""
    return np.concatenate([np.asarray(x.local).T.ravel(), np.asarray(x.shared)])


def arrow_vector(x: np.ndarray, r: int, n: int) -> ArrowVector:
    """Invert `dense_vector`."""
    return ArrowVector(jnp.asarray(x[: r * n].reshape(n, r).T), jnp.asarray(x[r * n :]))


def dense_factor(T: ArrowFactor) -> np.ndarray:
    """Lay a lower triangular arrow out."""
    local, cross, shared = (np.asarray(part) for part in T)
    g, r, n = cross.shape
    dense = np.zeros((r * n + g, r * n + g))
    for i in range(n):
        own = slice(r * i, r * i + r)
        dense[own, own] = local[..., i]
        dense[r * n :, own] = cross[..., i]
    dense[r * n :, r * n :] = shared
    return dense


def dense_matrix(H: ArrowMatrix) -> np.ndarray:
    """Lay a symmetric arrow out, the part above the diagonal included."""
    lower = dense_factor(ArrowFactor(*H))
    d = lower.shape[0] - H.shared.shape[0]
    lower[:d, d:] = lower[d:, :d].T
    return lower


def pattern_parts(dense: np.ndarray, r: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read local blocks, cross blocks and the shared block out of a dense matrix, whatever else it holds."""
    d = r * n
    local = np.zeros((r, r, n))
    for i in range(n):
        local[..., i] = dense[r * i : r * i + r, r * i : r * i + r]
    cross = dense[d:, :d].reshape(len(dense) - d, n, r).swapaxes(1, 2)
    return local, cross, dense[d:, d:]


def random_vector(r: int, g: int, n: int, seed: int) -> ArrowVector:
    """Draw a standard normal arrow vector."""
    return arrow_vector(np.random.default_rng(seed).standard_normal(r * n + g), r, n)


def random_arrow(r: int, g: int, n: int, seed: int, condition: float = 30.0) -> ArrowMatrix:
    """Draw a symmetric positive definite arrow whose eigenvalues lie in [1, `condition`]."""
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal((r * n + g, r * n + g))
    local, cross, shared = pattern_parts(draw + draw.T, r, n)
    dense = dense_matrix(ArrowMatrix(jnp.asarray(local), jnp.asarray(cross), jnp.asarray(shared)))
    low, high = np.linalg.eigvalsh(dense)[[0, -1]]
    if high - low < 1e-9:
        return ArrowMatrix(*(jnp.asarray(part) for part in pattern_parts(np.eye(r * n + g), r, n)))
    dense = np.eye(r * n + g) + (condition - 1) * (dense - low * np.eye(r * n + g)) / (high - low)
    return ArrowMatrix(*(jnp.asarray(part) for part in pattern_parts(dense, r, n)))


def random_factor(r: int, g: int, n: int, seed: int) -> ArrowFactor:
    """Draw a lower triangular arrow with bounded condition number and diagonal entries of both signs."""
    dense = np.linalg.cholesky(dense_matrix(random_arrow(r, g, n, seed)))
    signs = np.random.default_rng(seed + 1).choice([-1.0, 1.0], size=dense.shape[0])
    return ArrowFactor(*(jnp.asarray(part) for part in pattern_parts(dense * signs, r, n)))


def random_gaussian(r: int, g: int, n: int, seed: int, scale: float = 1.0, mean_scale: float = 0.5) -> ArrowPrecision:
    """Draw a Gaussian on the arrow; its marginal sds lie between `scale / sqrt(30)` and `scale`."""
    H = random_arrow(r, g, n, seed)
    mean = dense_vector(random_vector(r, g, n, seed + 1)) * mean_scale
    H = ArrowMatrix(*(part / scale**2 for part in H))
    return _from_precision(arrow_vector(mean, r, n), H)


@quick_jit
def _from_precision(mean: ArrowVector, precision: ArrowMatrix) -> ArrowPrecision:
    return ArrowPrecision.from_factor(mean, precision.cholesky())


def dense_moments(gaussian: ArrowPrecision) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of a Gaussian on the arrow."""
    T = dense_factor(gaussian.factor)
    return dense_vector(gaussian.mean), np.linalg.inv(T @ T.T)


# --- grouped data ------------------------------------------------------------------------------------------


class GroupedData(NamedTuple):
    """Rows in the order of the data, with their group codes."""

    X: np.ndarray  # (N, p)
    Z: np.ndarray  # (N, r)
    offset: np.ndarray  # (N,)
    group: np.ndarray  # (N,)

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return int(self.group.max()) + 1


def random_data(sizes: tuple[int, ...], p: int, r: int, seed: int) -> GroupedData:
    """Draw covariates for groups of the given sizes, the rows in random order."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    N = len(group)
    X = np.column_stack([np.ones(N), rng.uniform(-1, 1, (N, p - 1))])
    Z = np.column_stack([np.ones(N), rng.uniform(-1, 1, (N, r - 1))])
    return GroupedData(X, Z, rng.uniform(-0.3, 0.3, N), group)


def grouped_rows(data: GroupedData) -> tuple[GroupedRows, RowLayout]:
    """Lay the data out as a design operator."""
    layout = layout_rows(data.group, data.num_groups)
    rows = GroupedRows(
        X=jnp.asarray(layout.place(data.X.T)),
        Z=jnp.asarray(layout.place(data.Z.T)),
        offset=jnp.asarray(layout.place(data.offset)),
        filled=jnp.asarray(layout.place(np.ones(len(data.group), dtype=bool), fill=False)),
        extra=jnp.asarray(layout.extra),
        num_simple=layout.num_simple,
    )
    return rows, layout


def dense_design(data: GroupedData, layout: RowLayout, g: int) -> np.ndarray:
    """Return the design matrix A `(N, r n + g)` whose row is a' with eta = offset + a' theta."""
    r, p, n = data.Z.shape[1], data.X.shape[1], data.num_groups
    A = np.zeros((len(data.group), r * n + g))
    first = r * layout.place_of_group[data.group]
    for k in range(r):
        A[np.arange(len(A)), first + k] = data.Z[:, k]
    A[:, r * n : r * n + p] = data.X
    return A


def pick(layout: RowLayout, grid: np.ndarray) -> np.ndarray:
    """Read the rows, in the order of the data, from a grid `(..., c, K)`."""
    grid = np.asarray(grid)
    return grid.reshape(*grid.shape[:-2], -1)[..., layout.cell]


# --- response distributions --------------------------------------------------------------------------------


class FamilyCase(NamedTuple):
    """A family beside an independent statement of its density, and how to draw from it."""

    family: Family
    log_density: Callable[[np.ndarray, np.ndarray, float], np.ndarray]
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]


LIKELIHOODS = {
    "poisson": FamilyCase(
        FAMILIES["poisson"],
        lambda y, eta, disp: scipy.stats.poisson.logpmf(y, np.exp(eta)),
        lambda rng, eta: rng.poisson(np.exp(eta)).astype(float),
    ),
    "bernoulli": FamilyCase(
        FAMILIES["bernoulli"],
        lambda y, eta, disp: scipy.stats.bernoulli.logpmf(y, scipy.special.expit(eta)),
        lambda rng, eta: (rng.uniform(size=eta.shape) < scipy.special.expit(eta)).astype(float),
    ),
    "gaussian": FamilyCase(
        FAMILIES["gaussian"],
        lambda y, eta, disp: scipy.stats.norm.logpdf(y, eta, np.exp(disp)),
        lambda rng, eta: rng.normal(eta, 0.8),
    ),
}


class MixedCase(NamedTuple):
    """A small mixed model: its target, data, response and sizes."""

    target: SumOfTerms
    data: GroupedData
    layout: RowLayout
    y: np.ndarray
    r: int
    g: int
    n: int


def mixed_case(name: str, sizes: tuple[int, ...], r: int, seed: int, p: int = 2, correlated: bool = True) -> MixedCase:
    """Draw data from a mixed model and build its target, with priors of unequal means and sds."""
    case = LIKELIHOODS[name]
    rng = np.random.default_rng(seed + 7)
    data = random_data(sizes, p, r, seed)
    effects = 0.6 * rng.standard_normal((len(sizes), r))
    eta = data.offset + data.X @ np.linspace(0.4, -0.5, p) + np.sum(data.Z * effects[data.group], axis=1)
    y = case.draw(rng, eta)
    rows, layout = grouped_rows(data)
    start = p + int(case.family.has_dispersion)
    effects_prior = RandomEffectsPrior(r, start, correlated)
    g = effects_prior.stop
    prior = NormalPrior(jnp.asarray(np.linspace(-0.2, 0.3, g)), jnp.asarray(np.linspace(1.0, 2.0, g)))
    likelihood = LikelihoodRows(rows, jnp.asarray(layout.place(y)), case.family)
    target = SumOfTerms((likelihood, effects_prior), (prior,))
    return MixedCase(target, data, layout, y, r, g, len(sizes))


class QuadraticTerm(eqx.Module):
    """The log-density of N(mean, precision^-1) on the arrow, as a term: a target that q can match exactly."""

    mean: ArrowVector
    precision: ArrowMatrix
    start: int = eqx.field(static=True, default=0)

    def num_simple(self, num_groups):
        return 0

    def block(self, start, size):
        raise NotImplementedError

    def rest(self, start):
        raise NotImplementedError

    def group_gradients(self, theta):
        raise NotImplementedError

    def value(self, theta):
        return ArrowPrecision.from_factor(self.mean, self.precision.cholesky()).log_prob(theta)

    def expected(self, gaussian):
        r = self.mean.local.shape[0]
        _, V = gaussian.group_moments(0, self.mean.shared.shape[0])
        shared = gaussian.shared_covariance()
        spread = jnp.sum(self.precision.local * V[:r, :r]) + 2 * jnp.sum(self.precision.cross * V[r:, :r])
        spread += jnp.sum(self.precision.shared * shared)
        error = ArrowVector(self.mean.local - gaussian.mean.local, self.mean.shared - gaussian.mean.shared)
        grad = self.precision.matvec(error)
        hess = ArrowMatrix(*(-part for part in self.precision))
        return Expected(self.value(gaussian.mean) - 0.5 * spread, grad, hess)


# --- exact quadrature, the oracle of expectations ----------------------------------------------------------


def panels(low: float, high: float, num_panels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the composite Gauss-Legendre rule of order 16."""
    x, w = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(low, high, num_panels + 1)
    centres, half = (edges[1:] + edges[:-1]) / 2, (high - low) / num_panels / 2
    return (centres[:, None] + half * x).ravel(), np.tile(half * w, num_panels)


def hermite(orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes `(d, k)` and weights of a product rule for d independent standard normals."""
    rules = [np.polynomial.hermite_e.hermegauss(order) for order in orders]
    nodes = np.stack([axis.ravel() for axis in np.meshgrid(*(x for x, _ in rules), indexing="ij")])
    weights = np.ones(1)
    for _, w in rules:
        weights = np.outer(weights, w / np.sqrt(2 * np.pi)).ravel()
    return nodes, weights


def check_draws_against_tables(result, num_groups: int, num_draws: int) -> None:
    """Draws of a fit of `y ~ x + (1 | g)` whose tables come from draws too: the same law, the same bits for a seed."""
    draws = result.sample(num_draws, seed=1)
    assert draws["Intercept|g"].shape == (num_draws, num_groups) and draws["x"].dtype == np.float64
    for name, row in result.summary().iterrows():
        z = (draws[str(name)].mean() - row["mean"]) / row["sd"]
        assert abs(z) < 0.08 and abs(draws[str(name)].std() / row["sd"] - 1) < 0.08
    effects = result.random_effects()
    assert list(effects.columns) == ["g", "effect", "mean", "sd", "q2.5", "q97.5"]
    z = (draws["Intercept|g"].mean(0) - effects["mean"]) / effects["sd"]
    assert np.max(np.abs(z)) < 5 * np.sqrt(1 / 1000 + 1 / num_draws)
    again, other = result.sample(num_draws, seed=1), result.sample(num_draws, seed=2, random_effects=False)
    assert all(np.array_equal(draws[name], again[name]) for name in draws)
    assert not np.array_equal(draws["x"], other["x"]) and "Intercept|g" not in other
    np.testing.assert_array_equal(result.sample(num_draws, seed=1, random_effects=False)["x"], draws["x"])
