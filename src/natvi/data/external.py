"""Data sets too large for the package, found through one environment variable."""

import os
from pathlib import Path

VARIABLE = "NATVI_DATA"


def data_folder() -> Path:
    """The folder of external data sets, named by the environment variable `NATVI_DATA`.

    Returns:
        An existing folder.

    Raises:
        FileNotFoundError: The variable is not set, or names no folder.
    """
    value = os.environ.get(VARIABLE, "")
    cure = (
        f"Set {VARIABLE} to the folder that holds the large data sets, one sub-folder each "
        f"(for example diabetes130/diabetic_data.csv.gz): export {VARIABLE}=/path/to/folder."
    )
    if not value:
        raise FileNotFoundError(f"The environment variable {VARIABLE} is not set. {cure}")
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{VARIABLE} is {value!r}, which is not a folder. {cure}")
    return folder


def data_file(relative: str, source: str) -> Path:
    """One file inside the folder of external data sets.

    Args:
        relative: Path inside the folder, with forward slashes.
        source: Sentence that tells where to get the file.

    Returns:
        Path of an existing file.

    Raises:
        FileNotFoundError: The folder or the file is missing.
    """
    path = data_folder() / relative
    if not path.is_file():
        raise FileNotFoundError(f"{VARIABLE} is set, but {path} does not exist. {source}")
    return path
