"""Simulation-based calibration of `method="auto"`: 14 designs.

Six families with random intercepts and with slopes, 200 data sets each, and Poisson and Bernoulli with two crossed
factors, 60 each.

Parameters are drawn from a narrow prior, data from the model, and the model is fitted with the defaults under the same
prior. Then 90% intervals must hold the truth in 90% of the data sets, and its rank among posterior draws is uniform.
"""

from typing import Any

import numpy as np

from experiments import drawing
from experiments.calibration_data import DESIGNS, KINDS, PER_CROSSED_DESIGN, PER_DESIGN, Design, kind_of
from experiments.calibration_ranks import (
    NUM_DRAWS,
    PROB,
    SETTINGS,
    Ranked,
    covered,
    histogram,
    kept_ranks,
    ranked,
    simultaneous_band,
    within,
)
from experiments.crossed_outcomes import JUDGED
from experiments.report import Report
from experiments.verdict_outcomes import source_digest

SEED = 1
QUICK_DESIGNS, QUICK_NUMBER = DESIGNS[:2], 20
LEAST_COVERAGE, MOST_COVERAGE = 0.87, 0.93
MOST_ERRORS = 3.0  # standard errors
BINS, SINGLE_BINS = 20, 10
TRUST = ("good", "use with care", "do not use")


def run(report: Report) -> None:
    """Fit every data set and count; `--quick` takes 20 data sets of two designs."""
    sources = source_digest()
    report.settings |= SETTINGS | {
        "data_seed": SEED,
        "sources": sources,
        "prob": PROB,
        "per_design": PER_DESIGN,
        "per_crossed_design": PER_CROSSED_DESIGN,
    }
    report.settings |= {"priors": {design.name: {k: str(v) for k, v in design.prior.items()} for design in DESIGNS}}
    of = {False: sources, True: source_digest(JUDGED)}  # by whether factors are crossed
    outcomes, made_with = [], {}
    for design in QUICK_DESIGNS if report.quick else DESIGNS:
        number = QUICK_NUMBER if report.quick else design.number
        if report.quick:
            found = [ranked(design, k, SEED, of[design.crossed]) for k in range(number)]
        else:
            found, made_with[design.name] = kept_ranks(design, number, SEED, of[design.crossed])
        inside = np.mean(covered(np.concatenate([one.ranks for one in found])))
        report.say(f"{design.name}: {number} data sets, {inside:.1%} of all 90% intervals hold the truth")
        outcomes += found
    tell(report, outcomes)
    if made_with:
        report.settings["sources"] = made_with  # of each design: a kept one may be older than the library
        report.note(f"Found with these sources of the library (digest): {', '.join(sorted(set(made_with.values())))}.")
    report.figure = _draw(outcomes)


def tell(report: Report, outcomes: list[Ranked]) -> None:
    """Fill the report: coverage by kind, by design and by parameter, rank histograms, methods and verdicts."""
    usable = [one for one in outcomes if len(one.ranks)]
    _pooled(report, usable)
    designs = list(dict.fromkeys(one.design for one in outcomes))
    for design in designs:
        _single(report, [one for one in usable if one.design == design], design)
        own = [one for one in outcomes if one.design == design]
        counts = {"data sets": len(own), "refused": sum(not len(one.ranks) for one in own)}
        counts |= {f"ended with {m}": sum(one.method == m for one in own) for m in ("gva", "marginal", "integrated")}
        counts |= {f"trust: {level}": sum(one.trust == level for one in own) for level in TRUST}
        for column, count in counts.items():
            report.cell(design.name, column, "verdicts", count)
    _notes(report)


def coverage(outcomes: list[Ranked], kind: str) -> tuple[float, float]:
    """Return the share of intervals that hold the truth, and its standard error, data sets being independent."""
    own = [covered(ranks) for one in outcomes if len(ranks := one.of_kind(kind))]
    sizes = np.array([len(inside) for inside in own])
    hits = np.array([inside.sum() for inside in own])
    share = hits.sum() / sizes.sum()
    return float(share), float(np.sqrt(np.sum((hits - share * sizes) ** 2)) / sizes.sum())


def one_of_each(outcomes: list[Ranked], kind: str) -> np.ndarray:
    """Return one rank of the kind from each data set, chosen at random: ranks of one data set are not independent."""
    rng = np.random.default_rng(0)
    return np.array([rng.choice(ranks) for one in outcomes if len(ranks := one.of_kind(kind))], dtype=int)


def _pooled(report: Report, outcomes: list[Ranked]) -> None:
    for kind in KINDS:
        if not any(len(one.of_kind(kind)) for one in outcomes):
            continue
        share, error = coverage(outcomes, kind)
        metric = "coverage of 90% intervals, pooled"
        report.cell(kind, "coverage", metric, share)
        report.cell(kind, "standard error", metric, error)
        report.cell(kind, "parameters", metric, sum(len(one.of_kind(kind)) for one in outcomes))
        report.cell(kind, "within 87% to 93%", metric, LEAST_COVERAGE <= share <= MOST_COVERAGE)
        ranks = one_of_each(outcomes, kind)
        band, counts = simultaneous_band(len(ranks), BINS), histogram(ranks, BINS)
        metric = f"ranks in {BINS} bins, one parameter of each data set"
        report.cell(kind, "ranks", metric, len(ranks))
        report.cell(kind, "smallest bin", metric, int(counts.min()))
        report.cell(kind, "largest bin", metric, int(counts.max()))
        report.cell(kind, "99% band", metric, f"{band.low} to {band.high}")
        report.cell(kind, "within", metric, within(counts, band))
        for family in dict.fromkeys(one.design for one in outcomes):
            own = [one for one in outcomes if one.design == family]
            if any(len(one.of_kind(kind)) for one in own):
                report.cell(family.name, kind, "coverage of 90% intervals, by design", coverage(own, kind)[0])


def _single(report: Report, outcomes: list[Ranked], design: Design) -> None:
    """Judge every parameter of a design by itself; of the random effects, one group after the other is pooled."""
    names = [name for name in dict.fromkeys(outcomes[0].names) if kind_of(name) != "random effects"]
    for name in names:
        ranks = np.array([one.ranks[one.names.index(name)] for one in outcomes])
        share = float(np.mean(covered(ranks)))
        errors = (share - PROB) / np.sqrt(PROB * (1 - PROB) / len(ranks))
        row, metric = f"{design.name}: {name}", "single parameters"
        report.cell(row, "coverage", metric, share)
        report.cell(row, "standard errors from 90%", metric, float(errors))
        report.cell(row, "within 3", metric, bool(abs(errors) <= MOST_ERRORS))
        inside = within(histogram(ranks, SINGLE_BINS), simultaneous_band(len(ranks), SINGLE_BINS))
        report.cell(row, "ranks within 99% band", metric, inside)


def _notes(report: Report) -> None:
    def failed(column: str) -> tuple[int, int]:
        own = [cell["ours"] for cell in report.cells if cell["column"] == column]
        return sum(value is False for value in own), len(own)

    report.note(f"Ranks are among {NUM_DRAWS} posterior draws. Under exact inference they are uniform.")
    off, number = failed("within 87% to 93%")
    report.note(f"Kinds of parameters whose pooled coverage lies outside 87% to 93%: {off} of {number}.")
    off, number = failed("within")
    report.note(
        f"Kinds whose rank histogram leaves its simultaneous 99% band: {off} of {number}; chance alone: "
        f"{0.01 * number:.2f}."
    )
    off, number = failed("within 3")
    report.note(
        f"Single parameters whose coverage is more than 3 standard errors from 90%: {off} of {number}; chance alone: "
        f"{0.003 * number:.1f}."
    )
    off, number = failed("ranks within 99% band")
    report.note(
        f"Single parameters whose ranks leave their 99% band: {off} of {number}; chance alone: {0.01 * number:.1f}."
    )


def _draw(outcomes: list[Ranked]) -> Any:
    figure, axes = drawing.new_figure(2, 3, 8.0, 4.4)
    usable = [one for one in outcomes if len(one.ranks)]
    for ax, kind in zip(axes, KINDS, strict=True):
        ranks = one_of_each(usable, kind)
        if not len(ranks):
            ax.set_visible(False)
            continue
        band = simultaneous_band(len(ranks), BINS)
        ax.axhspan(band.low, band.high, color="0.9")
        ax.bar((np.arange(BINS) + 0.5) / BINS, histogram(ranks, BINS), 0.9 / BINS, color=drawing.PAIR[1])
        ax.axhline(len(ranks) / BINS, color=drawing.INK, linewidth=0.8)
        ax.set_xlim(0, 1)
        drawing.label(ax, f"{kind} ({coverage(usable, kind)[0]:.1%} in 90%)", "rank of the truth", "")
    return figure
