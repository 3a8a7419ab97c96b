"""A mixed model fitted from batches: the Gaussian of its shared coordinates, and of the groups while they are kept."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natvi.families.table import Family, find_family
from natvi.gaussian import ArrowPrecision
from natvi.models.mixed.batches.state import BatchNames
from natvi.models.mixed.variance import SharedCoordinates
from natvi.models.regression.file_check import PRIOR_FIELDS
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.prior.storage import prior_arrays, restore_prior, store_prior
from natvi.result.file_check import check_contents, is_count, is_flag, is_names, is_text
from natvi.run.batches.group_steps import joint_gaussian, unflatten_blocks
from natvi.x64 import float64, to_host

FIELDS = {
    **PRIOR_FIELDS,
    "link": is_text,
    "num_groups": is_count,
    "fixed_names": is_names,
    "random_names": lambda value: is_names(value) and bool(value),
    "group_name": is_text,
    "correlated": is_flag,
}


class BatchFitError(ValueError):
    """Something that a fit by batches cannot give; the message says what to do."""


@dataclass(frozen=True, eq=False)
class BatchedFit(SharedCoordinates):
    """The posterior of a mixed model whose groups were visited batch by batch.

    Attributes:
        family: The response distribution with its link.
        names: Of fixed effects, random effects and the grouping column.
        shared_mean: Of the shared coordinates, in those of the prior.
        precision: Of the shared coordinates, in those of the prior.
        prior: Of the shared coordinates.
        num_groups: The number of groups.
        blocks: What is known of the groups, one row each; None where it was not kept, or the fit was loaded.
    """

    family: Family
    names: BatchNames
    shared_mean: np.ndarray
    precision: np.ndarray
    prior: Prior
    num_groups: int
    blocks: np.ndarray | None = None

    @property
    def fixed_names(self) -> tuple[str, ...]:
        """Names of the fixed effects."""
        return self.names.fixed

    @property
    def random_names(self) -> tuple[str, ...]:
        """Names of the random effects."""
        return self.names.random

    @property
    def group_name(self) -> str:
        """The name of the grouping column."""
        return self.names.group

    @property
    def correlated(self) -> bool:
        """Whether the random effects correlate."""
        return self.names.correlated

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        bar = "|" if self.correlated else "||"
        terms = f"y ~ {' + '.join(self.fixed_names)} + ({' + '.join(self.random_names)} {bar} {self.group_name})"
        return (
            ("model", f"{terms}, {self.family.name} response, {self.family.link} link"),
            ("data", f"{self.num_groups:,} groups of {self.group_name}, read in batches and not kept"),
            ("prior", self.prior.description),
        )

    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared coordinates, in those of the prior."""
        return self.shared_mean, np.linalg.inv(self.precision)

    def user_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared coordinates, the coefficients in the user's units."""
        mean, covariance = self.shared_moments()
        whole, p = np.eye(len(mean)), len(self.fixed_names)
        whole[:p, :p] = self.prior.coordinates.coefficients(np.eye(p)).T
        return whole @ mean, whole @ covariance @ whole.T

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw fixed effects and variance components; of the groups there are no draws."""
        return self.named(self.shared_draws(num_samples, np.random.default_rng(seed)))

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Every parameter is a scalar."""
        return {}, {}

    def posterior(self, groups: np.ndarray | None = None) -> ArrowPrecision:
        """Return the Gaussian of the shared coordinates and of some groups, by default of all, as it was fitted.

        Its coordinates are those of the prior (`prior.coordinates`); `user_moments` are in the user's.
        """
        if self.blocks is None:
            raise BatchFitError("The groups' blocks were not kept. Fit with blocks='memory' or the path of a file.")
        chosen = np.asarray(self.blocks if groups is None else self.blocks[groups])
        with float64():
            blocks = unflatten_blocks(jnp.asarray(chosen), len(self.random_names), len(self.shared_mean))
            root = jnp.linalg.cholesky(jnp.asarray(self.precision))
            return to_host(jax.jit(joint_gaussian)(jnp.asarray(self.shared_mean), root, blocks))

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt; the groups are not among them."""
        document = {
            "model": "glmm_batches",
            "family": self.family.full_name,
            "link": self.family.link,
            "fixed_names": list(self.fixed_names),
            "random_names": list(self.random_names),
            "group_name": self.group_name,
            "correlated": self.correlated,
            "num_groups": self.num_groups,
            "prior": store_prior(self.prior),
            "notes": [],
        }
        return {"shared_mean": self.shared_mean, "precision": self.precision, **prior_arrays(self.prior)}, document


def check(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
    """Raise unless the file holds what a fit from batches stores."""
    check_contents(arrays, document, FIELDS)


def restore(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> BatchedFit:
    """Rebuild the model."""
    fixed, random = tuple(document["fixed_names"]), tuple(document["random_names"])
    family = find_family(document["family"], document["link"])
    names = BatchNames(fixed, random, document["group_name"], document["correlated"])
    prior = restore_prior(arrays, document["prior"], fixed, len(random))
    mean, precision = arrays["shared_mean"], arrays["precision"]
    fit = BatchedFit(family, names, mean, precision, prior, document["num_groups"])
    g = len(fit.shared_names())
    if mean.shape != (g,) or precision.shape != (g, g):
        raise ValueError(f"the arrays hold {mean.shape} means and {precision.shape} precisions for {g} parameters")
    return fit
