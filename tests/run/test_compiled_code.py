"""Programs are compiled quickly, and forgotten before there is no room for more."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import natvi.run.compiled_code as compiled_code
from natvi.run.clock import Stopwatch


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> "jax.stages.Wrapped":
    """A compiled function, and a count of maps after every program."""
    monkeypatch.setattr(compiled_code, "BETWEEN", 1)
    function = jax.jit(lambda x: 2 * x)
    function(jnp.ones(3))
    return function


def test_programs_are_kept_while_there_is_room(double) -> None:
    assert not compiled_code.make_room()
    assert double._cache_size() == 1


def test_programs_are_forgotten_before_a_fit_when_there_is_not(double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_code, "SHARE", 1e-4)
    if not compiled_code.MAPS.is_file():
        pytest.skip("no /proc/self/maps here")
    Stopwatch()
    assert double._cache_size() == 0
    assert float(double(jnp.ones(3))[0]) == 2.0


def test_nothing_is_counted_without_new_programs(double, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_code.make_room()
    monkeypatch.setattr(compiled_code, "MAPS", Path("/nowhere"))  # would be looked at
    monkeypatch.setattr(compiled_code, "SHARE", 0.0)
    assert not compiled_code.make_room()


def test_quick_programs_compute_the_same_and_keep_their_options() -> None:
    def power(x: jax.Array, exponent: int) -> jax.Array:
        return x**exponent

    quick = compiled_code.quick_jit(power, static_argnums=1)
    assert float(quick(jnp.asarray(3.0), 2)) == 9.0
    assert quick.__name__ == "power"


def test_a_compiler_without_the_option_compiles_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_code, "QUICK", {"xla_option_of_another_time": False})
    compiled_code._quick_options.cache_clear()
    try:
        assert compiled_code._quick_options() is None
        assert float(compiled_code.quick_jit(lambda x: 2 * x)(3.0)) == 6.0
    finally:
        compiled_code._quick_options.cache_clear()
