"""A checkpoint of some processes read by another number of them: every group finds its numbers again."""

from typing import Any

import jax
import numpy as np
import pytest

from natvi.optimize.ascent import AscentState
from natvi.optimize.system import Packed
from natvi.run.exact.loop import LoopState
from natvi.run.exact.parts import Keeping, moved


def state(groups: np.ndarray) -> LoopState:
    """Return a state whose numbers say whose they are: local ones are the group's number, 0 in empty places."""

    def packed(*front: int) -> Packed:
        local = np.broadcast_to(groups.astype(float), (*front, 3, len(groups)))
        return Packed(np.array(local), np.full((*front, 4), 7.0))  # type: ignore[arg-type]

    one: Any = np.ones(())
    ascent = AscentState(packed(), packed(), packed(), one, one, packed(2), packed(2), one, one, one, one, one)
    return LoopState(ascent, np.arange(5.0))  # type: ignore[arg-type]


def test_groups_find_their_numbers_in_other_parts():
    parts = [np.array([5, 3, 9, 0]), np.array([2, 8, 0, 0])]
    together = jax.tree.map(lambda *a: np.stack(a), *(state(part) for part in parts))
    there = Keeping(together, np.stack(parts))
    for groups in (np.array([8, 9, 5]), np.array([2, 3, 0, 0]), np.array([3, 2, 9, 8, 5])):
        found, expected = moved(there, groups, state(np.zeros(len(groups), int))), state(groups)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)


def test_groups_that_are_not_there_are_refused():
    parts = np.array([[5, 3]])
    there = Keeping(jax.tree.map(lambda a: np.asarray(a)[None], state(parts[0])), parts)
    with pytest.raises(ValueError, match="lacks some of the groups"):
        moved(there, np.array([5, 4]), state(np.zeros(2, int)))
