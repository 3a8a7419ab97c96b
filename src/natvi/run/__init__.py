"""The loop: jitted chunks, progress, convergence, checkpoints, interruption."""

from natvi.run.convergence import Outcome as Outcome
from natvi.run.fitted import Fitted as Fitted
from natvi.run.groups import climb_groups as climb_groups
from natvi.run.loop import climb as climb
from natvi.run.stochastic import wander as wander
