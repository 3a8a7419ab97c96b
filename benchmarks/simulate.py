"""Simulated data of any size."""

import numpy as np
import pandas as pd

ROWS_PER_GROUP = 5
FORMULA = "y ~ x1 + x2 + x3 + x4 + (1 | group)"
BETA = (-0.5, 0.5, -0.5, 0.25, 0.0)
SD = 1.0


def random_intercepts(family: str, num_groups: int, seed: int) -> pd.DataFrame:
    """Groups of five rows with a normal random intercept each: five fixed effects, the intercept included.

    Args:
        family: "bernoulli" (logit link) or "poisson" (log link).
        num_groups: The number of groups.
        seed: The same seed gives the same data.

    Returns:
        Columns `y`, `x1` to `x4`, `group`.
    """
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(num_groups), ROWS_PER_GROUP)
    columns = {f"x{j}": rng.standard_normal(len(group)) for j in range(1, len(BETA))}
    eta = BETA[0] + SD * rng.standard_normal(num_groups)[group]
    for slope, column in zip(BETA[1:], columns.values(), strict=True):
        eta += slope * column
    if family == "bernoulli":
        y = (rng.random(len(group)) * (1 + np.exp(-eta)) < 1).astype(np.int64)
    elif family == "poisson":
        y = rng.poisson(np.exp(eta))
    else:
        raise ValueError(f"family must be 'bernoulli' or 'poisson', not {family!r}.")
    return pd.DataFrame({"y": y, **columns, "group": group})
