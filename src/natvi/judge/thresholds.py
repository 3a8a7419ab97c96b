"""Where "good" ends for the approximation, of every kind of model.

A mean that is off by a tenth of a posterior sd, or an sd that is off by a tenth, changes no conclusion: a 95% interval
then covers 94.9% or 92%. From there on a better method is worth its time. With the mean off by two sds the interval
misses the truth as often as it holds it. Whether the model describes the data has limits of its own, in
`judge.predictive`.
"""

from natvi.metrics.psis import RELIABLE_K

LARGEST_K = RELIABLE_K  # Pareto k of importance weights, from which their averages do not settle

SHIFT = 0.1  # of a mean, in posterior sds
CHANGE = 0.105  # of the logarithm of an sd: the sd is 10% too small, or 11% too large
FAR_SHIFT = 2.0  # of a mean: from here on the answer is not to be used

DOUBT = (
    0.01  # chance that one of all estimates is on the wrong side of its threshold, for a decision without more draws
)
LEAST_SURE = 50  # effective draws, below which standard errors are not believed
HOPELESS = 0.2  # share of the draws that are effective, below which more of them would not help
FIRST_LOOK, FIRST_DRAWS, MOST_DRAWS, GROWTH = 128, 256, 4096, 4  # of a check; the first look is for what is clear

LEAST_EFFECTIVE, FEWEST_EFFECTIVE = 200, 30  # draws behind an answer that consists of draws: good, and usable at all
