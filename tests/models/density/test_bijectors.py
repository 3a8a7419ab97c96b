"""Laws of the constraints: the inverse undoes the map, and the log-determinant is that of the free numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.models.density.space import bijectors as b
from natvi.models.density.space.maps import open_space
from natvi.x64 import float64

CASES = {
    "real": (b.real, (3,), np.arange(3)),
    "positive": (b.positive, (3,), np.arange(3)),
    "lower": (b.lower(-2.0), (2,), np.arange(2)),
    "upper": (b.upper(5.0), (2,), np.arange(2)),
    "interval": (b.interval(-1.0, 3.0), (2, 2), np.arange(4)),
    "simplex": (b.simplex, (4,), np.arange(3)),
    "ordered": (b.ordered, (4,), np.arange(4)),
    "correlation_factor": (b.correlation_factor, (4, 4), np.ravel_multi_index(np.tril_indices(4, -1), (4, 4))),
    "covariance_factor": (b.covariance_factor, (3, 3), np.ravel_multi_index(np.tril_indices(3), (3, 3))),
}


@pytest.mark.parametrize("name", CASES)
def test_laws(name):
    bijector, shape, numbers = CASES[name]
    y = np.random.default_rng(0).standard_normal(bijector.free_shape(shape))
    with float64():
        x, log_det = jax.jit(bijector.forward)(y)
        assert x.shape == shape
        np.testing.assert_allclose(bijector.inverse(np.asarray(x)), y, atol=1e-9)
        slopes = jax.jit(jax.jacobian(lambda v: bijector.forward(v.reshape(y.shape))[0].reshape(-1)[numbers]))
        assert float(log_det) == pytest.approx(np.linalg.slogdet(np.asarray(slopes(y.ravel())))[1], abs=1e-9)
    assert b.bijector_by_name(bijector.name) == bijector


def test_constraints_are_kept():
    y = np.random.default_rng(1).standard_normal(6)

    @jax.jit
    def kept(y):
        return [one.forward(y)[0] for one in (b.correlation_factor, b.simplex, b.ordered)], b.simplex.forward(0 * y)[0]

    (L, shares, rising), equal = kept(jnp.asarray(y))
    np.testing.assert_allclose(np.diagonal(L @ L.T), 1.0, atol=1e-5)
    assert float(shares.sum()) == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(equal, 1 / 7, atol=1e-6)
    assert np.all(np.diff(rising) > 0)


@pytest.mark.parametrize(
    ("init", "constrain", "message"),
    [
        ({"sd": 0.0}, {"sd": "positive"}, "does not keep its constraint positive"),
        ({"p": np.array([0.5, 0.6])}, {"p": "simplex"}, "does not keep its constraint simplex"),
        ({"L": np.ones((2, 2))}, {"L": "correlation_factor"}, "the identity for a factor"),
        ({"sd": 1.0}, {"s": "positive"}, "init does not hold; it holds sd"),
        ({"sd": 1.0}, {"sd": "plus"}, "must be one of 'real', 'positive'"),
        ({"sd": 1.0}, 3, "a dict from names of parameters"),
        ({"sd": 1.0}, lambda p: p["x"], "constrain cannot be applied to init"),
    ],
)
def test_bad_constraints_get_a_clear_answer(init, constrain, message):
    with float64(), pytest.raises(ValueError, match=message):
        open_space(init, constrain)


def test_an_interval_without_room_is_refused():
    with pytest.raises(ValueError, match="low < high"):
        b.interval(1.0, 1.0)
