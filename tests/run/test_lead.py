"""One process decides for all: two that run a loop together, simulated by two threads, take the same chunks.

Their clocks differ as much as clocks can: what one thinks of the time, of Ctrl-C or of checkpoints reaches the other
from process 0 alone.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi import optimize, recipes
from natvi.families.table import FAMILIES
from natvi.gaussian import diagonal_covariance
from natvi.optimize.factor_system import FactorSystem
from natvi.run import Fitted, Outcome, climb, wander
from natvi.run.exact import loop as exact
from natvi.run.hosts import Hosts, gather, these_hosts
from natvi.run.interrupt import Interruption
from natvi.run.lead import Lead, Pace, Turn
from natvi.run.stochastic import loop as stochastic
from natvi.run.storage.checkpoint import Checkpoint
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.function import FunctionTarget
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.x64 import float64


class Pair:
    """Two processes; the first one's numbers reach the second through a queue."""

    def __init__(self) -> None:
        self.said: Queue[np.ndarray] = Queue()
        self.turns: tuple[list[Turn], list[Turn]] = [], []

    def hosts(self) -> tuple[Hosts, Hosts]:
        def tell(values: np.ndarray) -> np.ndarray:
            self.said.put(values)
            self.turns[0].append(Turn(*values))
            return values

        def hear(values: np.ndarray) -> np.ndarray:
            heard = self.said.get(timeout=60)
            self.turns[1].append(Turn(*heard))
            return heard

        return Hosts(0, tell), Hosts(1, hear)


def together(fit: Callable[[Hosts], Fitted]) -> tuple[Fitted, Fitted, Pair]:
    """Run a loop in both processes at once."""
    pair = Pair()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fit, pair.hosts())
    return first, second, pair


def bits(fitted: Fitted) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(fitted.state)]


def counts() -> DesignRows:
    rows = Observations(jnp.ones((6, 1)), jnp.asarray([1.0, 0.0, 2.0, 1.0, 4.0, 0.0]))
    return DesignRows(rows, IndependentNormal.around_zero(1), FAMILIES["poisson"], 6)


def test_both_take_the_same_chunks_of_an_exact_fit(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(exact, "LEAST_STEPS", 1)
    monkeypatch.setattr(exact, "CHUNK_SECONDS", 1e-12)

    def fit(hosts: Hosts | None) -> Fitted:
        with float64():
            start = diagonal_covariance(jnp.zeros(1))
            # only the second would want to save, and it is not asked
            keep: dict[str, Any] = {}
            if hosts is not None:
                keep = {"checkpoint": tmp_path / f"{hosts.number}", "checkpoint_seconds": 0.0 if hosts.number else 1e9}
            return climb(FactorSystem(counts(), start), start, tolerance=1e-12, hosts=hosts, **keep)

    first, second, pair = together(fit)
    assert pair.turns[0] == pair.turns[1] and len(pair.turns[0]) > 3
    assert bits(first) == bits(second) == bits(fit(None)) and first.outcome is second.outcome is Outcome.CONVERGED
    assert (tmp_path / "0").exists() and not (tmp_path / "1").exists()


def test_both_stop_when_ctrl_c_is_pressed_at_the_first(monkeypatch):
    class Pressed(Interruption):
        def __init__(self) -> None:
            super().__init__()
            self.asked = True

    monkeypatch.setattr(stochastic, "Interruption", Pressed)
    algorithm = recipes.algorithm_1n(FunctionTarget(quadratic), optimize.snngm(0.01))
    first, second, pair = together(lambda hosts: wander(algorithm, start(), max_steps=500, hosts=hosts))
    assert first.outcome is second.outcome is Outcome.INTERRUPTED and first.steps == second.steps < 500
    assert bits(first) == bits(second) and pair.turns[0] == pair.turns[1]


def quadratic(theta):
    return -0.5 * theta @ theta


def start():
    return diagonal_covariance(jnp.ones(2))


def test_a_noisy_fit_takes_its_chunks_from_the_first():
    algorithm = recipes.algorithm_1n(FunctionTarget(quadratic), optimize.snngm(0.01))
    first, second, pair = together(lambda hosts: wander(algorithm, start(), max_steps=400, window=50, hosts=hosts))
    assert pair.turns[0] == pair.turns[1] and bits(first) == bits(second)
    assert bits(first) == bits(wander(algorithm, start(), max_steps=400, window=50))


def test_the_second_process_does_as_the_first_says(tmp_path: Path):
    """Its own Ctrl-C, clock and file are not asked."""
    own = Interruption()
    own.asked = True
    lead = Lead(
        Pace(0.5), own, Checkpoint(tmp_path / "state", np.zeros(2), 0.0), Hosts(1, lambda _: np.array([0, 0, 7]))
    )
    assert lead.turn == lead.look(1) == Turn(False, False, 7)
    for save in (lead.save_first, lead.save, lead.save_last):
        save(np.zeros(2))
    assert not (tmp_path / "state").exists()


def test_a_pace_grows_by_what_it_may_and_never_stops():
    pace = Pace(0.5, steps=0.0, least=4)
    assert pace.steps == 4
    pace.note(40, 0.0)
    assert pace.steps == 2**31 - 1
    pace.note(1, 1e9)
    assert pace.steps == 4
    slow = Pace(0.5, growth=10)
    slow.note(1, 1e-9)
    assert slow.steps == 10


def test_one_process_is_the_first_and_gathers_what_it_has():
    assert these_hosts() == Hosts()
    tree = gather({"a": jnp.arange(3), "b": np.float64(2.0)})
    assert isinstance(tree["a"], np.ndarray) and tree["b"].dtype == np.float64


def test_an_array_that_lies_in_several_processes_is_gathered_whole(monkeypatch):
    class Spread:
        """Stands for an array of which this process holds a part."""

        is_fully_addressable = False

    asked = []
    from jax.experimental import multihost_utils

    def allgather(leaf, tiled):
        asked.append((leaf, tiled))
        return np.arange(4.0)

    monkeypatch.setattr(multihost_utils, "process_allgather", allgather)
    assert gather([Spread()])[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert asked[0][1] is True


def test_several_processes_share_by_a_broadcast(monkeypatch):
    from jax.experimental import multihost_utils

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", lambda values: jnp.asarray(values) + 1)
    hosts = these_hosts()
    assert not hosts.is_first and hosts.share(np.zeros(3, np.int32)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("module", [exact, stochastic])
def test_no_loop_looks_at_a_clock(module):
    assert not {"time", "perf_counter", "monotonic"} & set(vars(module))
