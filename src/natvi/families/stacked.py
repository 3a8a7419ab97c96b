"""A row with several predictors as several rows with one each, so that any design of rows can hold it.

With a, b the rows of a design for two predictors, and a + b the row of their sum,

    h_aa a a' + h_ab (a b' + b a') + h_bb b b' = (h_aa - h_ab) a a' + (h_bb - h_ab) b b' + h_ab (a + b)(a + b)',
    Cov(a, b) = (Var(a + b) - Var(a) - Var(b)) / 2,

so that moments, gradient and Hessian of a function of both predictors are those of three rows of one predictor: a, b
and a + b. Three predictors have six. Along the first axis of an array these rows stand side by side.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.family import Family
from natvi.families.parts import join_extras, part_slices, without_parts
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.linalg import small_blocks

Kinds = tuple[tuple[int, ...], ...]


def kinds_of(family: Family) -> Kinds:
    """Return which predictors every one of the stacked rows adds up.

    Example:
        >>> from natvi.families.family import Part
        >>> from natvi.families.parts import with_parts
        >>> from natvi.families.table import find_family
        >>> plain = find_family("gaussian")
        >>> kinds_of(with_parts(plain, (Part(0, plain.extras[0], columns=1, effects=0),)))
        ((0,), (1,), (0, 1))
    """
    k = 1 + len(family.parts)
    return (*((a,) for a in range(k)), *combinations(range(k), 2))


def stacked_columns(
    family: Family, X: np.ndarray, Z: np.ndarray, offset: np.ndarray | None
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Return columns `(n, p)`, random effects' columns `(n, r)` and offset of every kind of stacked row."""
    slices, found = part_slices(family, X.shape[1], Z.shape[1]), []
    for kind in kinds_of(family):
        x, z = np.zeros_like(X), np.zeros_like(Z)
        for a in kind:
            columns, effects = slices[a]
            x[:, columns], z[:, effects] = X[:, columns], Z[:, effects]
        found.append((x, z, offset if offset is None or 0 in kind else np.zeros_like(offset)))
    return found


def interleave(kinds: list[np.ndarray], axis: int = 0) -> np.ndarray:
    """Put arrays of every kind side by side along an axis.

    Example:
        >>> interleave([np.array([1, 2]), np.array([3, 4])]).tolist()
        [1, 3, 2, 4]
    """
    shape = list(kinds[0].shape)
    shape[axis] *= len(kinds)
    return np.stack(kinds, axis=axis + 1 if axis >= 0 else axis).reshape(shape)


def rows_each(family: Any) -> int:
    """Return how many rows stand for one response: more than one where a family has parts and is stacked."""
    return len(family.kinds) if isinstance(family, Stacked) else 1


def for_rows(family: Family) -> "Family | Stacked":
    """Return what the rows of a target ask: the family itself, or stacked where it has parts."""
    return Stacked(family) if family.parts else family


class Stacked(NamedTuple):
    """A family with parts as a family of stacked rows: its value stands in the first of them."""

    family: Family
    cut: bool = False  # whether curvatures are cut to where log p is concave, predictors apart

    @property
    def kinds(self) -> Kinds:
        """Which predictors every one of the stacked rows adds up."""
        return kinds_of(self.family)

    @property
    def has_dispersion(self) -> bool:
        """Whether there are numbers that all rows share."""
        return bool(self.family.extras)

    @property
    def num_extras(self) -> int:
        """How many they are."""
        return len(self.family.extras)

    @property
    def log_concave(self) -> bool:
        """Whether log p is concave in the random effects."""
        alone = all(part.effects == 0 for part in self.family.parts) or self.family.name == "hurdle_poisson"
        return self.family.log_concave and alone

    @property
    def quadratic(self) -> bool:
        """Whether log p is quadratic in the random effects."""
        return self.family.quadratic and all(part.effects == 0 for part in self.family.parts)

    def made_concave(self) -> "Stacked":
        """Return the family with its curvatures cut, for places to start from."""
        return self._replace(cut=True)

    # --- at one point ------------------------------------------------------------------------------------

    def log_density(self, y: Array, eta: Array, disp: Array | None) -> Array:
        """Return log p of every row."""
        own = self._split(eta)
        value = self._value(self._split(y)[0], list(own), self._wide(disp, own[0]))
        return self._put([value])

    def log_kernel(self, y: Array, eta: Array, disp: Array | None) -> Array:
        """Return the same: predictors take part in all of it."""
        return self.log_density(y, eta, disp)

    def log_normaliser(self, y: Array, disp: Array | None) -> Array:
        """Return zeros."""
        return jnp.zeros_like(y)

    def row_derivatives(self, y: Array, eta: Array, disp: Array | None) -> tuple[Array, Array, Array]:
        """Return value, slope and bend of every stacked row, bends cut to where log p is concave if it is not."""
        k, own = 1 + len(self.family.parts), self._split(eta)
        first, wide = self._split(y)[0], self._wide(disp, own[0])

        def slopes(at: list[Array]) -> tuple[Array, list[Array]]:
            value, pull = jax.vjp(lambda at: self._value(first, at, wide), at)
            return value, pull(jnp.ones_like(value))[0]

        at = [own[a] for a in range(k)]
        none, H = [jnp.zeros_like(each) for each in at], []
        for a in range(k):
            move = [*none[:a], jnp.ones_like(at[a]), *none[a + 1 :]]
            (value, slope), (_, row) = jax.jvp(slopes, (at,), (move,))
            H.append(row)
        if not self.log_concave:
            H = _concave(H)
        return self._put([value]), self._put(slope), self._put(self._weights(H))

    # --- under a Gaussian --------------------------------------------------------------------------------

    def expected(self, y: Array, x: PredictorMoments) -> RowExpectation:
        """Return E log p with its derivatives."""
        k, q = 1 + len(self.family.parts), self.num_extras
        first, moments = self._split(y)[0], self._moments(x)
        base = without_parts(self.family)
        found = base.expected(first, moments)
        total = base.num_extras
        d = jnp.reshape(_there(found.d_disp), (total, *first.shape))
        cross = jnp.reshape(_there(found.d_eta_disp), (total, *first.shape))
        both = jnp.reshape(_there(found.d_disp_disp), (total, total, *first.shape))
        at = [part.place for part in self.family.parts]
        rest = [place for place in range(total) if place not in at]
        H = [[found.d_eta_eta, *(cross[i] for i in at)]]
        H += [[cross[i], *(both[i, j] for j in at)] for i in at]
        if self.cut:
            H = [[jnp.minimum(H[a][b], 0.0) if a == b else jnp.zeros_like(first) for b in range(k)] for a in range(k)]
        result = RowExpectation(
            self._put([found.value]), self._put([found.d_eta, *(d[i] for i in at)]), self._put(self._weights(H))
        )
        if not q:
            return result
        slope = jnp.stack([self._put([d[s]]) for s in rest])
        mixed = jnp.stack([self._put([cross[s], *(both[s, i] for i in at)]) for s in rest])
        bend = jnp.stack([jnp.stack([self._put([both[s, t]]) for t in rest]) for s in rest])
        if q == 1:
            slope, mixed, bend = slope[0], mixed[0], bend[0, 0]
        return result._replace(d_disp=slope, d_eta_disp=mixed, d_disp_disp=bend)

    def _moments(self, x: PredictorMoments) -> PredictorMoments:
        """Return the moments of the mean's predictor and of all other numbers, a row for every response."""
        k, q, kinds = 1 + len(self.family.parts), self.num_extras, self.kinds
        mean, variance = self._split(x.mean), self._split(x.variance)
        shape = mean[0].shape

        def between(a: int, b: int) -> Array:
            if a == b:
                return variance[a]
            return 0.5 * (variance[kinds.index((min(a, b), max(a, b)))] - variance[a] - variance[b])

        own_mean, S = [mean[a] for a in range(1, k)], [[between(a, b) for b in range(k)] for a in range(k)]
        if not q:
            if k == 2:
                return PredictorMoments(mean[0], variance[0], own_mean[0], S[1][1], S[0][1])
            inner = jnp.stack([jnp.stack(row[1:]) for row in S[1:]])
            return PredictorMoments(mean[0], variance[0], jnp.stack(own_mean), inner, jnp.stack(S[0][1:]))
        shared_mean = jnp.reshape(_there(x.disp_mean), (q,))
        shared_variance = jnp.reshape(_there(x.disp_variance), (q, q))
        # Cov(shared, predictor) of every kind
        C = [self._split(each) for each in jnp.reshape(_there(x.covariance), (q, *x.mean.shape))]
        total, at = q + k - 1, [part.place for part in self.family.parts]
        rest = [place for place in range(total) if place not in at]
        where = {place: ("own", a) for a, place in enumerate(at, 1)} | {p: ("shared", s) for s, p in enumerate(rest)}

        def covariance(i: int, j: int) -> Array:
            (kind, a), (other, b) = where[i], where[j]
            if kind == other == "own":
                return S[a][b]
            if kind == other:
                return jnp.broadcast_to(shared_variance[a, b], shape)
            return C[b][a] if kind == "own" else C[a][b]

        middle = [
            own_mean[a - 1] if kind == "own" else jnp.broadcast_to(shared_mean[a], shape)
            for kind, a in (where[i] for i in range(total))
        ]
        with_eta = [S[0][a] if kind == "own" else C[a][0] for kind, a in (where[i] for i in range(total))]
        spread = jnp.stack([jnp.stack([covariance(i, j) for j in range(total)]) for i in range(total)])
        return PredictorMoments(mean[0], variance[0], jnp.stack(middle), spread, jnp.stack(with_eta))

    # --- where to start ----------------------------------------------------------------------------------

    def start(self, y: Array) -> Array:
        """Return a rough predictor of every stacked row."""
        first = self._split(y)[0]
        rough = self.family.start(first)
        own = rough_parts(self.family, first, rough)
        each = [rough, *(jnp.broadcast_to(value, rough.shape) for value in own)]
        return self._put([sum((each[a] for a in kind[1:]), each[kind[0]]) for kind in self.kinds])

    @property
    def start_extras(self) -> Callable[..., Array] | None:
        """The function (y, eta, weights) -> rough numbers that all rows share, or None."""
        base, places = without_parts(self.family), {part.place for part in self.family.parts}
        if base.start_extras is None:
            return None
        rest = [place for place in range(base.num_extras) if place not in places]

        def start(y: Array, eta: Array, w: Array) -> Array:
            assert base.start_extras is not None
            return base.start_extras(*(self._split(each)[0] for each in (y, eta, w)))[jnp.asarray(rest)]

        return start

    # --- stacking ----------------------------------------------------------------------------------------

    def _value(self, y: Array, own: list[Array], shared: Array | None) -> Array:
        disp = join_extras(self.family, shared, own[1 : 1 + len(self.family.parts)])
        return self.family.log_density(y, own[0], disp)

    def _wide(self, disp: Array | None, like: Array) -> Array | None:
        """Return the shared numbers with axes of rows."""
        return None if disp is None else jnp.reshape(disp, (*disp.shape, *(1,) * like.ndim))

    def _split(self, rows: Array) -> Array:
        """Return the stacked rows by their kind, the kind's axis first."""
        m = len(self.kinds)
        return jnp.moveaxis(jnp.reshape(rows, (rows.shape[0] // m, m, *rows.shape[1:])), 1, 0)

    def _put(self, kinds: list[Array]) -> Array:
        """Return stacked rows, zeros where nothing is given."""
        full = [*kinds, *(jnp.zeros_like(kinds[0]) for _ in range(len(self.kinds) - len(kinds)))]
        shape = kinds[0].shape
        return jnp.reshape(jnp.stack(full, axis=1), (shape[0] * len(full), *shape[1:]))

    def _weights(self, H: list[list[Array]]) -> list[Array]:
        """Return the second derivatives in the order of the stacked rows."""
        k = len(H)
        alone = [H[a][a] - sum((H[a][b] for b in range(k) if b != a), jnp.zeros_like(H[a][a])) for a in range(k)]
        return [*alone, *(H[a][b] for a, b in combinations(range(k), 2))]


def _there(values: Float[Array, "..."] | None) -> Float[Array, "..."]:
    assert values is not None
    return values


def _concave(H: list[list[Array]]) -> list[list[Array]]:
    """Return second derivatives, of rows that are not concave the diagonal's negative part alone."""
    k, shape = len(H), H[0][0].shape
    root = small_blocks.cholesky(-jnp.reshape(jnp.stack([jnp.stack(row) for row in H]), (k, k, -1)))
    fine = jnp.reshape(jnp.all(jnp.isfinite(root), axis=(0, 1)), shape)
    return [
        [jnp.where(fine, H[a][b], jnp.minimum(H[a][a], 0.0) if a == b else 0.0) for b in range(k)] for a in range(k)
    ]


def rough_parts(family: Family, y: Array, rough: Array) -> list[Array]:
    """Return a rough value of every part, one for all rows."""
    base = without_parts(family)
    if base.start_extras is not None:
        middle = jnp.full_like(rough, jnp.mean(rough))
        found = base.start_extras(y, middle, jnp.ones_like(rough))
        return [found[part.place] for part in family.parts]
    if base.quadratic:
        return [jnp.log(jnp.std(rough) + 1e-300)]
    return [jnp.zeros((), rough.dtype)]
