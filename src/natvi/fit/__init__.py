"""The loop: jitted chunks, progress, convergence, checkpoints, interruption."""

from natvi.fit.convergence import Outcome as Outcome
from natvi.fit.loop import Fitted as Fitted
from natvi.fit.loop import climb as climb
from natvi.fit.stochastic import wander as wander
