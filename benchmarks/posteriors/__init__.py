"""Log-densities of many kinds from zeros, with defaults: accuracy, verdict and CPU seconds, beside peers.

`python -m benchmarks posteriors` fits every member of the suite on 5 data sets with 3 seeds each, peers once.
`--quick` takes one seed and one data set, the one that natvi is developed on. `--module my.py` runs the members of a
file of one's own. The truth is analytic or comes from NUTS, kept in a folder. Which members a Gaussian can serve is
decided from true draws by `measure.can_serve`. Every outcome is kept when it is there, so that a run that was stopped
goes on; `--kept` makes tables of what there is and runs nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.posteriors.campaign import MISSING, Campaign
from benchmarks.posteriors.page import page
from benchmarks.posteriors.peers import FULL, LARGEST, installed
from benchmarks.posteriors.suite import MEMBERS, OWN, members
from benchmarks.posteriors.tell import tell_all, tell_member, tell_peer
from benchmarks.report import Report

NAMES: tuple[str, ...] = tuple(member.slug for member in MEMBERS)
DATA_SEEDS, FIT_SEEDS = (11, 12, 13, 14, 15), (0, 1, 2)
QUICK = (0,), (0,)  # nothing was ever changed for what other data sets showed


def run(report: Report, only: Sequence[str] = (), *, module: str = OWN, peers: bool = True, kept: bool = False) -> None:
    """Run the members, natvi first and then the peers."""
    known = members(module)
    chosen = [slug for slug in known if not only or slug in {name.lower() for name in only}]
    data_seeds, fit_seeds = QUICK if report.quick else (DATA_SEEDS, FIT_SEEDS)
    report.settings |= {"data_seeds": list(data_seeds), "fit_seeds": list(fit_seeds), "members": len(chosen)}
    runs: list[dict[str, Any]] = []
    truths: dict[str, dict[str, Any]] = {}
    with Campaign(module, kept) as campaign:
        for slug in chosen:
            member, own = known[slug], []
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
                tell_member(report, member, own, truths[slug], campaign.versions)
            runs += own
        tell_all(report, runs, campaign.versions)
        for slug in chosen if peers else []:
            for tool in installed():
                if truths[slug].get("dimensions", 0) > LARGEST and tool in FULL:
                    continue
                found = campaign.peer(slug, tool, data_seeds[0])
                if found.get("error") != MISSING:
                    tell_peer(report, known[slug], tool, found, truths[slug], campaign.versions)
        if campaign.missing:
            counts = Counter(words.split()[0] for words in campaign.missing)
            words = (
                f"{counts['fit']} fits",
                f"{counts['peer']} runs of peers",
                f"{counts['truth']} sets of true draws",
            )
            report.note(f"not run yet: {', '.join(words)}")
    if report.path is not None:
        report.path.with_suffix(".md").write_text(page(report.document()), "utf-8")
