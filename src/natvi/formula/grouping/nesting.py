"""How grouping factors lie to each other in the data: the same, nested, or crossed, and in how many pieces."""

from typing import NamedTuple

import numpy as np


class Relation(NamedTuple):
    """How two factors lie to each other.

    Attributes:
        inside: Whether every level of the first occurs with one level of the second only.
        around: Whether every level of the second occurs with one level of the first only.
        num_pairs: How many pairs of levels occur.
    """

    inside: bool
    around: bool
    num_pairs: int

    @property
    def same(self) -> bool:
        """Whether they are the same factor up to names of levels."""
        return self.inside and self.around


def relate(first: np.ndarray, second: np.ndarray) -> Relation:
    """Compare two factors by the codes of every row.

    Example:
        >>> relate(np.array([0, 1, 2, 2]), np.array([0, 0, 1, 1]))
        Relation(inside=True, around=False, num_pairs=3)
    """
    pairs = np.unique(first.astype(np.int64) * (int(second.max()) + 1) + second)
    left, right = pairs // (int(second.max()) + 1), pairs % (int(second.max()) + 1)
    return Relation(len(np.unique(left)) == len(pairs), len(np.unique(right)) == len(pairs), len(pairs))


def count_pieces(first: np.ndarray, second: np.ndarray) -> int:
    """Return into how many pieces the levels fall that no row connects.

    Example:
        >>> count_pieces(np.array([0, 0, 1]), np.array([0, 1, 2]))
        2
    """
    from scipy.sparse import coo_matrix  # takes longer to import than most fits to run
    from scipy.sparse.csgraph import connected_components

    n = int(first.max()) + 1
    size = n + int(second.max()) + 1
    graph = coo_matrix((np.ones(len(first)), (first, n + second)), shape=(size, size))
    return int(connected_components(graph, directed=False)[0])
