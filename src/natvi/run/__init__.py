"""The loop: jitted chunks, progress, convergence, checkpoints, interruption."""

from natvi.run.exact.groups import climb_groups as climb_groups
from natvi.run.exact.loop import climb as climb
from natvi.run.fitted import Fitted as Fitted
from natvi.run.outcome import Outcome as Outcome
from natvi.run.stochastic.loop import wander as wander
