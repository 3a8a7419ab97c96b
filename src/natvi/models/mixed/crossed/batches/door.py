"""Crossed and nested models for data larger than memory: data frames, one after the other.

A first pass applies the formula to every frame and writes the columns to files; every step of the exact ascent then
reads these in batches. The bound and its optimum are those of `natvi.glmm(...).fit(method="gva")`, to rounding errors.
In memory stay the Gaussian and a handful of past steps: about 300 bytes for each pair of levels that meet in a row, and
the dense block of the smaller factors' effects. It ends where these no longer fit.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from natvi.families.table import find_family
from natvi.formula.design import parse_formula
from natvi.hosts.collect import require_one
from natvi.judge.trust import CARE, Trust
from natvi.models.mixed.crossed.auto import Chosen, CrossedStage, choose
from natvi.models.mixed.crossed.batches.rows import build_batched
from natvi.models.mixed.crossed.batches.spool import Spooled, first_frame, spool
from natvi.models.mixed.crossed.door import CrossedModel, choose_crossed_prior
from natvi.models.mixed.crossed.layout import Built
from natvi.models.mixed.crossed.notes import describe_factors
from natvi.models.mixed.crossed.start import rough_values
from natvi.models.regression.response import encode_response
from natvi.models.regression.rows import Covariates, Rows, gather

START_ROWS = 50_000  # of which rough values to start from are made
UNCHECKED = "the rows are not in memory: the Gaussian was not held against the integrated answer"
BATCH_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class BatchedCrossedModel(CrossedModel):
    """A crossed model whose columns lie on disk."""

    batch_rows: int = BATCH_ROWS

    def build(self) -> Built:
        """Return the target whose rows are read in batches."""
        return build_batched(Spooled(self.design, self.y, self.weight), self.family, self.prior, self.batch_rows)

    def rough_values(self) -> tuple[np.ndarray, float]:
        """Return rough values from an even selection of the rows."""
        at = np.unique(np.linspace(0, len(self.y) - 1, min(START_ROWS, len(self.y))).astype(int))
        design = replace(self.design, X=self.design.X[at], Z=self.design.Z[at], offset=self.design.offset[at])
        weight = None if self.weight is None else self.weight[at]
        return rough_values(design, self.y[at], self.family, self.prior, weight)

    def choose(self, stage: CrossedStage, method: str, progress: bool) -> Chosen:
        """Return the Gaussian fit, which is all that batches are for."""
        if method == "integrated":
            raise ValueError(
                "method='integrated' needs the rows in memory: it goes through them hundreds of times. Use "
                "method='gva', or fit a sample of the levels with natvi.glmm."
            )
        return choose(stage, "gva", progress)._replace(concerns=(Trust(CARE, (UNCHECKED,)),))

    def rows_for(self) -> Rows | None:
        """Return nothing: a fitted model does not hold rows on disk."""
        return None


def crossed_batches(
    formula: str,
    open_frames: Callable[[int], Iterable[Any]],
    *,
    family: str = "gaussian",
    link: str | None = None,
    prior: Any = "default",
    weights: str | None = None,
    folder: str | Path | None = None,
    batch_rows: int = BATCH_ROWS,
) -> BatchedCrossedModel:
    """Describe a model with crossed or nested factors whose rows come in data frames, in any order.

    The first frame decides the columns, so that it must show every level of every factor among the fixed effects, and
    the default prior is scaled to it. Rows may not have missing values; the response is a column of numbers.

    Args:
        formula: As in `natvi.glmm`, with several random terms.
        open_frames: A function of the pass's number that returns an iterator over data frames, such as
            `lambda _: pandas.read_csv(path, chunksize=1_000_000)`. It is called twice.
        family: As in `natvi.glmm`; a binomial response is a proportion whose weight is the number of trials.
        link: As in `natvi.glmm`.
        prior: As in `natvi.glmm`.
        weights: The name of a column that says how often each row counts.
        folder: Where the columns are written; by default a temporary folder.
        batch_rows: Rows that are in memory at a time.

    Returns:
        The model, ready for `.fit(method="gva")`.

    Example:
        >>> import pandas as pd
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame({"a": np.arange(240) // 12, "b": np.arange(240) % 12, "x": rng.normal(size=240)})
        >>> eta = 0.5 + 0.3 * rng.normal(size=20)[frame.a] + 0.4 * rng.normal(size=12)[frame.b]
        >>> frame["y"] = rng.poisson(np.exp(eta))
        >>> halves = [frame.iloc[:120], frame.iloc[120:]]
        >>> model = crossed_batches("y ~ x + (1 | a) + (1 | b)", lambda _: halves, family="poisson", batch_rows=64)
        >>> str(model.fit(method="gva").outcome)
        'converged'
    """
    require_one("crossed_batches")
    if isinstance(batch_rows, bool) or batch_rows < 1:
        raise ValueError(f"batch_rows must be a positive number of rows, not {batch_rows!r}.")
    parsed, chosen = parse_formula(formula), find_family(family, link)
    if not parsed.terms:
        raise ValueError(
            f"the formula {formula!r} has one grouping factor or none. For one, use fit_mixed_batches of "
            "natvi.models.mixed.batches.door; without groups, natvi.glm_batches."
        )
    first = first_frame(open_frames, parsed, weights)
    response = encode_response(first.response, first.response_name, chosen.name, None)
    pilot = gather(Covariates(first.X, first.offset, first.Z), response, first.weights)
    scaled = choose_crossed_prior(chosen, first, pilot, prior)
    path = Path(tempfile.mkdtemp(prefix="natvi-") if folder is None else folder)
    path.mkdir(parents=True, exist_ok=True)
    try:
        rows = spool(parsed, first, open_frames(1), chosen, scaled, weights, path)
        notes = (*describe_factors(rows.design, rows.y, chosen, None), f"rows read in batches of {batch_rows:,}")
    except BaseException:
        _forget(path, folder)
        raise
    size = min(batch_rows, len(rows.y))
    parts = (formula, chosen, rows.design, rows.y, scaled, notes, rows.weight)
    model = BatchedCrossedModel(*parts, batch_rows=size)
    weakref.finalize(model, _forget, path, folder)  # a temporary folder goes with the model
    return model


def _forget(path: Path, folder: str | Path | None) -> None:
    if folder is None:
        shutil.rmtree(path, ignore_errors=True)
