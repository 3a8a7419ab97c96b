"""The designs of the logistic regressions: shapes of the paper, moments, labels."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from natvi import data
from natvi.data import a4a, external, german

NUMBERS = [name for name, levels in german.ATTRIBUTES.items() if levels is None]


@pytest.mark.needs_data
def test_german_design() -> None:
    X, y, names = data.load_german()
    assert X.shape == (1000, 49) and X.dtype == y.dtype == np.float64
    assert len(names) == len(set(names)) == 49 and names[0] == "intercept"
    assert y.sum() == 300 and set(y) == {0.0, 1.0}
    assert np.linalg.matrix_rank(X) == 49
    numbers = np.isin(names, NUMBERS)
    assert numbers.sum() == 7
    np.testing.assert_allclose(X[:, numbers].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X[:, numbers].std(axis=0, ddof=1), 1)
    assert set(np.unique(X[:, ~numbers])) == {0.0, 1.0}
    assert np.all(X[:, ~numbers].sum(axis=0) > 0)  # every level occurs


@pytest.mark.needs_data
def test_german_frame_is_readable() -> None:
    frame = data.load_german_frame()
    assert frame.shape == (1000, 21) and not frame.isna().any().any()
    first = frame.iloc[0]
    assert (first["duration"], first["amount"], first["age"]) == (6, 1169, 67)
    assert (first["checking"], first["purpose"], first["telephone"]) == ("negative", "television", "yes")
    for name, levels in german.ATTRIBUTES.items():
        if levels is not None:
            assert list(frame[name].cat.categories) == list(levels.values())
            assert frame[name].nunique() == len(levels)


@pytest.mark.needs_data
def test_german_indicators_agree_with_the_frame() -> None:
    X, _, names = data.load_german()
    frame = data.load_german_frame()
    column = X[:, names.index("purpose[education]")]
    assert column.sum() == 50
    np.testing.assert_array_equal(column, (frame["purpose"] == "education").to_numpy(float))


@pytest.mark.needs_data
def test_a4a_designs() -> None:
    train, test = data.load_a4a()
    assert train.X.shape == (4781, 124) and test.X.shape == (27780, 124)
    assert train.names == test.names and len(train.names) == 124
    for part in (train, test):
        assert part.X.dtype == part.y.dtype == np.float64
        assert np.all(part.X[:, 0] == 1) and set(np.unique(part.X)) == {0.0, 1.0}
        assert part.X[:, 1:].sum(axis=1).max() == 14  # one indicator for each of 14 attributes, unless missing
    # together they are the 32,561 rows of the Adult training data, of which 7841 have the higher income
    assert train.y.sum() + test.y.sum() == 7841
    assert train.X[:, 123].sum() == 0 < test.X[:, 123].sum()


def test_indicators_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gz"
    path.write_bytes(gzip.compress(b"+1 1:1 3:1 \n-1 2:1\n"))
    X, y, names = a4a.read_indicators(path, num_features=4)
    assert X.tolist() == [[1, 1, 0, 1, 0], [1, 0, 1, 0, 0]] and y.tolist() == [1, 0]
    assert names == ("intercept", "feature_1", "feature_2", "feature_3", "feature_4")


@pytest.mark.parametrize("line", ["+1 5:1", "2 1:1", "+1 1:0.5", "-1 x:1", "-1 0:1"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "broken.gz"
    path.write_bytes(gzip.compress(f"+1 1:1\n{line}\n".encode()))
    with pytest.raises(ValueError, match=r"Line 2 of broken\.gz"):
        a4a.read_indicators(path, num_features=4)


def test_missing_files_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(external.VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"german\.data does not exist\. Download"):
        data.load_german()
    with pytest.raises(FileNotFoundError, match=r"a4a\.gz does not exist\. Download"):
        data.load_a4a()


def test_an_unknown_code_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "german_credit").mkdir()
    values = [next(iter(levels)) if levels else "1" for levels in german.ATTRIBUTES.values()]
    (tmp_path / german.FILE).write_text(" ".join(["A99", *values[1:], "1"]) + "\n", "utf-8")
    monkeypatch.setenv(external.VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match=r"codes \['A99'\] for checking"):
        data.load_german_frame()
