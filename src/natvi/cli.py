"""The command line: `natvi fit`, `natvi show`, `natvi demo`."""

import json
import math
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape

from natvi.data import load_epilepsy
from natvi.formula.design import parse_formula
from natvi.formula.dot import expand_dot, has_dot
from natvi.models.linear.door import METHODS as GLM_METHODS
from natvi.models.linear.door import glm
from natvi.models.loading import load
from natvi.models.mixed.door import METHODS, glmm
from natvi.models.regression.options import ASCENT, NOISY, OLD_METHODS, understand
from natvi.result import Result
from natvi.run import storage
from natvi.run.program_cache import keep_programs
from natvi.run.storage.files import write_text

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
notices = Console(stderr=True)
EPILEPSY = "y ~ base*trt + age + visit + (1 | subject)"


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help="A CSV file (also .csv.gz, .tsv) or a Parquet file.")],
    formula: Annotated[str, typer.Argument(help='For example "y ~ trt + (1 | subject)", or "y ~ x" without groups.')],
    family: Annotated[
        str, typer.Option(help="gaussian, bernoulli, binomial, poisson, negative_binomial or gamma.")
    ] = "gaussian",
    link: Annotated[str | None, typer.Option(help="For bernoulli, binomial: logit, probit or cloglog.")] = None,
    method: Annotated[
        str, typer.Option(help="auto, gva, marginal, rvb1 or rvb2; without groups auto, gva or psis.")
    ] = "auto",
    prior: Annotated[str, typer.Option(help="default, paper, or the sd of every coefficient such as 2.5.")] = "default",
    structure: Annotated[str | None, typer.Option(help="Without groups: auto, dense or diagonal.")] = None,
    weights: Annotated[str | None, typer.Option(help="A column that says how often each row counts.")] = None,
    missing: Annotated[str, typer.Option(help="Rows with missing values: drop or error.")] = "drop",
    optimizer: Annotated[
        str | None,
        typer.Option(
            help="For noisy steps (gva, rvb1, rvb2): snngm, nagm, adam, nadam, pga, vogn; "
            "ivon with --structure diagonal; ascent for exact ones."
        ),
    ] = None,
    order: Annotated[int | None, typer.Option(help="For noisy steps: 1 or 2, derivatives of the log-density.")] = None,
    step_size: Annotated[float | None, typer.Option(help="For noisy steps; by default the optimizer's own.")] = None,
    num_samples: Annotated[int | None, typer.Option(help="For noisy steps: draws per step.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="For noisy steps without groups: rows per step.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Steps at most.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="For exact steps: the rise at which the fit stops.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A file that keeps the state: a killed fit goes on where it was.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the saved fit, summary.json and report.html.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page about the fit to this file.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the summary as JSON; - for stdout.")] = None,
    seed: Annotated[int, typer.Option(help="For noisy steps; exact fits are deterministic.")] = 0,
) -> None:
    """Fit a model to a file and print its summary: a mixed model, or without (... | group) a linear one."""
    options = _given(link=link, weights=weights) | {"family": family, "prior": _number(prior), "missing": missing}
    steps = _given(order=order, step_size=step_size, num_samples=num_samples, batch_size=batch_size)
    loop = _given(max_steps=max_steps, tolerance=tolerance, checkpoint=checkpoint)
    if has_dot(formula):  # what it stands for only the data can tell
        formula = expand_dot(formula, _read(data), weights)
    grouped = parse_formula(formula).has_groups
    if grouped:
        for name, value in (("structure", structure), ("batch_size", batch_size)):
            if value is not None:
                raise ValueError(
                    f"{_flag(name)} is for models without random effects. Leave it out, or leave out (... | group)."
                )
    if method in OLD_METHODS:
        old = method
        method, optimizer = understand(method, optimizer)
        notices.print(f"--method {old} is now --method {method} --optimizer {optimizer}.", highlight=False)
    noisy = _is_noisy(method, optimizer)
    methods = METHODS if grouped else GLM_METHODS
    _check_steps(methods, method, noisy, _given(optimizer=optimizer) | steps, tolerance)
    settings: dict[str, Any] = {"method": method, "progress": True} | _given(optimizer=optimizer) | steps | loop
    if grouped:
        noise: dict[str, Any] = {"seed": seed} if noisy else {}  # the others take exact steps
        result = glmm(formula, _read(data), **options).fit(**settings, **noise)
    else:
        model = glm(formula, _read(data), **options, structure=structure or "auto")
        result = model.fit(**settings, seed=seed)
    _deliver(result, out, report, json_file)


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_noisy(method: str, optimizer: str | None) -> bool:
    """Whether the fit takes noisy steps."""
    return method in ("rvb1", "rvb2") or (method == "gva" and optimizer not in (None, ASCENT))


def _check_steps(
    methods: tuple[str, ...], method: str, noisy: bool, given: dict[str, Any], tolerance: float | None
) -> None:
    """Refuse settings of steps that the fit does not take; an unknown method is left to the model to explain."""
    if noisy and tolerance is not None:
        raise ValueError(
            "--tolerance is for exact steps; noisy ones stop when the bound no longer rises. Leave it "
            "out; --max-steps sets a limit."
        )
    unused = [name for name, value in given.items() if (name, value) != ("optimizer", ASCENT)]
    if noisy or not unused or method not in methods:
        return
    if unused[0] == "optimizer":
        fitting = [word for word in methods if word in NOISY]
        cure = f"--method {', '.join(fitting[:-1])}{' or ' if fitting[1:] else ''}{fitting[-1]} with it"
    else:
        cure = "--optimizer snngm" if method == "gva" else "--method gva --optimizer snngm"
    flag = _flag(unused[0])
    raise ValueError(
        f"{flag} is for noisy steps, and --method {method} takes exact ones. Give {cure}, or leave {flag} out."
    )


def _number(prior: str) -> str | float:
    try:
        return float(prior)
    except ValueError:
        return prior


@app.command()
def show(path: Annotated[Path, typer.Argument(help="A fit saved by --out or Result.save.")]) -> None:
    """Print the summary of a saved fit."""
    sys.stdout.write(f"{load(path)}\n")


@app.command()
def demo(report: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("natvi-demo.html")) -> None:
    """Fit the Epilepsy data of the paper and write a page about it."""
    notices.print("[bold]59 patients, 4 visits each[/]: does the drug progabide lower the number of seizures?")
    notices.print(f'natvi.glmm("{EPILEPSY}", data, family="poisson").fit()\n', highlight=False)
    model = glmm(EPILEPSY, load_epilepsy(), family="poisson")
    result = model.fit(progress=True)
    _deliver(result, None, report, None)
    again = time.perf_counter()
    model.fit()
    notices.print(f"\nThe same fit again, now that it is compiled: {1000 * (time.perf_counter() - again):.1f} ms.")


def summary_document(result: Result, prob: float = 0.95) -> dict:
    """Return what `--json` writes."""
    tables = result.tables(prob)
    dispersion = tables.get("dispersion")
    return {
        "outcome": str(result.outcome),
        "trust": result.trust,
        "trust_reasons": list(result.trust_reasons),
        "model_check": result.model_check,
        "model_check_reasons": list(result.model_check_reasons),
        "prior_check": result.prior_check,
        "prior_check_reasons": list(result.prior_check_reasons),
        "method": result.method,
        "optimizer": result.optimizer,
        "elbo": result.elbo,
        "coefficients": result.fixed_effects(prob).to_dict(orient="index"),
        **({} if dispersion is None else {"dispersion": dispersion.to_dict(orient="index")}),
        "random_effects": tables["variance_components"].to_dict(orient="index")
        if "variance_components" in tables
        else {},
        "seconds": result.seconds,
        "versions": {name: metadata.version(name) for name in ("natvi", "jax", "jaxlib", "numpy")}
        | {"python": platform.python_version()},
    }


def _deliver(result: Result, out: Path | None, report: Path | None, json_file: Path | None) -> None:
    document = json.dumps(_finite(summary_document(result)), indent=2, allow_nan=False)
    if json_file == Path("-"):
        sys.stdout.write(document + "\n")
    else:
        sys.stdout.write(f"{result}\n")
    if json_file is not None and json_file != Path("-"):
        write_text(json_file, document + "\n")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        result.save(out / "fit.natvi")
        write_text(out / "summary.json", document + "\n")
        result.report(out / "report.html")
        _say(f"saved: {out}/fit.natvi, summary.json, report.html")
    if report is not None:
        _say(f"page: {result.report(report)}")


def _say(text: str, head: str = "") -> None:
    """Print a notice as it is: brackets are no markup, and lines are not cut."""
    notices.print(head + escape(text), highlight=False, soft_wrap=True)


def _finite(value: Any) -> Any:
    """Return a document with null in place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}. Give the path of a CSV or Parquet file.")
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        return pd.read_parquet(path)
    separator = "\t" if ".tsv" in name else ","
    try:
        return pd.read_csv(path, sep=separator)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}. Give a CSV, TSV or Parquet file.") from error


def main() -> None:
    """Run the command line; mistakes give a sentence and exit code 2, not a traceback."""
    keep_programs()
    try:
        app()
    except (ValueError, OSError, ImportError, storage.StorageError) as error:
        _say(str(error), "[bold red]natvi:[/] ")
        raise SystemExit(2) from None
