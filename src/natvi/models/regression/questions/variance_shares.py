"""Intraclass correlations: which share of the variance that the fixed effects leave is between the levels of a factor.

On the scale of the linear predictor, for random terms with covariances Sigma_k and rows z_ki,

    share of k = v_k / (sum of all v + w),   v_k = mean_i z_ki' Sigma_k z_ki,

where w is what is left within levels: sigma² for a Gaussian response; the variance of the latent variable for yes and
no (pi²/3 for the logit); for counts and positive responses the variance of the logarithm of a lognormal response with
the same mean and variance, log(1 + 1/m + 1/phi), m being the expected response (Nakagawa, Johnson and Schielzeth 2017).
With random slopes the variance depends on the row, and the mean over rows is taken (Johnson 2014).
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from natvi.families.table import Family
from natvi.judge.replicate import even_rows
from natvi.models.regression.fit import RegressionFit
from natvi.models.regression.rows import Covariates

LATENT = {"logit": np.pi**2 / 3, "probit": 1.0, "cloglog": np.pi**2 / 6}


class TermCovariance(NamedTuple):
    """A random term: its name, its columns of Z, and draws of the covariance of its effects `(s, r, r)`."""

    name: str
    columns: slice
    covariance: np.ndarray


class HasTerms(RegressionFit):
    """A fitted regression with random terms."""

    @abstractmethod
    def term_covariances(self, shared: np.ndarray) -> list[TermCovariance]:
        """Return the random terms at draws of the shared coordinates, in the coordinates of the fit."""

    def variance_shares(self, num_draws: int, seed: int, data: Any = None) -> dict[str, np.ndarray]:
        """Return draws of every random term's share, of very many rows over an even selection."""
        rows = self.covariates_for(data, "new")
        at = even_rows(rows.num_rows)
        shared = self.draws(num_draws, seed)
        covariances = self.term_covariances(shared)
        return shares_of(self.family, covariances, rows if at is None else rows.take(at), shared)


def shares_of(
    family: Family, terms: list[TermCovariance], rows: Covariates, shared: np.ndarray
) -> dict[str, np.ndarray]:
    """Return draws of every term's share, and of all together where there are several.

    Args:
        family: The response distribution.
        terms: The random terms.
        rows: Over which variances are averaged.
        shared: Draws of coefficients, log dispersion and what there is more `(s, g)`.
    """
    assert rows.Z is not None
    variances = {}
    for term in terms:
        Z = rows.Z[:, term.columns]
        variances[term.name] = np.einsum("skl,kl->s", term.covariance, Z.T @ Z / len(Z))
    total = np.sum(list(variances.values()), axis=0)
    whole = total + _within(family, terms, rows, shared)
    shares = {name: variance / whole for name, variance in variances.items()}
    return shares if len(terms) == 1 else shares | {"together": total / whole}


def _within(family: Family, terms: list[TermCovariance], rows: Covariates, shared: np.ndarray) -> np.ndarray | float:
    if family.parts:
        raise ValueError(
            "the variance within levels differs from row to row where a number beside the mean has a formula of its "
            "own. Compare the sds in variance_components(), or use r2()."
        )
    disp = shared[:, rows.X.shape[1]] if family.has_dispersion else None
    if family.quadratic and disp is not None:
        return np.exp(2 * disp)
    if family.name in ("bernoulli", "binomial", "ordinal"):
        return LATENT[family.link]
    if family.link == "log" and family.name in ("poisson", "negative_binomial", "gamma"):
        # gamma: Var y / m² = 1 / shape; negative binomial: 1/m + 1/phi
        own = 0.0 if family.name == "gamma" else 1.0 / _expected(terms, rows, shared)
        return np.log1p(own + (0.0 if disp is None else np.exp(-disp)))
    raise ValueError(
        f"for a {family.name} response it is not settled what counts as the variance within levels. Compare the sds in "
        "variance_components(), or use r2() for shares of the variance of the response."
    )


def _expected(terms: list[TermCovariance], rows: Covariates, shared: np.ndarray) -> np.ndarray:
    """Return draws of the mean over rows of E y = exp(x'beta + z' Sigma z / 2), averaged over new levels."""
    eta = rows.predictors(shared)
    assert rows.Z is not None
    for term in terms:
        Z = rows.Z[:, term.columns]
        eta += 0.5 * np.einsum("nk,skl,nl->sn", Z, term.covariance, Z, optimize=True)
    return np.exp(eta).mean(axis=1)
