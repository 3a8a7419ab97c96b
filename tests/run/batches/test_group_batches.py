"""Batches of whole groups: where they come from, what one visit touches, and how a fit goes on."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from natvi.families.table import find_family
from natvi.models.mixed.batches.door import fit_mixed_batches
from natvi.models.mixed.batches.frames import GroupedFrames
from natvi.models.mixed.batches.state import make_worker
from natvi.run.batches.group_batches import GroupedArrays, GroupedPieces
from natvi.run.batches.group_store import GroupStore
from natvi.x64 import float64


def simulate(n: int, rows: int = 5) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(n), rows)
    x, t = rng.normal(size=n * rows), rng.integers(0, 2, n)[group]
    y = rng.poisson(np.exp(0.3 + 0.4 * x - 0.5 * t + 0.7 * rng.normal(size=n)[group]))
    return pd.DataFrame({"y": y.astype(float), "x": x, "t": t, "g": group})


def plain_arrays(n: int, folder=None) -> dict[str, np.ndarray]:
    frame = simulate(n)
    X = np.column_stack([np.ones(len(frame)), frame["x"], frame["t"]])
    rows = {"X": X, "Z": X[:, :1].copy(), "y": frame["y"].to_numpy(), "group": frame["g"].to_numpy()}
    if folder is None:
        return rows
    for name, array in rows.items():
        np.save(folder / f"{name}.npy", array)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in rows}


# --- one step ------------------------------------------------------------------------------------------------------


def test_one_step_touches_the_sampled_groups_and_the_shared_block_only():
    source = GroupedArrays(plain_arrays(120), 20, seed=1)
    with float64():
        worker = make_worker(source, find_family("poisson"), "paper", None, "memory", None)
        batches = list(source.read(0))
        for batch in batches:
            assert worker.visit(batch)
        before, blocks = worker.state, np.array(worker.state.blocks)
        sites = dict(before.sites)
        batch = batches[2]
        assert worker.visit(batch)
    others = np.setdiff1d(np.arange(120), batch.groups)
    np.testing.assert_array_equal(worker.state.blocks[others], blocks[others])
    assert np.all(np.any(worker.state.blocks[batch.groups] != blocks[batch.groups], axis=1))
    changed = [number for number, site in worker.state.sites.items() if site is not sites[number]]
    assert changed == [batch.number]
    assert np.any(worker.state.mean != before.mean) and np.any(worker.state.precision != before.precision)


def test_memory_of_a_step_does_not_grow_with_the_data(tmp_path):
    peaks = []
    for n in (400, 8000):
        folder = tmp_path / str(n)
        folder.mkdir()
        source = GroupedArrays(plain_arrays(n, folder), 20, shuffle=False)
        with float64():
            worker = make_worker(source, find_family("poisson"), "paper", None, folder / "blocks.npy", None)
            epoch = source.read(0)
            for _ in range(3):
                worker.visit(next(epoch))  # compiled now
            tracemalloc.start()
            for _ in range(3):
                worker.visit(next(epoch))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert isinstance(worker.state.blocks, np.memmap)
    assert peaks[1] < 1.3 * peaks[0] + 100_000


# --- sources, resuming ------------------------------------------------------------------------------------------------


def test_pieces_frames_and_files_give_the_same(tmp_path):
    frame = simulate(60)
    cuts = [pd.DataFrame(frame[frame["g"] // 20 == k]) for k in range(3)]
    frames = GroupedFrames("y ~ x + t + (1 | g)", lambda epoch: iter(cuts), 60)
    first = fit_mixed_batches(frames, family="poisson", prior="paper")
    assert first.model.names.fixed == ("Intercept", "x", "t")
    assert first.model.shared_names()[-1] == "sd(Intercept|g)"
    assert "sd(Intercept|g): 95% of the prior" in first.model.prior.description

    def pieces(epoch):
        for cut in cuts:
            X = np.column_stack([np.ones(len(cut)), cut["x"], cut["t"]])
            yield {"X": X, "Z": X[:, :1], "y": np.asarray(cut["y"]), "group": np.asarray(cut["g"])}

    second = fit_mixed_batches(GroupedPieces(pieces, 60), family="poisson", prior="paper")
    source = GroupedArrays(plain_arrays(60, tmp_path), 20, shuffle=False)
    third = fit_mixed_batches(source, family="poisson", prior="paper", blocks=tmp_path / "blocks.npy")
    assert first.elbo == second.elbo == third.elbo
    np.testing.assert_array_equal(first.model.shared_mean, third.model.shared_mean)


def test_a_fit_goes_on_where_it_was():
    source = GroupedArrays(plain_arrays(120), 20)
    whole = fit_mixed_batches(source, family="poisson", prior="paper")
    some = fit_mixed_batches(source, family="poisson", prior="paper", max_epochs=2)
    assert some.outcome == "max_steps" and len(some.trace) == 2
    kept = np.array(some.state.blocks)
    rest = fit_mixed_batches(source, family="poisson", prior="paper", state=some.state)
    assert rest.outcome == "converged" and rest.elbo == pytest.approx(whole.elbo, abs=1e-4)
    assert len(rest.trace) <= len(whole.trace) + 1
    np.testing.assert_array_equal(some.state.blocks, kept)


def test_mistakes(tmp_path):
    rows = plain_arrays(12)
    with pytest.raises(ValueError, match="batch_size must be a whole number from 1 to 12"):
        GroupedArrays(rows, 13)
    with pytest.raises(ValueError, match="The rows lack Z, group"):
        GroupedArrays({"X": rows["X"], "y": rows["y"]}, 3)
    with pytest.raises(ValueError, match="hold unknown extra"):
        GroupedArrays(rows | {"extra": rows["y"]}, 3)
    with pytest.raises(ValueError, match="equal rows"):
        GroupedArrays(rows | {"y": rows["y"][1:]}, 3)
    with pytest.raises(ValueError, match="function of the epoch"):
        GroupedPieces([rows], 12)
    with pytest.raises(ValueError, match="held 12 groups, and num_groups=13 was promised"):
        list(GroupedPieces(lambda epoch: iter([rows]), 13).read(0))
    with pytest.raises(ValueError, match="hold 12 groups, and num_groups=11 was promised"):
        list(GroupedPieces(lambda epoch: iter([rows]), 11).read(0))
    with pytest.raises(ValueError, match="is in piece 2 and in an earlier one: every group must lie in one piece"):
        list(GroupedPieces(lambda epoch: iter([rows, rows]), 24).read(0))
    words = simulate(3)
    words["y"] = np.where(words["y"] > 0, "yes", "no")
    with pytest.raises(ValueError, match="must be a column of numbers in batches, and holds"):
        list(GroupedFrames("y ~ x + (1 | g)", lambda epoch: iter([words]), 3).read(0))
    with pytest.raises(ValueError, match="gap and max_epochs must be positive"):
        fit_mixed_batches(GroupedArrays(rows, 3), gap=0.0)
    with pytest.raises(ValueError, match="no random effects"):
        GroupedFrames("y ~ x", lambda epoch: iter([simulate(3)]), 3)
    with pytest.raises(ValueError, match="not yet supported: the response"):
        GroupedFrames("log(y) ~ x + (1 | g)", lambda epoch: iter([simulate(3)]), 3)
    np.save(tmp_path / "other.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match="holds the blocks of another fit"):
        GroupStore(12, 5, tmp_path / "other.npy")
