"""A mixed model fitted by whichever natvi is on the path: the same prior by name, and nothing but what users call."""

import time
from importlib.metadata import version
from typing import Any

import pandas as pd

import natvi
from benchmarks.answering import answer_commands


class Session:
    """A data frame in memory."""

    def __init__(self) -> None:
        self.frame = pd.DataFrame()

    def load(self, path: str) -> dict[str, Any]:
        """Read the data frame."""
        self.frame = pd.read_csv(path, float_precision="round_trip")
        return {"rows": len(self.frame)}

    def fit(self, family: str, formula: str, method: str) -> dict[str, Any]:
        """The whole call, from the formula and the frame to the result; with "auto" that includes the verdict."""
        began = time.perf_counter()
        result = natvi.glmm(formula, self.frame, family=family, prior="paper").fit(method=method)
        return {"seconds": time.perf_counter() - began, "elbo": result.elbo, "method": result.method}


if __name__ == "__main__":
    session = Session()
    answer_commands({"load": session.load, "fit": session.fit}, {"jax": version("jax")})
