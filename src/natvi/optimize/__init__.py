"""Rules that turn directions into steps."""

from natvi.optimize.adam import adam as adam
from natvi.optimize.adam import nadam as nadam
from natvi.optimize.ivon import ivon as ivon
from natvi.optimize.nagm import nagm as nagm
from natvi.optimize.pga import pga as pga
from natvi.optimize.plain import plain as plain
from natvi.optimize.rule import Rule as Rule
from natvi.optimize.schedules import Cosine as Cosine
from natvi.optimize.snngm import snngm as snngm
from natvi.optimize.vogn import vogn as vogn
