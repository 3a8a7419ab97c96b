"""The paper's six algorithms (Tables 3, 4 and 6), each a composition of a structure, a gradient and an update rule.

    1E, 1N   update (mu, C) along Euclidean / natural gradients          any closed pattern of C
    2E, 2N   update (mu, T) along Euclidean / natural gradients          dense T
    1S, 2S   natural gradients with block-diagonal C / arrow-shaped T

Each recipe returns `init` and `step`; `step(state, key)` draws, differentiates and moves. The rule chooses the step
size: plain steps with `plain(rho)`, or any of `natvi.optimize`, e.g. `snngm(0.001)` for the natural recipes. A step
size may be a schedule, a function of the step count; `natvi.run.wander` runs a recipe to convergence. Further options
(`order`, `num_samples`, `antithetic`) are those of `natvi.run.algorithm.compose`.
"""

from typing import Any

from natvi.gaussian import CovarianceGaussian, PrecisionGaussian
from natvi.optimize.plain import plain
from natvi.optimize.rule import Rule
from natvi.run.algorithm import Algorithm, compose
from natvi.typing import Target


def algorithm_1e(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Euclidean gradient ascent in (mu, C): Algorithm 1E."""
    return compose(target, rule or plain(1e-3), CovarianceGaussian, **estimate)


def algorithm_1n(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Natural gradient ascent in (mu, C): Algorithm 1N."""
    return compose(target, rule or plain(1e-2, natural=True), CovarianceGaussian, **estimate)


def algorithm_2e(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Euclidean gradient ascent in (mu, T): Algorithm 2E."""
    return compose(target, rule or plain(1e-3), PrecisionGaussian, **estimate)


def algorithm_2n(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Natural gradient ascent in (mu, T), the mean with the new T: Algorithm 2N."""
    return compose(target, rule or plain(1e-2, natural=True), PrecisionGaussian, **estimate)


def algorithm_1s(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Natural gradient ascent in mu and a block-diagonal C: Algorithm 1S."""
    return compose(target, rule or plain(1e-2, natural=True), CovarianceGaussian, sparse=True, **estimate)


def algorithm_2s(target: Target, rule: Rule | None = None, **estimate: Any) -> Algorithm:
    """Natural gradient ascent in mu and the sparse T of a hierarchical model: Algorithm 2S."""
    return compose(target, rule or plain(1e-2, natural=True), PrecisionGaussian, sparse=True, **estimate)
