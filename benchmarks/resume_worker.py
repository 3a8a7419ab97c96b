"""A long fit with checkpoints that wants to be killed: python -m benchmarks.resume_worker GROUPS SEED PATH.

PATH "-" fits without checkpoints. Prints "started" when the fit begins and one line of JSON when it is done.
"""

import hashlib
import json
import platform
import sys
import time
from importlib import metadata
from typing import Any

import numpy as np

import natvi
from benchmarks.simulate import FORMULA, random_intercepts
from natvi.run.exact import loop
from natvi.run.storage import checkpoint

FAMILY = "bernoulli"
TOLERANCE = 1e-15  # so many more iterations than a user would ask for: the fit has to last


class Writes:
    """Counts and times the writes of a checkpoint."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self._write = checkpoint.file_format.write

    def __call__(self, *args: Any, **options: Any) -> None:
        began = time.perf_counter()
        self._write(*args, **options)
        self.count += 1
        self.seconds += time.perf_counter() - began


def digests(result: natvi.Result) -> dict[str, str]:
    """SHA-256 of the bytes of the mean, the factor and the bound."""
    posterior = result.model.posterior  # type: ignore[attr-defined]
    parts = {"mean": posterior.mean, "factor": posterior.factor, "elbo": [np.float64(result.elbo)]}
    hashes = {}
    for name, arrays in parts.items():
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        hashes[name] = digest.hexdigest()
    return hashes


def main(num_groups: int, seed: int, path: str) -> None:
    """Fit, writing after every iteration."""
    loop.CHUNK_SECONDS = 1e-3
    checkpoint.SHARE = 0.0
    writes = checkpoint.file_format.write = Writes()
    frame = random_intercepts(FAMILY, num_groups, seed)
    model = natvi.glmm(FORMULA, frame, family=FAMILY, prior="paper")
    print("started", flush=True)
    began = time.perf_counter()
    where = None if path == "-" else path
    result = model.fit(method="gva", checkpoint=where, checkpoint_seconds=0.0, tolerance=TOLERANCE)
    done = {
        "seconds": time.perf_counter() - began,
        "compile_seconds": result.seconds["compile"],
        "writes": writes.count,
        "write_seconds": writes.seconds,
        "outcome": str(result.outcome),
        "iterations": len(result.trace),
        "digests": digests(result),
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in ("natvi", "jax", "jaxlib", "numpy", "safetensors")},
    }
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
