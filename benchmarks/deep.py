"""One training step of LeNet-5 with Gaussian weights against plain Optax Adam on the same net: speed and memory.

Every tool runs the same number of steps inside one compiled loop, on the same random images with the same batch size;
runs alternate, the fastest counts. VOGN, which needs each example's gradient, takes batches of 16 as in the paper and
is compared by examples per second. Memory is what the compiled loop asks for besides its inputs.
"""

import os
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.report import Report
from benchmarks.step import Measured, _apart
from natvi.models.deep.bnn import bnn
from natvi.models.deep.nets import init_lenet5, lenet5
from natvi.models.deep.training import Training, recipe_of

NAMES = ("mnist", "cifar10")
SIZES = {"mnist": (28, 1), "cifar10": (32, 3)}
TOOLS = ("snngm", "nagm", "ivon", "adam", "vogn")
STEPS, RUNS, QUICK_RUNS = 10, 9, 3
BATCH, VOGN_BATCH = 128, 16
ALLOWED = 1.3  # of a plain Adam step, for Snngm, Nagm and IVON
PACKAGES = ("natvi", "jax", "jaxlib", "optax", "numpy")


def plain_adam(params: Any, batches: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a loop of plain Adam steps on the mean loss, and its arguments."""
    rule = optax.adam(1e-3)

    def loss(params: Any, batch: Any) -> Any:
        scores = jax.nn.log_softmax(lenet5(params, batch["x"]))
        return -jnp.mean(jnp.take_along_axis(scores, batch["y"][:, None], axis=1))

    def run(params: Any, batches: Any) -> Any:
        def step(carry: Any, batch: Any) -> Any:
            params, state = carry
            updates, state = rule.update(jax.grad(loss)(params, batch), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, rule.init(params)), batches)[0]

    return run, (params, batches)


def natvi_steps(name: str, params: Any, batches: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a loop of steps of one of natvi's rules, and its arguments."""
    training = Training(name, 1e-4, "constant", batch_size=batches["y"].shape[1])
    model = bnn(lenet5, params)
    rows = {"x": np.asarray(batches["x"][0]), "y": np.resize(np.asarray(batches["y"][0]), 60_000)}
    target, start = model.prepare(rows, training)
    recipe = recipe_of(target, training)
    state = jax.tree.map(lambda a: jnp.asarray(a, jnp.asarray(a).dtype), recipe.init(start))

    def run(target: Any, state: Any, batches: Any, key: Any) -> Any:
        def step(state: Any, inputs: Any) -> Any:
            batch, k = inputs
            return recipe.move(target.with_rows(batch), state, jax.random.fold_in(key, k)), None

        return jax.lax.scan(step, state, (batches, jnp.arange(STEPS)))[0]

    return run, (target, state, batches, jax.random.key(0))


def run(report: Report, only: list[str]) -> None:
    """Time every net on one core and on all, each in a process of its own."""
    rounds = QUICK_RUNS if report.quick else RUNS
    report.settings |= {"runs": rounds, "statistic": "minimum", "steps_per_run": STEPS, "precision": "float32"}
    report.settings |= {"batch": BATCH, "vogn_batch": VOGN_BATCH}
    versions = {name: metadata.version(name) for name in PACKAGES}
    cores = sorted(os.sched_getaffinity(0))
    for name in [name.lower() for name in only] or NAMES:
        for used in dict.fromkeys((tuple(cores[:1]), tuple(cores))):
            found = _apart(measure, used, name, rounds)
            for tool, metrics in found.tools.items():
                report.add(found.problem, tool, metrics, versions=versions, threads=len(used))


def measure(name: str, rounds: int) -> Measured:
    """Return milliseconds per step, examples per second and memory of every tool."""
    side, channels = SIZES[name]
    rng = np.random.default_rng(0)
    params = init_lenet5(jax.random.key(0), side, channels)

    def batches(size: int) -> Any:
        x = rng.integers(0, 256, (STEPS, size, side, side, channels)).astype(np.uint8)
        return {"x": jnp.asarray(x), "y": jnp.asarray(rng.integers(0, 10, (STEPS, size)), jnp.int32)}

    makers = {"Optax Adam, point": plain_adam(params, batches(BATCH))}
    for tool in TOOLS:
        makers[f"natvi {tool}"] = natvi_steps(tool, params, batches(VOGN_BATCH if tool == "vogn" else BATCH))
    compiled = {tool: jax.jit(loop).lower(*inputs).compile() for tool, (loop, inputs) in makers.items()}
    best = dict.fromkeys(makers, np.inf)
    for _ in range(rounds + 1):  # the first warms up
        for tool, (_, inputs) in makers.items():
            began = time.perf_counter()
            jax.block_until_ready(compiled[tool](*inputs))
            best[tool] = min(best[tool], (time.perf_counter() - began) / STEPS)
    plain = best["Optax Adam, point"]
    tools = {}
    for tool, seconds in best.items():
        size = VOGN_BATCH if tool == "natvi vogn" else BATCH
        found = {"milliseconds per step": 1e3 * seconds, "examples per second": size / seconds}
        found["memory, MB"] = compiled[tool].memory_analysis().temp_size_in_bytes / 1e6
        if tool in ("natvi snngm", "natvi nagm", "natvi ivon"):
            found |= {"ratio": seconds / plain, "allowed": ALLOWED}
        elif tool == "natvi vogn":
            found["ratio per example"] = seconds / size / (plain / BATCH)
        tools[tool] = found
    d = sum(leaf.size for leaf in jax.tree.leaves(params))
    return Measured(f"LeNet-5 on {name} images, d = {d:,}", tools)
