"""Many short chains: draws that start near the posterior and are moved into it, all at once.

Hamiltonian steps in coordinates whitened by a Gaussian. A thousand chains of ten transitions cost no more than one
chain of ten thousand and need no tuning by hand; what one long chain shows by its trace, these show across chains:
whether they have forgotten where they were, whether means still drift, whether some are stuck.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

LENGTH = np.pi / 2  # of a trajectory, in sds: a Gaussian has forgotten its start then
WANTED = 0.8  # acceptance
FEW = 20  # numbers, the largest of which is judged as it is
ROUGH = 20.0  # nats, an error of the energy that no smooth stretch of a density gives


class Seen(NamedTuple):
    """log p, its gradient and what is read, at points."""

    values: np.ndarray
    gradients: np.ndarray
    read: np.ndarray


Look = Callable[[Float[np.ndarray, "s d"]], Seen]


@runtime_checkable
class Metric(Protocol):
    """A Gaussian N(mu, C C') in whose coordinates chains move."""

    def spread(self, z: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return C z."""
        ...

    def whiten(self, gradients: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s d"]:
        """Return C' g."""
        ...


class Chains(NamedTuple):
    """Chains after some transitions.

    Attributes:
        theta: The states from the middle on `(t, s, d)`: the last before it, and the later half.
        read: What is read of them `(t, s, k)`.
        gradients: Of log p there `(t, s, d)`.
        energies: After every transition, with the momentum it began with `(t, s)`.
        accepted: Share of the transitions each chain accepted, `(s,)`.
        rough: Share of the later trajectories whose energy went wrong: where they were heading, steps are too long.
        step: The step size in use.
        last: What is known at the last states.
    """

    theta: np.ndarray
    read: np.ndarray
    gradients: np.ndarray
    energies: np.ndarray
    accepted: np.ndarray
    rough: float
    step: float
    last: Seen


def first_step(d: int) -> float:
    """Return the step size to begin with, in sds."""
    return min(1.0, 1.5 * d**-0.25)


def move(
    look: Look,
    theta: Float[np.ndarray, "s d"],
    metric: Metric,
    transitions: int,
    rng: np.random.Generator,
    step: float,
    known: Seen | None = None,
    adapt: bool = True,
) -> Chains:
    """Move all chains.

    Args:
        look: From points to log p, gradient and readings.
        theta: Where the chains are.
        metric: The Gaussian that whitens.
        transitions: How many.
        rng: For momenta.
        step: The step size.
        known: What `look` says at theta, where it is known.
        adapt: Whether the step size is adapted during the first half of the transitions.
    """
    here = look(theta) if known is None else known
    first = max(transitions // 2 - 1, 0)  # in thousands of dimensions the earlier half is a burden
    states, reads, slopes = (np.empty((transitions - first, *a.shape)) for a in (theta, here.read, here.gradients))
    energies, rough = [], []
    accepted = np.zeros(len(theta))
    for t in range(transitions):
        p = rng.standard_normal(theta.shape)
        sizes = step * rng.uniform(0.7, 1.1, (len(theta), 1))
        steps = max(1, round(LENGTH * rng.uniform(0.7, 1.3) / step))
        before = here.values - 0.5 * np.sum(p**2, axis=1)
        with np.errstate(all="ignore"):
            there, q, found = _leap(look, theta, p, here, metric, sizes, steps)
            after = found.values - 0.5 * np.sum(q**2, axis=1)
            rough.append(float(np.mean(~(after > before - ROUGH))))
            chance = np.where(np.isfinite(after), np.exp(np.minimum(after - before, 0.0)), 0.0)
        take = rng.uniform(size=len(theta)) < chance
        theta = np.where(take[:, None], there, theta)
        here = Seen(
            *(np.where(take.reshape(-1, *([1] * (a.ndim - 1))), a, b) for a, b in zip(found, here, strict=True))
        )
        accepted += take / transitions
        if t >= first:
            states[t - first], reads[t - first], slopes[t - first] = theta, here.read, here.gradients
        energies.append(before)
        if adapt and t < (transitions + 1) // 2:
            step = float(np.clip(step * np.exp(1.0 * (np.mean(chance) - WANTED)), 1e-3, 1.2))
    late = float(np.mean(rough[transitions // 2 :]))
    return Chains(states, reads, slopes, np.stack(energies), accepted, late, step, here)


def _leap(
    look: Look, theta: np.ndarray, p: np.ndarray, here: Seen, metric: Metric, sizes: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray, Seen]:
    """Take leapfrog steps with the metric C C'."""
    found = here
    p = p + 0.5 * sizes * metric.whiten(found.gradients)
    for s in range(steps):
        theta = theta + sizes * metric.spread(p)
        found = look(np.where(np.isfinite(theta), theta, 0.0))
        found = found._replace(values=np.where(np.all(np.isfinite(theta), axis=1), found.values, -np.inf))
        p = p + (0.5 if s == steps - 1 else 1.0) * sizes * metric.whiten(found.gradients)
    return theta, p, found


class Mixing(NamedTuple):
    """How far short chains have come.

    Attributes:
        memory: The largest rank correlation between the chains in the middle and at the end.
        drift: How far a mean, or the logarithm of an sd, has moved from the third quarter to the last, in sds, less
            what the largest of very many moves by chance.
        energy: The share of the energy's spread that one transition covers (E-FMI).
        stuck: The share of chains that hardly moved.
        rough: The share of trajectories whose energy went wrong.
    """

    memory: float
    drift: float
    energy: float
    stuck: float
    rough: float


def mixing(chains: Chains) -> Mixing:
    """Judge the chains by what they were and are."""
    middle, late, end = chains.read[0], chains.read[1:], chains.read[-1]
    moves = np.ptp(end, axis=0) > 0
    from scipy.stats import rankdata  # takes longer to import than a fit to run

    a, b = (rankdata(part[:, moves], axis=0) for part in (middle, end))
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    scale = np.sqrt(np.sum(a**2, axis=0) * np.sum(b**2, axis=0))
    memory = np.sum(a * b, axis=0) / np.maximum(scale, 1e-300)
    halves = (part.reshape(-1, end.shape[1]) for part in (late[: len(late) // 2], late[len(late) // 2 :]))
    (mean, spread), (later, sd) = ((part.mean(axis=0)[moves], part.std(axis=0)[moves]) for part in halves)
    sd = np.maximum(sd, 1e-300)
    shift, change = np.abs(later - mean) / sd, np.abs(np.log(np.maximum(spread, 1e-300) / sd))
    chance = np.sqrt(2.0 / end.shape[0]) * (_largest(shift.size) - _largest(FEW))
    spread = np.var(chains.energies)
    energy = float(np.mean(np.diff(chains.energies, axis=0) ** 2) / spread) if spread > 0 else 1.0
    return Mixing(
        float(np.max(memory, initial=0.0)),
        max(0.0, float(max(np.max(shift, initial=0.0), np.max(change, initial=0.0))) - max(0.0, float(chance))),
        energy,
        float(np.mean(chains.accepted < 0.15)),
        chains.rough,
    )


def _largest(count: int) -> float:
    """Return about how large the largest of some standard normal numbers is."""
    return float(np.sqrt(2.0 * np.log(max(count, 1))))
