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
from jax.scipy.linalg import solve_triangular

from experiments.memory import Arrays
from natvi.families.rows import PredictorMoments
from natvi.linalg import ArrowVector
from natvi.models.mixed.crossed.door import CrossedModel
from natvi.models.mixed.crossed.gaussian import GaussianCrossedFit
from natvi.models.mixed.crossed.layout import build_crossed
from natvi.models.mixed.crossed.start import crossed_start, rough_values
from natvi.optimize.structured.blocked_system import BlockedSystem
from natvi.run import climb
from natvi.target.mixed.crossed import CrossedTarget
from natvi.x64 import float64

NUTS: dict[str, Any] = {"num_chains": 4, "num_warmup": 600, "num_draws": 1500, "target_accept": 0.9}
LEAST_EFFECTIVE, MOST_ROUNDS = 2000, 5
SETTINGS: dict[str, Any] = {"nuts": NUTS, "least_effective": LEAST_EFFECTIVE, "rounds": MOST_ROUNDS}


class Posterior(NamedTuple):
    """What the density in the chains' coordinates needs, as arrays.

    Attributes:
        target: The model.
        A: Its rows `(cells, D)` on theta = (local effects, coefficients, effects of smaller factors).
        information: W of every cell.
        score: W eta + score of every cell.
        prior_mean: Of the coefficients.
        prior_precision: Of the coefficients.
        centre: Of the hyper-parameters.
        root: A root of their covariance.
    """

    target: CrossedTarget
    A: Any
    information: Any
    score: Any
    prior_mean: Any
    prior_precision: Any
    centre: Any
    root: Any


def log_density(z: Any, own: Posterior) -> Any:
    """Return the log-density of the chains' coordinates `(hyper, w)`."""
    hyper, theta, log_volume = place(z, own)
    return own.target.value(_vector(own.target, hyper, theta)) + log_volume


def place(z: Any, own: Posterior) -> tuple[Any, Any, Any]:
    """Return hyper-parameters, theta and log |d theta / d w| of a point."""
    h, p = own.centre.shape[0], own.prior_mean.shape[0]
    hyper = own.centre + own.root @ z[:h]
    local = own.A.shape[1] - p - own.target.design.num_coordinates
    P = own.A.T @ (own.information[:, None] * own.A) + _effects_precision(own.target, hyper, p)
    P = P.at[local + jnp.arange(p), local + jnp.arange(p)].add(own.prior_precision)
    linear = (own.A.T @ own.score).at[local : local + p].add(own.prior_precision * own.prior_mean)
    L = jnp.linalg.cholesky(P)
    theta = solve_triangular(L, solve_triangular(L, linear, lower=True) + z[h:], lower=True, trans=1)
    return hyper, theta, -jnp.sum(jnp.log(jnp.diagonal(L)))


def _vector(target: CrossedTarget, hyper: Any, theta: Any) -> ArrowVector:
    p, m = target.p, target.design.num_coordinates
    local = theta.shape[0] - p - m
    r = target.design.rows.Z.shape[0]
    shared = jnp.concatenate([theta[local : local + p], hyper, theta[local + p :]])
    return ArrowVector(theta[:local].reshape(r, -1), shared)


def _effects_precision(target: CrossedTarget, hyper: Any, p: int) -> Any:
    """Return the prior precision of the effects given the hyper-parameters, dense."""
    shared = jnp.concatenate([jnp.zeros(p), hyper])
    r, m = target.design.rows.Z.shape[0], target.design.num_coordinates
    n = next(term.num_levels for term in target.effects if term.largest)
    P = jnp.zeros((r * n + p + m,) * 2)
    for term in target.effects:
        W = term.prior.precision_factor(shared)
        k, levels = term.prior.r, term.num_levels
        first = term.first * n if term.largest else r * n + p + term.first - target.b
        at = first + jnp.arange(k * levels).reshape(k, levels)
        P = P.at[at[:, None], at[None]].add((W @ W.T)[..., None])
    return P


@cache
def _sampler(num_draws: int) -> Any:
    """Return NumPyro's sampler; data are its arguments, so that data of the same shape find it compiled."""
    import numpyro
    from numpyro import distributions, infer

    def model(own: Posterior) -> None:
        size = own.centre.shape[0] + own.A.shape[1]
        z = numpyro.sample("z", distributions.ImproperUniform(distributions.constraints.real_vector, (), (size,)))
        numpyro.factor("density", log_density(z, own))

    kernel = infer.NUTS(model, target_accept_prob=NUTS["target_accept"], max_tree_depth=8)
    return infer.MCMC(
        kernel,
        num_warmup=NUTS["num_warmup"],
        num_samples=num_draws,
        num_chains=NUTS["num_chains"],
        chain_method="sequential",
        jit_model_args=True,
        progress_bar=False,
    )


@jax.jit
def _shared(z: Any, own: Posterior) -> Any:
    p, h = own.prior_mean.shape[0], own.centre.shape[0]
    local = own.A.shape[1] - p - own.target.design.num_coordinates

    def one(z: Any) -> Any:
        hyper, theta, _ = place(z, own)
        return jnp.concatenate([theta[local : local + p], hyper])

    assert h
    return jax.lax.map(one, z, batch_size=100)


def posterior_of(model: CrossedModel, plain: bool = False) -> tuple[Posterior, GaussianCrossedFit]:
    """Return the density of a model around its joint Gaussian fit; `plain` for the usual non-centred form."""
    with float64():
        constant = 0.0 if model.constants is None else float(np.sum(model.constants))
        built = build_crossed(model.design, model.y, model.family, model.prior, model.weight, constant)
        values, information = rough_values(model.design, model.y, model.family, model.prior, model.weight)
        target = jax.device_put(built.target)
        start = crossed_start(target, jnp.asarray(values), jnp.asarray(information))
        q = climb(BlockedSystem.around(target, target.pattern, start), start).gaussian
        q, p, b = jax.device_put(q), target.p, target.b
        fit = model._fitted(q, built)
        dispersion = (p,) if target.family.has_dispersion else ()
        found = q.row_moments(target.design, dispersion)
        moments = PredictorMoments(found.mean, found.variance)
        if dispersion:
            at = q.mean.shared[p], q.covariance[p, p], found.covariance[0]
            moments = PredictorMoments(found.mean, found.variance, *at)
        rows = target.row_expectations(moments)
        W = jnp.maximum(-rows.d_eta_eta, 0.0)
        score = jnp.where(target.design.rows.filled, W * (found.mean - target.design.rows.offset), 0.0) + rows.d_eta
        r, n = q.mean.local.shape
        size = r * n + p + target.design.num_coordinates
        zero = jnp.zeros(b - p)
        base = target.design.predictor(_vector(target, zero, jnp.zeros(size)))
        columns = jax.lax.map(lambda e: target.design.predictor(_vector(target, zero, e)) - base, jnp.eye(size))
        keep = 0.0 if plain else 1.0
        covariance = q.covariance[p:b, p:b]
        own = Posterior(
            target,
            jnp.where(target.design.rows.filled.ravel(), columns.reshape(size, -1), 0.0).T,
            keep * W.ravel(),
            keep * score.ravel(),
            jnp.asarray(model.prior.mean[:p]),
            jnp.asarray(model.prior.sd[:p]) ** -2.0,
            q.mean.shared[p:b],
            jnp.linalg.cholesky(covariance),
        )
    return own, fit


def find_truth(model: CrossedModel, seed: int, plain: bool = False) -> Arrays:
    """Return means and sds of what the tables show, and what the draws are worth."""
    from arviz_stats.base import array_stats

    own, fit = posterior_of(model, plain)
    size, chains, divergent = own.centre.shape[0] + own.A.shape[1], NUTS["num_chains"], 0
    with float64():
        sampler, key = _sampler(NUTS["num_draws"]), jax.random.key(seed)
        kept: list[np.ndarray] = []
        sampler.post_warmup_state = None
        for _ in range(MOST_ROUNDS):
            key, sub = jax.random.split(key)
            rng = sub if sampler.post_warmup_state is None else sampler.post_warmup_state.rng_key
            starts = {"z": 0.1 * jax.random.normal(sub, (chains, size))}
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
    rhat = array_stats.rhat(both, chain_axis=0, draw_axis=1, method="rank")
    found = {"effective": float(np.min(ess)), "divergent": divergent, "rhat": float(np.max(rhat))}
    for name, values in (("shared", shared.reshape(-1, shared.shape[-1])), ("table", flat)):
        found |= {f"{name}_mean": values.mean(0), f"{name}_sd": values.std(0)}
    return found
