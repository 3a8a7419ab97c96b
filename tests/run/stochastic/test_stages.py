"""The stopping rule on made-up bounds: noise does not fool it, and a slow rise is not taken for the end."""

import numpy as np
import pytest

from natvi.run.stochastic.stages import LEAST_WINDOWS, REMEMBERED, first_stage, judge_window

MOST_WINDOWS = 20_000


def windows_until_settled(noise: float, length: float, seed: int) -> tuple[int, float]:
    """Feed windows of a bound that approaches zero as -100 e^{-t/length}; return their number and what is left."""
    rng, stage, left = np.random.default_rng(seed), first_stage(), 100.0
    for count in range(1, MOST_WINDOWS):
        left *= np.exp(-float(stage.scale) / length)  # half the step, half the speed
        stage = judge_window(stage, -left + noise * rng.normal(), gap=0.05)
        if bool(stage.settled):
            return count, left
    return MOST_WINDOWS, left


@pytest.mark.parametrize("length", [2.0, 20.0, 100.0])
@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_a_slow_rise_is_not_taken_for_the_end(noise, length):
    ends = [windows_until_settled(noise, length, seed) for seed in range(5)]
    assert max(left for _, left in ends) < 0.1
    # from 100 to 0.1 takes 7 lengths; waiting for certainty may take some more
    assert max(count for count, _ in ends) < 4 * LEAST_WINDOWS + 40 * length


def test_without_a_rise_two_short_stages_are_enough():
    assert windows_until_settled(0.3, 0.1, 0)[0] < 8 * LEAST_WINDOWS


def test_what_is_remembered_has_a_limit():
    stage = first_stage()
    for t in range(REMEMBERED + 10):
        stage = judge_window(stage, float(t), gap=0.05)
    assert stage.windows.shape == (REMEMBERED,) and int(stage.num_windows) == REMEMBERED + 10
    assert float(stage.scale) == 1.0 and not bool(stage.settled)
