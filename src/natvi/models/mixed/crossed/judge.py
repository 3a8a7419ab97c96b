"""How far answers of a crossed model can be trusted: the Gaussian held against the integrated one, and that itself."""

import numpy as np
import pandas as pd

from natvi.judge import thresholds
from natvi.judge.trust import CARE, GOOD, REFUSE, Trust
from natvi.metrics.psis import smooth_weights
from natvi.models.mixed.crossed.gaussian import GaussianCrossedFit
from natvi.models.mixed.crossed.integrated.method import Points, Top
from natvi.models.mixed.crossed.integrated.posterior import IntegratedFit

CURE = "method='integrated' or 'auto' goes on from it"
LEAST_POINTS, FEWEST_POINTS = 30.0, 10.0  # effective, of evenly spread ones
MOST_MEAN_ERROR, MOST_SD_ERROR = 0.15, 0.12  # by the points as if drawn: evenly spread ones err by less
NEAR_ZERO = 0.1  # lower end of the interval of an sd, relative to its mean
VAGUE = 1.0  # posterior sd of a log sd from which it is poorly determined
SECOND_SHIFT, SECOND_CHANGE = 0.3, 0.2  # that the second-order term may make: what is left is smaller
FAR_SECOND = 1.0
MOST_ERROR_OF_TOP = 0.1  # in sds
LARGE_SPREAD = 10.0  # of log p - log q, from which half of it says nothing sure about the divergence


def compare(better: pd.DataFrame, other: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return how far the means of two tables are apart, in sds of the first, and the log ratios of their sds."""
    sd = np.maximum(better["sd"].to_numpy(), 1e-300)
    shift = (better["mean"].to_numpy() - other["mean"].to_numpy()) / sd
    return shift, np.log(sd / np.maximum(other["sd"].to_numpy(), 1e-300))


def judge_gaussian(fit: GaussianCrossedFit, better: IntegratedFit) -> Trust:
    """Return the verdict on the joint Gaussian, held against the integrated answer."""
    tables, other = (pd.concat(found.tables(0.95).values()) for found in (better, fit))
    words = "integrating over sds and dispersion changes no mean and no sd by over a tenth"
    return _compared(list(tables.index), *compare(tables, other), words)


def judge_by_mode(fit: GaussianCrossedFit, top: Top, exact: bool) -> Trust:
    """Return the verdict on the Gaussian of sds and dispersion, held against mode and curvature of their density.

    It is for many levels, where that density is close to normal and the integrated answer takes long. Levels with few
    rows make the bound lack more the larger the sd: with many of them that moves the mode by many of its sds. So
    without `exact`, where that is not known, nothing good can be said.
    """
    p = len(fit.fixed_names)
    mean, own = fit.shared_moments()
    sd = np.sqrt(np.diag(top.covariance))
    shift, change = (top.centre - mean[p:]) / sd, np.log(sd / np.sqrt(np.diag(own)[p:]))
    names, logs = fit.shared_names(), {*fit.log_sd_positions().values(), *fit.dispersion_position().values()}
    for at in fit.log_sd_positions().values():
        shift[at - p] *= -1.0  # the coordinate is minus the log sd
    shown = [f"log {names[at]}" if at in logs else names[at] for at in range(p, len(names))]
    words = "mode and curvature of sds and dispersion, effects integrated out, agree with it to a tenth"
    found = _compared(shown, shift, change, words, "method='integrated' goes on from it, in minutes or more")
    moved = (("shift of sds and dispersion by what the bound lacks", top.moved), ("standard error of it", top.error))
    found = found._replace(numbers=(*found.numbers, *moved))
    if found.level != GOOD or (exact and top.error <= MOST_ERROR_OF_TOP):
        return found
    words = "sds were held against a bound only: levels with few rows may make them too small; compare with NUTS"
    return found._replace(level=CARE, reasons=(words,))


def _compared(names: list[str], shift: np.ndarray, change: np.ndarray, good: str, cure: str = CURE) -> Trust:
    """Return the verdict by how far means are off, in posterior sds, and by log ratios of true sds to ours."""
    moved, changed = int(np.argmax(np.abs(shift))), int(np.argmax(np.abs(change)))
    numbers = (
        ("largest shift of a mean, in posterior sds", float(shift[moved])),
        ("largest ratio of an sd, integrated to Gaussian", float(np.exp(change[changed]))),
    )
    parts = []
    if abs(shift[moved]) > thresholds.SHIFT:
        way = "higher" if shift[moved] > 0 else "lower"
        parts.append(f"the mean of {names[moved]} should be about {abs(shift[moved]):.1f} posterior sds {way}")
    if abs(change[changed]) > thresholds.CHANGE:
        verb = "" if parts else "should be "
        parts.append(f"the sd of {names[changed]} {verb}{np.exp(change[changed]):.2f} times as large")
    if not parts:
        return Trust(GOOD, (good,), numbers)
    words = f"{' and '.join(parts)}; {cure}"
    return Trust(REFUSE if abs(shift[moved]) > thresholds.FAR_SHIFT else CARE, (words,), numbers)


def judge_integrated(fit: IntegratedFit, points: Points) -> tuple[Trust, ...]:
    """Return whether the points suffice, and whether what is known of the effects given each is good enough.

    Either draws are weighted exactly given a point, and the weights say whether they suffice. Or the second-order term
    of the log evidence, half the variance of log p - log q, is part of the weights of points: where it moves the answer
    much, terms beyond it would move it too.
    """
    return (_judge_points(points), _judge_draws(points) if points.exact else _judge_second_order(fit, points))


def _judge_points(points: Points) -> Trust:
    count, effective = len(points.weights), points.effective
    of_mean, of_sd = points.errors
    numbers = (
        ("points", float(count)),
        ("effective points", effective),
        ("Pareto k of the points", points.k),
        ("largest error of a mean by the points, in posterior sds", of_mean),
        ("largest error of a log sd by the points", of_sd),
        ("nats by which the smooth density misses points", points.missed),
    )
    words = f"{count:,} weighted points of sds and dispersion, as good as {effective:,.0f} evenly spread ones"
    lost = float(np.mean(points.described.inner.settled <= 0))
    if effective >= LEAST_POINTS and lost < 0.2 and of_mean <= MOST_MEAN_ERROR and of_sd <= MOST_SD_ERROR:
        return Trust(GOOD, (words,), numbers)
    cure = "give a tighter prior for the sds, or draw with NUTS"
    return Trust(CARE if effective >= FEWEST_POINTS else REFUSE, (f"{words}: too few; {cure}",), numbers)


def _judge_draws(points: Points) -> Trust:
    """Return whether draws given the points suffice, all of them taken as draws of hyper-parameters and the rest."""
    ratios = np.asarray(points.described.log_ratios)
    found = smooth_weights((ratios - points.log_q[:, None]).ravel())
    numbers = (
        ("draws given the points", float(ratios.size)),
        ("effective draws given the points", found.effective),
        ("Pareto k of draws given the points", found.k),
    )
    words = (
        f"{ratios.size:,} exactly weighted draws given these points, the largest factor integrated out, worth "
        f"{found.effective:,.0f}"
    )
    if found.k <= thresholds.LARGEST_K and found.effective >= thresholds.LEAST_EFFECTIVE:
        return Trust(GOOD, (words,), numbers)
    level = REFUSE if found.effective < thresholds.FEWEST_EFFECTIVE else CARE
    cure = "levels have few rows for so large a spread; give a tighter prior for the sds, or draw with NUTS"
    return Trust(level, (f"{words}: too few (Pareto k {found.k:.2f}); {cure}",), numbers)


def _judge_second_order(fit: IntegratedFit, points: Points) -> Trust:
    with_term, without = (
        pd.concat([fit.fixed_table(w, 0.95), fit.component_table(w, 0.95)]) for w in (points.weights, points.plain)
    )
    shift, change = compare(with_term, without)
    moved, changed = int(np.argmax(np.abs(shift))), int(np.argmax(np.abs(change)))
    spread = float(points.weights @ (2.0 * points.described.lacking))
    numbers = (
        ("shift of a mean by the second-order term, in posterior sds", float(shift[moved])),
        ("ratio of an sd by the second-order term", float(np.exp(change[changed]))),
        ("variance of log p - log q given the hyper-parameters", spread),
    )
    small = abs(shift[moved]) <= SECOND_SHIFT and abs(change[changed]) <= SECOND_CHANGE
    if small and spread <= LARGE_SPREAD:
        words = "given sds and dispersion the effects are close to Gaussian: what that neglects hardly moves the answer"
        return Trust(GOOD, (words,), numbers)
    worst = with_term.index[moved if abs(shift[moved]) > SECOND_SHIFT else changed]
    words = (
        f"given sds and dispersion the effects are not Gaussian, which matters for {worst}: levels have few rows for "
        "so large a spread; give a tighter prior for the sds, or draw with NUTS"
    )
    return Trust(REFUSE if abs(shift[moved]) > FAR_SECOND else CARE, (words,), numbers)


def judge_open(fit: IntegratedFit) -> tuple[Trust, ...]:
    """Name the sds that the data leave open: the answer is right about them, but a reader may overlook it."""
    table = fit.component_table(fit.weights, 0.95)
    _, covariance = fit.shared_moments()
    small, vague = [], []
    places = fit.dispersion_position().values()
    spread = dict(zip(fit.component_names()[-len(places) :], places, strict=False)) if places else {}
    for name, at in (fit.log_sd_positions() | spread).items():
        if table.iloc[:, 2].loc[name] < NEAR_ZERO * table["mean"].loc[name]:
            small.append(name)
        elif covariance[at, at] > VAGUE**2:
            vague.append(name)
    reasons = [f"{', '.join(small)} may be close to zero: the prior decides how close"] if small else []
    reasons += [f"{', '.join(vague)} is poorly determined by the data: the prior matters for it"] if vague else []
    return (Trust(GOOD, tuple(reasons)),) if reasons else ()
