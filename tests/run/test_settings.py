"""Numbers a user gives: refused in words before any work is done."""

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from natvi.models.regression.options import check_options
from natvi.run import storage
from natvi.run.settings import check_count, check_seconds, check_seed
from natvi.run.storage.checkpoint import Checkpoint
from natvi.run.storage.files import StorageWriteError, write_text


@pytest.mark.parametrize("seed", ["a", 1.5, 2**70, -1, None, True, float("nan")])
def test_seeds(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed must be a whole number"):
        check_seed(seed)
    assert check_seed(np.int64(7)) == 7


@pytest.mark.parametrize("count", [1.5, 0, -3, "2", True, None])
def test_counts(count: Any) -> None:
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 1"):
        check_count("num_samples", count)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, "2", None, True])
def test_seconds(seconds: Any) -> None:
    with pytest.raises(ValueError, match="checkpoint_seconds must be a number of seconds"):
        check_seconds("checkpoint_seconds", seconds)
    with pytest.raises(ValueError, match="checkpoint_seconds"):
        check_options(None, 10, 1e-8, checkpoint_seconds=seconds)


def test_only_files_are_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(StorageWriteError, match="give the name of a file"):
            write_text(path, "text")
        with pytest.raises(StorageWriteError, match="give the name of a file"):
            storage.write(path, "fit", {}, {})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_full_disk_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "page.html", "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageWriteError, match="no room"):
        write_text(tmp_path / "page.html", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "old"


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_fit(tmp_path: Path) -> None:
    keeper = Checkpoint(tmp_path / "folder" / "state", np.zeros(2), 0.0)
    with pytest.raises(OSError):
        keeper.save_now(np.zeros(2))  # before the work it is a mistake
    with pytest.warns(UserWarning, match="The fit goes on") as caught:
        keeper.save(np.zeros(2))
        keeper.save(np.zeros(2))
    assert len(caught) == 1
    (tmp_path / "folder").mkdir()
    keeper.save(np.ones(2))
    again = Checkpoint(tmp_path / "folder" / "state", np.zeros(2))
    np.testing.assert_array_equal(again.resume(np.zeros(2)), np.ones(2))
