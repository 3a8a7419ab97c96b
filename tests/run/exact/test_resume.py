"""A fit that stops, however it stops, goes on and ends with the same bits."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.data import load_epilepsy, load_sleepstudy
from natvi.run import clock
from natvi.run.exact import loop
from natvi.run.storage import checkpoint as checkpoints
from natvi.run.storage import file_format as storage

EPILEPSY = "y ~ base*trt + age + visit + (1 | subject)"


@pytest.fixture(scope="module")
def model() -> natvi.MixedModel:
    return natvi.glmm(EPILEPSY, load_epilepsy(), family="poisson")


@pytest.fixture(scope="module")
def whole(model: natvi.MixedModel) -> natvi.Result:
    """A fit that nothing interrupts."""
    return model.fit(method="gva")


@pytest.fixture
def single_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Make every chunk one step, every write happen at once, and record the limits of the chunks."""
    limits: list[int] = []
    run_chunk = loop.run_chunk

    def recorded(target: Any, state: Any, limit: Any, tolerance: Any) -> Any:
        limits.append(int(limit))
        return run_chunk(target, state, limit, tolerance)

    monkeypatch.setattr(loop, "CHUNK_SECONDS", 1e-12)
    monkeypatch.setattr(loop, "LEAST_STEPS", 1)
    monkeypatch.setattr(loop, "run_chunk", recorded)
    monkeypatch.setattr(checkpoints, "SHARE", 0.0)
    yield limits


def bits(result: natvi.Result) -> bytes:
    """Every number of the state and the answer."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(result.state)]
    tables = [result.summary().to_numpy(), result.random_effects().iloc[:, 2:].to_numpy(dtype=float)]
    return b"".join(array.tobytes() for array in [*leaves, result.trace, np.float64(result.elbo), *tables])


# --- state -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_state_continues_bit_for_bit(model: natvi.MixedModel, whole: natvi.Result, steps: int) -> None:
    first = model.fit(method="gva", max_steps=steps)
    assert first.outcome == "max_steps" and len(first.trace) == steps
    before = bits(first)
    assert bits(model.fit(method="gva", state=first.state)) == bits(whole)
    assert bits(first) == before  # the state is not used up
    assert bits(model.fit(method="gva", state=first.state)) == bits(whole)


def test_one_step_at_a_time(model: natvi.MixedModel, whole: natvi.Result) -> None:
    result = model.fit(method="gva", max_steps=1)
    while result.outcome == "max_steps":
        result = model.fit(method="gva", state=result.state, max_steps=len(result.trace) + 1)
    assert bits(result) == bits(whole)


def test_finished_state_stays(model: natvi.MixedModel, whole: natvi.Result) -> None:
    assert bits(model.fit(method="gva", state=whole.state)) == bits(whole)


def test_the_same_fit_again(model: natvi.MixedModel, whole: natvi.Result) -> None:
    assert bits(model.fit(method="gva")) == bits(whole)


def test_state_of_another_model_is_refused(whole: natvi.Result) -> None:
    other = natvi.glmm("Reaction ~ Days + (Days | Subject)", load_sleepstudy())
    with pytest.raises(ValueError, match="state"):
        other.fit(method="gva", state=whole.state)


def test_chunks_do_not_change_bits(model: natvi.MixedModel, whole: natvi.Result, single_steps: list[int]) -> None:
    assert bits(model.fit(method="gva")) == bits(whole)
    steps = len(whole.trace)
    assert single_steps[:steps] == list(range(1, steps + 1)) and len(single_steps) <= steps + 1


# --- checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_checkpoint_continues_bit_for_bit(
    model: natvi.MixedModel, whole: natvi.Result, tmp_path: Path, steps: int
) -> None:
    path = tmp_path / "checkpoint"
    assert len(model.fit(method="gva", max_steps=steps, checkpoint=path).trace) == steps
    assert bits(model.fit(method="gva", checkpoint=str(path))) == bits(whole)
    assert bits(model.fit(method="gva", checkpoint=path)) == bits(whole)  # finished: nothing more to do
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_checkpoint_is_written_on_the_way(
    model: natvi.MixedModel, whole: natvi.Result, single_steps: list[int], tmp_path: Path, monkeypatch
) -> None:
    writes: list[int] = []
    write = storage.write

    def recorded(path: Path, kind: str, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
        writes.append(len(single_steps))
        write(path, kind, arrays, document)

    monkeypatch.setattr(storage, "write", recorded)
    assert bits(model.fit(method="gva", checkpoint=tmp_path / "often", checkpoint_seconds=0.0)) == bits(whole)
    assert len(writes) >= len(whole.trace) - 1
    writes.clear()
    model.fit(method="gva", checkpoint=tmp_path / "once", checkpoint_seconds=1000.0)
    assert len(writes) <= 2 and writes[-1] == len(single_steps)  # the last state is always kept


def other_models() -> dict[str, natvi.MixedModel]:
    data = load_epilepsy()
    changed = data.assign(y=data["y"].mask(data.index == 7, 99))
    return {
        "shape": natvi.glmm("Reaction ~ Days + (Days | Subject)", load_sleepstudy()),
        "data": natvi.glmm(EPILEPSY, changed, family="poisson"),
        "columns": natvi.glmm("y ~ trt*base + age + visit + (1 | subject)", data, family="poisson"),
    }


@pytest.mark.parametrize("name", ["shape", "data", "columns"])
def test_checkpoint_of_another_model_is_refused(model: natvi.MixedModel, tmp_path: Path, name: str) -> None:
    path = tmp_path / "checkpoint"
    model.fit(method="gva", max_steps=2, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(storage.StorageError, match=r"another model or other data.*Give another path, or delete"):
        other_models()[name].fit(method="gva", checkpoint=path)
    assert path.read_bytes() == before


def test_damaged_checkpoint_is_refused(model: natvi.MixedModel, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    model.fit(method="gva", max_steps=2, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(storage.StorageError, match="truncated"):
        model.fit(method="gva", checkpoint=path)


def test_checkpoint_in_a_folder_that_is_not_there(model: natvi.MixedModel, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"folder .*nowhere does not exist\. Create it first"):
        model.fit(method="gva", checkpoint=tmp_path / "nowhere" / "checkpoint")


def test_checkpoint_that_cannot_be_written_is_noticed_before_the_work(
    model: natvi.MixedModel, single_steps: list[int], tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="Create it first"):
        model.fit(method="gva", checkpoint=tmp_path / "nowhere" / "checkpoint", checkpoint_seconds=1000.0)
    assert single_steps == []


def test_full_disk_keeps_the_last_checkpoint(
    model: natvi.MixedModel, whole: natvi.Result, single_steps: list[int], tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "checkpoint"
    model.fit(method="gva", max_steps=3, checkpoint=path)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "fsync", full)
        with pytest.warns(UserWarning, match=r"checkpoint could not be written.*no room for .* MB\. Free some space"):
            on = model.fit(method="gva", checkpoint=path, checkpoint_seconds=0.0)
    assert bits(on) == bits(whole)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    assert bits(model.fit(method="gva", checkpoint=path)) == bits(whole)


# --- Ctrl-C ------------------------------------------------------------------------------------------------


def interrupt_after(chunks: int, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
    """Press Ctrl-C when some chunks are done, while the fit is under way."""
    done = 0
    run_chunk: Callable = loop.run_chunk

    def pressing(*arguments: Any) -> Any:
        nonlocal done
        state = run_chunk(*arguments)
        done += 1
        for _ in range(times if done == chunks else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return state

    monkeypatch.setattr(loop, "run_chunk", pressing)


def test_ctrl_c_returns_what_was_reached(
    model: natvi.MixedModel, whole: natvi.Result, single_steps: list[int], tmp_path: Path, monkeypatch
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        interrupt_after(4, patch)
        result = model.fit(method="gva", checkpoint=tmp_path / "checkpoint")
    assert signal.getsignal(signal.SIGINT) is handler
    assert result.outcome == "interrupted" and len(result.trace) == 4
    assert result.trust != "good" and "fit(state=result.state)" in repr(result)
    assert np.isfinite(result.summary().to_numpy()).all() and len(result.predict(load_epilepsy())) == 236
    assert natvi.load(result.save(tmp_path / "fit")).outcome == "interrupted"
    assert bits(model.fit(method="gva", state=result.state)) == bits(whole)
    assert bits(model.fit(method="gva", checkpoint=tmp_path / "checkpoint")) == bits(whole)


def test_second_ctrl_c_stops_at_once(model: natvi.MixedModel, single_steps: list[int], monkeypatch) -> None:
    handler = signal.getsignal(signal.SIGINT)
    interrupt_after(2, monkeypatch, times=2)
    with pytest.raises(KeyboardInterrupt):
        model.fit(method="gva")
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_after_convergence_changes_nothing(model: natvi.MixedModel, whole: natvi.Result, monkeypatch) -> None:
    interrupt_after(1, monkeypatch)  # the only chunk
    assert bits(model.fit(method="gva")) == bits(whole) and whole.outcome == "converged"


# --- threads and compilation -------------------------------------------------------------------------------


def test_fits_in_other_threads(model: natvi.MixedModel, whole: natvi.Result) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(bits(model.fit(method="gva")))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [bits(whole)] * 3


@pytest.fixture(scope="module")
def small() -> pd.DataFrame:
    """Rows of a shape that no other test compiles; one fit and its check are compiled here."""
    data = load_epilepsy().head(200)
    assert fit_small(data).trust
    return data


def fit_small(data: pd.DataFrame, **options: Any) -> natvi.Result:
    return natvi.glmm("y ~ base + (1 | subject)", data, family="poisson").fit(method="gva", **options)


def test_same_shape_compiles_nothing_new(small: pd.DataFrame) -> None:
    before = clock._compiled["seconds"]
    for seed in range(3):  # each takes another number of steps
        rng = np.random.default_rng(seed)
        shuffled = small.assign(y=rng.permutation(small["y"]), base=rng.permutation(small["base"]))
        result = fit_small(shuffled, tolerance=1e-13, max_steps=400)
        assert result.seconds["compile"] == 0.0 and 0 < result.seconds["run"] < 10
        assert result.trust
    assert clock._compiled["seconds"] == before


def test_later_chunks_compile_nothing_new(small: pd.DataFrame, single_steps: list[int]) -> None:
    before = clock._compiled["seconds"]
    result = fit_small(small)
    assert clock._compiled["seconds"] == before and len(single_steps) >= len(result.trace) > 3


# --- kill -9 -----------------------------------------------------------------------------------------------

# One process imports natvi; for every line it gets it forks a worker and tells its number.
WORKERS = """
import os, sys
import jax, numpy as np, pandas as pd
import natvi
from natvi.run.exact import loop
from natvi.run.storage import checkpoint

loop.CHUNK_SECONDS, checkpoint.SHARE = 1e-9, 0.0  # one step a chunk, a write after each

def work(path):
    rng = np.random.default_rng(0)
    groups, rows = 20_000, 4
    subject = np.repeat(np.arange(groups), rows)
    x = rng.normal(size=groups * rows)
    eta = -1.5 + x + 2.0 * rng.normal(size=groups)[subject]
    data = pd.DataFrame({"y": rng.poisson(np.exp(eta)), "x": x, "subject": subject})
    model = natvi.glmm("y ~ x + (1 | subject)", data, family="poisson")
    resumed = model.fit(method="gva", checkpoint=path, checkpoint_seconds=0.0, tolerance=1e-15)
    whole = model.fit(method="gva", tolerance=1e-15)
    pairs = zip(jax.tree.leaves(resumed.state), jax.tree.leaves(whole.state), strict=True)
    same = all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
    return f"{len(whole.trace)} {'same' if same else 'different'}"

while sys.stdin.readline():
    worker = os.fork()  # before JAX has started its threads, which are the worker's own
    if worker == 0:
        print(work(sys.argv[1]), flush=True)
        os._exit(0)
    print(worker, flush=True)
    print("killed" if os.waitstatus_to_exitcode(os.wait()[1]) == -9 else "ended", flush=True)
"""


def test_kill_at_random_instants(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }

    command = [sys.executable, "-W", "ignore", "-c", WORKERS, str(path)]
    instants = random.Random(0)
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        asking, telling = parent.stdin, parent.stdout
        assert asking is not None and telling is not None

        def start() -> int:
            asking.write("\n")
            asking.flush()
            return int(telling.readline())

        for _ in range(3):
            seen = stamp(path)
            worker, deadline = start(), time.monotonic() + 240
            while stamp(path) == seen and time.monotonic() < deadline:  # until it has gone on by a step
                time.sleep(0.002)
            time.sleep(instants.uniform(0.0, 0.1))
            os.kill(worker, signal.SIGKILL)
            assert telling.readline() == "killed\n"
        arrays, _ = storage.read(path, "checkpoint")
        reached = np.isfinite(arrays[max(arrays)]).sum()  # the trace comes last
        start()
        steps, verdict = telling.readline().split()
        assert verdict == "same" and 3 <= reached < int(steps)


def stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
