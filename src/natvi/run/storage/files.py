"""Files are written whole or not at all, and only where a file may be: devices, pipes and folders are left alone."""

import contextlib
import errno
import glob
import os
from collections.abc import Iterable
from pathlib import Path

STALE_SECONDS = 3600.0  # a temporary file this much older than a finished one is nobody's


class StorageWriteError(OSError):
    """A file could not be written; the file that was there before is untouched."""


def write_whole(path: str | os.PathLike[str], parts: Iterable[bytes | memoryview], needed: int) -> Path:
    """Write a file in one step: a reader, or a process that is killed, sees the old file or the new one.

    Args:
        path: Target; replaced if it exists. A symbolic link is followed.
        parts: The contents, one after the other.
        needed: Their size in bytes, for the message on a full disk.

    Returns:
        The path as it was given.

    Raises:
        StorageWriteError: An `OSError`: no room, no folder, no permission, or something there that is not a file.

    Example:
        >>> import tempfile
        >>> write_whole(Path(tempfile.mkdtemp()) / "note.txt", [b"one", b"two"], 6).read_text()
        'onetwo'
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file() and not target.is_dir():
        raise StorageWriteError(
            errno.EINVAL, f"Cannot write {target}. It is a device, a pipe or a socket: give the name of a file."
        )
    temporary = target.with_name(f".{target.name}.{os.urandom(16).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        if target.is_file():
            temporary.chmod(target.stat().st_mode & 0o7777)
        os.replace(temporary, target)
    except OSError as error:
        raise StorageWriteError(error.errno, _write_advice(error, target, needed)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    _settle(target)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text in UTF-8 as `write_whole` does.

    Example:
        >>> import tempfile
        >>> write_text(Path(tempfile.mkdtemp()) / "note.txt", "text").name
        'note.txt'
    """
    data = text.encode()
    return write_whole(path, [data], len(data))


def _settle(target: Path) -> None:
    """Remove what killed processes left and make the new name durable; the file is in place already."""
    with contextlib.suppress(OSError):  # not every system can open or flush a folder
        limit = target.stat().st_mtime - STALE_SECONDS
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 32}.tmp"):
            if leftover.stat().st_mtime < limit:
                leftover.unlink(missing_ok=True)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write_advice(error: OSError, target: Path, needed: int) -> str:
    advice = f"The system says: {error.strerror or error}."
    if not target.parent.is_dir():
        advice = f"The folder {target.parent} does not exist. Create it first."
    elif target.is_dir():
        advice = "This is a folder. Give the name of a file."
    elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = f"There is no room for {needed / 1e6:,.1f} MB. Free some space or choose another disk."
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = f"The folder {target.parent} is not writable. Choose another one or change its permissions."
    return f"Cannot write {target}. {advice} Nothing was changed: an older file of this name is as it was."
