"""Sizes in steps, so that the next data set of a similar size finds its program compiled.

A program is compiled for the shapes of its arrays. Rows, groups and chunks are therefore filled up to the next of
few sizes: four steps for every doubling up to 1,024, eight beyond, so that at most a quarter, or an eighth, is filling,
and that nine tenths of the groups often have the size of all.
Columns of a small table are filled up likewise, so that a model with one term fewer finds its program too.
Where there is so much data that the compiler's time does not count, sizes stay as they are.
"""

LARGEST = 16384
COARSE = 1024
MOST_NUMBERS = 100_000  # in a table that is filled up with columns


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


def column_bucket(columns: int, rows: int) -> int:
    """Return how many columns there are to be: 2, 4, 6 or 8, then as rows, but for large tables as many as there are.

    Example:
        >>> [column_bucket(columns, 100) for columns in (0, 1, 3, 5, 11)], column_bucket(3, 100_000)
        ([0, 2, 4, 6, 12], 3)
    """
    if columns == 0 or columns * rows > MOST_NUMBERS:
        return columns
    return 2 * -(-columns // 2) if columns <= 8 else bucket(columns)


CHUNKS = tuple(size for size in range(1, 65) if bucket(size) == size)  # cells of a chunk, of few sizes too
