"""`python -m experiments LABEL`: cells to a JSON file, with a Markdown table and a picture beside it."""

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from experiments.report import RESULTS, Report
from natvi.x64 import float64

LABELS = (
    *("table2", *(f"table{k}" for k in range(7, 12))),
    *(f"figure{k}" for k in range(1, 11)),
    "theorem3",
    "stopping",
    "verdicts",
    "crossed_verdicts",
    "calibration",
    "slopes",
    "responses",
    "responsetimes",
)
SEED = 20_240_701


def built() -> list[str]:
    """Return the labels that have a file."""
    return [label for label in LABELS if (Path(__file__).parent / f"{label}.py").is_file()]


def run(label: str, quick: bool = False) -> Report:
    """Run one experiment in double precision and return what it found."""
    experiment = import_module(f"experiments.{label}")
    title = (experiment.__doc__ or label).partition("\n")[0].rstrip(".")
    report = Report(label, title, quick, SEED)
    began = time.perf_counter()
    with float64():
        experiment.run(report)
    report.seconds = round(time.perf_counter() - began, 2)
    return report


def main(arguments: list[str] | None = None) -> int:
    """Run one experiment, or all that are built; 2 when it is not built yet."""
    options = _parser().parse_args(arguments)
    labels = built() if options.label == "all" else [options.label]
    if missing := [label for label in labels if label not in built()]:
        print(f"not built yet: {', '.join(missing)}; built: {', '.join(built())}", file=sys.stderr)
        return 2
    if options.json and len(labels) > 1:
        print("--json names one file; 'all' writes each label to its own", file=sys.stderr)
        return 2
    for label in labels:
        report = run(label, options.quick)
        if options.json == "-":
            print(report.json(), end="")
            continue
        for path in report.save(_target(label, options)):
            print(path, file=sys.stderr)
        print(report.markdown())
    return 0


def _target(label: str, options: argparse.Namespace) -> Path:
    if options.json:
        return Path(options.json)
    # a quick run never replaces a full one
    return RESULTS / f"{label}{'-quick' if options.quick else ''}.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("label", choices=[*LABELS, "all"], metavar="LABEL", help=f"{', '.join(LABELS)} or all")
    parser.add_argument("--json", metavar="FILE", help="where cells go; '-' for the standard output")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, where the full ones take long")
    return parser


if __name__ == "__main__":
    sys.exit(main())
