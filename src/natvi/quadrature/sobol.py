"""The Sobol sequence as SciPy has it, without the rest of `scipy.stats`, which takes longer to import than most fits.

Point n is the exclusive or of the direction numbers at the binary digits of n's Gray code. Joe and Kuo's direction
numbers come from the file that SciPy brings; where that lies elsewhere, SciPy is asked for the points.
"""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

BITS = 30  # as many as SciPy takes
FILE = ("stats", "_sobol_direction_numbers.npz")


def sobol(dimension: int, count: int) -> Float[np.ndarray, "n d"]:
    """Return the first points of the sequence, the origin in front.

    Args:
        dimension: Coordinates of a point.
        count: How many points, at most 2^30.

    Example:
        >>> sobol(2, 4)
        array([[0.  , 0.  ],
               [0.5 , 0.5 ],
               [0.75, 0.25],
               [0.25, 0.75]])
    """
    directions = _directions(dimension)
    if directions is None:
        from scipy.stats import qmc

        return qmc.Sobol(dimension, scramble=False, bits=BITS).random(count)
    places = np.arange(count)
    gray = places ^ (places >> 1)
    points = np.zeros((count, dimension), dtype=np.int64)
    for digit in range(max(count - 1, 0).bit_length()):
        points ^= np.where(gray[:, None] >> digit & 1, directions[:, digit], 0)
    return points / 2.0**BITS


@cache
def _directions(dimension: int) -> Int[np.ndarray, "d bits"] | None:
    """Return the direction numbers, by Bratley and Fox's recurrence along every primitive polynomial."""
    scipy = importlib.util.find_spec("scipy")
    places = [] if scipy is None else [Path(place, *FILE) for place in scipy.submodule_search_locations or ()]
    try:
        with np.load(places[0]) as file:
            polynomials, first = file["poly"][:dimension], file["vinit"][:dimension]
    except (OSError, IndexError, KeyError):
        return None
    if len(polynomials) < dimension:
        return None
    numbers = np.ones((dimension, BITS), dtype=np.int64)
    for k in range(1, dimension):
        polynomial = int(polynomials[k])
        degree = polynomial.bit_length() - 1
        numbers[k, :degree] = first[k, :degree]
        for j in range(degree, BITS):
            new = int(numbers[k, j - degree])
            for i in range(1, degree + 1):
                if polynomial >> (degree - i) & 1:
                    new ^= int(numbers[k, j - i]) << i
            numbers[k, j] = new
    return numbers << np.arange(BITS)[::-1]
