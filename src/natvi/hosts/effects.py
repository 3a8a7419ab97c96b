"""Random effects of millions of groups: a folder of Parquet files, one for each process."""

from pathlib import Path
from typing import Any

from natvi.hosts.collect import checked, count, number

ROW_GROUP = 1 << 18


def write_effects(result: Any, folder: str | Path, prob: float = 0.95) -> Path:
    """Write mean, sd and interval of every group's effects; each process writes a file of its own groups.

    Args:
        result: Of `natvi.glmm(...).fit()`; all processes call this with theirs.
        folder: Made if it is not there.
        prob: The probability of the intervals.

    Returns:
        The file of this process.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("writing Parquet files needs pyarrow: pip install 'natvi[hosts]'.") from error

    def write() -> Path:
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        table = result.random_effects(prob)
        if not getattr(result.model, "own_groups_only", False):  # all processes have all groups: each writes a share
            table = table.iloc[len(table) * number() // count() : len(table) * (number() + 1) // count()]
        path = target / f"part-{number():05d}-of-{count():05d}.parquet"
        half = path.with_suffix(".tmp")
        arrow = pyarrow.Table.from_pandas(table, preserve_index=False)
        pyarrow.parquet.write_table(arrow, half, row_group_size=ROW_GROUP)
        half.replace(path)
        return path

    return checked(write)
