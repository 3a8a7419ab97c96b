"""How sure the sds of draws are: where tails are heavy, a few of the draws decide them.

The standard error of the logarithm of an sd of n independent draws is sqrt((kurtosis - 1) / n) / 2 (delta method); for
a Gaussian that is 1 / sqrt(2 n). The kurtosis of a sample is too small where the tails are very heavy, but large enough
then to tell: of n draws it can be as large as n.
"""

import numpy as np
from jaxtyping import Float

from natvi.judge.trust import CARE, Trust

UNSURE = 0.08  # standard error of the logarithm of an sd, from which a tenth is within reach of chance
COLUMNS = 64  # at once: of thousands no copy is made


def errors_of_sds(read: Float[np.ndarray, "s k"], effective: float) -> Float[np.ndarray, " k"]:
    """Return the standard errors of the logarithms of the sds; zero for what does not vary.

    Args:
        read: Draws.
        effective: How many independent ones they are worth.

    Example:
        >>> z = np.random.default_rng(0).standard_normal((4000, 1))
        >>> errors_of_sds(z, 4000.0).round(3).tolist()
        [0.011]
    """
    kurtosis = np.ones(read.shape[1])
    for at in range(0, read.shape[1], COLUMNS):
        x = read[:, at : at + COLUMNS] - read[:, at : at + COLUMNS].mean(axis=0)
        square = np.mean(x**2, axis=0)
        with np.errstate(all="ignore"):
            kurtosis[at : at + COLUMNS] = np.where(square > 0, np.mean(x**4, axis=0) / square**2, 1.0)
    return 0.5 * np.sqrt(np.maximum(kurtosis - 1.0, 0.0) / max(effective, 1.0))


def judge_tails(names: list[str], read: Float[np.ndarray, "s k"], effective: float) -> tuple[Trust, ...]:
    """Say which sd the draws do not tell; nothing where they tell all."""
    errors = errors_of_sds(read, effective)
    worst = int(np.argmax(errors)) if len(errors) else 0
    if not len(errors) or not errors[worst] > UNSURE:
        return ()
    count = int(np.sum(errors > UNSURE))
    others = f", and that of {count - 1} more," if count > 1 else ""
    text = (
        f"the sd of {names[worst]}{others} rests on few of the draws, since its tails are heavy (an error of about "
        f"{100 * np.expm1(errors[worst]):.0f}% or more): read its quantiles, or its logarithm"
    )
    return (Trust(CARE, (text,), (("error of the logarithm of an sd", float(errors[worst])),)),)
