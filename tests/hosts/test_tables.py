"""Tables in pieces: the same rows however they are stored and divided."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi import hosts
from natvi.hosts import effects, tables
from natvi.models.regression.spread.survey import row_marks

from . import tasks


@pytest.fixture
def processes(monkeypatch):
    """Pretend to be one of several processes that read files."""

    def be(number: int, count: int) -> None:
        for module in (tables, effects):
            monkeypatch.setattr(module, "number", lambda: number)
            monkeypatch.setattr(module, "count", lambda: count)

    return be


def store(folder: Path, kind: str) -> pd.DataFrame:
    """Write rows in random order to two files of several row groups."""
    arrow = pytest.importorskip("pyarrow")
    frame = tasks.table().sample(frac=1.0, random_state=0, ignore_index=True)
    half = len(frame) // 2
    for name, part in (("a", frame[:half]), ("b", frame[half:])):
        table = arrow.Table.from_pandas(part, preserve_index=False)
        if kind == "parquet":
            from pyarrow import parquet

            parquet.write_table(table, folder / f"{name}.parquet", row_group_size=50)
        else:
            with arrow.ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
                file.write_table(table, max_chunksize=50)
    return frame


def read(table: tables.Table) -> pd.DataFrame:
    return pd.concat(table.read(["g", "x", "poisson"]), ignore_index=True)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_files_are_divided_by_row_groups_or_by_groups(tmp_path, processes, kind):
    frame, table = store(tmp_path, kind), hosts.parquet(tmp_path)
    pd.testing.assert_series_equal(read(table)["x"], frame["x"])
    parts, grouped = [], []
    for number in range(3):
        processes(number, 3)
        parts.append(read(table))
        grouped.append(read(table.by_group("g")))
    pd.testing.assert_series_equal(pd.concat(parts, ignore_index=True)["x"], frame["x"])
    assert sum(len(part) for part in grouped) == len(frame)
    labels = [set(part["g"]) for part in grouped]
    assert all(labels) and sum(map(len, labels)) == frame["g"].nunique()


def test_a_file_gives_the_answer_of_its_rows_in_memory(tmp_path):
    frame = store(tmp_path, "parquet")
    found = natvi.glm("poisson ~ x + f", hosts.parquet(tmp_path), family="poisson").fit(tolerance=1e-13)
    plain = natvi.glm("poisson ~ x + f", frame, family="poisson").fit(method="gva", tolerance=1e-13)
    np.testing.assert_allclose(found.model.mean, plain.model.mean, rtol=1e-5, atol=1e-6)
    assert found.model.prior.description == plain.model.prior.description


def test_random_effects_go_to_a_folder(tmp_path, processes):
    pytest.importorskip("pyarrow")
    fit = natvi.glmm("poisson ~ x + (1 | g)", tasks.table(), family="poisson").fit(method="gva")
    for number in range(2):
        processes(number, 2)
        hosts.write_effects(fit, tmp_path / "effects")
    found = pd.concat(map(pd.read_parquet, sorted((tmp_path / "effects").glob("*.parquet"))), ignore_index=True)
    pd.testing.assert_frame_equal(found, fit.random_effects(), check_dtype=False)


def test_files_that_are_not_there_and_iterators_that_run_dry_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no Parquet or Arrow file"):
        hosts.parquet(tmp_path)
    with pytest.raises(ValueError, match="a function that returns a fresh iterator"):
        hosts.pieces(iter([]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="equally many rows"):
        hosts.arrays({"x": np.ones(2), "y": np.ones(3)})


def test_rows_that_change_between_passes_are_noticed():
    frame, opened = tasks.table(), []

    def changing():
        opened.append(1)
        return [frame if len(opened) < 4 else frame[:-1]]

    model = natvi.glm("poisson ~ x", hosts.pieces(changing), family="poisson")
    with pytest.raises(ValueError, match="a pass over the rows found"):
        model.fit(tolerance=1e-13)
        model.fit(tolerance=1e-13)


def test_missing_rows_weights_and_text_are_as_in_one_frame():
    frame = tasks.table()
    frame["w"] = np.arange(len(frame)) % 3
    frame.loc[5:40, "x"] = np.nan
    frame["answer"] = np.where(frame["bernoulli"] == 1, "yes", "no")
    whole = hosts.pieces(lambda: [frame[:30], frame[30:41], frame[41:]])
    formula = "answer ~ x + f + offset(0.1 * z)"
    found = natvi.glm(formula, whole, family="bernoulli", weights="w").fit(tolerance=1e-13)
    plain = natvi.glm(formula, frame, family="bernoulli", weights="w").fit(method="gva", tolerance=1e-13)
    np.testing.assert_allclose(found.model.mean, plain.model.mean, rtol=1e-5, atol=1e-6)
    assert any("'yes' counts as 1" in note for note in found.model.notes)
    assert any("missing values" in note for note in found.model.notes)


def test_the_mark_of_rows_does_not_know_their_order_but_their_values():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    mark = row_marks(rows, None)
    assert mark == row_marks(rows[::-1], None)
    assert mark == (row_marks(rows[:7], None) + row_marks(rows[7:], None)) % 2**64
    other = rows.copy()
    other[3, 1] = np.nextafter(other[3, 1], 1.0)
    assert mark != row_marks(other, None) and mark != row_marks(rows, np.ones(20))
