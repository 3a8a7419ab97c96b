"""The posterior of a small crossed model by NUTS: the truth for the study of verdicts on crossed data.

Chains move in coordinates in which the posterior is close to standard normal. Given the hyper-parameters (dispersion,
omega), effects and coefficients are theta = m + P^-T/2 w, with the precision P and the mean m that they would have if
rows were normal with the information and scores of the joint Gaussian fit:

    P = A' W A + prior precision,   P m = A' (W eta + score) + prior precision times prior mean.

With W and score zero that is the usual non-centred form, which is the audit. The density is exact either way.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.memory import Arrays, recall
from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedMatrix
from natvi.models.mixed.crossed.door import CrossedModel
from natvi.models.mixed.crossed.gaussian import GaussianCrossedFit
from natvi.models.mixed.crossed.start import crossed_start
from natvi.optimize.structured.blocked_system import BlockedSystem
from natvi.run import climb
from natvi.target.mixed.crossed import CrossedTarget
from natvi.target.mixed.crossed_given import CrossedGiven
from natvi.x64 import float64

NUTS: dict[str, Any] = {"num_chains": 4, "num_warmup": 600, "num_draws": 1500, "target_accept": 0.9}
FEW: dict[str, Any] = {"num_warmup": 400, "num_draws": 700}  # where a chain takes minutes
LEAST_EFFECTIVE, MOST_ROUNDS = 2000, 5
SETTINGS: dict[str, Any] = {"nuts": NUTS, "least_effective": LEAST_EFFECTIVE, "rounds": MOST_ROUNDS}


class Posterior(NamedTuple):
    """What the density in the chains' coordinates needs, as arrays.

    Attributes:
        target: The model.
        information: A' W A and the prior precision of the coefficients.
        linear: A' (W eta + score), and the prior's part of the coefficients.
        centre: Of the hyper-parameters.
        root: A root of their covariance.
    """

    target: CrossedTarget
    information: BlockedMatrix
    linear: ArrowVector
    centre: Any
    root: Any

    @property
    def dimension(self) -> int:
        """The number of the chains' coordinates."""
        return self.centre.shape[0] + self.linear.local.size + self.linear.shared.shape[0]


def log_density(z: Any, own: Posterior) -> Any:
    """Return the log-density of the chains' coordinates `(hyper, w)`."""
    given, theta, log_volume = place(z, own)
    return given.value(theta) + log_volume


def place(z: Any, own: Posterior) -> tuple[CrossedGiven, ArrowVector, Any]:
    """Return the model given the hyper-parameters, theta and log |d theta / d w| of a point."""
    h, local = own.centre.shape[0], own.linear.local
    given = CrossedGiven(own.target, own.centre + own.root @ z[:h])
    P = jax.tree.map(jnp.add, own.information, given.prior_precision(own.information))
    pattern = own.target.pattern
    T = pattern.cholesky(P, differentiable=True)
    w = ArrowVector(z[h : h + local.size].reshape(local.shape), z[h + local.size :])
    moved = jax.tree.map(jnp.add, pattern.solve(T, own.linear), w)
    return given, pattern.solve_transposed(T, moved), -T.log_determinant()


@cache
def _sampler(num_draws: int, num_warmup: int = NUTS["num_warmup"], num_chains: int = NUTS["num_chains"]) -> Any:
    """Return NumPyro's sampler; data are its arguments, so that data of the same shape find it compiled."""
    import numpyro
    from numpyro import distributions, infer

    def model(own: Posterior) -> None:
        anywhere = distributions.constraints.real_vector
        z = numpyro.sample("z", distributions.ImproperUniform(anywhere, (), (own.dimension,)))
        numpyro.factor("density", log_density(z, own))

    kernel = infer.NUTS(model, target_accept_prob=NUTS["target_accept"], max_tree_depth=8)
    return infer.MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_draws,
        num_chains=num_chains,
        chain_method="sequential",
        jit_model_args=True,
        progress_bar=False,
    )


@jax.jit
def _shared(z: Any, own: Posterior) -> Any:
    def one(z: Any) -> Any:
        given, theta, _ = place(z, own)
        return jnp.concatenate([theta.shared[: own.target.p], given.hyper])

    return jax.lax.map(one, z, batch_size=50)


def posterior_of(model: CrossedModel, plain: bool = False) -> tuple[Posterior, GaussianCrossedFit]:
    """Return the density of a model around its joint Gaussian fit; `plain` for the usual non-centred form."""
    fit = model.fit(method="gva").model
    assert isinstance(fit, GaussianCrossedFit)
    with float64():
        target, (values, information) = jax.device_put(model.build().target), model.rough_values()
        start = crossed_start(target, jnp.asarray(values), jnp.asarray(information))
        q = jax.device_put(climb(BlockedSystem.around(target, target.pattern, start), start).gaussian)
        p, b, design = target.p, target.b, target.design
        found = target.predictor_moments(q)
        rows = target.row_expectations(found)
        W = jnp.maximum(-rows.d_eta_eta, 0.0)
        score = W * jnp.where(design.rows.filled, found.mean - design.rows.offset, 0.0) + rows.d_eta
        keep = 0.0 if plain else 1.0
        mean, precision = jnp.asarray(model.prior.mean[:p]), jnp.asarray(model.prior.sd[:p]) ** -2.0
        linear, matrix = design.transposed_product(keep * score, p), design.gram(keep * W, p)
        own = Posterior(
            target,
            matrix._replace(shared=matrix.shared.at[jnp.arange(p), jnp.arange(p)].add(precision)),
            linear._replace(shared=linear.shared.at[:p].add(precision * mean)),
            q.mean.shared[p:b],
            jnp.linalg.cholesky(q.covariance[p:b, p:b]),
        )
    return own, fit


def find_truth(model: CrossedModel, seed: int, plain: bool = False) -> Arrays:
    """Return means and sds of what the tables show, and what the draws are worth."""
    from arviz_stats.base import array_stats

    own, fit = posterior_of(model, plain)
    chains, divergent = NUTS["num_chains"], 0
    with float64():
        sampler, key = _sampler(NUTS["num_draws"]), jax.random.key(seed)
        kept: list[np.ndarray] = []
        sampler.post_warmup_state = None
        for _ in range(MOST_ROUNDS):
            key, sub = jax.random.split(key)
            rng = sub if sampler.post_warmup_state is None else sampler.post_warmup_state.rng_key
            starts = {"z": 0.1 * jax.random.normal(sub, (chains, own.dimension))}
            sampler.run(rng, own, init_params=starts, extra_fields=("diverging",))
            divergent += int(np.sum(sampler.get_extra_fields()["diverging"]))
            z = sampler.get_samples()["z"]
            kept.append(np.asarray(_shared(z, own)).reshape(chains, NUTS["num_draws"], -1))
            shared = np.concatenate(kept, axis=1)
            flat = fit.readings(shared.reshape(-1, shared.shape[-1]))
            table = flat.reshape(chains, -1, flat.shape[-1])
            both = np.concatenate([shared, table], axis=-1)
            ess = array_stats.ess(both, chain_axis=0, draw_axis=1, method="bulk")
            if np.min(ess) > LEAST_EFFECTIVE:
                break
            sampler.post_warmup_state = sampler.last_state
    return _summary(shared, table, divergent)


def find_truth_by_chain(model: CrossedModel, seed: int, settings: dict[str, Any], chains: int) -> Arrays:
    """Return the same for a model whose chains take minutes each: one round, every chain kept when it is done."""
    own, fit = posterior_of(model)
    found = [
        recall("crossed-chain", settings | {"chain": k}, lambda k=k: _one_chain(own, seed, k)) for k in range(chains)
    ]
    shared = np.stack([chain["shared"] for chain in found])
    table = np.stack([fit.readings(chain) for chain in shared])
    return _summary(shared, table, sum(int(chain["divergent"]) for chain in found))


def _one_chain(own: Posterior, seed: int, chain: int) -> Arrays:
    with float64():
        first, second = jax.random.split(jax.random.fold_in(jax.random.key(seed), chain))
        sampler = _sampler(FEW["num_draws"], FEW["num_warmup"], 1)
        start = {"z": 0.1 * jax.random.normal(first, (own.dimension,))}
        sampler.run(second, own, init_params=start, extra_fields=("diverging",))
        shared = np.asarray(_shared(sampler.get_samples()["z"], own))
    return {"shared": shared, "divergent": int(np.sum(sampler.get_extra_fields()["diverging"]))}


def _summary(shared: np.ndarray, table: np.ndarray, divergent: int) -> Arrays:
    """Return means and sds over chains and draws, and what they are worth."""
    from arviz_stats.base import array_stats

    both = np.concatenate([shared, table], axis=-1)
    ess = array_stats.ess(both, chain_axis=0, draw_axis=1, method="bulk")
    rhat = array_stats.rhat(both, chain_axis=0, draw_axis=1, method="rank")
    found = {"effective": float(np.min(ess)), "divergent": divergent, "rhat": float(np.max(rhat))}
    for name, values in (("shared", shared), ("table", table)):
        flat = values.reshape(-1, values.shape[-1])
        found |= {f"{name}_mean": flat.mean(0), f"{name}_sd": flat.std(0)}
    return found
