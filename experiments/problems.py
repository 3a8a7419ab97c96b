"""The regressions of Sections 8.1 and 8.2: two loglinear simulations, a logistic one, a4a and German credit.

The benchmark `glm` has a logistic simulation of its own, which is here too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from natvi.data import load_a4a, load_german
from natvi.families.table import FAMILIES
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.priors.independent_normal import IndependentNormal

SEED = 20_240_701
ROWS, QUICK_ROWS = 100_000, 4_000
BATCH, QUICK_BATCH = 5_000, 1_000
EPOCHS, QUICK_EPOCHS = 60, 2
STEPS, QUICK_STEPS = 1_000, 40
RECORD_EVERY = 20  # steps between two points of a curve, where the batch is full


class Problem(NamedTuple):
    """A target, data to test it on, and how long the paper's algorithms run."""

    name: str
    target: DesignRows
    test: Observations | None
    batch_size: int | None  # None: all rows in every step
    chunks: int  # points of a curve; the algorithm stands still at each
    steps: int  # steps between two of them
    settings: dict[str, Any]  # all that decides the data and the length of a run
    pilots: bool = True  # whether learning rates are chosen; a quick run takes the first guess

    @property
    def has_classes(self) -> bool:
        """Whether the response is 0 or 1."""
        return self.target.family == FAMILIES["bernoulli"]

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.target.num_rows

    @property
    def d(self) -> int:
        """The number of coefficients."""
        return self.target.p


def coefficients(d: int) -> np.ndarray:
    """Return theta evenly distributed in [-1, 1], the intercept's first."""
    return np.linspace(-1.0, 1.0, d)


def loglinear(d: int, quick: bool = False) -> Problem:
    """Return the simulation of Section 8.1: y ~ Poisson(exp(x'theta)), covariates uniform on (0, 1)."""
    return _simulation("loglinear", "poisson", d, quick)


def logistic(quick: bool = False) -> Problem:
    """Return the simulation of Section 8.2: y ~ Bernoulli(sigmoid(x'theta)), standard normal covariates, d = 100."""
    return _simulation("simulation", "bernoulli", 10 if quick else 100, quick)


def a4a(quick: bool = False) -> Problem:
    """Return the a4a split of the Adult data, full batch."""
    train, test = load_a4a()
    return _full_batch("a4a", train.X, train.y, test, quick)


def german(quick: bool = False) -> Problem:
    """Return the German credit data, full batch, no test rows."""
    data = load_german()
    return _full_batch("German", data.X, data.y, None, quick)


def simulated(quick: bool = False) -> Problem:
    """Return the simulation of the benchmark `glm`, full batch: as `logistic`, with data of its own."""
    X, y = simulated_rows(*((QUICK_ROWS, 10) if quick else (ROWS, 100)))
    return _full_batch("simulated", X, y, None, quick)


def simulated_rows(n: int = ROWS, d: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y: an intercept, d - 1 standard normal columns, and y ~ Bernoulli(sigmoid(x'theta))."""
    return _draw(np.random.default_rng(SEED), "bernoulli", n, d)


def make_target(X: np.ndarray, y: np.ndarray, family: str) -> DesignRows:
    """Return the target with the paper's prior N(0, 100)."""
    prior = IndependentNormal.around_zero(X.shape[1])
    return DesignRows(Observations(jnp.asarray(X), jnp.asarray(y)), prior, FAMILIES[family], len(y))


def _simulation(name: str, family: str, d: int, quick: bool) -> Problem:
    n, batch, epochs = (QUICK_ROWS, QUICK_BATCH, QUICK_EPOCHS) if quick else (ROWS, BATCH, EPOCHS)
    rng = np.random.default_rng((SEED, d, family == "poisson"))
    train, test = (_draw(rng, family, n, d) for _ in range(2))
    settings = {"problem": name, "n": n, "d": d, "batch": batch, "epochs": epochs, "data_seed": SEED}
    rows = Observations(*map(jnp.asarray, test))
    return Problem(name, make_target(*train, family), rows, batch, epochs, n // batch, settings, not quick)


def _draw(rng: np.random.Generator, family: str, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    covariates = rng.uniform(size=(n, d - 1)) if family == "poisson" else rng.normal(size=(n, d - 1))
    X = np.column_stack([np.ones(n), covariates])
    eta = X @ coefficients(d)
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.uniform(size=n) < 1 / (1 + np.exp(-eta))
    return X, y.astype(float)


def _full_batch(name: str, X: np.ndarray, y: np.ndarray, test: Any, quick: bool) -> Problem:
    steps = QUICK_STEPS if quick else STEPS
    rows = None if test is None else Observations(jnp.asarray(test.X), jnp.asarray(test.y))
    settings = {"problem": name, "n": len(y), "d": X.shape[1], "steps": steps}
    target = make_target(X, y, "bernoulli")
    return Problem(name, target, rows, None, steps // RECORD_EVERY, RECORD_EVERY, settings, not quick)


def log_density(problem: Problem) -> Callable[[Any], Any]:
    """Return log p(y, theta) as a function of one vector, for samplers and flows."""
    return lambda theta: problem.target.value(theta)
