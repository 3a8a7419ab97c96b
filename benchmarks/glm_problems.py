"""The data of the benchmark `glm`: logistic regression with an intercept among the columns and the prior N(0, 10^2)."""

from typing import NamedTuple

import numpy as np

NAMES = ("German", "a4a", "simulated")
PRIOR_SD = 10.0


class Problem(NamedTuple):
    """Covariates and responses."""

    name: str
    X: np.ndarray
    y: np.ndarray


def load(name: str) -> Problem:
    """Return a problem; FileNotFoundError says what is missing."""
    from experiments import problems
    from natvi.data import load_a4a, load_german

    if name == "simulated":
        return Problem(name, *problems.simulated_rows())
    data = load_german() if name == "German" else load_a4a()[0]
    return Problem(name, data.X, data.y)


def exact_bound(problem: Problem, mean: np.ndarray, covariance: np.ndarray) -> float:
    """Return the lower bound of a Gaussian, all constants included, without sampling error."""
    import jax.numpy as jnp

    from natvi.derivatives import exact_derivatives
    from natvi.families.table import FAMILIES
    from natvi.gaussian import CovarianceGaussian
    from natvi.linalg import DenseFactor
    from natvi.target.design_rows import DesignRows, Observations
    from natvi.target.priors.independent_normal import IndependentNormal
    from natvi.x64 import float64

    with float64():
        rows = Observations(jnp.asarray(problem.X), jnp.asarray(problem.y))
        d = problem.X.shape[1]
        prior = IndependentNormal.around_zero(d, PRIOR_SD)
        target = DesignRows(rows, prior, FAMILIES["bernoulli"], len(problem.y))
        factor = DenseFactor(jnp.asarray(np.linalg.cholesky(covariance)))
        return float(exact_derivatives(target, CovarianceGaussian(jnp.asarray(mean), factor)).value)
