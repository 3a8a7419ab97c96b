"""What happens inside the timed processes: `python -m benchmarks.cold.session {versions,files,first,several}`."""

import json
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDS = 10


def write_files(folder: str) -> None:
    """Write the data sets that the command line and the peers read."""
    import natvi

    natvi.data.load_toenail().to_csv(Path(folder) / "toenail.csv", index=False)
    natvi.data.load_epilepsy().to_csv(Path(folder) / "epilepsy.csv", index=False)


def first(data: str) -> None:
    """Fit one data set with the defaults and print the summary, as a user's first script does."""
    import natvi
    from benchmarks.cold.programs import EPILEPSY

    if data == "epilepsy":
        print(natvi.glmm(EPILEPSY, natvi.data.load_epilepsy(), family="poisson").fit())
    else:
        print(natvi.glmm("y ~ x1 + x2 + x3 + (1 | group)", binary_rows(537), family="bernoulli").fit())


def binary_rows(groups: int) -> Any:
    """Return four rows a group, out of five."""
    from benchmarks.simulate import ROWS_PER_GROUP, random_intercepts

    data = random_intercepts("bernoulli", groups, seed=1)
    return data[data.index % ROWS_PER_GROUP > 0].reset_index(drop=True)


def several() -> dict[str, dict[str, float]]:
    """Fit one data set after the other in this process; return seconds and compilations of each."""
    import jax

    import natvi
    from benchmarks.cold.programs import STAGES, TOENAIL

    compiled = [0]

    def count(event: str, *_: Any, **__: Any) -> None:
        compiled[0] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(count)
    data, toenail = binary_rows(537), natvi.data.load_toenail()
    fewer = data[data["group"] < 500]
    whole, short = "y ~ x1 + x2 + x3 + (1 | group)", "y ~ x1 + x2 + (1 | group)"

    def fit(formula: str, frame: Any) -> None:
        natvi.glmm(formula, frame, family="bernoulli").fit()

    def cross_validate() -> None:
        names = toenail["idnr"].unique()
        for fold in range(FOLDS):
            fit(TOENAIL, toenail[~toenail["idnr"].isin(names[fold::FOLDS])])

    steps = (
        lambda: fit(whole, data),
        lambda: fit(whole, data),
        lambda: fit(whole, fewer),
        lambda: fit(short, data),
        lambda: fit(TOENAIL, toenail),
        cross_validate,
        lambda: fit("infect ~ trt + time + (1 | idnr)", toenail),
    )
    fit(TOENAIL, toenail)  # the fifth step is to be a warm one
    found = {}
    for stage, step in zip(STAGES, steps, strict=True):
        compiled[0], began = 0, time.perf_counter()
        step()
        found[stage] = {"seconds": time.perf_counter() - began, "compilations": compiled[0]}
    return found


def main(word: str, *rest: str) -> None:
    """Do what the first word says."""
    if word == "versions":
        print(json.dumps({name: metadata.version(name) for name in ("natvi", "jax", "jaxlib", "pandas", "formulae")}))
    elif word == "files":
        write_files(*rest)
    elif word == "first":
        first(*rest)
    else:
        print(json.dumps(several()))


if __name__ == "__main__":
    main(*sys.argv[1:])
