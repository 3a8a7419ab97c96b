"""Mixed models from batches of groups, for data larger than memory.

Every group adds natural parameters to the Gaussian of the shared coordinates (`fit.group_steps`). The sum of these
contributions is kept, one for each batch: a visit brings the blocks of the batch's groups to their optimum, exactly and
without sampling, replaces the batch's contribution to the sum, and moves the shared block there. Nothing of any other
group is touched, and nothing of the size of the data is in memory but, if wanted, the blocks themselves. Since
contributions are replaced and not averaged there is no noise left at the end and no step size to choose: the fixed
point is that of the exact ascent. Batches not yet visited are represented by the exact fit of the first batch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from natvi.families.table import Family, find_family
from natvi.formula.columns import ColumnRecipe
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector
from natvi.models.mixed.batches.state import BatchNames, BatchState, BatchWorker, make_worker
from natvi.models.mixed.posterior import MixedFit
from natvi.models.regression.prior.choice import Prior
from natvi.run import Outcome
from natvi.run.batches.group_batches import GroupSource
from natvi.run.batches.group_steps import joint_gaussian, unflatten_blocks
from natvi.run.interrupt import Interruption
from natvi.run.progress import StepProgress
from natvi.x64 import float64, to_host

LEAST_EPOCHS = 3


class BatchFitError(ValueError):
    """Something that a fit by batches cannot give; the message says what to do."""


@dataclass(frozen=True, eq=False)
class BatchedFit:
    """A mixed model fitted from batches.

    Attributes:
        family: The response distribution with its link.
        names: Of fixed effects, random effects and the grouping column.
        shared_names: Of the shared coordinates behind the tables: fixed effects, log dispersion, omega.
        mean: Of the shared coordinates.
        covariance: Of the shared coordinates.
        elbo: The exact lower bound, all constants included; for an interrupted fit the last estimate.
        outcome: "converged", "max_steps" (epochs), "interrupted" or "nonfinite".
        trace: The bound after each epoch, every batch taken at its last visit.
        prior: The prior in words.
        num_groups: The number of groups.
        state: What `fit_mixed_batches(state=...)` goes on from.
    """

    family: Family
    names: BatchNames
    shared_names: tuple[str, ...]
    mean: np.ndarray
    covariance: np.ndarray
    elbo: float
    outcome: Outcome
    trace: np.ndarray
    prior: Prior
    num_groups: int
    state: BatchState

    def summary(self, prob: float = 0.95) -> pd.DataFrame:
        """Return mean, sd and a central interval of every parameter but the random effects.

        These are the fixed effects, the sds and correlations of the random effects, and the dispersion parameter.
        """
        return pd.concat(self.tables(prob).values())

    def tables(self, prob: float = 0.95) -> dict[str, pd.DataFrame]:
        """Return the fixed effects and the variance components, as every fit of a mixed model has them."""
        return self._without_groups().tables(prob)

    def _without_groups(self) -> MixedFit:
        """Return the Gaussian of the shared coordinates as a mixed model that has no groups, to make tables of."""
        r, g = len(self.names.random), len(self.mean)
        root = np.linalg.cholesky(self.state.precision)
        mean = ArrowVector(np.zeros((r, 0)), self.state.mean)  # type: ignore[arg-type]
        factor = ArrowFactor(np.zeros((r, r, 0)), np.zeros((g, r, 0)), root)  # type: ignore[arg-type]
        return MixedFit(
            formula="",
            family=self.family,
            columns=ColumnRecipe(),
            fixed_names=self.names.fixed,
            random_names=self.names.random,
            group_name=self.names.group,
            group_labels=np.arange(0),
            posterior=ArrowPrecision(mean, factor, np.linalg.inv(root)),  # type: ignore[arg-type]
            local_sds=np.zeros((r, 0)),
            prior=self.prior,
            num_rows=0,
            notes=(),
            correlated=self.names.correlated,
        )

    def posterior(self, groups: np.ndarray | None = None) -> ArrowPrecision:
        """Return the Gaussian of the shared coordinates and of some groups, by default of all, as it was fitted.

        Its coordinates are those of the prior (`prior.coordinates`); `mean` and `covariance` are in the user's.
        """
        rows = self.state.blocks
        if rows is None:
            raise BatchFitError("The groups' blocks were not kept. Fit with blocks='memory' or the path of a file.")
        chosen = np.asarray(rows if groups is None else rows[groups])
        with float64():
            blocks = unflatten_blocks(jnp.asarray(chosen), len(self.names.random), len(self.mean))
            root = jnp.linalg.cholesky(jnp.asarray(self.state.precision))
            return to_host(jax.jit(joint_gaussian)(jnp.asarray(self.state.mean), root, blocks))


def fit_mixed_batches(
    source: GroupSource,
    *,
    family: str = "gaussian",
    link: str | None = None,
    prior: Any = "default",
    names: BatchNames | None = None,
    blocks: str | Path = "memory",
    gap: float = 1e-3,
    max_epochs: int = 200,
    state: BatchState | None = None,
    progress: bool = False,
) -> BatchedFit:
    """Fit a mixed model to data that come in batches of whole groups.

    The fit stops when the bound, from one epoch to the next, has changed by less than `gap` nats twice in a row, and
    the rate at which the changes shrink leaves less than that to come. One more pass then computes the bound exactly.

    Args:
        source: `GroupedArrays`, `GroupedPieces`, `GroupedFrames`, or anything that hands out `GroupBatch`es.
        family: As in `glmm`; a binomial response is a proportion whose weight is the number of trials.
        link: As in `glmm`.
        prior: As in `glmm`. Where the default is scaled to the data, it is scaled to the first batch.
        names: Of effects and group; by default those of the source, or numbered.
        blocks: Where the groups' blocks live between visits: "memory"; the path of a file, memory-mapped; or
            "recompute", which keeps nothing and finds them anew at every visit.
        gap: The change of the bound, in nats, at which the fit stops.
        max_epochs: Passes through the data at most.
        state: `fit.state` of an earlier fit of the same source, to go on from.
        progress: Show progress when the fit takes over a second.

    Returns:
        The fit, converged or not.

    Example:
        >>> from natvi.run.batches.group_batches import GroupedArrays
        >>> rng = np.random.default_rng(0)
        >>> group = np.repeat(np.arange(50), 4)
        >>> one = np.ones((200, 1))
        >>> y = rng.poisson(np.exp(0.5 + 0.6 * rng.normal(size=50))[group])
        >>> source = GroupedArrays({"X": one, "Z": one, "y": y, "group": group}, batch_groups=10)
        >>> fit = fit_mixed_batches(source, family="poisson")
        >>> str(fit.outcome), list(fit.summary().index)
        ('converged', ['x1', 'sd(z1|group)'])
    """
    if not gap > 0 or isinstance(max_epochs, bool) or max_epochs < 1:
        raise ValueError(f"gap and max_epochs must be positive; got {gap!r} and {max_epochs!r}.")
    chosen = find_family(family, link)
    with float64():
        worker = make_worker(source, chosen, prior, names, blocks, state)
        with StepProgress(progress, "epochs") as line, Interruption() as interruption:
            outcome = _run(source, worker, gap, max_epochs, line, interruption)
            elbo = worker.bound()
            if outcome in (Outcome.CONVERGED, Outcome.MAX_STEPS):
                elbo = worker.exact_bound(source)
    done = worker.state
    mean, covariance = _user_moments(worker.prior, done)
    return BatchedFit(
        family=chosen,
        names=worker.names,
        shared_names=worker.names.shared(chosen),
        mean=mean,
        covariance=covariance,
        elbo=elbo,
        outcome=outcome,
        trace=np.array(done.trace),
        prior=worker.prior,
        num_groups=source.num_groups,
        state=done,
    )


def _user_moments(prior: Prior, state: BatchState) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the shared coordinates, the coefficients in the user's units."""
    mean, covariance = state.mean, np.linalg.inv(state.precision)
    if prior.coordinates.fixed is None:
        return mean, covariance
    whole = np.eye(len(mean))
    p = len(prior.names)
    whole[:p, :p] = prior.coordinates.fixed
    return whole @ mean, whole @ covariance @ whole.T


def _run(
    source: GroupSource,
    worker: BatchWorker,
    gap: float,
    max_epochs: int,
    line: StepProgress,
    interruption: Interruption,
) -> Outcome:
    while len(worker.state.trace) < max_epochs:
        for batch in source.read(len(worker.state.trace)):
            if not worker.visit(batch):
                return Outcome.NONFINITE
            if interruption.asked:
                return Outcome.INTERRUPTED
        worker.end_epoch()
        line.update(len(worker.state.trace), worker.state.trace[-1])
        if is_settled(worker.state.trace, gap):
            return Outcome.CONVERGED
    return Outcome.MAX_STEPS


def is_settled(trace: tuple[float, ...], gap: float) -> bool:
    """Whether the last two changes, and what is to come after the last, are below the gap.

    Example:
        >>> is_settled((-9.0, -8.0, -7.9999, -7.99999), 1e-3), is_settled((-9.0, -8.0, -7.9999), 1e-3)
        (True, False)
    """
    if len(trace) < LEAST_EPOCHS or not np.all(np.isfinite(trace[-3:])):
        return False
    before, last = np.abs(np.diff(trace[-3:]))
    rate = min(last / before, 0.99) if before > 0 else 0.0
    return bool(max(before, last, last * rate / (1 - rate)) < gap)
