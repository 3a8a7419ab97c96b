"""Log-densities of many kinds from zeros, with defaults: accuracy, verdict and CPU seconds, beside peers.

`python -m benchmarks posteriors` fits every member of the suite on 5 data sets with 3 seeds each, peers once: one fit
and the peers first, then every member on every data set, then further fit seeds. `--quick` takes one seed and one data
set, the one that natvi is developed on. `--module my.py` runs the members of a file of one's own. The truth is analytic
or comes from NUTS. Which members a Gaussian can serve is decided from true draws by `measure.can_serve`. Every outcome
is kept when it is there (`campaign.py`): `--minutes 12` begins nothing after 12 minutes, and the next run goes on
there; `--kept` makes tables of what there is and runs nothing. `--times` measures the CPU seconds of one fit of every
member and nothing else, for a machine that does nothing else.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.posteriors.campaign import MISSING, Campaign
from benchmarks.posteriors.page import page
from benchmarks.posteriors.peers import FULL, LARGEST, installed
from benchmarks.posteriors.posterior import Posterior
from benchmarks.posteriors.suite import MEMBERS, OWN, members
from benchmarks.posteriors.tell import tell_all, tell_member, tell_peer, tell_times
from benchmarks.report import Report

NAMES: tuple[str, ...] = tuple(member.slug for member in MEMBERS)
DATA_SEEDS, FIT_SEEDS = (11, 12, 13, 14, 15), (0, 1, 2)
QUICK = (0,), (0,)  # nothing was ever changed for what other data sets showed


def run(
    report: Report,
    only: Sequence[str] = (),
    *,
    module: str = OWN,
    peers: bool = True,
    kept: bool = False,
    minutes: float | None = None,
    times: bool = False,
) -> None:
    """Run what there is time for, and make tables of all that is kept."""
    known = members(module)
    chosen = [slug for slug in known if not only or slug in {name.lower() for name in only}]
    data_seeds, fit_seeds = QUICK if report.quick else (DATA_SEEDS, FIT_SEEDS)
    tools = installed() if peers else []
    report.settings |= {"data_seeds": list(data_seeds), "fit_seeds": list(fit_seeds), "members": len(chosen)}
    with Campaign(module, kept, minutes) as campaign:
        if times:
            found = {slug: campaign.times(slug, data_seeds[0], fit_seeds[0], not kept) for slug in chosen}
            tell_times(report, found, campaign.versions)
            if report.path is not None:
                report.path.with_suffix(".md").write_text(report.markdown(), "utf-8")
            return
        if not kept:
            _gather(campaign, chosen, tools, data_seeds, fit_seeds, report)
        campaign.missing.clear()
        _tell(report, campaign, [known[slug] for slug in chosen], tools, data_seeds, fit_seeds)
    if report.path is not None:
        report.path.with_suffix(".md").write_text(page(report.document()), "utf-8")


def _gather(
    campaign: Campaign,
    slugs: list[str],
    tools: list[str],
    data_seeds: Sequence[int],
    fit_seeds: Sequence[int],
    report: Report,
) -> None:
    """Run everything, what the tables need most first."""
    for slug in slugs:
        truth = campaign.truth(slug, data_seeds[0])
        if "error" not in truth:
            campaign.fit(slug, data_seeds[0], fit_seeds[0])
        for tool in _possible(tools, truth):
            campaign.peer(slug, tool, data_seeds[0])
        report.say(f"{slug}: one fit and peers are there")
    for fit_seed in fit_seeds:
        for data_seed in data_seeds:
            for slug in slugs:
                if "error" not in campaign.truth(slug, data_seed):
                    campaign.fit(slug, data_seed, fit_seed)
            report.say(f"data {data_seed}, seed {fit_seed}: fits are there")


def _possible(tools: list[str], truth: dict[str, Any]) -> list[str]:
    """Return the peers that can be asked: a full covariance of thousands is too much for some."""
    if "error" in truth:
        return []
    return [tool for tool in tools if truth["dimensions"] <= LARGEST or tool not in FULL]


def _tell(
    report: Report,
    campaign: Campaign,
    chosen: list[Posterior],
    tools: list[str],
    data_seeds: Sequence[int],
    fit_seeds: Sequence[int],
) -> None:
    """Write the rows of all that is kept."""
    campaign.only_kept()
    runs: list[dict[str, Any]] = []
    truths: dict[str, dict[str, Any]] = {}
    for member in chosen:
        slug, own = member.slug, []
        for data_seed in data_seeds:
            truth = campaign.truth(slug, data_seed)
            if "error" in truths.get(slug, {"error": ""}):
                truths[slug] = truth
            for fit_seed in fit_seeds if "error" not in truth else ():
                found = campaign.fit(slug, data_seed, fit_seed)
                if found.get("error") == MISSING:
                    continue
                about = {"data_seed": data_seed, "fit_seed": fit_seed, "modes_apart": member.modes_apart}
                own.append(found | about | {"served": truth["served"], "dimensions": truth["dimensions"]})
        if own or truths[slug].get("error") not in (None, MISSING):
            times = campaign.times(slug, data_seeds[0], fit_seeds[0])
            tell_member(report, member, own, truths[slug], times, campaign.versions)
            own = [run | {"times": times} for run in own]
        runs += own
    tell_all(report, runs, campaign.versions)
    for member in chosen:
        for tool in _possible(tools, truths[member.slug]):
            found = campaign.peer(member.slug, tool, data_seeds[0])
            if found.get("error") != MISSING:
                tell_peer(report, member, tool, found, truths[member.slug], campaign.versions)
    counts = Counter(words.split()[0] for words in campaign.missing)
    if counts["fit"] or counts["peer"] or counts["truth"]:
        report.note(
            f"not run yet: {counts['fit']} fits, {counts['peer']} runs of peers, {counts['truth']} sets of true draws"
        )
    sources = campaign.sources()
    if len(sources) > 1:
        told = "; ".join(f"{count} fits with {digest}" for digest, count in sources.items())
        report.note(f"natvi's sources changed between fits: {told}")
