"""What the shape check found, as a verdict in plain words."""

import numpy as np

from natvi.judge import thresholds
from natvi.judge.shape import Shape
from natvi.judge.trust import CARE, GOOD, REFUSE, Trust

NOT_FINITE = "the check against the exact posterior did not give a finite answer"


def judge_shape(shape: Shape | None, names: list[str], cure: str) -> Trust:
    """Return the verdict on a Gaussian.

    Args:
        shape: What was found, or None.
        names: Of everything that was compared.
        cure: What to do where it does not fit, a phrase.

    Returns:
        One verdict with its numbers.
    """
    if shape is None or not (np.all(np.isfinite(shape.shift)) and np.all(np.isfinite(shape.change))):
        return Trust(CARE, (NOT_FINITE,))
    moved, changed = int(np.argmax(np.abs(shape.shift))), int(np.argmax(np.abs(shape.change)))
    shift, ratio = float(shape.shift[moved]), float(np.exp(shape.change[changed]))
    numbers = (
        ("largest shift of a mean, in posterior sds", shift),
        ("largest ratio of an sd, exact to approximate", ratio),
        ("draws of the check", float(shape.num_draws)),
        ("effective draws of the check", shape.effective),
        ("Pareto k of the check", shape.k),
    )
    if not shape.off and shape.reliable:
        words = (
            f"held against the exact posterior, no mean is off by more than {max(abs(shift), 0.01):.2f} posterior sds "
            f"and no sd by more than {max(100 * abs(1.0 / ratio - 1.0), 1.0):.0f}%"
        )
        return Trust(GOOD, (words,), numbers)
    if not shape.off:
        words = (
            "the tails of the posterior are heavier than a Gaussian's, so that the check against the exact posterior "
            f"is not reliable; {cure}"
        )
        return Trust(CARE, (words,), numbers)
    words = f"{_differences(shape, names, moved, changed)}; {cure}"
    return Trust(REFUSE if abs(shift) > thresholds.FAR_SHIFT else CARE, (words,), numbers)


def _differences(shape: Shape, names: list[str], moved: int, changed: int) -> str:
    shift, ratio = float(shape.shift[moved]), float(np.exp(shape.change[changed]))
    parts = []
    if abs(shift) > thresholds.SHIFT:
        others = int(np.sum(np.abs(shape.shift) > thresholds.SHIFT)) - 1
        more = f" ({others} more by over {thresholds.SHIFT})" if others else ""
        parts.append(
            f"the mean of {names[moved]} should be about {abs(shift):.1f} posterior sds "
            f"{'higher' if shift > 0 else 'lower'}{more}"
        )
    if abs(np.log(ratio)) > thresholds.CHANGE:
        verb = "" if parts else "should be "
        parts.append(f"the sd of {names[changed]} {verb}{ratio:.2f} times as large")
    return " and ".join(parts)


def judge_weights(num_draws: int, effective: float, k: float) -> Trust:
    """Return whether weighted draws can stand for the posterior.

    Args:
        num_draws: The number of draws.
        effective: How many equally weighted draws they are worth.
        k: The Pareto k of their weights.

    Example:
        >>> judge_weights(2048, 1500.0, 0.3).level, judge_weights(2048, 90.0, 0.8).level
        ('good', 'use with care')
    """
    numbers = (("draws", float(num_draws)), ("effective draws", effective), ("Pareto k of the draws", k))
    like = f"{num_draws:,} weighted draws of the exact posterior"
    if k < thresholds.LARGEST_K and effective >= thresholds.LEAST_EFFECTIVE:
        return Trust(GOOD, (f"{like}, as good as {effective:,.0f} independent ones",), numbers)
    few = f"{like} are only as good as {effective:,.0f} independent ones"
    cure = "give a tighter prior, or draw with NUTS"
    if k < 1.0 and effective >= thresholds.FEWEST_EFFECTIVE:
        return Trust(CARE, (f"{few}: means and sds are rough, tails more so; {cure}",), numbers)
    return Trust(REFUSE, (f"{few} and do not represent it; {cure}",), numbers)
