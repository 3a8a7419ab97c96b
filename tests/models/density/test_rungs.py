"""The upper rungs: a flow and NUTS, in the coordinates of the fit."""

import jax.numpy as jnp
import numpy as np
import pytest

import natvi
from natvi.models.density.structures.choice import Structure
from natvi.models.density.structures.layout import Layout
from natvi.x64 import float64


def banana(x):
    return -0.5 * x[0] ** 2 - 0.5 * ((x[1] - 0.5 * (x[0] ** 2 - 1.0)) / 0.5) ** 2


@pytest.mark.parametrize("method", ["nuts", "flow"])
def test_a_bent_posterior_is_drawn(method, tmp_path, monkeypatch):
    pytest.importorskip({"nuts": "numpyro", "flow": "flowjax"}[method])
    from natvi.models.density.rungs import flow

    monkeypatch.setattr(flow, "STEPS", 1500)
    result = natvi.fit(banana, jnp.zeros(2), method=method, seed=1)  # of seed 0 NUTS has some 400 effective draws
    assert result.method == method and result.trust == "good"
    table = result.summary()
    np.testing.assert_allclose(table["mean"], 0.0, atol=0.12)
    np.testing.assert_allclose(table["sd"], [1.0, np.sqrt(0.75)], rtol=0.1)
    if method == "flow":  # of all of the mass
        assert result.elbo == pytest.approx(np.log(2 * np.pi * 0.5), abs=0.05)
    assert repr(natvi.load(result.save(tmp_path / "fit.natvi"))) == repr(result)


def test_a_flow_of_too_many_numbers_is_refused():
    with pytest.raises(ValueError, match="method='nuts'"):
        natvi.fit(lambda p: -jnp.sum(p**2), jnp.zeros(301), method="flow", structure="diagonal")


@pytest.mark.parametrize("name", ["arrow", "diagonal", "dense"])
def test_points_inside_a_program_are_those_outside(name):
    layout = Layout(np.array([[0, 3, 6], [1, 5, -1]]), np.array([2, 4]))
    rng = np.random.default_rng(0)
    with float64():
        here = Structure(name, "", layout if name == "arrow" else None).narrow(rng.standard_normal(7), 0.5)
        here = here.shifted(0.1 * rng.standard_normal(here.num_coordinates))
        z = rng.standard_normal(7)
        np.testing.assert_allclose(here.traced_at(jnp.asarray(z)), here.at(z[None])[0], atol=1e-12)
