"""A flow on the whitened Gaussian: it begins as the Gaussian and bends until the bound rises no more.

A real NVP flow of FlowJAX. Its draws are weighted by the exact density, resampled, and held against short chains that
start from them: weights alone do not see what a flow has left out.
"""

import numpy as np
from jaxtyping import Array, Float

from natvi.judge import thresholds
from natvi.judge.trust import CARE, GOOD, Trust
from natvi.metrics.psis import resample, smooth_weights
from natvi.models.density.check import Weighed
from natvi.models.density.moving import Moved, move_draws
from natvi.models.density.rungs.place import Place
from natvi.models.density.verdict import NEXT, Answer, differences, local_evidence

LARGEST = 300  # dimensions: the nets of a flow grow with their square
LAYERS, STEPS, STEP_SIZE, DRAWS_PER_STEP = 6, 3000, 1e-3, 64
DRAWS = 4096


def fit_flow(place: Place, names: list[str]) -> Answer:
    """Train the flow and judge its draws.

    Raises:
        ValueError: In too many dimensions.
    """
    from natvi.reference.real_nvp import real_nvp

    d = place.dimension
    if d > LARGEST:
        raise ValueError(
            f"a flow of {d:,} parameters is too large; method='flow' is possible up to {LARGEST}. Give method='nuts'."
        )
    wide = max(d, 2)  # a coupling layer needs two halves: beside one number stands an idle one

    def log_p(z: Float[Array, " w"]) -> Array:
        return place.log_p(z[:d]) - 0.5 * (z[d:] ** 2).sum() - 0.5 * (wide - d) * np.log(2 * np.pi)

    flow = real_nvp(
        log_p,
        wide,
        num_layers=LAYERS,
        num_hidden=max(32, wide),
        num_steps=STEPS,
        step_size=STEP_SIZE,
        num_samples=DRAWS_PER_STEP,
        seed=place.seed,
        progress=place.progress,
    )
    z, ratios = flow.weighted(log_p, DRAWS, place.seed + 1)
    weighed = smooth_weights(ratios)
    rng = np.random.default_rng([place.seed, 8])
    read = place.read(z[resample(weighed.weights, DRAWS, rng), :d])
    draws = Weighed(None, place.gaussian.at(z[:, :d]), weighed.weights)
    moved = move_draws(place.evaluator, place.gaussian, draws, rng)
    verdict = _judge(read, moved, weighed.k, weighed.effective, names)
    concerns = (verdict, *local_evidence(place.rivals))
    return Answer("flow", place.gaussian, read, concerns, weighed.effective, bound=(flow.elbo, flow.elbo_se))


def _judge(read: np.ndarray, moved: Moved, k: float, effective: float, names: list[str]) -> Trust:
    varies = (np.ptp(read, axis=0) > 0) & (np.ptp(moved.read, axis=0) > 0)
    ours, theirs = read[:, varies], moved.read[:, varies]
    sd = theirs.std(axis=0)
    shift, change = (theirs.mean(axis=0) - ours.mean(axis=0)) / sd, np.log(sd / ours.std(axis=0))
    numbers = (
        ("Pareto k of the check", k),
        ("effective draws of the check", effective),
        ("largest shift of a mean, in posterior sds", float(np.max(np.abs(shift), initial=0.0))),
        ("transitions of the short chains", float(moved.transitions)),
    )
    right = np.all(np.abs(shift) < thresholds.SHIFT) and np.all(np.abs(change) < thresholds.CHANGE)
    if k < thresholds.LARGEST_K and effective >= thresholds.LEAST_EFFECTIVE and moved.settled and right:
        text = (
            f"the draws of the flow, weighted by the exact density, are worth {effective:,.0f} of {len(read):,} "
            "independent ones, and short chains that start from them agree"
        )
        return Trust(GOOD, (text,), numbers)
    parts = {
        f"the weights of its draws have a heavy tail (k = {k:.2f})": k >= thresholds.LARGEST_K,
        f"its draws are worth {effective:,.0f} independent ones": effective < thresholds.LEAST_EFFECTIVE,
        "short chains that start from them do not settle": not moved.settled,
        differences([n for n, flag in zip(names, varies, strict=True) if flag], shift, change): not right,
    }
    trouble = ", ".join(text for text, true in parts.items() if true)
    return Trust(CARE, (f"the flow is not sure: {trouble}; {NEXT}",), numbers)
