"""The peers' side: starting R, and comparing estimates by name."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.workers import Worker, WorkerError

SCRIPT = Path(__file__).with_name("peers_glmm.R")
PEERS = ("glmmTMB", "lme4")  # in R


def start_peer(tool: str, threads: int) -> Worker:
    """Start glmmTMB or lme4 in an R process of its own.

    Raises:
        WorkerError: R or the package is not installed.
    """
    program = shutil.which("Rscript")
    if program is None:
        raise WorkerError("Rscript is not installed (on Debian: r-base-core, r-cran-lme4, r-cran-glmmtmb)")
    return Worker([program, "--vanilla", str(SCRIPT), tool, str(threads)], threads)


def largest_difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest |posterior mean - estimate| / posterior sd over the fixed effects."""
    estimates = dict(zip(map(plain_name, theirs["names"]), theirs["estimates"], strict=True))
    names = [plain_name(name) for name in ours["names"]]
    if set(names) != set(estimates):
        raise ValueError(f"Fixed effects differ: {sorted(set(names) ^ set(estimates))}.")
    moments = zip(names, ours["estimates"], ours["sds"], strict=True)
    return max(abs(mean - estimates[name]) / sd for name, mean, sd in moments)


def plain_name(name: str) -> str:
    """The name of a coefficient without brackets: "hba1c[below_8]" here is "hba1cbelow_8" in R."""
    return re.sub(r"[\[\]()]", "", name)


def joined(remarks: Sequence[str]) -> str:
    """Warnings of a peer in one line."""
    return "; ".join(" ".join(remark.split()) for remark in remarks)
