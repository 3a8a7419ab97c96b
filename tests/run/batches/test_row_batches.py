"""Minibatches: every row once per epoch, the same batches for the same seed, sources that never are in memory."""

import numpy as np
import pytest

from natvi.run.batches.row_batches import ArrayBatches, IteratorBatches


def rows(n):
    return {"x": np.arange(2 * n, dtype=float).reshape(n, 2), "id": np.arange(n)}


def pieces(n, length):
    def open_epoch(epoch):
        data = rows(n)
        for start in range(0, n, length):
            yield {name: a[start : start + length] for name, a in data.items()}

    return open_epoch


SOURCES = {
    "array": lambda n, size, seed: ArrayBatches(rows(n), size, seed=seed),
    "iterator": lambda n, size, seed: IteratorBatches(pieces(n, 7), n, size, buffer_rows=20, seed=seed),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(("n", "size"), [(40, 8), (43, 8), (5, 5), (9, 1)])
def test_every_row_once_per_epoch(kind, n, size):
    source, per_epoch = SOURCES[kind](n, size, 0), n // size
    assert (source.num_rows, source.batch_size) == (n, size)
    for epoch in range(3):
        taken = source.take(epoch * per_epoch, per_epoch)
        assert taken["x"].shape == (per_epoch, size, 2)
        ids = taken["id"].ravel()
        assert len(set(ids)) == per_epoch * size  # no row twice
        np.testing.assert_array_equal(taken["x"].reshape(-1, 2), rows(n)["x"][ids])


@pytest.mark.parametrize("kind", SOURCES)
def test_batches_depend_on_step_and_seed_alone(kind):
    whole = SOURCES[kind](43, 8, 3).take(0, 12)["id"]
    source = SOURCES[kind](43, 8, 3)
    for step in (0, 1, 7, 3, 11, 4):  # forwards, backwards, leaping
        np.testing.assert_array_equal(source.take(step, 1)["id"][0], whole[step])
    assert not np.array_equal(SOURCES[kind](43, 8, 4).take(0, 12)["id"], whole)


@pytest.mark.parametrize("kind", SOURCES)
def test_epochs_have_their_own_order_and_leftovers(kind):
    taken = SOURCES[kind](43, 8, 0).take(0, 15)["id"].reshape(3, 5, 8)
    assert not np.array_equal(taken[0], taken[1])
    left_out = {frozenset(range(43)) - frozenset(epoch.ravel().tolist()) for epoch in taken}
    assert len(left_out) > 1


def test_memory_mapped_file(tmp_path):
    data = rows(100)
    np.save(tmp_path / "x.npy", data["x"])
    mapped = {"x": np.load(tmp_path / "x.npy", mmap_mode="r"), "id": data["id"]}
    assert isinstance(mapped["x"], np.memmap)
    np.testing.assert_array_equal(
        ArrayBatches(mapped, 9, seed=1).take(3, 20)["x"], ArrayBatches(data, 9, seed=1).take(3, 20)["x"]
    )


def test_an_iterator_is_never_read_whole():
    held = []

    def open_epoch(epoch):
        for k in range(1000):
            held.append(k)
            yield {"id": np.arange(10 * k, 10 * k + 10)}

    source = IteratorBatches(open_epoch, 10_000, 10, buffer_rows=50)
    source.take(0, 3)
    assert len(held) < 12


@pytest.mark.parametrize("size", [0, -1, 11, True])
def test_batch_sizes_that_make_no_sense(size):
    with pytest.raises(ValueError, match="batch_size must be a whole number from 1 to 10"):
        ArrayBatches(rows(10), size)


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="same number of rows"):
        ArrayBatches({"x": np.zeros(3), "y": np.zeros(4)}, 2)
    with pytest.raises(ValueError, match="same number of rows, at least one"):
        ArrayBatches({"x": np.zeros(())}, 1)
    with pytest.raises(ValueError, match="function of the epoch's number"):
        IteratorBatches(iter([rows(4)]), 4, 2)
    with pytest.raises(ValueError, match="held 43 rows, and num_rows=50 was promised"):
        IteratorBatches(pieces(43, 7), 50, 8).take(0, 6)
