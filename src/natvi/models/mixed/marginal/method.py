"""The marginal method: the random effects integrated out, and the shared coordinates drawn by importance sampling.

From a Gaussian fit Newton's method goes to the mode of the exact marginal; its curvature, a look along the axes of the
log sds and a look for plateaus make a proposal, in which the fixed effects are drawn given the sds (`straight`);
weighted draws correct it. The tail of the weights (Pareto k) says
whether that has worked; if not, the proposal takes over mean, covariance and sides of the weighted draws, and in the
end a mixture of t distributions is fitted to them. Then as many are drawn as the tables need (`settle`).
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from natvi.metrics.psis import RELIABLE_K, resample
from natvi.metrics.t_mixture import TMixture, fit_mixture
from natvi.models.mixed.marginal.chart import Chart, Curved, Plain, carry_over
from natvi.models.mixed.marginal.coordinates import from_shared, has_correlation, slopes, to_shared
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.models.mixed.marginal.proposal import Mixture, Proposal, draw_mixture, propose, refit
from natvi.models.mixed.marginal.search import Mode, find_mode, find_plateaus
from natvi.models.mixed.marginal.settle import MarginalDraws, Reading, Source, settle, settled, weigh
from natvi.models.mixed.marginal.straight import FixedEffects, Straight

ROW_BUDGET, FEW_DRAWS, FIRST_DRAWS, MOST_DRAWS = 1.0e8, 1024, 2048, 16384  # rows times draws; draws
MOST_ROUNDS = 3
ENOUGH, LEAST = 0.25, 0.125  # share of the draws that should be effective, and below which more is done
FUNNEL = 1.5  # sd of a log sd at the mode, above which the mode is none
MOST_MIXTURES, MIXTURE_DRAWS = 3, 2048
SEED = 1


class Positions(NamedTuple):
    """Where the special ones of the shared coordinates stand.

    Attributes:
        dispersion: The log dispersion, if there is one.
        log_sds: omega_kk.
        slanted: omega_lk, l > k.
    """

    dispersion: list[int]
    log_sds: list[int]
    slanted: list[int]

    @property
    def lopsided(self) -> list[int]:
        """All of them."""
        return sorted([*self.dispersion, *self.log_sds, *self.slanted])


def draw_marginal(
    density: MarginalDensity,
    mean: np.ndarray,
    covariance: np.ndarray,
    positions: Positions,
    num_rows: int,
    fixed: FixedEffects | None = None,
    read: Reading | None = None,
) -> MarginalDraws:
    """Draw the shared coordinates from their exact marginal.

    Args:
        density: The exact marginal.
        mean: Of a Gaussian fit, to start from.
        covariance: Of that fit.
        positions: Of the coordinates that may be lopsided.
        num_rows: Rows of data; with very many there are no further draws.
        fixed: The fixed effects given sds and dispersion, where that is known.
        read: From draws to the parameters whose means and sds should settle: such as no units change, so that the
            number of draws does not depend on them.

    Returns:
        Weighted draws.

    Raises:
        FloatingPointError: If there are none, with a phrase that says where it failed.
    """
    try:
        return _draw_marginal(density, mean, covariance, positions, num_rows, fixed, read)
    except np.linalg.LinAlgError as error:
        raise FloatingPointError(
            f"a covariance around the mode of the exact marginal has no factor ({error})"
        ) from error


class Surroundings(NamedTuple):
    """What was seen around the mode.

    Attributes:
        chart: On which the shared coordinates are drawn.
        main: The proposal around the mode.
        plateaus: Those towards sds of zero, with shares of the draws.
        rest: The share of the first.
        steps: Steps of Newton's method to the mode.
    """

    chart: Chart
    main: Proposal
    plateaus: Mixture
    rest: float
    steps: int


def look_around(
    density: MarginalDensity,
    mean: np.ndarray,
    covariance: np.ndarray,
    positions: Positions,
    fixed: FixedEffects | None,
) -> Surroundings:
    """Find the mode of the exact marginal and what there is around it."""
    g = len(mean)
    mode, base = _find_mode(density, mean, covariance)
    chart, plain = (base, Plain()) if fixed is None else (Straight(base, fixed), Straight(Plain(), fixed))
    centre, root = carry_over(base, chart, mode.centre, np.linalg.cholesky(mode.covariance))
    main = propose(density, centre, root @ root.T, positions.lopsided, max(8.0, 2.0 * g), chart)
    top, width = mode.centre, mode.covariance
    if isinstance(base, Curved):
        top, tangent = to_shared(mode.centre, np), slopes(mode.centre)
        width = tangent @ mode.covariance @ tangent.T
    plateaus = find_plateaus(density, top, width, positions.log_sds, positions.slanted, max(8.0, float(g)), plain)
    return Surroundings(chart, main, plateaus, 1.0 - sum(share for share, _ in plateaus), len(mode.trace))


def _draw_marginal(
    density: MarginalDensity,
    mean: np.ndarray,
    covariance: np.ndarray,
    positions: Positions,
    num_rows: int,
    fixed: FixedEffects | None,
    read: Reading | None,
) -> MarginalDraws:
    chart, main, plateaus, rest, steps = look_around(density, mean, covariance, positions, fixed)
    mixture = [(rest, main), *plateaus]
    best: MarginalDraws | None = None
    source: Source | None = None
    few = _few_draws(density, mixture, read)
    if few is not None:
        return few._replace(steps=steps)
    for tried in range(1, MOST_ROUNDS + 1):
        draws, log_q = draw_mixture(mixture, FIRST_DRAWS, SEED)
        weighed = weigh(draws, density.values(draws), log_q)
        if weighed is None:
            break
        found = weighed._replace(rounds=tried, steps=steps)
        if best is None or _rank(found) > _rank(best):
            best, source = found, partial(draw_mixture, mixture)
        if _suffices(found, ENOUGH):
            break
        # what was found, with the first proposal to guard against what was not
        try:
            again = refit(found.shared, found.weights, positions.lopsided, max(6.0, float(len(mean))), chart)
        except np.linalg.LinAlgError:  # all the weight on too few draws; those before are kept
            break
        mixture = [(0.5 * rest, again), (0.5 * rest, main), *plateaus]
    if best is None or source is None:
        raise FloatingPointError("the exact marginal is not finite around its mode")
    if not _suffices(best, LEAST):
        best, source = _adapt(density, best, source, chart)
    if read is None:
        return best
    return settle(density, source, best, read, min(MOST_DRAWS, int(ROW_BUDGET / num_rows)), SEED)


def _few_draws(density: MarginalDensity, mixture: Mixture, read: Reading | None) -> MarginalDraws | None:
    """Return half as many draws where their weights are so even that these do, else None."""
    if FEW_DRAWS >= FIRST_DRAWS:
        return None
    draws, log_q = draw_mixture(mixture, FEW_DRAWS, SEED)
    found = weigh(draws, density.values(draws), log_q)
    if found is None or not _suffices(found, ENOUGH):
        return None
    if read is not None and not settled(read(found.shared), found.weights, even=True):
        return None
    return found._replace(source=partial(draw_mixture, mixture))


def _find_mode(density: MarginalDensity, mean: np.ndarray, covariance: np.ndarray) -> tuple[Mode, Chart]:
    """Return the mode of the marginal, and the chart it is on.

    An sd that may be zero is a funnel of phi, down which the search runs; then the mode of theta_g is taken.
    """
    if has_correlation(density.target):
        x = from_shared(mean)
        inverse = np.linalg.inv(slopes(x))
        start = np.linalg.cholesky(inverse @ covariance @ inverse.T)
        mode = find_mode(lambda points: density.scores(points, True), x, start)
        if np.max(np.diag(mode.covariance)[[-3, -1]]) < FUNNEL**2:
            return mode, Curved()
    return find_mode(density.scores, mean, np.linalg.cholesky(covariance)), Plain()


def _adapt(density: MarginalDensity, best: MarginalDraws, source: Source, chart: Chart) -> tuple[MarginalDraws, Source]:
    """Fit a mixture of t distributions to the weighted draws and draw from it, again and again: the last resort."""
    rng = np.random.default_rng(SEED)
    found = best
    for tried in range(1, MOST_MIXTURES + 1):
        try:
            mixture = fit_mixture(chart.from_shared(found.shared[resample(found.weights, MIXTURE_DRAWS, rng)]), rng)
        except np.linalg.LinAlgError:
            break
        again = partial(_draw_on_chart, mixture, chart)
        draws, log_q = again(len(best.weights), SEED + tried)
        weighed = weigh(draws, density.values(draws), log_q)
        if weighed is None:
            break
        found = weighed._replace(rounds=MOST_ROUNDS + tried, steps=best.steps)
        if _rank(found) > _rank(best):
            best, source = found, again
        if _suffices(found, ENOUGH):
            break
    return best, source


def _draw_on_chart(mixture: TMixture, chart: Chart, num_draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of theta_g and their log density."""
    x = mixture.draw(num_draws, np.random.default_rng(seed))
    return chart.to_shared(x), mixture.log_density(x) - chart.log_volume(x)


def _suffices(found: MarginalDraws, share: float) -> bool:
    return found.k < RELIABLE_K and found.effective > share * len(found.weights)


def _rank(found: MarginalDraws) -> float:
    return found.effective / len(found.weights) - max(0.0, found.k - RELIABLE_K)
