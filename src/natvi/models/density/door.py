"""The function door: the posterior of any differentiable log-density, in one call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.hosts.collect import require_one
from natvi.judge.far_away import judge_tail_powers
from natvi.judge.tails import judge_tails
from natvi.judge.trust import REFUSE, Trust
from natvi.models.density.batches.fit import fit_rows
from natvi.models.density.batches.opening import read_rows
from natvi.models.density.bound import bound_of
from natvi.models.density.climbing.fitting import Optimum, find_optimum
from natvi.models.density.effort import warn_of_effort
from natvi.models.density.evaluator import Evaluator, LooksAtPoints, read_pairs
from natvi.models.density.hierarchy import Settings, fit_standardised, straighten
from natvi.models.density.posterior import DensityFit
from natvi.models.density.progress import Watch
from natvi.models.density.rungs.flow import fit_flow
from natvi.models.density.rungs.nuts import sample_nuts
from natvi.models.density.rungs.place import Place
from natvi.models.density.space.maps import Space, open_space
from natvi.models.density.start import Opened, open_density, unused
from natvi.models.density.structures.arrow import Arrow
from natvi.models.density.structures.choice import Structure, choose_structure
from natvi.models.density.structures.dense import Dense
from natvi.models.density.verdict import Answer, judge
from natvi.models.density.walls import find_walls
from natvi.models.regression.options import check_options
from natvi.result import Result
from natvi.run import Outcome
from natvi.run.clock import Stopwatch
from natvi.run.settings import check_seed
from natvi.x64 import float64

METHODS = ("auto", "gaussian", "psis", "flow", "nuts")
UPPER = ("flow", "nuts")
TABLE_DRAWS = 4096
ENDLESS = 0.01  # of the longest way that a climb without end has gone


def fit(
    logdensity: Any,
    init: Any,
    *,
    seed: int = 0,
    method: str = "auto",
    structure: str = "auto",
    constrain: Any = None,
    data: Any = None,
    batch_size: int | None = None,
    optimizer: str | None = None,
    step_size: float | None = None,
    max_steps: int | None = None,
    tolerance: float = 1e-8,
    state: Any = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 2.0,
) -> Result:
    """Fit the posterior of any log-density: accurate, or it says so.

    The bound of a Gaussian is climbed from a narrow Gaussian around `init`, on fixed points, so
    that there is no noise and no step size; its covariance is widened by the linear response; the answer is held
    against the density itself, and replaced by corrected draws where the Gaussian is off. All in float64.

    Args:
        logdensity: From a pytree shaped like `init` to the log of the density, a number; any constant may be missing.
            It is traced by JAX: write it with jax.numpy.
        init: Where to start: a float, an array of floats, or a dict (or other pytree) of them.
        seed: Of the points and draws. The same seed gives the same answer.
        method: "auto" gives the Gaussian where it is right, else corrected draws; "gaussian" always the Gaussian;
            "psis" always draws: weighted, resampled and moved by short chains; "flow" a normalizing flow on the
            whitened Gaussian, its draws weighted (needs FlowJAX); "nuts" draws of NUTS with start and metric from the
            Gaussian (needs NumPyro). "auto" stops at corrected draws and names the next rung.
        structure: The shape of the Gaussian: "dense", "arrow" (groups that only shared parameters tie together),
            "diagonal"; "auto" takes a full covariance in up to 300 dimensions, above an arrow where the Hessian lies on
            one, else a full covariance in up to 1,000 and independent coordinates beyond.
        constrain: Constraints of parameters by name, e.g. {"sd": "positive", "r": natvi.bijectors.interval(-1, 1)}:
            the log-density is then of the constrained parameters, and `init` keeps the constraints. Or a function
            from the tree of unconstrained parameters, of which the log-density is, to what is to be read.
        data: Rows too many to look at whole: an array, or a dict (or other pytree) of arrays, memory-mapped files among
            them, with a common first axis. The log-density is then a function of (parameters, rows): the log prior
            plus the sum over the rows that it is handed, none among them. The fit takes noisy steps on minibatches.
        batch_size: Rows of such a step; by default 1,000.
        optimizer: Of such steps: "snngm" (the default), "nagm", "adam", "nadam" or "pga".
        step_size: Of such steps; by default the optimizer's own.
        max_steps: Steps of a climb at most; by default 500, of noisy steps 100,000.
        tolerance: The fit stops when the bound will rise by no more than this, relative to its size.
        state: `result.state` of an earlier fit of the same log-density, to go on from.
        progress: Show progress when the fit takes over a second.
        checkpoint: A file that keeps the state, so that a killed fit goes on where it was.
        checkpoint_seconds: The least time between two writes of the checkpoint.

    Returns:
        The result, converged or not: nothing is thrown away.

    Raises:
        ValueError: For a log-density that cannot be used, with what came and what to do.

    Example:
        >>> import jax.numpy as jnp
        >>> import natvi
        >>> def logdensity(p):
        ...     return -0.5 * ((p["a"] - 1.0) / 2.0) ** 2 - 0.5 * jnp.sum((p["b"] - p["a"]) ** 2)
        >>> result = natvi.fit(logdensity, {"a": 0.0, "b": jnp.zeros(2)})
        >>> result.summary().round(3).loc["a", ["mean", "sd"]].tolist()
        [1.0, 2.0]
    """
    require_one("natvi.fit")
    if data is None and (batch_size, optimizer, step_size) != (None, None, None):
        raise ValueError(
            "batch_size, optimizer and step_size are for fits on minibatches: give the rows as data=, and a "
            "log-density of (parameters, rows)."
        )
    keeping = check_options(
        max_steps, 500 if data is None else 100_000, tolerance, checkpoint_seconds=checkpoint_seconds
    )
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, not {method!r}.")
    seed, watch = check_seed(seed), Stopwatch()
    if data is not None:
        if method not in ("auto", "gaussian"):
            raise ValueError(
                f"a fit on minibatches gives a Gaussian: method must be 'auto' or 'gaussian', not {method!r}."
            )
        settings = Settings(method, seed, keeping["max_steps"], tolerance, progress)
        options = {"batch_size": batch_size, "optimizer": optimizer or "snngm", "step_size": step_size}
        keeping |= {"state": state, "progress": progress, "checkpoint": checkpoint}
        return _fit_batches(
            logdensity, init, constrain, data, settings, watch, structure=structure, **options, **keeping
        )
    with float64(), np.errstate(all="ignore"):  # a climb may look where numbers end
        space = open_space(init, constrain)
        opened = open_density(logdensity, space, seed)
        evaluator = opened.evaluator
        shape = choose_structure(structure, opened.density, opened.start)
        warn_of_effort(evaluator, opened.start, shape, seed)
        with Watch(progress, checkpoint, keeping["checkpoint_seconds"], (logdensity, space.start, seed)) as loop:
            found = find_optimum(
                *(evaluator, opened.start, shape),
                seed=seed,
                max_steps=keeping["max_steps"],
                tolerance=tolerance,
                state=loop.begin(state, shape.narrow(np.zeros(len(space.start)), 1.0)),
                watch=loop,
            )
            loop.end(found.state)
        if found.outcome is Outcome.MAX_STEPS and loop.asked:
            found = found._replace(outcome=Outcome.INTERRUPTED)
        answer = _answer(opened, found, space, shape, Settings(method, seed, keeping["max_steps"], tolerance, progress))
        elbo, elbo_se = answer.bound or (found.bound, 0.0)
        notes = (*opened.notes, *([f"structure: {shape.why}"] if shape.why else []), *answer.notes)
        model = _model(evaluator, space, answer, found, notes, seed)
        concerns = (*answer.concerns, *_tails(model, answer), *_powers(evaluator, found, space, seed))
        concerns = (*concerns, *find_walls(evaluator, found, space))
    return Result(
        model=model,
        method=answer.method,
        structure=shape.name,
        outcome=found.outcome,
        elbo=elbo,
        elbo_se=elbo_se,
        seconds=watch.read(),
        trace=found.state.trace,
        state=found.state,
        check=lambda: concerns,
        steps=found.steps,
    )


def _fit_batches(
    logdensity: Any, init: Any, constrain: Any, data: Any, settings: Settings, watch: Stopwatch, **options: Any
) -> Result:
    """Fit by noisy steps on minibatches."""
    rows = read_rows(data)
    with float64():
        space = open_space(init, constrain)
        done = fit_rows(logdensity, space, rows, settings, **options)
        found = done.found._replace(num_points=0)
        model = _model(done.evaluator, space, done.answer, found, done.notes, settings.seed)
    concerns = (*done.answer.concerns, *_tails(model, done.answer))
    fitted = done.fitted
    elbo, elbo_se = done.answer.bound or (done.found.bound, 0.0)
    return Result(
        model=model,
        method=done.answer.method,
        optimizer=options["optimizer"],
        structure=done.structure.name,
        outcome=done.found.outcome if fitted is None else fitted.outcome,
        elbo=elbo,
        elbo_se=elbo_se,
        seconds=watch.read(),
        trace=done.found.state.trace if fitted is None else fitted.trace,
        state=None if fitted is None else fitted.state,
        check=lambda: concerns,
        steps=done.found.steps if fitted is None else fitted.steps,
    )


def _answer(opened: Opened, found: Optimum, space: Space, shape: Structure, settings: Settings) -> Answer:
    """Judge what was found."""
    evaluator, seed = opened.evaluator, settings.seed
    if found.outcome in (Outcome.UNBOUNDED, Outcome.NONFINITE):
        concerns = _endless(evaluator, found, space)
        return Answer("gaussian", found.gaussian, None, concerns, bound=(found.bound, 0.0))
    rng = np.random.default_rng([seed, 3])
    bound = bound_of(evaluator, found, rng)
    if settings.method in UPPER:
        return _climb_higher(opened, found, space, shape, settings, bound)
    answer = judge(
        *(evaluator, found, space.parameters.entries, settings.method, rng),
        shape.points("judge", len(space.start), seed),
        elsewhere=lambda: fit_standardised(opened.density, evaluator, space, shape, found, settings),
    )
    return answer if answer.bound else answer._replace(bound=bound)


def _climb_higher(
    opened: Opened, found: Optimum, space: Space, shape: Structure, settings: Settings, bound: tuple[float, float]
) -> Answer:
    """Hand the fit on to a flow or to NUTS, in coordinates in which a hierarchy is no funnel."""
    straight = straighten(opened.density, opened.evaluator, space, shape, found, settings)
    if straight is None:
        where, carry, evaluator, notes = found.wider, None, opened.evaluator, ()
    else:
        where, carry, evaluator = straight.optimum.wider, straight.carry, straight.evaluator
        notes = (straight.note,)
    place = Place(opened.density, where, carry, evaluator, found.rivals, settings.seed, settings.progress)
    answer = sample_nuts(place) if settings.method == "nuts" else fit_flow(place, space.parameters.entries)
    return answer._replace(gaussian=found.gaussian, notes=notes, bound=answer.bound or bound)


def _tails(model: DensityFit, answer: Answer) -> tuple[Trust, ...]:
    """Say which sds of the tables are chance, where these are made of draws."""
    if not len(model.draws) or any(one.level == REFUSE for one in answer.concerns):
        return ()
    return judge_tails(model.parameters.entries, model.draws, answer.effective or float(len(model.draws)))


def _powers(evaluator: Evaluator, found: Optimum, space: Space, seed: int) -> tuple[Trust, ...]:
    """Say where the density falls off too slowly."""
    if found.outcome in (Outcome.UNBOUNDED, Outcome.NONFINITE):
        return ()
    return judge_tail_powers(evaluator, found.gaussian, space.free.entries, np.random.default_rng([seed, 9]))


def _endless(evaluator: Evaluator, found: Optimum, space: Space) -> tuple[Trust, ...]:
    """Say along which parameters the density does not end."""
    if found.outcome is not Outcome.UNBOUNDED:
        return ()
    rng = np.random.default_rng(0)
    still = unused(space.free, evaluator(space.start + rng.standard_normal((64, len(space.start)))).gradients)
    if still:
        return (
            Trust(REFUSE, (f"the log-density does not depend on {', '.join(still)}: give a prior, or leave it out",)),
        )
    sizes = found.gaussian.sds + np.abs(found.gaussian.mean - space.start)
    far = np.unique(space.free.owners[sizes > ENDLESS * np.max(sizes)])
    worst = ", ".join(space.free.names[owner] for owner in far)
    return (Trust(REFUSE, (f"it does not fall off along {worst}: give a proper prior",)),)


def _model(
    evaluator: LooksAtPoints, space: Space, answer: Answer, found: Optimum, notes: tuple[str, ...], seed: int
) -> DensityFit:
    draws = answer.read
    if draws is None and not space.is_plain:
        draws = read_pairs(evaluator, answer.gaussian, TABLE_DRAWS, np.random.default_rng([seed, 4]))
    return DensityFit(
        space.parameters,
        space.free,
        () if space.meaning is not None else tuple(found.name for found in space.bijectors),
        answer.gaussian.mean,
        answer.gaussian.triangle if isinstance(answer.gaussian, Dense) else answer.gaussian.sds,
        found.num_points,
        np.zeros((0, sum(space.parameters.sizes))) if draws is None else draws,
        corrected=answer.read is not None,
        notes=notes,
        meaning=None if space.meaning is None else _reader(space),
        arrow=answer.gaussian if isinstance(answer.gaussian, Arrow) else None,
    )


def _reader(space: Space) -> Callable[[np.ndarray], np.ndarray]:
    def read(theta: np.ndarray) -> np.ndarray:
        with float64():
            return np.asarray(jax.vmap(space.read)(jnp.asarray(theta)))

    return read
