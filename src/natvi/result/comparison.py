"""Several fits side by side, by how well they predict rows, or groups, that they have not seen."""

from typing import Any

import numpy as np
import pandas as pd

from natvi.result.model import HoldsRows, ask
from natvi.result.questions import Questions


class Comparison(pd.DataFrame):
    """A table that shows all its columns, however long the names of the fits are."""

    @property
    def _constructor(self) -> type["Comparison"]:
        return Comparison

    def __repr__(self) -> str:
        """Return the whole table with two decimals; pandas would leave out the middle columns."""
        return self.to_string(float_format=lambda value: f"{value:.2f}")


def compare(
    *fits: Any, names: Any = None, by: Any = None, num_draws: int = 2000, seed: int = 0, data: Any = None
) -> pd.DataFrame:
    """Compare fits to the same responses by leave-one-out cross-validation.

    A difference is large when it is several times its standard error; below 4 nats it says little in any case.

    Args:
        *fits: Results of `natvi.glm` or `natvi.glmm`, or one dict of them by name.
        names: A name for each; by default the formulas.
        by: Leave out whole groups of rows: a column of the data, or a label for each row.
        num_draws: The number of draws from each fit.
        seed: The same seed gives the same answer.
        data: The data that all were fitted to, for fits that were loaded from files.

    Returns:
        A line for each fit, the best first: `elpd`, the expected log predictive density of new data, and its standard
        error; `difference` from the best, with the standard error of that; `p_loo`, the effective number of parameters;
        `unreliable`, for how many rows (groups) leaving one out changes too much to be computed from one fit.

    Example:
        >>> import natvi
        >>> crabs = natvi.data.load_crabs()
        >>> one = natvi.glm("y ~ width", crabs, family="bernoulli").fit()
        >>> natvi.compare(one, one.update("y ~ 1")).index.tolist()
        ['y ~ width', 'y ~ 1']
    """
    if len(fits) == 1 and isinstance(fits[0], dict):
        names, fits = list(fits[0]), tuple(fits[0].values())
    if len(fits) < 2 or not all(isinstance(fit, Questions) for fit in fits):
        raise ValueError("compare needs two or more results of natvi.glm or natvi.glmm: natvi.compare(fit1, fit2).")
    names = _names(fits) if names is None else [str(name) for name in names]
    if len(names) != len(fits):
        raise ValueError(f"{len(names)} names were given for {len(fits)} fits. Give one for each.")
    _check_same_responses(fits, names, data)
    how = (num_draws, seed, data)
    found = [fit.loo(*how) if by is None else fit.loo_groups(by, *how) for fit in fits]
    best = max(found, key=lambda each: each.elpd)
    lines = []
    for each in found:
        apart = each.elpd_each - best.elpd_each
        bad = int(np.sum(~(each.pareto_k < 0.7) & (each.effective < 0.5 * num_draws)))
        error = float(np.sqrt(len(apart) * np.var(apart)))
        lines.append((each.elpd, each.se, float(apart.sum()), error, each.p_loo, bad))
    columns = ["elpd", "se", "difference", "se of difference", "p_loo", "unreliable"]
    return Comparison(lines, index=pd.Index(names), columns=columns).sort_values("elpd", ascending=False)


def _names(fits: tuple[Any, ...]) -> list[str]:
    """Return the formulas; where two are the same, with family and a number."""
    texts = [str(getattr(fit.model, "formula", None) or f"fit {at + 1}") for at, fit in enumerate(fits)]
    if len(set(texts)) < len(texts):
        texts = [f"{text}, {fit.model.family.name}" for text, fit in zip(texts, fits, strict=True)]
    if len(set(texts)) < len(texts):
        texts = [f"{at + 1}: {text}" for at, text in enumerate(texts)]
    return texts


def _check_same_responses(fits: tuple[Any, ...], names: list[str], data: Any) -> None:
    first = ask(fits[0].model, HoldsRows).observed(data)
    for fit, name in zip(fits[1:], names[1:], strict=True):
        other = ask(fit.model, HoldsRows).observed(data)
        if len(other) != len(first):
            raise ValueError(
                f"{names[0]!r} was fitted to {len(first):,} rows and {name!r} to {len(other):,}: their sums cannot be "
                "compared. Fit both to the same rows, e.g. after data.dropna()."
            )
        if not np.allclose(other, first, rtol=1e-9, atol=0.0):
            raise ValueError(
                f"{names[0]!r} and {name!r} have different responses: densities of y and log(y), say, have different "
                "units. Compare models of the same response, in the same order of rows."
            )
