"""The coordinates in which NUTS walks through models with random slopes."""

import jax
import jax.numpy as jnp
import numpy as np
from experiments.slope_coordinates import to_shared, to_walk

from natvi.x64 import float64


def walks() -> np.ndarray:
    rng = np.random.default_rng(0)
    ends = [[0.3, -0.2, 0.1, 0.4, -7.0], [1.0, 0.5, -0.4, -1.2, -5.0], [0.0, 0.0, 0.0, 2.0, 1.0]]
    return np.concatenate([rng.normal(size=(20, 5)), ends])


def test_the_volume_is_the_determinant():
    with float64():
        for x in walks():
            jacobian = np.asarray(jax.jacfwd(lambda x: to_shared(x)[0])(jnp.asarray(x)))
            _, volume = to_shared(jnp.asarray(x))
            np.testing.assert_allclose(np.linalg.slogdet(jacobian)[1], volume, rtol=1e-8, atol=1e-8)


def test_there_and_back():
    with float64():
        shared = np.asarray(jax.vmap(lambda x: to_shared(x)[0])(jnp.asarray(walks())))
        np.testing.assert_allclose(to_walk(shared), walks(), atol=1e-6)


def test_far_from_zero_they_are_log_sds_and_atanh():
    with float64():
        shared, _ = to_shared(jnp.asarray([0.5, 0.3, 2.5]))
    log_s2, a = 2.5, 0.3
    np.testing.assert_allclose(shared[2], -log_s2, atol=1e-3)
    np.testing.assert_allclose(shared[1], -np.sinh(a) * np.exp(-log_s2), rtol=1e-3)
