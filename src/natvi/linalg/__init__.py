"""Triangular factors, their block storage, and the design operators that meet them."""

from natvi.linalg import vector as vector
from natvi.linalg.arrow import ArrowFactor as ArrowFactor
from natvi.linalg.arrow import ArrowMatrix as ArrowMatrix
from natvi.linalg.arrow import ArrowVector as ArrowVector
from natvi.linalg.block import BlockFactor as BlockFactor
from natvi.linalg.dense import DenseFactor as DenseFactor
from natvi.linalg.diagonal import DiagonalFactor as DiagonalFactor
from natvi.linalg.grouped_rows import GroupedRows as GroupedRows
from natvi.linalg.grouped_rows import layout_rows as layout_rows
from natvi.linalg.local_global import LocalGlobalFactor as LocalGlobalFactor
from natvi.linalg.local_global import LocalGlobalMatrix as LocalGlobalMatrix
from natvi.linalg.on_demand import Formed as Formed
from natvi.linalg.on_demand import Symmetric as Symmetric
from natvi.linalg.open_pattern import OpenFactor as OpenFactor
from natvi.linalg.open_pattern import OpenPattern as OpenPattern
from natvi.linalg.pattern import ClosedPattern as ClosedPattern
from natvi.linalg.pattern import PatternFactor as PatternFactor
