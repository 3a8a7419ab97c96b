"""What processes do together in tests: each task is the same call with a part of the same rows."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import natvi

FIXED, MIXED = "x*z + f", "x + f + (1 + x | g)"
FAMILIES = ("gaussian", "poisson", "bernoulli")
STEPS, TIGHT = 4, 1e-12


def table(seed: int = 0, groups: int = 60, most: int = 9) -> pd.DataFrame:
    """Return rows of whole groups, of unequal sizes, group after group."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), rng.integers(1, most, groups))
    n = len(group)
    x, z, f = rng.normal(size=n), rng.normal(3.0, 2.0, size=n), rng.choice(["a", "b", "c"], n)
    f[: n // 2][f[: n // 2] == "c"] = "a"  # the first processes never see c
    eta = 0.4 + 0.5 * x - 0.2 * z + 0.3 * (f == "b") + (0.6 * rng.normal(size=groups))[group]
    y = {"gaussian": eta + 0.7 * rng.normal(size=n), "poisson": rng.poisson(np.exp(eta))}
    y["bernoulli"] = rng.random(n) < 1 / (1 + np.exp(-eta))
    frame = pd.DataFrame({"g": [f"g{k:03d}" for k in group], "x": x, "z": z, "f": f.astype(object), **y})
    return frame.astype({"bernoulli": int})


def many() -> pd.DataFrame:
    """Return more rows than the sample has from which a fit without groups starts."""
    return table(1, 900)


def part(processes: int, number: int, frame: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return one process's rows: whole groups, more of them in the later processes."""
    frame = table() if frame is None else frame
    codes, labels = pd.factorize(frame["g"])
    ends = np.round((np.arange(processes + 1) / processes) ** 1.3 * len(labels))
    return frame[(codes >= ends[number]) & (codes < ends[number + 1])]


def numbers_of(fit: natvi.Result) -> dict[str, Any]:
    """Return what two runs are compared by."""
    mean, covariance = fit.model.shared_moments()
    found = {"elbo": [fit.elbo], "mean": mean.tolist(), "sd": np.sqrt(np.diag(covariance)).tolist()}
    found["tables"] = fit.fixed_effects().to_numpy(dtype=float).ravel().tolist()
    if hasattr(fit.model, "group_labels"):
        found["effects"] = fit.random_effects().iloc[:, 2:].to_numpy(dtype=float).ravel().tolist()
    found["state"] = np.asarray(fit.state.ascent.x.shared).tobytes().hex()
    return found


def both(model: Any) -> dict[str, Any]:
    """Return the answers after some steps, and at the end."""
    return {"steps": numbers_of(model.fit(max_steps=STEPS)), "end": numbers_of(model.fit(tolerance=TIGHT))}


def glm(processes: int, number: int, folder: Path) -> dict[str, Any]:
    """Three families without groups."""
    own = part(processes, number, many())
    return {name: both(natvi.glm(f"{name} ~ {FIXED}", own, family=name)) for name in FAMILIES}


def glmm(processes: int, number: int, folder: Path) -> dict[str, Any]:
    """Three families with groups."""
    own = part(processes, number)
    return {name: both(natvi.glmm(f"{name} ~ {MIXED}", own, family=name)) for name in FAMILIES}


def refusal(call: Any) -> str:
    """Return the words of what a call raises."""
    try:
        call()
    except (ValueError, OSError) as error:
        return str(error)
    return "accepted"


def refusals(processes: int, number: int, folder: Path) -> dict[str, str]:
    """Bad input: every process gets an answer, and none waits for ever."""
    own, first = part(processes, number), number == 0
    cut = table().iloc[number::processes]
    return {
        "formula": refusal(lambda: natvi.glm("gaussian ~ x" if first else "gaussian ~ z", own)),
        "columns": refusal(lambda: natvi.glm("gaussian ~ x", own if first else own.drop(columns="x"))),
        "kinds": refusal(lambda: natvi.glm("gaussian ~ x", own if first else own.assign(x="a"))),
        "levels": refusal(
            lambda: natvi.glm(
                "gaussian ~ f", own.assign(f=pd.Categorical(own["f"], ["a", "b", "c"] if first else ["c", "b", "a"]))
            )
        ),
        "empty": refusal(lambda: natvi.glm("gaussian ~ x", own.iloc[: 0 if number == 1 else 5])),
        "split": refusal(lambda: natvi.glmm("gaussian ~ x + (1 | g)", cut)),
        "crossed": refusal(lambda: natvi.glmm("gaussian ~ x + (1 | g) + (1 | f)", own)),
        "steps": refusal(lambda: natvi.glm("gaussian ~ x", own).fit(max_steps=3 + number)),
        "learned": refusal(lambda: natvi.glm("gaussian ~ scale(x)", own)),
        "density": refusal(lambda: natvi.fit(lambda p: -(p**2), 0.0)),
        "deep": refusal(lambda: natvi.DeepGLMRegressor().fit(own[["x", "z"]], own["gaussian"])),
        "response": refusal(lambda: natvi.glm("poisson ~ x", own.assign(poisson=-1 if first else 1), family="poisson")),
    }


def keep(processes: int, number: int, folder: Path) -> dict[str, Any]:
    """Stop after some steps with a checkpoint; go on from it to the end; and without a stop."""
    own, found = part(processes, number), {}
    for kind, formula in (("glm", f"poisson ~ {FIXED}"), ("glmm", f"poisson ~ {MIXED}")):
        model = getattr(natvi, kind)(formula, own, family="poisson")
        path = folder / f"{kind}-{processes}"
        model.fit(checkpoint=path, max_steps=STEPS, tolerance=1e-13)
        copy = path.read_bytes() if number == 0 else b""
        again = numbers_of(model.fit(checkpoint=path, tolerance=1e-13))
        found[kind] = {"again": again, "whole": numbers_of(model.fit(tolerance=1e-13))}
        if number == 0:
            (folder / f"{kind}-for-others").write_bytes(copy)
    return found


def batches(processes: int, number: int, folder: Path) -> dict[str, Any]:
    """Rows and groups in batches."""
    from natvi.models.mixed.batches.door import fit_mixed_batches
    from natvi.run.batches.group_batches import GroupedArrays

    own = part(processes, number)
    X, y = own[["x", "z"]].to_numpy(), own["poisson"].to_numpy()
    model = natvi.glm_batches((X, y), len(y), family="poisson", intercept=True)
    rows = {"X": np.column_stack([np.ones(len(own)), own["x"]]), "Z": np.ones((len(own), 1)), "y": y, "group": own["g"]}
    source = GroupedArrays(rows, 10, shuffle=False)
    grouped = fit_mixed_batches(source, family="poisson", prior="paper", gap=1e-7)
    exact = model.fit(optimizer="ascent", tolerance=1e-13)
    return {
        "rows": {"elbo": exact.elbo, "mean": exact.model.mean.tolist()},
        "groups": {"elbo": grouped.elbo, "mean": grouped.model.shared_mean.tolist()},
    }


NET = {"epochs": 3, "batch_size": 37, "num_samples": 2}
OPTIMIZERS = ("ivon", "adam", "nadam", "snngm", "nagm", "pga", "vogn", "point")


def examples(equal: bool = False) -> tuple[np.ndarray, np.ndarray, int]:
    """Return examples, their labels, and how many the first of two processes holds."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=200) > 0).astype(int), 100 if equal else 67


def net(seed: int = 0) -> Any:
    """Return a small net."""
    import jax

    from natvi.models.deep.nets import init_mlp, mlp

    return natvi.bnn(mlp, init_mlp(jax.random.key(seed), (3, 8, 2)))


def net_numbers(fit: natvi.Result) -> dict[str, Any]:
    """Return what two fits of a net are compared by, and the very bits of the state."""
    import jax

    bits = hashlib.sha256()
    for leaf in jax.tree.leaves(fit.state):
        bits.update(np.ascontiguousarray(leaf).tobytes())
    found = {
        "mean": fit.model.mean.tolist(),
        "sds": fit.model.sds.tolist(),
        "elbo": fit.elbo,
        "outcome": str(fit.outcome),
    }
    return found | {"validation": fit.model.validation.tolist(), "state": bits.hexdigest(), "trust": str(fit.trust)}


def own_examples(number: int, equal: bool = False) -> tuple[np.ndarray, np.ndarray]:
    X, y, first = examples(equal)
    return (X[:first], y[:first]) if number == 0 else (X[first:], y[first:])


def nets(processes: int, number: int, folder: Path) -> dict[str, Any]:
    """Nets by every optimizer, of unequal and equal parts; the second process's own start does not count."""
    found = {}
    for name in OPTIMIZERS:
        X, y = own_examples(number, equal=name == "vogn")
        found[name] = net_numbers(net(number).fit(X, y, optimizer=name, validation=(X[:20], y[:20]), **NET))
    return found


class Impatient:
    """Ctrl-C after some looks."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def asked(self) -> bool:
        self.looks += 1
        return self.looks > 2

    def __enter__(self) -> "Impatient":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def keep_net(processes: int, number: int, folder: Path) -> dict[str, Any]:
    """Stop a net in process 0 with a checkpoint; go on from it to the end; and without a stop."""
    from natvi.run.stochastic import loop

    X, y = own_examples(number) if processes > 1 else examples()[:2]
    path, plain = folder / f"net-{processes}", loop.Interruption
    loop.Interruption = Impatient if number == 0 else plain  # type: ignore[assignment]
    stopped = net().fit(X, y, checkpoint=path, checkpoint_seconds=0.0, **NET)
    loop.Interruption = plain
    copy = path.read_bytes() if number == 0 else b""
    again = net().fit(X, y, checkpoint=path, **NET)
    if number == 0:
        (folder / "net-for-others").write_bytes(copy)
    whole = net().fit(X, y, **NET)
    return {"stopped": net_numbers(stopped), "again": net_numbers(again), "whole": net_numbers(whole)}


def net_refusals(processes: int, number: int, folder: Path) -> dict[str, str]:
    """Nets that do not fit together."""
    (X, y), first = own_examples(number), number == 0
    return {
        "step": refusal(lambda: net().fit(X, y, step_size=0.1 if first else 0.2)),
        "shape": refusal(lambda: net().fit(X if first else X[:, :2], y)),
        "dtype": refusal(lambda: net().fit(X if first else X.astype(int), y)),
        "empty": refusal(lambda: net().fit(X[: 9 if first else 0], y[: 9 if first else 0])),
        "labels": refusal(lambda: net().fit(X, y if first else y + 5)),
        "batch": refusal(lambda: net().fit(X, y, batch_size=201)),
        "validation": refusal(lambda: net().fit(X, y, validation=(X, y) if first else None)),
        "other file": refusal(lambda: net().fit(X, 1 - y, checkpoint=folder / "net-2", **NET)),
    }


def killed_at_the_second(plain: Any, really: bool) -> Any:
    """Return the same function, in whose second call this process is killed."""
    import os
    import signal

    taken: list[int] = []

    def call(*parts: Any) -> Any:
        taken.append(1)
        if len(taken) == 2 and really:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*parts)

    return call


def die(processes: int, number: int, folder: Path) -> dict[str, str]:
    """The last process is killed between two steps; the others say so."""
    import os

    from natvi.run.exact import passes

    model = natvi.glm(f"poisson ~ {FIXED}", part(processes, number), family="poisson")
    passes._step = killed_at_the_second(passes._step, number == processes - 1)
    try:
        model.fit(tolerance=1e-13)
    except natvi.hosts.HostLostError as error:
        (folder / f"lost-{number}").write_text(str(error))
        os._exit(7)  # what Python's exit would wait for is gone
    return {}


def die_net(processes: int, number: int, folder: Path) -> dict[str, str]:
    """The last process is killed on its way through the epochs of a net."""
    import os

    from natvi.run.stochastic import loop

    X, y = own_examples(number)
    loop.note_window = killed_at_the_second(loop.note_window, number == processes - 1)
    try:
        net().fit(X, y, validation=(X, y), epochs=1000, batch_size=10)
    except natvi.hosts.HostLostError as error:
        (folder / f"lost-{number}").write_text(str(error))
        os._exit(7)
    return {}
