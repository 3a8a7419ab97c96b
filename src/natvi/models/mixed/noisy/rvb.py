"""A mixed model fitted by reparametrized variational Bayes: Gaussian in (tilde, theta_g), drawn on the original scale.

    theta_i = L_i(theta_g) tilde_i + lambda_i(theta_g),    q = N(tilde | m, C C') N(theta_g | m_g, C_g C_g')

The shared coordinates theta_g are part of q, so what is said about them is exact. L_i and lambda_i need the rows of the
data, so the fit keeps them, also in the file it is saved to.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian import ArrowPrecision, CovarianceGaussian
from natvi.linalg import ArrowFactor, ArrowVector, LocalGlobalFactor
from natvi.linalg.local_global import LocalGlobalMatrix, matrix_product
from natvi.models.mixed.conditional import ConditionalSampler
from natvi.models.mixed.drawn import DrawnFit
from natvi.models.mixed.draws import draw_in_batches
from natvi.models.mixed.noisy.stochastic import draw_original, reparametrize
from natvi.models.mixed.posterior import MixedFit
from natvi.target import SumOfTerms
from natvi.target.mixed.rvb import ReparametrizedEffects
from natvi.x64 import float64, to_host


@dataclass(frozen=True, eq=False, kw_only=True)
class RvbFit(DrawnFit):
    """The posterior of RVB1 or RVB2; `posterior` agrees with it to first order about its mean, exactly in theta_g.

    Attributes:
        way: "rvb1" or "rvb2".
        gaussian: Of (tilde, theta_g), its groups in the order of the target.
        data: The rows, and where each group stands among them.
    """

    way: str
    gaussian: CovarianceGaussian
    data: ConditionalSampler

    @classmethod
    def of(
        cls, model: MixedFit, target: SumOfTerms, place: np.ndarray, way: str, fitted: CovarianceGaussian
    ) -> "RvbFit":
        """Put the Gaussian of (tilde, theta_g) behind the names and tables of a model."""
        rows = ConditionalSampler.of(target, np.asarray(fitted.mean.local), place)
        return cls(**model.parts(), way=way, gaussian=fitted, data=rows)

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        about = "predictors of the data" if self.way == "rvb1" else "their modes"
        words = (
            f"Gaussian in random effects standardised about {about} given the shared parameters; drawn and mapped back"
        )
        return (*super().headline, ("shape", words))

    @property
    def assumption(self) -> str:
        """What is assumed about the posterior, and may be wrong."""
        return "the Gaussian shape of the shared parameters and the standardised random effects"

    @cached_property
    def _reparametrized(self) -> ReparametrizedEffects:
        with float64():
            return to_host(reparametrize(jax.device_put(self.data.target), self.way))

    def joint_draws(self, num_samples: int, seed: int, keep_local: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw `(s, r, n)` and `(s, g)`: (tilde, theta_g) from q, then back to the original scale."""
        with float64():
            draw = partial(draw_original, *jax.device_put((self._reparametrized, self.gaussian)))
        local, shared = draw_in_batches(draw, num_samples, seed, self.local_sds.size, keep_local)
        return local[..., self.data.place], shared

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document; the rows of the data are among them, which the way back needs."""
        arrays, document = super().store()
        rows, rest = self.data.store()
        mean, factor = self.gaussian.mean, self.gaussian.factor
        tilde = {"mean_local": mean.local, "mean_shared": mean.shared}
        tilde |= {"factor_local": factor.local, "factor_shared": factor.shared}
        named = {f"tilde_{name}": np.asarray(array) for name, array in tilde.items()}
        return {**arrays, **rows, **named}, {**document, "rvb": {**rest, "way": self.way}}


def restore_rvb(model: MixedFit, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> RvbFit:
    """Rebuild an RVB fit around the Gaussian of first order that was stored with it."""
    way = document["rvb"]["way"]
    if way not in ("rvb1", "rvb2"):
        raise ValueError(f"the way back from {way!r} is not known")
    rows = ConditionalSampler.restore(arrays, document["rvb"], model.family, model.correlated)
    parts = ("mean_local", "mean_shared", "factor_local", "factor_shared")
    local, shared, A, C = (arrays[f"tilde_{part}"] for part in parts)
    (r, n), g = model.local_sds.shape, len(model.shared_names())
    found, needed = [a.shape for a in (local, shared, A, C, rows.near)], [(r, n), (g,), (r, r, n), (g, g), (r, n)]
    if found != needed:
        raise ValueError(f"the arrays of the reparametrized model have shapes {found}, and {needed} are needed")
    mean, factor = ArrowVector(local, shared), LocalGlobalFactor(A, C)  # type: ignore[arg-type]
    return RvbFit(**model.parts(), way=way, gaussian=CovarianceGaussian(mean, factor), data=rows)


@jax.jit
def first_order(target: ReparametrizedEffects, gaussian: CovarianceGaussian) -> ArrowPrecision:
    """Return the Gaussian of (theta, theta_g) to which q is equal to first order about its mean.

    With J_i the derivative of theta_i in theta_g at the mean and A_i = L_i C_i,

        theta_i - mu_i = J_i (theta_g - m_g) + A_i z_i    so    T_i T_i' = (A_i A_i')^-1,  T_gi = -J_i' T_i
    """
    tilde, shared = gaussian.mean

    def local_at(shared: Float[Array, " g"]) -> Float[Array, "r n"]:
        return target.to_original(ArrowVector(tilde, shared)).local

    directions = jnp.eye(shared.shape[0], dtype=shared.dtype)
    J = jax.lax.map(lambda e: jax.jvp(local_at, (shared,), (e,))[1], directions)  # (g, r, n), one direction at a time
    _, L = target.expansion(target.groups, *target.groups.split(shared))
    A, C = matrix_product(L, gaussian.factor.local), gaussian.factor.shared
    own, corner = LocalGlobalMatrix(matrix_product(A, A.swapaxes(0, 1)), C @ C.T).covariance_factor()
    factor = ArrowFactor(own, -jnp.einsum("gkn,krn->grn", J, own), corner)
    return ArrowPrecision.from_factor(ArrowVector(local_at(shared), shared), factor)
