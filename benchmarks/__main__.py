"""`python -m benchmarks NAME`: rows to a JSON file, a Markdown table to the standard output."""

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, Report, source_digest

BUILT = (
    "step",
    "glm",
    "glmm",
    "default",
    "accuracy",
    "parts",
    "crossed",
    "resume",
    "fuzz",
    "deep",
    "posteriors",
    "cold",
    "hosts",
)
PLANNED = ("all",)
SEED = 20_240_701


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark; 2 when it is not built yet."""
    options = _parser().parse_args(arguments)
    if options.name in PLANNED:
        print(f"benchmark {options.name!r} is not built yet; built: {', '.join(BUILT)}", file=sys.stderr)
        return 2
    benchmark = import_module(f"benchmarks.{options.name}")
    known = {name.lower() for name in benchmark.NAMES}
    if options.module is not None:
        known = _known_in(benchmark, options)
        if known is None:
            return 2
    unknown = [name for name in options.only if name.lower() not in known]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    to_stdout = options.json == "-"
    own = {name: value for name in ("count", "case") if (value := getattr(options, name)) is not None}
    if options.name != "fuzz" and (own or options.seed is not None):
        print("--count, --case and --seed are for fuzz", file=sys.stderr)
        return 2
    if options.module is not None:
        own["module"] = options.module
    campaign = {name: value for name in ("kept", "times", "minutes") if (value := getattr(options, name))}
    if campaign and options.name != "posteriors":
        print("--kept, --times and --minutes are for posteriors", file=sys.stderr)
        return 2
    own |= campaign
    seed = SEED if options.seed is None else options.seed
    if "case" in own:  # printed, not kept
        benchmark.show_case(seed, own["case"])
        return 0
    report = Report(options.name, None if to_stdout else _target(options), options.quick, seed)
    sources = source_digest()
    try:
        benchmark.run(report, options.only, **own)
    finally:
        if source_digest() != sources:
            report.note("natvi's sources changed during this run: do not use these figures.")
        report.save()
        print(report.json() if to_stdout else report.markdown(), end="\n")
    return 0


def _known_in(benchmark: Any, options: argparse.Namespace) -> set[str] | None:
    """Return the names of what a module of the user's holds; None after saying why it cannot be used."""
    if options.name != "posteriors":
        print("--module is for posteriors", file=sys.stderr)
        return None
    try:
        return set(benchmark.members(options.module))
    except ValueError as error:
        print(error, file=sys.stderr)
        return None


def _target(options: argparse.Namespace) -> Path:
    if options.json:
        return Path(options.json)
    # a part never replaces the whole
    count = [str(options.count)] if options.count else []
    module = [Path(options.module).stem] if options.module else []
    parts = [
        options.name,
        *module,
        *options.only,
        *count,
        *(["times"] if options.times else []),
        *(["quick"] if options.quick else []),
    ]
    return RESULTS / f"{'-'.join(parts).lower()}.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BUILT, *PLANNED])
    parser.add_argument("--json", metavar="FILE", help="where rows go; '-' for the standard output")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="problems to run")
    parser.add_argument("--quick", action="store_true", help="few runs, without the largest sizes")
    parser.add_argument("--count", type=int, metavar="N", help="fuzz: how many cases")
    parser.add_argument("--seed", type=int, metavar="S", help="fuzz: of all cases")
    parser.add_argument("--case", type=int, metavar="K", help="fuzz: run one case alone and print it")
    parser.add_argument("--module", metavar="FILE", help="posteriors: a Python file with members of your own")
    parser.add_argument("--kept", action="store_true", help="posteriors: tables of what earlier runs kept")
    parser.add_argument("--times", action="store_true", help="posteriors: CPU seconds of one fit of every member")
    parser.add_argument("--minutes", type=float, metavar="M", help="posteriors: begin nothing after so many")
    return parser


if __name__ == "__main__":
    sys.exit(main())
