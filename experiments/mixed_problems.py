"""The mixed models of Section 8.5, and two with random slopes, ready to be fitted in any way."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natvi
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowVector
from natvi.models.mixed.target import MixedTarget, build_target
from natvi.target.mixed.conditional import draw_conditional
from natvi.x64 import float64


class MixedProblem:
    """A data set with its formula; target and exact Gaussian are made when first asked for."""

    def __init__(self, name: str, load: Callable[[], Any], formula: str, family: str, prior: str = "paper") -> None:
        """Describe the problem; nothing is loaded yet."""
        self.name, self.formula, self.family, self.prior = name, formula, family, prior
        self.load = load

    @cached_property
    def model(self) -> natvi.MixedModel:
        """The model with its data."""
        return natvi.glmm(self.formula, self.load(), family=self.family, prior=self.prior)

    @cached_property
    def built(self) -> MixedTarget:
        """The target with its start, in float64."""
        model = self.model
        with float64():
            return build_target(model.design, model.y, model.family, model.prior, model.weight, model.constant)

    @cached_property
    def gva(self) -> natvi.Result:
        """The exact Gaussian approximation."""
        return self.model.fit(method="gva")

    @cached_property
    def posterior(self) -> ArrowPrecision:
        """The exact Gaussian approximation, its groups in the order of the target."""
        own = self.gva.model.posterior  # type: ignore[attr-defined]
        place = np.argsort(self.built.place_of_group)  # the group at each place of the target
        with float64():
            mean = ArrowVector(jnp.asarray(own.mean.local[..., place]), jnp.asarray(own.mean.shared))
            factor = own.factor._replace(local=own.factor.local[..., place], cross=own.factor.cross[..., place])
            return jax.tree.map(jnp.asarray, own._replace(mean=mean, factor=factor))

    def conditional_draws(self, shared: np.ndarray, seed: int) -> np.ndarray:
        """Draw the random effects given draws of theta_g, exactly; `(s, r n)` in the order of the target."""
        with float64():
            key = jax.random.key(seed)
            draws = draw_conditional(self.built.target, jnp.asarray(shared), self.posterior.mean.local, key)
            return np.asarray(draws).reshape(len(shared), -1)

    @property
    def dimensions(self) -> dict[str, int]:
        """The number of rows, groups and shared coordinates."""
        groups = self.model.design.group_labels
        assert groups is not None
        return {"rows": len(self.model.y), "groups": len(groups), "shared": len(self.model.prior.mean)}


PROBLEMS = {
    problem.name: problem
    for problem in (
        MixedProblem("Epilepsy", natvi.data.load_epilepsy, "y ~ base*trt + age + visit + (1 | subject)", "poisson"),
        MixedProblem("Toenail", natvi.data.load_toenail, "infect ~ trt*time + (1 | idnr)", "bernoulli"),
        MixedProblem("HERS", natvi.data.load_hers, "y ~ age + bmi + htnmeds + visit + (1 | pptid)", "bernoulli"),
        MixedProblem("Diabetes", natvi.data.load_diabetes, "y ~ hba1c*diagnosis + (1 | patient_nbr)", "bernoulli"),
        MixedProblem(
            "sleepstudy", natvi.data.load_sleepstudy, "Reaction ~ Days + (Days | Subject)", "gaussian", "default"
        ),
        MixedProblem(
            "contraception",
            natvi.data.load_contraception,
            "use ~ age + urban + livch + (1 + urban | district)",
            "bernoulli",
            "default",
        ),
    )
}
PAPER = ("Epilepsy", "Toenail", "HERS", "Diabetes")
SLOPES = ("sleepstudy", "contraception")
