"""The exact fit of a generalized linear model from passes over its rows: where it starts, and what the rows say."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family
from natvi.gaussian import CovarianceGaussian
from natvi.hosts.collect import collect, is_first, total
from natvi.linalg.buckets import bucket
from natvi.models.linear.centring import LARGEST_SHIFT, Centring
from natvi.models.linear.methods import LARGEST_RATIO, START_SD, build_target, unscaled
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.rows import Rows
from natvi.models.regression.spread.moments import Columns
from natvi.models.regression.spread.survey import Survey
from natvi.optimize.fixed_point import SYSTEMS
from natvi.run import Fitted
from natvi.run.exact.passes import climb_by_passes
from natvi.run.exact.rows import climb_rows
from natvi.run.hosts import Hosts
from natvi.target import Expected
from natvi.target.design_rows import DesignRows, Observations

PIECE_ROWS = 1 << 16


class RowsOfPasses(NamedTuple):
    """What is known of the rows before they are fitted.

    Attributes:
        read: Opens this process's rows, in the user's columns, or in the coordinates of the prior.
        survey: What the first pass found, its sample in the same columns.
        columns: Brings the columns of `read` into the coordinates of the prior.
        keep: Whether the rows may be kept once they are laid out.
        words: What tells this model from others of the same rows.
    """

    read: Callable[[], Iterable[Rows]]
    survey: Survey
    columns: Callable[[np.ndarray], np.ndarray]
    keep: bool
    words: str


def fit_by_passes(rows: RowsOfPasses, family: Family, prior: Prior, structure: str, **options: Any) -> Fitted:
    """Maximise the exact bound; the Gaussian comes back in the coordinates of the prior.

    Args:
        rows: The rows.
        family: The response distribution.
        prior: Of the coefficients and the log dispersion.
        structure: "dense" or "diagonal".
        options: As for `climb_by_passes`.
    """
    survey = rows.survey
    plain = prior.coordinates.fixed is None  # else the columns are centred and scaled already
    centring = find_centring(survey.X) if structure == "dense" and plain else None
    scales = scales_of(survey.X, centring) if plain else None
    sample = survey.sample._replace(X=rows.columns(survey.sample.X))
    if centring is not None:
        sample = sample._replace(X=centring.columns(sample.X))
    target = build_target(sample, family, prior, scales, centring)
    # one process finds the start for all: the others might do so in another number of steps
    start = collect(_start(target, structure, survey.num_rows) if is_first() else None)[0]
    assert start is not None
    mean, factor = map(jnp.asarray, start)
    one = target.with_rows(jax.tree.map(lambda a: a[:1], target.rows))
    weight = jnp.ones(1)  # the last piece is filled up with rows of weight zero
    base = DesignRows(one.rows._replace(weight=weight), target.prior, family, 1, survey.constant)
    system = SYSTEMS[structure](base)
    asked = _Passes(rows, base, centring, scales)
    fitted = climb_by_passes(system, system.start_at(mean, factor), asked, survey.mark_of(rows.words), **options)
    mean, factor = unscaled(fitted.gaussian, scales)
    if centring is not None:
        mean, factor = centring.undo(mean, factor)
    return fitted._replace(gaussian=CovarianceGaussian(mean, type(fitted.gaussian.factor)(factor)))


class _Passes:
    """Asks all rows of all processes."""

    def __init__(self, rows: RowsOfPasses, base: DesignRows, centring: Centring | None, scales: Any) -> None:
        self._rows, self._base, self._centring, self._scales = rows, base, centring, scales
        self._kept: list[Observations] | None = None
        self._seen = 0

    def __call__(self, q: Any) -> Expected:
        """Return the expected log-likelihood of all rows with its derivatives."""
        d = self._base.prior.mean.shape[0]
        here = Expected(jnp.zeros(()), jnp.zeros(d), jnp.zeros((d, d)))
        for piece in self._pieces():
            here = _add_piece(self._base, q, piece, here)
        found, seen = total((here, jnp.asarray(float(self._seen))))
        if int(seen) != self._rows.survey.num_rows:
            raise ValueError(
                f"a pass over the rows found {int(seen):,} of them, and the first pass {self._rows.survey.num_rows:,}. "
                "Every pass must give the same rows: return a fresh iterator each time, and do not change the files."
            )
        return found

    def _pieces(self) -> Iterable[Observations]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Observations] = []
        self._seen = 0
        for rows in self._rows.read():
            self._seen += len(rows.y)
            for piece in self._laid_out(rows):
                if self._rows.keep:
                    kept.append(piece)
                yield piece
        if self._rows.keep:
            self._kept = kept

    def _laid_out(self, rows: Rows) -> Iterable[Observations]:
        X = self._rows.columns(rows.X)
        if self._centring is not None:
            X = self._centring.columns(X)
        if self._scales is not None:
            X = X / self._scales
        weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
        for start in range(0, len(rows.y), PIECE_ROWS):
            at = slice(start, start + PIECE_ROWS)
            offset = None if rows.offset is None else _filled(rows.offset[at])
            piece = Observations(_filled(X[at]), _filled(rows.y[at]), offset, _filled(weight[at], zeros=True))  # type: ignore[arg-type]
            yield jax.tree.map(jnp.asarray, piece)


def _filled(values: np.ndarray, zeros: bool = False) -> np.ndarray:
    """Return the values with more of the first of them, or zeros, behind: few lengths, few programs."""
    size = len(values)
    length = PIECE_ROWS if size > PIECE_ROWS // 4 else bucket(size)
    if length == size:
        return values
    return np.concatenate([values, np.repeat(0.0 * values[:1] if zeros else values[:1], length - size, axis=0)])


@jax.jit
def _add_piece(base: DesignRows, q: Any, piece: Observations, so_far: Expected) -> Expected:
    return jax.tree.map(jnp.add, so_far, base.with_rows(piece).likelihood(q))


def _start(target: DesignRows, structure: str, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and factor to start from: an exact fit to the sample, its information scaled up to all rows."""
    found = climb_rows(target, structure, hosts=Hosts()).gaussian
    mean, factor = np.asarray(found.mean), np.asarray(found.factor[0])
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(factor))):
        d = len(mean)
        return np.asarray(target.prior.mean), START_SD * (np.eye(d) if structure == "dense" else np.ones(d))
    return mean, factor / np.sqrt(num_rows / target.rows.X.shape[0])


def find_centring(found: Columns) -> Centring | None:
    """Return what to take from the columns, as `centring.find_centring` does of rows in memory."""
    mean, sd, _ = found
    constant = np.flatnonzero((sd == 0) & (mean != 0))
    far = (sd > 0) & (np.abs(mean) > LARGEST_SHIFT * sd)
    if not len(constant) or not far.any():
        return None
    at = int(constant[0])
    return Centring(at, float(mean[at]), np.where(far, mean, 0.0))


def scales_of(found: Columns, centring: Centring | None) -> np.ndarray | None:
    """Return a power of two near the root mean square of each column, as `column_scales` does of rows in memory."""
    mean = found.mean if centring is None else found.mean - centring.centre
    sizes = np.hypot(mean, found.sd)
    proper = np.isfinite(sizes) & (sizes > 0)
    if not proper.any() or sizes[proper].max() <= LARGEST_RATIO * sizes[proper].min():
        return None
    return np.where(proper, 2.0 ** np.round(np.log2(np.where(proper, sizes, 1.0))), 1.0)
