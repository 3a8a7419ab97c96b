"""Figure 3: Adam, natural Adam and Snngm from three starts with exact gradients."""

import pytest
from experiments.crabs import intercept_only
from experiments.figure3 import climb, rules

from natvi.x64 import float64

COUNTS = {"adam": [2197, 1261, 2591], "nadam": [5948, 1940, 14], "snngm": [767, 431, 658]}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    with float64():
        runs = climb(intercept_only(), *rules()[name])
    assert [run.iterations for run in runs.values()] == COUNTS[name]
    failed = [start for start, run in runs.items() if run.outcome == "negative variance"]
    assert failed == (["(2, 0.01)"] if name == "nadam" else [])
