"""`natvi fit`: a model from a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from natvi.cli.deliver import deliver, say
from natvi.cli.places import check_places
from natvi.cli.tables import Reading, check_mixed, read_table, words_about
from natvi.cli.together import joined, own_part
from natvi.families.table import find_family
from natvi.formula.dot import expand_dot, has_dot
from natvi.hosts import write_effects
from natvi.hosts.collect import collect, is_first
from natvi.models.formulas import has_random_effects
from natvi.models.linear.door import METHODS as GLM_METHODS
from natvi.models.linear.door import glm
from natvi.models.mixed.door import METHODS, glmm
from natvi.models.regression.options import ASCENT, NOISY, OLD_METHODS, understand

DATA = typer.Argument(help="A CSV file (also .csv.gz, .tsv), a Parquet or an Arrow file.")
DELIMITER = typer.Option(help="Between columns of a text file: one character, or tab; found if not given.")
DECIMAL = typer.Option(help="The decimal sign of a text file, . or ,; found if not given.")
ENCODING = typer.Option(help="Of a text file, e.g. utf-8 or cp1252; found if not given.")
MISSING = typer.Option("--na", help="A text that means a missing value; may be given several times.")


def fit(
    data: Annotated[Path, DATA],
    formula: Annotated[str, typer.Argument(help='For example "y ~ trt + (1 | subject)", or "y ~ x" without groups.')],
    family: Annotated[
        str,
        typer.Option(help="gaussian, bernoulli, binomial, poisson, negative_binomial, gamma, ordinal, student_t ..."),
    ] = "gaussian",
    link: Annotated[str | None, typer.Option(help="For bernoulli, binomial: logit, probit or cloglog.")] = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto, gva, marginal, rvb1 or rvb2; with several factors auto, gva or integrated; without groups "
            "auto, gva or psis."
        ),
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
    delimiter: Annotated[str | None, DELIMITER] = None,
    decimal: Annotated[str | None, DECIMAL] = None,
    encoding: Annotated[str | None, ENCODING] = None,
    na: Annotated[list[str] | None, MISSING] = None,
    hosts: Annotated[
        bool,
        typer.Option(
            "--hosts",
            help="Fit together with the other processes that a launcher has started (SLURM, Open MPI, Kubernetes, "
            "natvi launch); each reads its part of the data, a Parquet file or folder at best.",
        ),
    ] = False,
    effects: Annotated[
        Path | None, typer.Option(help="With --hosts: a folder for the random effects, a Parquet file per process.")
    ] = None,
) -> None:
    """Fit a model to a file and print its summary: a mixed model, or without (... | group) a linear one.

    Exit codes: 0 for an answer, 2 for a mistake in what was asked, 3 for an answer that is not to be used, 130 after
    Ctrl-C, which keeps what was reached.
    """
    find_family(family, link)
    grouped = has_random_effects(formula)
    check_places(out, report, json_file, checkpoint)
    options = _given(link=link, weights=weights) | {"family": family, "prior": _number(prior), "missing": missing}
    steps = _given(order=order, step_size=step_size, num_samples=num_samples, batch_size=batch_size)
    loop = _given(max_steps=max_steps, tolerance=tolerance, checkpoint=checkpoint)
    if grouped:
        for name, value in (("structure", structure), ("batch_size", batch_size)):
            if value is not None:
                raise ValueError(
                    f"{_flag(name)} is for models without random effects. Leave it out, or leave out (... | group)."
                )
    if method in OLD_METHODS:
        old = method
        method, optimizer = understand(method, optimizer)
        say(f"--method {old} is now --method {method} --optimizer {optimizer}.")
    noisy = _is_noisy(method, optimizer)
    methods = METHODS if grouped else GLM_METHODS
    _check_steps(methods, method, noisy, _given(optimizer=optimizer) | steps, tolerance)
    settings: dict[str, Any] = {"method": method, "progress": True} | _given(optimizer=optimizer) | steps | loop
    how = Reading(delimiter, decimal, encoding, tuple(na or ()))
    if effects is not None and not hosts:
        raise ValueError("--effects is for --hosts; of one process, Result.random_effects() gives the table.")
    if hosts:
        with joined():
            shape: dict[str, Any] = {} if grouped else {"structure": structure or "auto"}
            model = (glmm if grouped else glm)(formula, own_part(data, formula, how), **options, **shape)
            result = model.fit(**settings)
            if effects is not None:
                write_effects(result, effects)
        try:
            if is_first():
                deliver(result, out, report, json_file)
        finally:
            collect(None)  # nobody leaves before the files are written
        return
    frame = read_table(data, how)
    if has_dot(formula):  # what it stands for only the data can tell
        formula = expand_dot(formula, frame, weights)
    check_mixed(frame, formula)
    try:
        if grouped:
            noise: dict[str, Any] = {"seed": seed} if noisy else {}  # the others take exact steps
            result = glmm(formula, frame, **options).fit(**settings, **noise)
        else:
            result = glm(formula, frame, **options, structure=structure or "auto").fit(**settings, seed=seed)
    except ValueError as error:
        raise ValueError(str(error) + words_about(data, how, frame, formula)) from error
    deliver(result, out, report, json_file)


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
