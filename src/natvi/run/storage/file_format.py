"""One file format for saved fits and checkpoints: safetensors for arrays, JSON for the rest.

A file is plain safetensors with this metadata: `format` ("natvi"), `payload` (bytes after the header),
`version`, `kind`, `natvi` and `created` (package and UTC time, for information), `document` (canonical
JSON) and `sha256`, over kind, version, document, and name, dtype, shape and bytes of every array.

JSON has no NaN or infinity: such a float becomes {"__float__": "nan" | "inf" | "-inf"} and comes back
as a float. Tuples come back as lists, NumPy scalars as Python numbers. Reading never runs code.

Writing is ours rather than `safetensors.numpy.save_file`, which since 0.8 leaves temporary files of its
own when killed, ignores the umask and hides the cause of a failed write; reading is safetensors'.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from natvi.run.storage.files import STALE_SECONDS as STALE_SECONDS
from natvi.run.storage.files import StorageWriteError as StorageWriteError
from natvi.run.storage.files import write_whole

AnyPath = str | os.PathLike[str]
Arrays = Mapping[str, np.ndarray]
FORMAT_VERSION = 1

_START = re.compile(rb'{"__metadata__":{"format":"natvi","payload":"(\d{1,18})",')
_HEADER_LIMIT = 100_000_000  # readers of safetensors refuse longer headers
_FLOAT = "__float__"
_NATVI = next((found.version for found in metadata.distributions(name="natvi")), "unknown")
_KINDS = {"fit": "a saved fit", "checkpoint": "a checkpoint"}
_BITS = {"F": ("float", (16, 32, 64)), "I": ("int", (8, 16, 32, 64)), "U": ("uint", (8, 16, 32, 64))}
_CODES = {"bool": "BOOL"} | {f"{n}{bits}": f"{c}{bits}" for c, (n, all_) in _BITS.items() for bits in all_}


class StorageError(ValueError):
    """A file cannot be read as asked, or a value cannot be stored; the message says what to do."""


def write(
    path: AnyPath, kind: str, arrays: Arrays, document: Mapping[str, Any], *, version: int = FORMAT_VERSION
) -> None:
    """Write arrays and a document to one file, all or nothing, without a copy of C-ordered arrays.

    Args:
        path: Target; replaced in one step if it exists. A symbolic link is followed.
        kind: What the file holds, "fit" or "checkpoint"; `read` asks for the same word.
        arrays: Numeric or boolean arrays by name.
        document: Nested dicts (text keys), lists, text, numbers, booleans, None.
        version: Version of the format; changed only in tests.

    Raises:
        StorageError: An array or a value of the document has a type that cannot be stored.
        StorageWriteError: An `OSError`: no room, no folder, no permission. The old file is untouched.
    """
    contents = {name: _storable(name, array) for name, array in arrays.items()}
    head = _head(kind, version, contents, _canonical(_plain(document, "document")))
    needed = len(head) + sum(array.nbytes for array in contents.values())
    write_whole(path, chain([head], map(_raw, contents.values())), needed)


def read(path: AnyPath, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a file that `write` made, after checking that it is whole and unaltered.

    Args:
        path: The file.
        kind: What the file must hold, the word given to `write`.

    Returns:
        The arrays by name and the document.

    Raises:
        StorageError: Missing, foreign, truncated or altered file, newer format, or another kind.
    """
    path = Path(path)
    try:
        with safe_open(path, framework="numpy") as file:
            label = file.metadata() or {}
            _require_ours(path, label, kind)
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        if _checksum(kind, int(label["version"]), label["document"], arrays) != label["sha256"]:
            raise StorageError(_complaint(path))
        return arrays, json.loads(label["document"], object_hook=_revive)
    except StorageError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StorageError(_complaint(path)) from error


def _storable(name: str, array: Any) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.name not in _CODES or name == "__metadata__":
        raise StorageError(
            f"Array {name!r} of dtype {array.dtype} cannot be stored. Arrays must be boolean, integer or "
            "float (with any name but '__metadata__'); put labels and other text into the document."
        )
    return array


def _plain(value: Any, where: str) -> Any:
    """The value in terms of strict JSON; `where` names its place for the message."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else {_FLOAT: repr(value)}
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, Mapping) or any(not isinstance(key, str) or key == _FLOAT for key in value):
        raise StorageError(
            f"{where} is a {type(value).__name__} that JSON cannot hold. Use dicts (keys: text, but not "
            f"{_FLOAT!r}), lists, text, numbers, booleans and None; hand arrays over by name."
        )
    return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}


def _revive(item: dict[str, Any]) -> Any:
    return float(item[_FLOAT]) if _FLOAT in item else item


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _raw(array: np.ndarray) -> memoryview:
    """The bytes of an array, little-endian and C-ordered, without a copy where it already is so."""
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C").reshape(-1).view(np.uint8).data


def _checksum(kind: str, version: int, document: str, arrays: Arrays) -> str:
    ordered = sorted(arrays.items())
    layout = [[name, _CODES[array.dtype.name], array.shape] for name, array in ordered]
    digest = hashlib.sha256(_canonical([kind, version, document, layout]).encode())
    for _, array in ordered:
        digest.update(_raw(array))
    return digest.hexdigest()


def _head(kind: str, version: int, arrays: Arrays, document: str) -> bytes:
    """Length and header of a file in which the bytes of the arrays follow in the order given."""
    entries, end = {}, 0
    for name, array in arrays.items():
        offsets = [end, end := end + array.nbytes]
        entries[name] = {"dtype": _CODES[array.dtype.name], "shape": array.shape, "data_offsets": offsets}
    label = {
        "format": "natvi",
        "payload": str(end),
        "version": str(version),
        "kind": kind,
        "sha256": _checksum(kind, version, document, arrays),
        "natvi": _NATVI,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "document": document,
    }
    header = json.dumps({"__metadata__": label} | entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > _HEADER_LIMIT:
        raise StorageError(f"The document is too long ({len(header):,} bytes). Hand long lists over as arrays.")
    return len(header).to_bytes(8, "little") + header


def _require_ours(path: Path, label: Mapping[str, str], kind: str) -> None:
    if label.get("format") != "natvi":
        raise StorageError(_complaint(path))
    if int(label["version"]) > FORMAT_VERSION:
        raise StorageError(
            f"{path} has format version {label['version']} (written by natvi {label.get('natvi', '?')}), and "
            f"natvi {_NATVI} reads up to version {FORMAT_VERSION}. Upgrade: pip install -U natvi."
        )
    if label["kind"] != kind:
        has, needs = (_KINDS.get(word, f"a file of kind {word!r}") for word in (label["kind"], kind))
        raise StorageError(f"{path} holds {has}, and {needs} is needed here. Give the path of {needs}.")


def _complaint(path: Path) -> str:
    """Why a file cannot be read: missing, foreign, cut short, or else altered."""
    if not path.is_file():
        return f"{path} does not exist or is not a file. Check the name and the folder."
    try:
        with path.open("rb") as file:
            start, size = file.read(100), path.stat().st_size
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}. Check its permissions."
    if not (payload := _START.match(start[8:])):
        return f"{path} ({size:,} bytes) is not a natvi file, or only a scrap of one. Give a file natvi saved."
    whole = 8 + int.from_bytes(start[:8], "little") + int(payload[1])
    if size < whole:
        return f"{path} is truncated: {size:,} of {whole:,} bytes. Copy it again from its source."
    return f"{path} was altered or damaged after writing: its checksum does not fit. Use another copy."
