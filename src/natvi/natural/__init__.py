"""The natural gradient: the only place where the Fisher information appears."""

from natvi.natural.direction import NaturalDirection as NaturalDirection
from natvi.natural.direction import first_order_direction as first_order_direction
from natvi.natural.direction import natural_direction as natural_direction
