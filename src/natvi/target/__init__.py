"""Targets: log-densities written as sums of terms, each a function of a low-dimensional marginal, or by functions."""

from natvi.target.expected import Expected as Expected
from natvi.target.group_target import GroupTarget as GroupTarget
from natvi.target.likelihood_rows import LikelihoodRows as LikelihoodRows
from natvi.target.mixed.random_effects import RandomEffectsPrior as RandomEffectsPrior
from natvi.target.priors.normal_prior import NormalPrior as NormalPrior
from natvi.target.term import GroupedTerm as GroupedTerm
from natvi.target.term import SumOfTerms as SumOfTerms
from natvi.target.term import Term as Term
