"""Figure 4, the weights 1 - beta^(N-j+1) with which Theorem 3 averages over iterations."""

import numpy as np

from experiments import drawing
from experiments.report import Report

N, BETA = 10_000, 0.9
LAST = 120  # iterations shown in the right panel


def weights(N: int, beta: float) -> np.ndarray:
    """Return P(tau = j) up to a constant, for j = 1, ..., N."""
    return 1 - beta ** np.arange(N, 0, -1.0)


def run(report: Report) -> None:
    """Count the weights below 0.99 and draw all of them; `--quick` changes nothing."""
    w = weights(N, BETA)
    total = N - BETA * (1 - BETA**N) / (1 - BETA)
    report.settings |= {"N": N, "beta": BETA}
    report.cell("weights not above 0.99", "count", "value", int(np.sum(w <= 0.99)), 43)
    report.cell("weights not above 0.99", "all at the end", "value", bool(np.all(w[: N - 43] > 0.99)), True)
    report.cell("sum of the weights", "by formula", "value", total)
    report.cell("sum of the weights", "by addition", "value", w.sum())
    report.cell("sum of the weights", "lower bound N - beta/(1-beta)", "value", N - BETA / (1 - BETA))
    report.figure, (whole, end) = drawing.new_figure(1, 2, 9.5, 3.2)
    j = np.arange(1, N + 1)
    whole.plot(j, w, color=drawing.PAIR[1], linewidth=1.5)
    drawing.label(whole, f"all iterations, N = {N:,}", "j", "1 − βᴺ⁻ʲ⁺¹")
    end.plot(j[-LAST:], w[-LAST:], ".", color=drawing.PAIR[1], markersize=4)
    end.axhline(0.99, color="0.6", linewidth=0.8, linestyle="--")
    end.axvspan(N - 42.5, N + 0.5, color=drawing.PAIR[0], alpha=0.12, linewidth=0)
    end.annotate("0.99", (N - LAST, 0.985), fontsize=8, color="0.4", va="top")
    end.annotate("the last 43", (N - 21, 0.3), fontsize=8, color=drawing.PAIR[0], ha="center")
    drawing.label(end, f"the last {LAST}", "j", "")
    for ax in (whole, end):
        ax.set_ylim(0, 1.04)
