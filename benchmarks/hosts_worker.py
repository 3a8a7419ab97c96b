"""One of several processes of a benchmark: `python -m benchmarks.hosts_worker TASK SETTINGS`, settings as JSON.

Who the others are stands in `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`. The last line of the
output is JSON.
"""

import hashlib
import json
import pickle
import platform
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import natvi
from natvi import hosts
from natvi.hosts.collect import number
from natvi.hosts.tables import Frame
from natvi.models.linear.spread import exact

PIECE = 1 << 17
COLUMNS = 20
BETA = np.linspace(-0.5, 0.5, COLUMNS)


def rows(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and binary responses."""
    rng = np.random.Generator(np.random.SFC64(seed))
    X = rng.standard_normal((size, COLUMNS))
    return X, (rng.random(size) * (1 + np.exp(0.5 - X @ BETA)) < 1).astype(np.float64)


def groups(count: int, seed: int, first: int = 0) -> dict[str, np.ndarray]:
    """Return groups of five rows with a random intercept, four covariates and binary responses."""
    rng = np.random.Generator(np.random.SFC64(seed))
    group = np.repeat(np.arange(count), 5)
    X = np.column_stack([np.ones(len(group)), rng.standard_normal((len(group), 4))])
    eta = X @ [-0.5, 0.5, -0.5, 0.25, 0.0] + rng.standard_normal(count)[group]
    y = (rng.random(len(group)) * (1 + np.exp(-eta)) < 1).astype(np.float64)
    return {"X": X, "Z": np.ones((len(group), 1)), "y": y, "group": first + group}


def frame_of(piece: Mapping[str, np.ndarray]) -> pd.DataFrame:
    columns = {f"x{k}": piece["X"][:, k] for k in range(1, 5)}
    return pd.DataFrame({"y": piece["y"], "group": piece["group"], **columns})


def model_of(kind: str, size: int, seed: int) -> Any:
    """Return a model whose rows this process holds in memory."""
    if kind == "glm":
        X, y = rows(size, seed + number())
        frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(COLUMNS)]).assign(y=y)
        return natvi.glm("y ~ " + " + ".join(frame.columns[:-1]), Frame(frame), family="bernoulli")
    frame = frame_of(groups(size, seed + number(), number() * size))
    return natvi.glmm("y ~ x1 + x2 + x3 + x4 + (1 | group)", Frame(frame), family="bernoulli")


def steps(settings: dict[str, Any]) -> dict[str, Any]:
    """Time a step: what a fit of more steps takes longer than one of fewer."""
    model = model_of(settings["kind"], settings["size"], settings["seed"])
    few, many = settings["few"], settings["many"]
    for count in (few, many):
        model.fit(max_steps=count, tolerance=1e-15)  # compile, and lay out
    found: dict[int, list[float]] = {few: [], many: []}
    sent: dict[int, list[int]] = {few: [], many: []}
    taken: dict[int, int] = {}
    for _ in range(settings["runs"]):
        for count in (few, many):
            before, began = loopback(), time.perf_counter()
            result = model.fit(max_steps=count, tolerance=1e-15)
            found[count].append(time.perf_counter() - began)
            sent[count].append(loopback() - before)
            taken[count] = result.steps
    more = taken[many] - taken[few]
    return {
        "seconds_a_step": (min(found[many]) - min(found[few])) / more,
        "loopback_bytes_a_step": (min(sent[many]) - min(sent[few])) / more,
        "steps": more,
        "memory_gib": memory(),
    }


def loopback() -> int:
    """Return the bytes that have gone over the loopback interface of this machine so far."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(re.split(r"[:\s]+", line.strip())[1])


def many_rows(settings: dict[str, Any]) -> dict[str, Any]:
    """Fit very many rows that are made on the fly, exactly."""
    size, seed = settings["rows"], settings["seed"]

    def pieces(epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, size, PIECE):
            yield rows(min(PIECE, size - start), seed + start)

    log = Path(f"{settings['path']}.passes")  # of this run and of those before it that were cut short
    passes: list[list[float]] = json.loads(log.read_text()) if log.exists() else []
    plain = exact._Passes.__call__

    def timed(self: Any, q: Any) -> Any:
        began, cpu = time.perf_counter(), time.process_time()
        found = plain(self, q)
        passes.append([time.perf_counter() - began, time.process_time() - cpu, memory()])
        log.write_text(json.dumps(passes))
        print(f"pass {len(passes)}: {passes[-1][0]:.1f} s, {memory():.2f} GiB", file=sys.stderr, flush=True)
        return found

    exact._Passes.__call__ = timed  # type: ignore[method-assign]
    began = time.perf_counter()
    for X, y in islice(pieces(0), 8):
        del X, y
    made = (time.perf_counter() - began) * max(1.0, size / (8 * PIECE))
    began = time.perf_counter()
    model = natvi.glm_batches(pieces, size, family="bernoulli", intercept=True)
    surveyed = time.perf_counter() - began
    result = model.fit(optimizer="ascent", checkpoint=settings["path"])
    table = result.fixed_effects()
    error = (table["mean"].to_numpy() - np.append(-0.5, BETA)) / table["sd"].to_numpy()
    clock, cpu, room = np.array(passes).T
    return {
        "rows": size,
        "columns": COLUMNS,
        "seconds_to_make_rows_once": made,
        "seconds_survey": surveyed,
        "seconds_a_pass": float(np.median(clock)),
        "cpu_seconds_a_pass": float(np.median(cpu)),
        "passes": len(passes),
        "outcome": str(result.outcome),
        "root_mean_square_error_in_posterior_sds": float(np.sqrt(np.mean(error**2))),
        "memory_gib": float(max(room.max(), memory())),
    }


def many_groups(settings: dict[str, Any]) -> dict[str, Any]:
    """Fit very many groups, batch by batch; a run that was cut short goes on from its last epoch."""
    from natvi.models.mixed.batches.door import fit_mixed_batches
    from natvi.models.mixed.batches.state import BatchWorker
    from natvi.run.batches.group_batches import GroupedPieces

    total, batch, seed = settings["groups"], settings["batch"], settings["seed"]
    log, blocks = Path(f"{settings['path']}.epochs"), Path(f"{settings['path']}.npy")
    epochs, state = pickle.loads(log.read_bytes()) if log.exists() else ([], None)
    plain, began = BatchWorker.end_epoch, [time.perf_counter(), time.process_time()]

    def opened(epoch: int) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, total, batch):
            yield groups(min(batch, total - start), seed + start, start)

    def timed(self: Any) -> None:
        plain(self)
        now = [time.perf_counter(), time.process_time()]
        epochs.append([now[0] - began[0], now[1] - began[1], memory()])
        began[:] = now
        half = log.with_suffix(".half")
        half.write_bytes(pickle.dumps((epochs, self.state._replace(blocks=None))))
        half.replace(log)
        print(f"epoch {len(epochs)}: {epochs[-1][0]:.1f} s, {memory():.2f} GiB", file=sys.stderr, flush=True)
        if now[0] - launched + epochs[-1][0] > settings["seconds"]:
            signal.raise_signal(signal.SIGINT)  # the fit keeps what it has reached

    BatchWorker.end_epoch = timed  # type: ignore[method-assign]
    if state is not None:
        state = state._replace(blocks=np.lib.format.open_memmap(blocks, mode="r+"))
    launched = began[0]
    result = fit_mixed_batches(GroupedPieces(opened, total), family="bernoulli", blocks=blocks, state=state)
    table = result.summary()
    error = (table["mean"].to_numpy() - [-0.5, 0.5, -0.5, 0.25, 0.0, 1.0]) / table["sd"].to_numpy()
    clock, cpu, room = np.array(epochs).T
    return {
        "groups": total,
        "rows": 5 * total,
        "seconds_of_all_epochs": float(clock.sum()),
        "seconds_an_epoch": float(np.median(clock)),
        "cpu_seconds_an_epoch": float(np.median(cpu)),
        "epochs": len(epochs),
        "outcome": str(result.outcome),
        "sd": float(table["mean"].iloc[-1]),
        "root_mean_square_error_of_coefficients_in_posterior_sds": float(np.sqrt(np.mean(error[:-1] ** 2))),
        "memory_gib": float(max(room.max(), memory())),
    }


def kept(settings: dict[str, Any]) -> dict[str, Any]:
    """Fit with a checkpoint after every step, for somebody who kills; return a digest of the answer."""
    from natvi.run.exact import parts
    from natvi.run.storage import checkpoint

    parts.CHUNK_SECONDS, parts.LEAST_STEPS, checkpoint.SHARE = 1e-3, 1, 0.0
    model = model_of("glmm", settings["size"], settings["seed"])
    print("started", flush=True)
    began = time.perf_counter()
    keeping = {} if settings["path"] is None else {"checkpoint": settings["path"], "checkpoint_seconds": 0.0}
    result = model.fit(tolerance=1e-15, max_steps=settings["steps"], **keeping)
    digest = hashlib.sha256()
    for array in (*result.model.posterior.mean, *result.model.posterior.factor, np.float64(result.elbo)):
        digest.update(np.ascontiguousarray(array).tobytes())
    return {"seconds": time.perf_counter() - began, "steps": result.steps, "digest": digest.hexdigest()}


def memory() -> float:
    """Return the most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    task.__name__: task for task in (steps, many_rows, many_groups, kept)
}


def main() -> None:
    hosts.join()
    found = TASKS[sys.argv[1]](json.loads(sys.argv[2]))
    versions = {name: metadata.version(name) for name in ("natvi", "jax", "jaxlib", "numpy")}
    print(json.dumps(found | {"versions": versions | {"python": platform.python_version()}}), flush=True)
    hosts.leave()


if __name__ == "__main__":
    main()
