"""Sizes in steps, so that the next data set of a similar size finds its program compiled.

A program is compiled for the shapes of its arrays. Rows, groups and chunks are therefore filled up to the next of
few sizes: four steps for every doubling up to 128, eight beyond, so that at most a quarter, or an eighth, is filling.
Where there is so much data that the compiler's time does not count, sizes stay as they are.
"""

LARGEST = 16384
COARSE = 128


def bucket(size: int) -> int:
    """Return the next size in steps that is at least `size`.

    Example:
        >>> [bucket(size) for size in (0, 5, 9, 59, 294, 2031, 100_000)]
        [0, 5, 10, 64, 320, 2048, 100000]
    """
    if size <= 8 or size > LARGEST:
        return size
    steps = 4 if size <= COARSE else 8
    step = (1 << ((size - 1).bit_length() - 1)) // steps
    return -(-size // step) * step


CHUNKS = tuple(size for size in range(1, 65) if bucket(size) == size)  # cells of a chunk, of few sizes too
