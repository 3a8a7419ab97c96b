"""Short chains from weighted draws: what the exact density says where weights leave doubt."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.judge.short_chains import LENGTH, Chains, Mixing, Seen, first_step, mixing, move
from natvi.judge.stein import sharpen
from natvi.metrics.psis import resample
from natvi.models.density.check import Weighed
from natvi.models.density.evaluator import LooksAtPoints
from natvi.models.density.structures.dense import Dense

CHAINS = {64: 1024, 300: 512}  # in up to so many dimensions
FEWEST_CHAINS = 256  # beyond
ROUND, ROUNDS = 10, 5  # transitions of a round, each as long as all before it together; rounds at most
MOST_POINTS, MOST_NUMBERS = 2_500_000, 1e8  # of all rounds: points, and points times dimensions
DIVERSE = 0.2  # share of the draws that are effective as starts of chains
WORTH = 2.5  # independent draws for every chain
LEAST_NOISE = 0.2  # that is believed
SHARPENED = 20  # transitions at most, after which chains are sharpened: others are far from a Gaussian, and long
FINER = 0.4  # times the step of the round before, where trajectories go wrong
LIMITS = Mixing(memory=0.3, drift=0.15, energy=0.4, stuck=0.03, rough=0.005)
# of longer chains: less energy, but no memory
LATER = Mixing(memory=0.2, drift=0.1, energy=0.15, stuck=0.03, rough=0.005)
SAME = 0.05  # sds that means and logarithms of sds may differ between rounds of other step sizes, beside their error


def draw_plainly(gaussian: Any, rng: np.random.Generator) -> Weighed:
    """Draw without weights, which mean nothing in a thousand dimensions: the chains alone are to judge."""
    theta = gaussian.at(rng.standard_normal((FEWEST_CHAINS, len(gaussian.mean))))
    return Weighed(None, theta, np.full(FEWEST_CHAINS, 1.0 / FEWEST_CHAINS))


class Moved(NamedTuple):
    """Draws of short chains.

    Attributes:
        theta: Equally weighted draws `(s, d)`.
        read: What is read of them.
        mixing: How far the chains have come.
        transitions: Of every chain.
        count: The number of chains.
        change: How far a mean, or the logarithm of an sd, is from what it was with longer steps, in sds; None where
            longer steps were not tried.
        noise: The share of the noise of a mean that is left by what is known of the score.
    """

    theta: np.ndarray
    read: np.ndarray
    mixing: Mixing
    transitions: int
    count: int
    change: float | None = None
    noise: float = 1.0

    @property
    def limits(self) -> Mixing:
        """What is asked of them; some memory is no harm where finer steps have found the same."""
        if self.transitions <= ROUND:
            return LIMITS
        return LATER._replace(memory=LIMITS.memory) if self.change is not None else LATER

    @property
    def settled(self) -> bool:
        """Whether the chains have forgotten where they were and drift no more."""
        found, limits = self.mixing, self.limits
        return bool(
            found.memory < limits.memory
            and found.drift < limits.drift
            and found.energy > limits.energy
            and found.stuck < limits.stuck
            and self.steady
        )

    @property
    def steady(self) -> bool:
        """Whether no trajectory went wrong, or finer steps have found the same.

        Where a density narrows, steps that suit its wide part cannot enter: chains forget their start, agree with each
        other, and miss the neck of the funnel. Finer steps get further in, so that the answer changes.
        """
        if self.change is None:
            return self.mixing.rough < self.limits.rough
        return self.change < SAME + 3.0 * float(np.sqrt(2.0 / self.effective))

    @property
    def effective(self) -> float:
        """About how many independent draws they are worth: a chain's second half counts as two or three."""
        return WORTH * self.count / max(self.noise, LEAST_NOISE) ** 2


def move_draws(
    evaluator: LooksAtPoints, metric: Any, weighed: Weighed, rng: np.random.Generator, rounds: int = ROUNDS
) -> Moved:
    """Resample weighted draws and move them until they have settled, or the rounds are over.

    Args:
        evaluator: The log-density.
        metric: The Gaussian in whose coordinates they move.
        weighed: Draws and weights to start from.
        rng: For resampling and momenta.
        rounds: At most.
    """

    def look(theta: np.ndarray) -> Seen:
        return Seen(*evaluator(theta))

    d = weighed.theta.shape[1]
    count = next((found for limit, found in CHAINS.items() if d <= limit), FEWEST_CHAINS)
    theta = weighed.theta[resample(_tempered(weighed.weights), count, rng)]
    step, known, transitions, rough = first_step(theta.shape[1]), None, 0, False
    found: Moved | None = None
    began, most = evaluator.points, min(MOST_POINTS, MOST_NUMBERS / d)
    for _ in range(rounds):
        length = max(ROUND, transitions)
        if found is not None and evaluator.points - began + count * length * LENGTH / step > most:
            break
        chains = move(look, theta, metric, length, rng, step, known, adapt=not rough)
        transitions += length
        found = _collect(chains, transitions, found if rough else None)
        if found.settled:
            return found if transitions > SHARPENED else _sharpened(evaluator, metric, chains, found)
        theta, step, known = chains.theta[-1], chains.step, chains.last
        if chains.rough > LIMITS.rough:
            rough, step = True, FINER * step
        elif not rough:
            metric = _better_metric(chains, metric)
    assert found is not None
    return found


def _tempered(weights: Float[np.ndarray, " s"]) -> Float[np.ndarray, " s"]:
    """Return powers of weights, so that many draws count: chains that start from a few of them tell of these alone."""
    logs = np.log(np.maximum(weights, 1e-300))
    power = 1.0
    while True:
        found = np.exp(power * (logs - logs.max()))
        found /= found.sum()
        if 1.0 / np.sum(found**2) >= DIVERSE * len(weights) or power < 0.01:
            return found
        power *= 0.8


def _collect(chains: Chains, transitions: int, before: Moved | None) -> Moved:
    theta, read = (part[1:].reshape(-1, part.shape[-1]) for part in (chains.theta, chains.read))
    change = None if before is None else _change(read, before.read)
    return Moved(theta, read, mixing(chains), transitions, chains.theta.shape[1], change)


def _sharpened(evaluator: LooksAtPoints, metric: Any, chains: Chains, found: Moved) -> Moved:
    """Return draws whose moments have less noise, where the density is close to a Gaussian."""
    gradients = chains.gradients[1:].reshape(found.theta.shape)
    z, u = metric.coordinates(found.theta), metric.whiten(gradients)
    better = sharpen(z, u, WORTH * found.count, full=metric.structure == "dense")
    if better is None:
        return found
    theta = metric.at(better.z)
    return found._replace(theta=theta, read=evaluator.read(theta), noise=better.noise)


def _change(new: Float[np.ndarray, "s k"], old: Float[np.ndarray, "r k"]) -> float:
    varies = (np.ptp(new, axis=0) > 0) & (np.ptp(old, axis=0) > 0)
    sd = new[:, varies].std(axis=0)
    shift = np.abs(new[:, varies].mean(axis=0) - old[:, varies].mean(axis=0)) / sd
    ratio = np.abs(np.log(sd / old[:, varies].std(axis=0)))
    return float(max(np.max(shift, initial=0.0), np.max(ratio, initial=0.0)))


def _better_metric(chains: Chains, metric: Any) -> Any:
    """Return a Gaussian with the covariance of the draws, where there are enough of them."""
    d = chains.theta.shape[-1]
    late = chains.theta[1:].reshape(-1, d)
    if len(late) < 20 * d or not isinstance(metric, Dense):
        return metric
    try:
        root = np.linalg.cholesky(np.cov(late.T).reshape(d, -1))
    except np.linalg.LinAlgError:
        return metric
    return metric._replace(root=root)
