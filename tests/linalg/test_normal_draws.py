"""The draws are those of JAX, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.linalg.normal_draws import normal_draws, threefry
from natvi.x64 import float64


@pytest.mark.parametrize("num", [1, 2, 299, 1024])
def test_the_same_draws(num: int) -> None:
    with float64():
        key = jax.random.fold_in(jax.random.key(7), num)
        same(normal_draws(key, num, jnp.dtype(jnp.float64)), jax.random.normal(key, (num,), jnp.float64))


def test_the_same_draws_in_batches_of_keys() -> None:
    with float64():
        keys = jax.random.split(jax.random.key(1), 5)
        ours = jax.vmap(lambda key: normal_draws(key, 9, jnp.dtype(jnp.float64)))(keys)
        same(ours, jax.vmap(lambda key: jax.random.normal(key, (9,), jnp.float64))(keys))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_other_precisions_and_generators_are_left_to_jax(impl: str) -> None:
    key = jax.random.key(3, impl=impl)
    same(normal_draws(key, 17, jnp.dtype(jnp.float32)), jax.random.normal(key, (17,), jnp.float32))
    with float64():
        drawn = normal_draws(key, 17, jnp.dtype(jnp.float64))
        same(drawn, jax.random.normal(key, (17,), jnp.float64))


def test_published_answers() -> None:
    """Known answers of Threefry-2x32 with twenty rounds, from the authors' Random123 library."""
    words = [0, 0xFFFFFFFF]
    known = [(0x6B200159, 0x99BA4EFE), (0x1CB996FC, 0xBB002BE7)]
    for word, (first, second) in zip(words, known, strict=True):
        k = jnp.uint32(word)
        x, y = threefry(k, k, jnp.full(1, word, jnp.uint32), jnp.full(1, word, jnp.uint32))
        assert (int(x[0]), int(y[0])) == (first, second)


def same(found: jax.Array, expected: jax.Array) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
