"""One of several processes in tests: `python worker.py PROCESSES NUMBER PORT FOLDER TASK`; answers go to a file."""

import json
import sys
import traceback
from pathlib import Path

import numpy as np
import pandas as pd

FAMILIES = ("gaussian", "poisson", "bernoulli")


def table(seed: int = 0, groups: int = 60, most: int = 9) -> pd.DataFrame:
    """Return rows of whole groups, of unequal sizes, group after group."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most, groups)
    group = np.repeat(np.arange(groups), sizes)
    n = len(group)
    x, z = rng.normal(size=n), rng.normal(3.0, 2.0, size=n)
    f = rng.choice(["a", "b", "c"], n)
    eta = 0.4 + 0.5 * x - 0.2 * z + 0.3 * (f == "b") + (0.6 * rng.normal(size=groups))[group]
    columns = {"g": [f"g{k:03d}" for k in group], "x": x, "z": z, "f": f}
    columns["gaussian"] = eta + 0.7 * rng.normal(size=n)
    columns["poisson"] = rng.poisson(np.exp(eta))
    columns["bernoulli"] = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    return pd.DataFrame(columns)


def part(frame: pd.DataFrame, processes: int, number: int) -> pd.DataFrame:
    """Return one process's rows, whole groups, in parts of unequal size."""
    codes, labels = pd.factorize(frame["g"])
    ends = np.round(np.linspace(0, 1, processes + 1) ** 1.3 * len(labels))
    return frame[(codes >= ends[number]) & (codes < ends[number + 1])]


def main() -> None:
    """Join, do the task, write what came out."""
    processes, number, port, folder, task = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        Path(sys.argv[4]),
        sys.argv[5],
    )
    import natvi

    from tests.hosts import tasks

    try:
        natvi.hosts.join(f"127.0.0.1:{port}", processes, number, timeout=60)
        answer = getattr(tasks, task)(natvi, processes, number, folder)
    except Exception as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    (folder / f"{task}-{processes}-{number}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
