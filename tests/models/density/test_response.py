"""The linear response: a few telling directions give what all of them would."""

import jax.numpy as jnp
import numpy as np

from natvi.models.density.climbing import response
from natvi.models.density.climbing.fitting import find_optimum
from natvi.models.density.evaluator import Evaluator
from natvi.models.density.space.maps import open_space
from natvi.models.density.structures.choice import Structure
from natvi.x64 import float64

COUNTS = (
    np.random.default_rng(0)
    .poisson(np.exp(0.3 * np.cumsum(np.random.default_rng(1).standard_normal(39))))
    .astype(float)
)


def random_walk(t):
    """Log steps of a random walk, and counts at each place."""
    steps = jnp.diff(t[1:], prepend=0.0) * jnp.exp(-t[0])
    return jnp.sum(COUNTS * t[1:] - jnp.exp(t[1:])) - 0.5 * jnp.sum(steps**2) - 39 * t[0] - 0.5 * (t[0] + 1.0) ** 2


def test_telling_directions_see_what_all_directions_see(monkeypatch):
    structure, d = Structure("dense"), 40
    with float64():
        evaluator = Evaluator(random_walk, open_space(np.zeros(d)))
        options = {"seed": 0, "max_steps": 200, "tolerance": 1e-8, "state": None, "watch": lambda state: False}
        here = find_optimum(evaluator, np.zeros(d), structure, **options).gaussian
        z = structure.points("response", d, 0)

        def slope(w):
            return here.slope(w, evaluator, z)

        origin = np.zeros(here.num_coordinates)
        gradient = slope(origin)[1]
        told = response.telling_directions(here.whiten(evaluator(here.at(z)).gradients), z)
        chance = response.any_directions(d, np.random.default_rng(0))
        ours, theirs = (response.linear_response(slope, origin, gradient, some) for some in (told, chance))
        monkeypatch.setattr(response, "PRODUCTS", 200)
        whole = response.linear_response(slope, origin, gradient, np.eye(d))

    def log_sds(found):
        return 0.5 * np.log(np.sum((here.root @ found.S) * here.root, axis=1))

    errors = [np.max(np.abs(log_sds(one) - log_sds(whole))) for one in (ours, theirs)]
    assert np.max(np.abs(log_sds(whole) - np.log(here.sds))) > 0.1
    assert errors[0] < 0.02 and errors[0] < 0.5 * errors[1]
