"""How often the verdict of `method="auto"` is wrong on 60 simulated data sets with crossed and nested factors.

A data set counts as off when the posterior mean of a coefficient or variance component is wrong by more than 0.2
posterior sds, or its posterior sd by more than 15%; as trusted when `trust` is "good", else as alarmed. The truth is
NUTS on the exact density under the default prior, effective size over 2,000. Every data set is kept when it is done: a
run that was stopped goes on where it was. Method and thresholds were changed on data of other seeds.
"""

from collections import Counter
from typing import Any

import numpy as np

from experiments import drawing
from experiments.crossed_data import DESIGNS, LARGEST_SD, PER_DESIGN, SMALLEST_SD
from experiments.crossed_outcomes import JUDGED, CrossedOutcome, audit, kept_outcome
from experiments.crossed_truth import SETTINGS
from experiments.report import Report
from experiments.verdict_outcomes import ALLOWED, ALLOWED_SPREAD, source_digest
from natvi.judge.trust import CARE, GOOD, REFUSE

SEED, STUDY_SEEDS = 3, (1, 2)  # of the published figures, and of the data on which method and thresholds were changed
AUDITED = ((0, 1), (5, 2), (6, 3), (10, 4))  # design and number, for which plain chains are asked too
LEVELS = (GOOD, CARE, REFUSE)
QUICK = ((3, 1), (0, 4))
MOST_FALSE_TRUST, MOST_FALSE_ALARM = 0.03, 0.15


def run(report: Report) -> None:
    """Fit every data set and count; `--quick` takes two of them."""
    report.settings |= {"truth": SETTINGS, "allowed": [ALLOWED, ALLOWED_SPREAD], "data_seed": SEED}
    report.settings |= {"designs": [design._asdict() for design in DESIGNS], "sds": [SMALLEST_SD, LARGEST_SD]}
    chosen = QUICK if report.quick else [(at, k) for at in range(len(DESIGNS)) for k in range(PER_DESIGN)]
    outcomes = collect(report, chosen, SEED)
    tell(report, outcomes)
    if not report.quick:
        apart = [audit(DESIGNS[at], number, SEED) for at, number in AUDITED]
        report.note(
            f"On {len(AUDITED)} data sets NUTS was run in plain non-centred coordinates as well: means differ by at "
            f"most {max(apart):.2f} posterior sds."
        )
    report.figure = _draw(outcomes)


def collect(report: Report, chosen: Any, seed: int) -> list[CrossedOutcome]:
    """Return what came out for some data sets, one line each to whoever waits."""
    outcomes, sources = [], Counter()
    for at, number in chosen:
        found, made_with = kept_outcome(DESIGNS[at], number, seed)
        sources[made_with] += 1
        report.say(
            f"{found.name}: {found.method}, {found.trust}, off by {found.worst:.2f} in {found.worst_name} and by "
            f"{found.worst_spread:.0%} in an sd; truth worth {found.effective:.0f}"
        )
        outcomes.append(found)
    report.settings |= {"data sets by sources": dict(sources), "sources": source_digest(JUDGED)}
    return outcomes


def rates(outcomes: list[CrossedOutcome]) -> dict[str, float]:
    """Return the error rates; each has the share of all data sets, and of those it can happen to."""
    trusted, off, gaussian_off = (
        np.array([getattr(o, name) for o in outcomes]) for name in ("trusted", "off", "gaussian_off")
    )
    went_on, every = np.array([o.method == "integrated" for o in outcomes]), np.ones(len(outcomes), bool)

    def share(of: np.ndarray, among: np.ndarray) -> float:
        return float(np.sum(of & among) / max(np.sum(among), 1))

    return {
        "trusted but off, of all": share(trusted & off, every),
        "trusted but off, of the trusted": share(off, trusted),
        "alarmed but right, of all": share(~trusted & ~off, every),
        "alarmed but right, of the right ones": share(~trusted, ~off),
        "off": share(off, every),
        "the Gaussian fit is off": share(gaussian_off, every),
        "ended with integrated": share(went_on, every),
        "ended with integrated, of those whose Gaussian fit is off": share(went_on, gaussian_off),
    }


def tell(report: Report, outcomes: list[CrossedOutcome]) -> None:
    """Fill the report: rates over all, counts by family and kind, and the wrong verdicts."""
    for name, rate in rates(outcomes).items():
        report.cell(name, f"{len(outcomes)} data sets", "rate", rate)
    groups = {
        family: [o for o in outcomes if o.family == family] for family in dict.fromkeys(o.family for o in outcomes)
    }
    groups |= {kind: [o for o in outcomes if o.kind == kind] for kind in dict.fromkeys(o.kind for o in outcomes)}
    groups |= {f"ended with {m}": [o for o in outcomes if o.method == m] for m in ("gva", "integrated")}
    for row, members in groups.items():
        counts = {
            "data sets": len(members),
            "integrated": sum(o.method == "integrated" for o in members),
            "trusted": sum(o.trusted for o in members),
            "off": sum(o.off for o in members),
            "trusted but off": sum(o.trusted and o.off for o in members),
            "alarmed but right": sum(not o.trusted and not o.off for o in members),
        }
        for column, count in counts.items():
            report.cell(row, column, "count", count)
    for o in outcomes:
        if o.trusted == o.off:
            verdict = "trusted but off" if o.off else "alarmed but right"
            report.cell(o.name, verdict, "wrong verdicts: largest error in posterior sds", o.worst)
            report.cell(o.name, verdict, "wrong verdicts: largest relative error of an sd", o.worst_spread)
    worth = [o.effective for o in outcomes]
    report.note(
        f"Draws behind the truths are worth {min(worth):.0f} to {max(worth):.0f}, median {np.median(worth):.0f}."
    )
    rhat, divergent = max(o.rhat for o in outcomes), sum(o.divergent for o in outcomes)
    report.note(f"Largest R-hat {rhat:.3f}, divergent transitions {divergent}.")
    report.note(
        f"Wanted: at most {MOST_FALSE_TRUST:.0%} trusted but off, {MOST_FALSE_ALARM:.0%} alarmed but right. Data of "
        f"seeds {STUDY_SEEDS} served to change method and thresholds and are not counted."
    )


def _draw(outcomes: list[CrossedOutcome]) -> Any:
    figure, axes = drawing.new_figure(1, 1, 7.0, 3.0)
    ax, rng = axes[0], np.random.default_rng(0)
    for colour, method in zip(drawing.PAIR, ("gva", "integrated"), strict=True):
        own = [o for o in outcomes if o.method == method]
        height = [LEVELS.index(o.trust) + 0.6 * (rng.uniform() - 0.5) for o in own]
        error = np.clip([max(o.worst, o.worst_spread * ALLOWED / ALLOWED_SPREAD) for o in own], 1e-3, 10.0)
        ax.plot(error, height, "o", color=colour, markersize=4, alpha=0.75, label=f"ended with {method}")
    ax.axvline(ALLOWED, color="0.5", linestyle="--", linewidth=1)
    ax.set_xscale("log")
    ax.set_yticks(range(len(LEVELS)), LEVELS)
    ax.set_ylim(len(LEVELS) - 0.5, -0.5)
    drawing.legend(ax, loc="lower right")
    drawing.label(ax, "verdicts and errors, crossed", "largest error, in posterior sds (sds: 15% counts as 0.2)", "")
    return figure
