"""What can be done with saved fits, and about the program itself."""

import sys
import time
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from natvi.cli.deliver import deliver, notices, say, terminal_width, versions
from natvi.cli.fitting import DATA, DECIMAL, DELIMITER, ENCODING
from natvi.cli.places import check_places
from natvi.cli.tables import Reading, read_table, write_like
from natvi.data import load_epilepsy
from natvi.data.external import VARIABLE, data_folder
from natvi.models.loading import load
from natvi.models.mixed.door import glmm
from natvi.result.comparison import compare as compare_fits
from natvi.result.text import text_summary
from natvi.run.storage.files import write_whole

EPILEPSY = "y ~ base*trt + age + visit + (1 | subject)"
SAVED = typer.Argument(help="A fit saved by --out or Result.save.")


def show(path: Annotated[Path, SAVED]) -> None:
    """Print the summary of a saved fit."""
    sys.stdout.write(f"{text_summary(load(path), width=terminal_width())}\n")


def predict(
    path: Annotated[Path, SAVED],
    data: Annotated[Path, DATA],
    kind: Annotated[str, typer.Option(help="response, link, or predictive for new observations.")] = "response",
    groups: Annotated[str, typer.Option(help="known, new or population.")] = "known",
    prob: Annotated[float, typer.Option(help="The probability of the intervals.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="A CSV file; by default the standard output.")] = None,
    delimiter: Annotated[str | None, DELIMITER] = None,
    decimal: Annotated[str | None, DECIMAL] = None,
    encoding: Annotated[str | None, ENCODING] = None,
) -> None:
    """Predict rows of a file by a saved fit: the file's columns with mean, sd and interval beside them.

    Delimiter, decimal sign and encoding are those of the file.
    """
    check_places(None, out)
    how = Reading(delimiter, decimal, encoding)
    fit, frame = load(path), read_table(data, how)
    table = fit.predict(frame, kind=kind, groups=groups, prob=prob)
    taken = [name for name in table.columns if name in frame.columns]
    written = write_like(pd.concat([frame.drop(columns=taken), table], axis=1), data, how)
    if out is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(written)
    else:
        write_whole(out, [written], len(written))
        say(f"predictions: {out}")


def report(
    path: Annotated[Path, SAVED],
    page: Annotated[Path, typer.Argument(help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Write the page about a saved fit."""
    check_places(None, page)
    say(f"page: {load(path).report(page)}")


def compare(
    fits: Annotated[list[Path], typer.Argument(help="Two or more saved fits of the same responses.")],
    data: Annotated[Path, typer.Option(help="The data that they were fitted to, which saved fits do not hold.")],
    by: Annotated[str | None, typer.Option(help="Leave out whole groups: the name of a column.")] = None,
    delimiter: Annotated[str | None, DELIMITER] = None,
    decimal: Annotated[str | None, DECIMAL] = None,
    encoding: Annotated[str | None, ENCODING] = None,
) -> None:
    """Compare saved fits by leave-one-out cross-validation, the best first."""
    if len(set(fits)) < 2:
        raise ValueError(
            "natvi compare needs two or more different saved fits: natvi compare a.natvi b.natvi --data file."
        )
    frame = read_table(data, Reading(delimiter, decimal, encoding))
    table = compare_fits({str(path): load(path) for path in fits}, by=by, data=frame)
    sys.stdout.write(f"{table}\n")


def info() -> None:
    """Print versions, devices and folders: what to add to a report of trouble."""
    import jax

    lines = [
        *versions().items(),
        ("devices", ", ".join(map(str, jax.devices()))),
        ("cache", str(jax.config.values["jax_compilation_cache_dir"] or "off")),
    ]
    try:
        folder = str(data_folder())
    except FileNotFoundError:
        folder = f"{VARIABLE} is not set"
    for name, text in (*lines, ("data", folder)):
        sys.stdout.write(f"{name + ':':<9} {text}\n")


def demo(
    report: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("natvi-demo.html"),
) -> None:
    """Fit the Epilepsy data of the paper and write a page about it."""
    check_places(None, report)
    notices.print("[bold]59 patients, 4 visits each[/]: does the drug progabide lower the number of seizures?")
    notices.print(f'natvi.glmm("{EPILEPSY}", data, family="poisson").fit()\n', highlight=False)
    model = glmm(EPILEPSY, load_epilepsy(), family="poisson")
    result = model.fit(progress=True)
    again = time.perf_counter()
    model.fit()
    again = time.perf_counter() - again
    deliver(result, None, None, None)
    notices.print(f"\nThe same fit again, now that it is compiled: {1000 * again:.1f} ms.")
    say(f"page: {result.report(report)}")
