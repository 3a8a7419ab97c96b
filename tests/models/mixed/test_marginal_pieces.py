"""Pieces of the draws are evaluated side by side, in order, and no longer than somebody waits for them."""

import threading
from contextlib import closing

import numpy as np

from natvi.models.mixed.marginal.density import _side_by_side


def test_order_is_kept_and_the_first_is_alone() -> None:
    began: list[int] = []

    def look(at: int) -> list[np.ndarray]:
        began.append(at)
        return [np.array([at])]

    with closing(_side_by_side(look, range(0, 90, 10), True)) as found:
        assert next(found)[0] == 0 and began == [0]
        assert [int(part[0][0]) for part in found] == list(range(10, 90, 10))


def test_what_nobody_waits_for_is_not_begun() -> None:
    began, go_on = [], threading.Event()

    def look(at: int) -> list[np.ndarray]:
        began.append(at)
        if at > 1:
            go_on.wait(10)
        return [np.array([at])]

    with closing(_side_by_side(look, range(1000), True)) as found:
        assert next(found)[0] == 0 and next(found)[0] == 1
        threading.Timer(0.2, go_on.set).start()
    assert len(began) < 1000
