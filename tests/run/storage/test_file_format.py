"""Saved files come back whole or not at all."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from natvi.run.storage import file_format as storage
from natvi.run.storage.file_format import FORMAT_VERSION, StorageError, StorageWriteError, read, write

ARRAYS: dict[str, np.ndarray] = {
    "flags": np.array([True, False, True]),
    "float64": np.linspace(-1.0, 1.0, 7),
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "int64": np.array([-(2**62), 2**62]),
    "int32": np.arange(5, dtype=np.int32),
    "key": np.array([0, 2**32 - 1], dtype=np.uint32),
    "scalar": np.array(math.pi),
    "empty": np.zeros((0, 3)),
    "special": np.array([np.nan, np.inf, -np.inf, -0.0]),
}
DOCUMENT: dict[str, Any] = {
    "formula": "y ~ x + (1 | g)",
    "labels": ["é", "日本", '"quoted"', "\ud800"],
    "nested": {"b": [1, 2.5, None, True], "a": {}},
    "big": 2**70,
}


def assert_same(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert set(arrays) == set(expected)
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype and arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.natvi"
    write(path, "fit", ARRAYS, DOCUMENT)
    return path


def header_of(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])


def test_round_trip(saved: Path) -> None:
    arrays, document = read(saved, "fit")
    assert_same(arrays, ARRAYS)
    assert document == DOCUMENT
    arrays["float64"][0] = 5.0  # arrays that come back belong to the caller
    assert [path.name for path in saved.parent.iterdir()] == ["run.natvi"]


def test_nothing_to_store(tmp_path: Path) -> None:
    write(tmp_path / "a", "checkpoint", {}, {})
    assert read(str(tmp_path / "a"), "checkpoint") == ({}, {})


def test_file_is_safetensors_with_documented_metadata(saved: Path) -> None:
    assert_same(load_file(saved), ARRAYS)
    label = header_of(saved)["__metadata__"]
    assert label["format"] == "natvi" and label["kind"] == "fit" and label["version"] == str(FORMAT_VERSION)
    assert label["created"].endswith("+00:00") and label["natvi"]
    assert json.loads(label["document"]) == DOCUMENT
    assert saved.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("layout", ["fortran", "strided", "big_endian", "read_only"])
def test_memory_layout_does_not_matter(tmp_path: Path, layout: str) -> None:
    plain = np.arange(12.0).reshape(3, 4)
    array = {
        "fortran": np.asfortranarray(plain),
        "strided": np.repeat(plain, 2, axis=1)[:, ::2],
        "big_endian": plain.astype(">f8"),
        "read_only": np.broadcast_to(plain, (1, 3, 4))[0],
    }[layout]
    write(tmp_path / "a", "fit", {"x": array}, {})
    assert_same(read(tmp_path / "a", "fit")[0], {"x": plain})


def test_document_floats_and_numpy_scalars(tmp_path: Path) -> None:
    document = {
        "bad": [math.nan, math.inf, -math.inf],
        "n": np.int64(3),
        "t": (1, np.float32(0.5)),
        "ok": np.True_,
    }
    write(tmp_path / "a", "fit", {}, document)
    back = read(tmp_path / "a", "fit")[1]
    assert math.isnan(back["bad"][0]) and back["bad"][1:] == [math.inf, -math.inf]
    assert (back["n"], back["t"], back["ok"]) == (3, [1, 0.5], True)
    text = header_of(tmp_path / "a")["__metadata__"]["document"]
    assert "NaN" not in text and "Infinity" not in text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"a": {1: "x"}}, r"document\['a'\] is a dict.*keys: text"),
        ({"a": [0, {1, 2}]}, r"document\['a'\]\[1\] is a set"),
        ({"a": np.zeros(2)}, "hand arrays over by name"),
        ({"a": {"__float__": "nan"}}, "not '__float__'"),
    ],
)
def test_write_refuses_documents(tmp_path: Path, document: dict[str, Any], words: str) -> None:
    with pytest.raises(StorageError, match=words):
        write(tmp_path / "a", "fit", {}, document)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("array", [np.array([{}]), np.array(["a"]), np.array([b"a"]), np.array([1j])])
def test_write_refuses_arrays(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(StorageError, match=r"Array 'x' .*labels and other text into the document"):
        write(tmp_path / "a", "fit", {"x": array}, {})
    assert not list(tmp_path.iterdir())


def test_write_refuses_reserved_name_and_long_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="__metadata__"):
        write(tmp_path / "a", "fit", {"__metadata__": np.zeros(1)}, {})
    monkeypatch.setattr(storage, "_HEADER_LIMIT", 1000)
    with pytest.raises(StorageError, match="too long"):
        write(tmp_path / "a", "fit", {}, {"labels": ["x" * 1000]})


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path, short = tmp_path / "a", tmp_path / "short"
    write(path, "fit", {"x": np.arange(9.0), "flag": np.array(True)}, {"a": [1, math.nan]})
    raw = path.read_bytes()
    for length in range(len(raw)):
        short.write_bytes(raw[:length])
        with pytest.raises(StorageError, match="truncated" if length >= 100 else "not a natvi file|truncated"):
            read(short, "fit")
    short.write_bytes(raw + b"\0")
    with pytest.raises(StorageError, match="altered"):
        read(short, "fit")


def test_every_flipped_byte_is_noticed_or_harmless(saved: Path) -> None:
    raw = saved.read_bytes()
    random = np.random.default_rng(0)
    positions = [*range(8), *random.choice(len(raw), size=200, replace=False)]
    for position in positions:
        damaged = bytearray(raw)
        damaged[position] ^= int(random.integers(1, 256))
        saved.write_bytes(damaged)
        try:
            arrays, document = read(saved, "fit")
        except StorageError:
            continue
        assert_same(arrays, ARRAYS)
        assert document == DOCUMENT


@pytest.mark.parametrize(("old", "new"), [(b"seizures", b"Seizures"), (b"abcdefgh", b"abcdefgi"), (b"F64", b"I64")])
def test_tampering_is_named(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "a"
    write(path, "fit", {"x": np.frombuffer(b"abcdefgh")}, {"formula": "seizures ~ 1"})
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(StorageError, match="altered or damaged"):
        read(path, "fit")


def test_newer_format(tmp_path: Path) -> None:
    write(tmp_path / "a", "fit", ARRAYS, DOCUMENT, version=FORMAT_VERSION + 1)
    with pytest.raises(StorageError, match=f"version {FORMAT_VERSION + 1} .*version {FORMAT_VERSION}. Upgrade"):
        read(tmp_path / "a", "fit")


@pytest.mark.parametrize(
    ("has", "needs", "words"),
    [
        ("checkpoint", "fit", "holds a checkpoint, and a saved fit is needed"),
        ("fit", "checkpoint", "holds a saved fit, and a checkpoint is needed"),
        ("other", "fit", "kind 'other'"),
    ],
)
def test_wrong_kind(tmp_path: Path, has: str, needs: str, words: str) -> None:
    write(tmp_path / "a", has, {}, {})
    with pytest.raises(StorageError, match=words):
        read(tmp_path / "a", needs)


def test_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a,b\n1,2\n" * 50)
    (tmp_path / "nothing").touch()
    (tmp_path / "pickle").write_bytes(b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.")
    save_file({"x": np.zeros(3)}, tmp_path / "other", metadata={"format": "np"})
    for name in ("text", "nothing", "pickle", "other"):
        with pytest.raises(StorageError, match="not a natvi file"):
            read(tmp_path / name, "fit")
    for name in ("absent", "."):
        with pytest.raises(StorageError, match="does not exist or is not a file"):
            read(tmp_path / name, "fit")


def test_no_code_is_ever_loaded() -> None:
    source = Path(storage.__file__).read_text()
    assert not [word for word in ("pickle", "eval(", "exec(", "marshal", "__import__") if word in source]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no room for .* MB"),
        (errno.EDQUOT, "no room"),
        (errno.EACCES, "not writable"),
        (errno.EROFS, "not writable"),
        (errno.EIO, "The system says"),
    ],
)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(storage.os, step, fail)
    with pytest.raises(StorageWriteError, match=words) as caught:
        write(saved, "fit", {"x": np.zeros(3)}, {})
    assert caught.value.errno == number and isinstance(caught.value, OSError)
    assert_same(read(saved, "fit")[0], ARRAYS)
    assert len(list(saved.parent.iterdir())) == 1


def test_write_needs_a_folder_and_a_file_name(tmp_path: Path) -> None:
    with pytest.raises(StorageWriteError, match=r"does not exist\. Create it"):
        write(tmp_path / "absent" / "a", "fit", {}, {})
    with pytest.raises(StorageWriteError, match="This is a folder"):
        write(tmp_path, "fit", {}, {})


def test_interrupt_from_the_keyboard_leaves_nothing_behind(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(saved, "fit", {}, {})
    assert_same(read(saved, "fit")[0], ARRAYS)
    assert len(list(saved.parent.iterdir())) == 1


def test_permissions_and_links_are_kept(saved: Path) -> None:
    saved.chmod(0o600)
    link = saved.with_name("latest")
    link.symlink_to(saved.name)
    write(link, "fit", {}, {"new": True})
    assert link.is_symlink() and saved.stat().st_mode & 0o777 == 0o600
    assert read(saved, "fit")[1] == {"new": True}


def test_only_stale_leftovers_of_the_same_target_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "a[1]"
    stale, fresh = (tmp_path / f".a[1].{digit * 32}.tmp" for digit in "0f")
    others = [
        tmp_path / f".b.{'0' * 32}.tmp",
        tmp_path / ".a[1].notes.tmp",
        tmp_path / f"a[1].{'0' * 32}.tmp",
    ]
    for path in (stale, fresh, *others):
        path.touch()
        if path != fresh:
            os.utime(path, (0, 0))
    write(target, "fit", {}, {})
    assert not stale.exists() and fresh.exists() and all(path.exists() for path in others)


# One process imports natvi and forks the writers; it ends when all of them are dead.
KILLED = """
import os, sys
import numpy as np
from natvi.run.storage.file_format import write

def write_for_ever(path):
    count = 0
    while True:
        write(path, "checkpoint", {"x": np.full(200_000, float(count))}, {"count": count})
        os.write(1, b"%d\\n" % os.getpid())
        count += 1

for path in sys.argv[1:]:
    if os.fork() == 0:
        write_for_ever(path)
for _ in sys.argv[1:]:
    os.wait()
"""


@pytest.mark.skipif(os.name == "nt", reason="needs kill -9")
def test_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    targets = [tmp_path / f"{i}.natvi" for i in range(5)]
    command = [sys.executable, "-W", "ignore", "-c", KILLED, *map(str, targets)]
    killed: set[int] = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        for delay in np.random.default_rng(1).uniform(0.0, 0.05, size=len(targets)):
            while (writer := int(parent.stdout.readline())) in killed:  # it said so before it died
                pass
            time.sleep(delay)
            os.kill(writer, signal.SIGKILL)
            killed.add(writer)
        parent.stdout.read()
    assert parent.returncode == 0 and len(killed) == len(targets)
    for target in targets:
        arrays, document = read(target, "checkpoint")
        assert (arrays["x"] == document["count"]).all()
        write(target, "checkpoint", {}, {})
        assert read(target, "checkpoint") == ({}, {})
