"""Triangular factors, their block storage, and the design operators that meet them."""

from natvi.linalg.arrow import ArrowFactor as ArrowFactor
from natvi.linalg.arrow import ArrowMatrix as ArrowMatrix
from natvi.linalg.arrow import ArrowVector as ArrowVector
from natvi.linalg.grouped_rows import GroupedRows as GroupedRows
from natvi.linalg.grouped_rows import layout_rows as layout_rows
