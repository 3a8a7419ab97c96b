"""All members of the suite."""

from benchmarks.posteriors import hierarchies, regressions, series, shapes
from benchmarks.posteriors.posterior import Posterior

MEMBERS: tuple[Posterior, ...] = (
    *regressions.MEMBERS,
    *hierarchies.MEMBERS,
    *series.MEMBERS,
    *shapes.MEMBERS,
)
BY_NAME = {member.name: member for member in MEMBERS}
