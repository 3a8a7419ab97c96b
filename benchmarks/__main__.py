"""`python -m benchmarks NAME`: rows to a JSON file, a Markdown table to the standard output."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.report import RESULTS, Report, source_digest

BUILT = ("step", "glm", "glmm", "resume")
PLANNED = ("deep", "posteriors", "cold", "all")
SEED = 20_240_701


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark; 2 when it is not built yet."""
    options = _parser().parse_args(arguments)
    if options.name in PLANNED:
        print(f"benchmark {options.name!r} is not built yet; built: {', '.join(BUILT)}", file=sys.stderr)
        return 2
    benchmark = import_module(f"benchmarks.{options.name}")
    known = {name.lower() for name in benchmark.NAMES}
    unknown = [name for name in options.only if name.lower() not in known]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(benchmark.NAMES)}", file=sys.stderr)
        return 2
    to_stdout = options.json == "-"
    report = Report(options.name, None if to_stdout else _target(options), options.quick, SEED)
    sources = source_digest()
    try:
        benchmark.run(report, options.only)
    finally:
        if source_digest() != sources:
            report.note("natvi's sources changed during this run: do not use these figures.")
        report.save()
        print(report.json() if to_stdout else report.markdown(), end="\n")
    return 0


def _target(options: argparse.Namespace) -> Path:
    if options.json:
        return Path(options.json)
    # a part never replaces the whole
    parts = [options.name, *options.only, *(["quick"] if options.quick else [])]
    return RESULTS / f"{'-'.join(parts).lower()}.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BUILT, *PLANNED])
    parser.add_argument("--json", metavar="FILE", help="where rows go; '-' for the standard output")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="problems to run")
    parser.add_argument("--quick", action="store_true", help="few runs, without the largest sizes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
