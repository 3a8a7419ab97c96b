"""Programs of earlier processes: found by name without tracing, the same bits, and compiled where that fails."""

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.families.table import find_family
from natvi.linalg import buckets
from natvi.models.mixed.start import starting_point
from natvi.run import kept_programs
from natvi.run.kept_programs import KeptProgram
from natvi.run.program_names import NamelessError, describe, program_name

SESSION = """
import os, sys
if os.environ.get("FULL"):  # no file may grow, as on a full disk
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
import jax
import numpy as np
counts = {"lowered": 0, "loaded": 0}
def listen(event, duration_secs, **_):
    counts["lowered"] += event == "/jax/core/compile/jaxpr_to_mlir_module_duration"
    counts["loaded"] += event == "/natvi/programs/load_duration"
jax.monitoring.register_event_duration_secs_listener(listen)
import natvi
rng = np.random.default_rng(11)
group = np.repeat(np.arange(12), 4)
x = rng.normal(size=48)
y = (rng.random(48) < 1 / (1 + np.exp(-x - rng.normal(size=12)[group]))) * 1.0
fit = natvi.glmm("y ~ x + (1 | group)", {"y": y, "x": x, "group": group}, family="bernoulli").fit()
print(counts["lowered"], counts["loaded"], fit.method, fit.trust.replace(" ", "-"), fit.elbo.hex())
"""


def session(folder: Path, **more: str) -> tuple[int, int, tuple[str, ...], str]:
    """Fit in a process of its own; return programs made, programs loaded, the answer, and what was said."""
    # PyMC's bridge to JAX sets XLA_FLAGS to a hundred devices when it is imported, as other tests do
    ours = ("JAX_", "NATVI_CACHE", "XLA_FLAGS")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment |= {"NATVI_CACHE": str(folder)} | more
    done = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    made, loaded, *answer = done.stdout.split()
    return int(made), int(loaded), tuple(answer), done.stderr


def test_a_second_process_makes_no_program_and_gives_the_same_bits(tmp_path: Path) -> None:
    made, loaded, first, _ = session(tmp_path)
    assert made > 5 and loaded == 0
    again, found, second, said = session(tmp_path)
    assert second == first and again == 0 and found > 5 and "Error" not in said
    for entry in tmp_path.iterdir():  # as a full disk, or another program, leaves them
        entry.write_bytes(entry.read_bytes()[:200])
    spoilt = session(tmp_path)
    assert spoilt[0] > 5 and spoilt[1] == 0 and spoilt[2] == first and "Error" not in spoilt[3]
    mended = session(tmp_path)
    assert mended[0] == 0 and mended[2] == first


def test_a_full_disk_fails_nothing(tmp_path: Path) -> None:
    made, loaded, answer, said = session(tmp_path / "full", FULL="yes")
    assert made > 5 and loaded == 0 and answer[0] in ("gva", "marginal") and "Error" not in said
    assert not list((tmp_path / "full").glob("*-program"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs of this process."""
    monkeypatch.setattr(kept_programs, "keep_programs", lambda: tmp_path)
    return tmp_path


def _of_natvi(function: Callable) -> Callable:
    """Let a function of these tests pass for one of the library."""
    function.__module__ = "natvi.run.fitted"
    return function


def cubed(x: jax.Array) -> jax.Array:
    return jnp.linalg.cholesky(x @ x.T) ** 3


def test_a_loaded_program_computes_what_a_compiled_one_does(folder: Path) -> None:
    x, function = np.eye(3) + 0.25, _of_natvi(cubed)
    usual = np.asarray(jax.jit(function)(x))
    for _ in range(2):  # made, then loaded
        np.testing.assert_array_equal(np.asarray(KeptProgram(function)(x)), usual)
        assert len(list(folder.iterdir())) == 1
    np.testing.assert_array_equal(np.asarray(KeptProgram(function)(x[:2])), np.asarray(jax.jit(function)(x[:2])))
    assert len(list(folder.iterdir())) == 2


def test_static_arguments_and_given_arguments(folder: Path) -> None:
    def scaled(power: int, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x**power + y, y

    function = _of_natvi(scaled)
    for power in (2, 3, 2):
        made = KeptProgram(function, static_argnums=0, donate_argnums=1)
        found = made(power, jnp.full(3, 2.0), np.ones(3, dtype=np.float32))
        assert np.asarray(found[0]).tolist() == [2.0**power + 1.0] * 3
    assert len(list(folder.iterdir())) == 2


def test_calls_from_inside_compiled_code_are_part_of_it(folder: Path) -> None:
    program = KeptProgram(_of_natvi(lambda x: 2.0 * x))
    assert float(jax.jit(lambda x: program(x) + 1.0)(3.0)) == 7.0
    assert np.asarray(jax.vmap(program)(jnp.arange(3.0))).tolist() == [0.0, 2.0, 4.0]
    assert list(folder.iterdir()) == []


def test_a_function_of_the_user_is_never_kept(folder: Path) -> None:
    assert float(KeptProgram(lambda x: 2.0 * x)(3.0)) == 6.0
    holds = _of_natvi(lambda f: _of_natvi(lambda x: f(x)))(lambda x: 3.0 * x)
    assert float(KeptProgram(holds)(3.0)) == 9.0
    assert list(folder.iterdir()) == []


def test_numbers_that_a_function_has_closed_over_tell_programs_apart(folder: Path) -> None:
    def times(factor: float) -> Callable:
        return _of_natvi(lambda x: factor * x)

    assert [float(KeptProgram(times(factor))(1.0)) for factor in (2.0, 3.0, 2.0)] == [2.0, 3.0, 2.0]
    assert len(list(folder.iterdir())) == 2


def test_both_precisions_have_programs_of_their_own(folder: Path) -> None:
    program = KeptProgram(_of_natvi(lambda x: x + jnp.zeros(2)))
    single = program(np.float32(1.0))
    with jax.enable_x64(True):
        double = program(np.float32(1.0))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)


def test_a_file_with_other_content_is_not_trusted(folder: Path) -> None:
    function = _of_natvi(cubed)
    KeptProgram(function)(np.eye(2))
    (path,) = folder.iterdir()
    path.write_bytes(bytes(32) + pickle.dumps((b"nothing", None)))
    assert np.asarray(KeptProgram(function)(np.eye(2))).tolist() == np.eye(2).tolist()
    assert path.read_bytes()[:32] != bytes(32)  # mended


class Held(eqx.Module):
    """A module with a static field."""

    array: jax.Array
    power: int = eqx.field(static=True)


Held.__module__ = "natvi.run.fitted"


def test_names() -> None:
    family = find_family("poisson", None)
    pieces = [1, 1.0, True, "1", None, (1,), [1], {1: 2}, np.float64(1.0), np.ones(2), np.zeros(2), np.dtype("f4")]
    pieces += [jnp.exp, np.exp, math_like := partial(jnp.sum, axis=0), partial(jnp.sum, axis=1), buckets.bucket, family]
    texts = ["\n".join(describe(piece)) for piece in pieces]
    assert len(set(texts)) == len(texts) and texts == ["\n".join(describe(piece)) for piece in pieces]
    assert "axis" in "\n".join(describe(math_like))
    for nameless in (
        lambda x: x,
        object(),
        Held(jnp.ones(1), 2),
        open,
        np.array([None]),
        np.zeros(200_000),
        _local_class(),
    ):
        with pytest.raises(NamelessError):
            list(describe(nameless))


def _local_class() -> type:
    class Here:
        pass

    return Here


def test_the_name_tells_shapes_settings_and_structure() -> None:
    def name(tree: Any, *settings: Any) -> str:
        return program_name(starting_point, jax.tree.structure(tree), settings)

    names = {name((1, 2)), name([1, 2]), name((1, None)), name((1, 2), "f4"), name((1, 2), {"donate_argnums": 1})}
    assert len(names) == 5 and name((1, 2)) in names


def test_programs_of_a_function_that_is_gone_are_gone(folder: Path) -> None:
    program = KeptProgram(lambda x: x)
    assert program in kept_programs._all
    del program
    gc.collect()
    assert not any(
        left._function.__name__ == "<lambda>" and left._function.__module__ == __name__ for left in kept_programs._all
    )


def test_forgotten_programs_are_loaded_again(folder: Path) -> None:
    program = KeptProgram(_of_natvi(cubed))
    first = np.asarray(program(np.eye(2)))
    kept_programs.forget_programs()
    np.testing.assert_array_equal(np.asarray(program(np.eye(2))), first)
