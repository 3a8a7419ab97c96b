"""Where results go, checked before the fit: minutes of work should not end at a folder that is not there."""

import os
from pathlib import Path


def check_places(out: Path | None, *files: Path | None) -> None:
    """Raise unless every file, and the folder, can be written.

    Args:
        out: A folder, made if it is not there.
        *files: Files whose folders must be there; None and "-" are passed over.
    """
    if out is not None:
        if out.exists() and not out.is_dir():
            raise NotADirectoryError(f"--out must name a folder, and {out} is a file. Give another name.")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PermissionError(f"the folder {out} cannot be made: {error.strerror}. Give another place.") from error
        _check_folder(out)
    for file in files:
        if file is None or file == Path("-"):
            continue
        if file.is_dir():
            raise IsADirectoryError(f"{file} is a folder. Give the name of a file in it.")
        if not file.parent.is_dir():
            raise FileNotFoundError(
                f"Cannot write {file}: the folder {file.parent} does not exist. Make it, or give another place."
            )
        _check_folder(file.parent)


def _check_folder(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"the folder {folder} is not writable. Change its permissions, or give another place.")
