"""Table 2, iterations and smallest step of gradient ascent in four parametrizations."""

from decimal import Decimal, localcontext
from math import factorial

from experiments.crabs import SETTINGS, STARTS, UPDATES, ascents, counts
from experiments.report import Report
from natvi.paper.largest_step import STEPS, TOLERANCE

PAPER = {
    "(0, 0.1)": {
        "euclidean-kappa": (141, 1e-05),
        "natural-kappa": (15, 0.01),
        "natural-xi": (11, 0.01),
        "natural-lambda": (6, 1.0),
    },
    "(0.5, 0.02)": {
        "euclidean-kappa": (107, 1e-06),
        "natural-kappa": (12, 0.1),
        "natural-xi": (8, 0.1),
        "natural-lambda": (5, 1.0),
    },
    "(2, 0.01)": {
        "euclidean-kappa": (115, 1e-06),
        "natural-kappa": (9, 0.01),
        "natural-xi": (8, 0.1),
        "natural-lambda": (5, 1.0),
    },
}
NUDGE = Decimal("1e-9")


def run(report: Report) -> None:
    """Climb from three starts by four updates; the run is short, so `--quick` changes nothing."""
    done = {column: ascents(update) for column, update in UPDATES.items()}
    report.settings |= SETTINGS | {"steps": "largest of 1, 0.1, 0.01, ... that keeps sigma^2 > 0 and raises the bound"}
    for row in STARTS:
        for column in UPDATES:
            iterations, smallest = PAPER[row][column]
            report.cell(row, column, "iterations", done[column][row].iterations, iterations)
            report.cell(row, column, "smallest_step", done[column][row].steps.min(), smallest)
    exact = {row: exact_euclidean(row) for row in STARTS}
    nudged = {row: exact_euclidean(row, NUDGE) for row in STARTS}
    report.settings["euclidean_iterations_in_60_digits"] = exact
    report.settings[f"euclidean_iterations_in_60_digits_mu_plus_{NUDGE}"] = nudged
    report.note("Rows are starting points (mu, sigma^2). The run is deterministic; the seed is not used.")
    report.note(
        "The Euclidean counts hang on rounding, since 1/sigma^2 magnifies it wherever sigma^2 comes close to zero. "
        f"With 60 digits they are {', '.join(map(str, exact.values()))}; with mu moved by {NUDGE} besides, "
        f"{', '.join(map(str, nudged.values()))}. The paper's 107 is what double precision gives when every operation "
        "is rounded by itself; compiled code with fused multiply-add gives others. The natural counts do not move."
    )


def exact_euclidean(row: str, nudge: Decimal = Decimal(0)) -> int:
    """Count the iterations of Euclidean ascent in decimal arithmetic of 60 digits."""
    with localcontext() as context:
        context.prec = 60
        mu, variance = (Decimal(text) for text in row.strip("()").split(", "))
        return _count(mu + nudge, variance)


def _count(mu: Decimal, variance: Decimal) -> int:
    y = [int(count) for count in counts()]
    n, total, log_factorials = len(y), sum(y), sum((Decimal(factorial(count)).ln() for count in y), Decimal(0))
    constant = (1 - Decimal(100).ln()) / 2 - log_factorials

    def elbo(mu: Decimal, variance: Decimal) -> Decimal:
        fit = total * mu - n * (mu + variance / 2).exp()
        return fit - (mu * mu + variance) / 200 + variance.ln() / 2 + constant

    iterations, bound = 0, elbo(mu, variance)
    while True:
        w = n * (mu + variance / 2).exp()
        by_mu, by_variance = total - w - mu / 100, (1 / variance - Decimal("0.01") - w) / 2
        for rho in map(Decimal, map(repr, STEPS)):
            point = (mu + rho * by_mu, variance + rho * by_variance)
            if point[1] > 0 and elbo(*point) > bound:
                break
        old, (mu, variance) = bound, point
        iterations, bound = iterations + 1, elbo(mu, variance)
        if abs(bound - old) < Decimal(repr(TOLERANCE)) * abs(old):
            return iterations
