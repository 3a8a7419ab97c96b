"""How often the verdict of `method="auto"` is wrong, on 200 simulated data sets with mixed models.

A data set counts as off when the posterior mean of a fixed effect, of an sd or correlation of the random effects, or of
the dispersion is wrong by more than 0.2 posterior sds, or its posterior sd by more than 15%; as trusted when `trust` is
"good", else as alarmed. The truth is the exact marginal under the default prior, by importance sampling with draws
worth over 2,000, or by NUTS where they are not. Every data set is kept when it is done (`experiments.kept`): a run
that was stopped goes on where it was.
"""

from collections import Counter
from typing import Any

import numpy as np

from experiments import drawing
from experiments.mixed_problems import PROBLEMS
from experiments.report import Report
from experiments.verdict_data import DESIGNS, LARGEST_SD, PER_DESIGN, SMALLEST_SD
from experiments.verdict_outcomes import ALLOWED, ALLOWED_SPREAD, Outcome, audit, kept_outcome, outcome, source_digest
from experiments.verdict_truth import SETTINGS

SEED = 1
QUICK = ((0, 6), (7, 3), (13, 5))  # design and number
AUDITED = ((0, 5), (6, 6), (10, 6), (15, 4), (18, 5), (21, 7))  # for which NUTS is asked too
NAMED = ("Epilepsy", "Toenail", "HERS")
MOST_FALSE_TRUST, MOST_FALSE_ALARM = 0.03, 0.10


def run(report: Report) -> None:
    """Fit every data set and count; `--quick` takes three of them."""
    report.settings |= {
        "truth": SETTINGS,
        "allowed": [ALLOWED, ALLOWED_SPREAD],
        "data_seed": SEED,
        "sources": source_digest(),
    }
    report.settings |= {"designs": [design._asdict() for design in DESIGNS], "sds": [SMALLEST_SD, LARGEST_SD]}
    chosen = QUICK if report.quick else [(at, k) for at in range(len(DESIGNS)) for k in range(PER_DESIGN)]
    outcomes, sources = [], Counter()
    for at, number in chosen:
        if report.quick:
            found = outcome(DESIGNS[at], number, SEED)
        else:
            found, made_with = kept_outcome(DESIGNS[at], number, SEED)
            sources[made_with] += 1
        report.say(
            f"{found.name}: {found.method}, {found.trust}, off by {found.worst:.2f} in {found.worst_name} "
            f"and by {found.worst_spread:.0%} in an sd; truth "
            f"{'by NUTS ' if found.by_nuts else ''}worth {found.effective:.0f}"
        )
        outcomes.append(found)
    tell(report, outcomes)
    report.settings["data sets by sources"] = dict(sources)
    if not report.quick:
        apart = [audit(DESIGNS[at], number, SEED) for at, number in AUDITED]
        report.note(
            f"On {len(AUDITED)} data sets NUTS was run as well: its means and those of the truth differ by at most "
            f"{max(apart):.2f} posterior sds."
        )
        _named(report)
    report.figure = _draw(outcomes)


def rates(outcomes: list[Outcome]) -> dict[str, float]:
    """Return the error rates; each has the share of all data sets, and of those it can happen to."""
    trusted, off = (np.array([getattr(o, name) for o in outcomes]) for name in ("trusted", "off"))
    about_data = np.array([o.about_data for o in outcomes])
    went_on, gaussian_off = (
        np.array([o.method == "marginal" for o in outcomes]),
        np.array([o.gaussian_off for o in outcomes]),
    )

    def share(of: np.ndarray, among: np.ndarray) -> float:
        return float(np.sum(of & among) / max(np.sum(among), 1))

    everything = np.ones(len(outcomes), bool)
    return {
        "trusted but off, of all": share(trusted & off, everything),
        "trusted but off, of the trusted": share(off, trusted),
        "alarmed but right, of all": share(~trusted & ~off, everything),
        "alarmed but right, of the right ones": share(~trusted, ~off),
        "the same without alarms about the data alone": share(~trusted & ~about_data, ~off),
        "a mean off": share(np.array([o.worst > ALLOWED for o in outcomes]), everything),
        "an sd off": share(np.array([o.worst_spread > ALLOWED_SPREAD for o in outcomes]), everything),
        "escalated to marginal": share(went_on, everything),
        "the Gaussian fit is off": share(gaussian_off, everything),
        "escalated, of those whose Gaussian fit is off": share(went_on, gaussian_off),
        "escalated, of those whose Gaussian fit is right": share(went_on, ~gaussian_off),
        "off": share(off, everything),
        "a shared coordinate off": share(
            np.array([bool(np.any(np.abs(o.coordinates) > ALLOWED)) for o in outcomes]), everything
        ),
    }


def tell(report: Report, outcomes: list[Outcome]) -> None:
    """Fill the report: rates over all, counts by family, the wrong verdicts, and why there was alarm."""
    for name, rate in rates(outcomes).items():
        report.cell(name, f"{len(outcomes)} data sets", "rate", rate)
    families = list(dict.fromkeys(o.family for o in outcomes))
    groups = {family: [o for o in outcomes if o.family == family] for family in families}
    groups["random slopes"] = [o for o in outcomes if o.slopes]
    for method in ("gva", "marginal"):
        groups[f"ended with {method}"] = [o for o in outcomes if o.method == method]
    for row, members in groups.items():
        counts = {
            "data sets": len(members),
            "marginal": sum(o.method == "marginal" for o in members),
            "trusted": sum(o.trusted for o in members),
            "off": sum(o.off for o in members),
            "trusted but off": sum(o.trusted and o.off for o in members),
            "alarmed but right": sum(not o.trusted and not o.off for o in members),
            "of these about data": sum(not o.trusted and not o.off and o.about_data for o in members),
        }
        for column, count in counts.items():
            report.cell(row, column, "count", count)
    for o in outcomes:
        if o.trusted and o.off:
            report.cell(o.name, o.method, "trusted but off: largest error in posterior sds", o.worst)
            report.cell(o.name, o.method, "trusted but off: largest relative error of an sd", o.worst_spread)
    for (kind, wrong), count in _kinds(outcomes).items():
        report.cell(kind, "off" if wrong else "right", "alarms", count)
    worth = [o.effective for o in outcomes]
    report.note(
        f"Draws behind the truths are worth {min(worth):.0f} to {max(worth):.0f}, median {np.median(worth):.0f}."
    )
    report.note(f"NUTS found {sum(o.by_nuts for o in outcomes)} of the truths, importance sampling the others.")
    report.note(
        f"Wanted: at most {MOST_FALSE_TRUST:.0%} trusted but off, {MOST_FALSE_ALARM:.0%} alarmed but right. Alarms "
        "about the data say that the prior decides, which no method can mend."
    )


def _kinds(outcomes: list[Outcome]) -> Counter[tuple[str, bool]]:
    """Count what alarms were about; a data set may have several."""
    words = {
        "poorly determined": "an sd is poorly determined by the data",
        "hardly limit": "a coefficient is hardly limited by the data",
        "weighted draws": "importance weights of the marginal method",
        "more than one maximum": "starts disagree",
        "should be": "check of the Gaussian against the exact marginal",
        "do not rule out": "tails of the Gaussian of a log sd",
    }
    found: Counter[tuple[str, bool]] = Counter()
    for o in outcomes:
        kinds = {next((kind for word, kind in words.items() if word in reason), "other") for reason in o.reasons}
        found.update((kind, o.off) for kind in kinds)
    return found


def _named(report: Report) -> None:
    """Say what `auto` does with the paper's data: it should stay with the Gaussian on the first only."""
    for name in NAMED:
        result = PROBLEMS[name].model.fit(method="auto")
        report.say(f"{name}: {result.method}, {result.trust}")
        report.cell(name, "method", "auto on the paper's data", result.method)
        report.cell(name, "trust", "auto on the paper's data", result.trust)


def _draw(outcomes: list[Outcome]) -> Any:
    figure, axes = drawing.new_figure(1, 1, 7.0, 3.0)
    ax, rng = axes[0], np.random.default_rng(0)
    levels = ("good", "use with care", "do not use")
    for colour, method in zip(drawing.PAIR, ("gva", "marginal"), strict=True):
        own = [o for o in outcomes if o.method == method]
        height = [levels.index(o.trust) + 0.6 * (rng.uniform() - 0.5) for o in own]
        error = np.clip([o.worst for o in own], 1e-3, 10.0)
        ax.plot(error, height, "o", color=colour, markersize=4, alpha=0.75, label=f"ended with {method}")
    ax.axvline(ALLOWED, color="0.5", linestyle="--", linewidth=1)
    ax.set_xscale("log")
    ax.set_yticks(range(len(levels)), levels)
    ax.set_ylim(2.5, -0.5)
    drawing.legend(ax, loc="lower right")
    drawing.label(ax, "verdicts and errors", "largest error of a posterior mean, in posterior sds", "")
    return figure
