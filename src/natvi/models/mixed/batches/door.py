"""Mixed models from batches of groups, for data larger than memory.

Every group adds natural parameters to the Gaussian of the shared coordinates (`fit.group_steps`). The sum of these
contributions is kept, one for each batch: a visit brings the blocks of the batch's groups to their optimum, exactly and
without sampling, replaces the batch's contribution to the sum, and moves the shared block there. Nothing of any other
group is touched, and nothing of the size of the data is in memory but, if wanted, the blocks themselves. Since
contributions are replaced and not averaged there is no noise left at the end and no step size to choose: the fixed
point is that of the exact ascent. Batches not yet visited are represented by the exact fit of the first batch.
"""

from pathlib import Path
from typing import Any

import numpy as np

from natvi.families.table import find_streamed
from natvi.hosts.collect import collect, is_first, total
from natvi.judge.trust import CARE, Trust
from natvi.models.mixed.batches.posterior import BatchedFit
from natvi.models.mixed.batches.state import BatchNames, BatchState, BatchWorker, make_worker
from natvi.result import Result
from natvi.run import Outcome
from natvi.run.batches.group_batches import GroupSource
from natvi.run.clock import Stopwatch
from natvi.run.interrupt import Interruption
from natvi.run.progress import StepProgress
from natvi.x64 import float64

LEAST_EPOCHS = 3
UNCHECKED = "the rows are not kept: whether the Gaussian is close to the exact posterior was not checked"


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
) -> Result:
    """Fit a mixed model to data that come in batches of whole groups.

    After `natvi.hosts.join()` the source holds this process's groups: the processes visit their batches side by side.

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
        The result, converged or not; `result.model.posterior(groups)` is the Gaussian of some groups.

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
    chosen = find_streamed(family, link)
    watch = Stopwatch()
    with float64():
        worker = make_worker(source, chosen, prior, names, blocks, state)
        with StepProgress(progress and is_first(), "epochs") as line, Interruption() as interruption:
            outcome = _run(source, worker, gap, max_epochs, line, interruption)
            elbo = worker.bound()
            if outcome in (Outcome.CONVERGED, Outcome.MAX_STEPS):
                elbo = worker.exact_bound(source)
    done = worker.state
    num_groups = sum(collect(source.num_groups))
    model = BatchedFit(chosen, worker.names, done.mean, done.precision, worker.prior, num_groups, done.blocks)
    return Result(
        model=model,
        method="gva",
        optimizer="ascent",
        structure="arrow",
        outcome=outcome,
        elbo=elbo,
        elbo_se=0.0,
        seconds=watch.read(),
        trace=np.array(done.trace),
        state=done,
        check=lambda: (Trust(CARE, (UNCHECKED,)),),
    )


def _run(
    source: GroupSource,
    worker: BatchWorker,
    gap: float,
    max_epochs: int,
    line: StepProgress,
    interruption: Interruption,
) -> Outcome:
    while len(worker.state.trace) < max_epochs:
        batches = source.read(len(worker.state.trace))
        while True:
            batch = next(batches, None)
            left, asked = map(float, total((np.float64(batch is not None), np.float64(interruption.asked))))
            if not left:
                break
            if not worker.visit(batch):
                return Outcome.NONFINITE
            if asked:
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
