"""What every test shares: checked shapes, fixed randomness, a float32 process, room for compiled code."""

import os
import sys
import types

import hypothesis
import jaxtyping
import pytest
from beartype import BeartypeConf, beartype

# Every annotation of natvi is checked at every call, in tests only; an int passes for a float, as in pyright.
# The hook wants the checker's dotted name and sees only modules imported after it.
assert "natvi" not in sys.modules, "natvi was imported before its shape checks could be installed"
checks = types.ModuleType("natvi_checks")
checks.typechecked = beartype(conf=BeartypeConf(is_pep484_tower=True))
sys.modules["natvi_checks"] = checks
jaxtyping.install_import_hook(["natvi"], "natvi_checks.typechecked")

hypothesis.settings.register_profile("natvi", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("natvi")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs data that are not in the package where nobody says where they are."""
    if item.get_closest_marker("needs_data") and not os.environ.get("NATVI_DATA"):
        pytest.skip("NATVI_DATA does not name the folder of data")


@pytest.fixture(autouse=True)
def float32_process():
    """Fail a test that leaves JAX's global precision switch on: natvi must never flip it."""
    yield
    jax = sys.modules.get("jax")
    left_on = jax is not None and jax.config.jax_enable_x64
    assert not left_on, "the global float64 switch was left on"


@pytest.fixture(autouse=True, scope="module")
def room_for_compiled_code():
    """Forget compiled code after a file of tests where there is little room for more."""
    yield
    if "natvi.run" in sys.modules:
        sys.modules["natvi.run.compiled_code"].make_room()
