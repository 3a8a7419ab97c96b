"""Table 9 in small: images of 12 by 12 pixels, nets of one epoch, and all that is made of them afterwards."""

import jax
import numpy as np
import pytest
from experiments.kept import all_kept, is_kept, keep
from experiments.memory import VARIABLE
from experiments.net_runs import Images
from experiments.report import Report

from experiments import figure8, kept, net_extras, net_pictures, net_runs, table9
from natvi import data
from natvi.run import Outcome

SIDE, CLASSES = 12, 10


def digits(seed, n):
    """A bright block whose place is its class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    X = rng.integers(0, 60, (n, SIDE, SIDE, 1))
    for image, k in zip(X, y, strict=True):
        image[2 * (k % 5) : 2 * (k % 5) + 3, 6 * (k // 5) : 6 * (k // 5) + 4] += 180
    return data.Images(X.astype(np.uint8), y)


@pytest.fixture(scope="module", autouse=True)
def small(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("nets")
        patch.setenv(VARIABLE, str(folder / "checkpoints"))
        patch.setattr(kept, "ROOT", folder / "runs")
        patch.setitem(net_runs.SETS, "mnist", Images("mnist", 6, 1, 1))
        patch.setitem(net_runs.LOADERS, "mnist", lambda: (digits(0, 1280), digits(1, 200)))
        patch.setattr(data, "load_fashion_mnist", lambda: (digits(2, 10), digits(3, 200)))
        patch.setattr(net_runs, "HELD_OUT", 128)
        patch.setattr(net_runs, "DRAWS", 4)
        patch.setattr(net_pictures, "SHOWN", 200)
        patch.setattr(net_pictures, "DRAWS", 4)
        patch.setattr(net_pictures, "PICTURES", folder / "pictures")
        net_runs.images.cache_clear()
        yield folder
        net_runs.images.cache_clear()
        jax.clear_caches()


def test_a_run_is_made_once_with_its_curve():
    found = net_runs.run("mnist", "plain Adam")
    assert found["outcome"] == "max_steps" and found["acc"] > 30
    assert [point["epoch"] for point in found["curve"]] == [1, 2, 3, 4, 5, 6] and "tll" in found["curve"][1]
    assert net_runs.run("mnist", "plain Adam") == all_kept("table9")["mnist-plain-adam"]


@pytest.mark.slow
def test_rows_made_of_trained_nets():
    several, last = net_extras.ensemble("mnist"), net_extras.last_layer("mnist")
    assert (
        several["tll"] < 0
        and several["acc"] > 30
        and last["acc"] > 30
        and np.isfinite([several["tll"], last["ece"]]).all()
    )


def test_the_net_of_a_checkpoint_is_that_of_the_run():
    model, mean = net_extras.trained("mnist", "plain Adam")
    _, test = net_runs.images("mnist")
    again = net_runs.score(model, mean, None, test.X, test.y, 1)
    assert again["tll"] == pytest.approx(net_runs.run("mnist", "plain Adam")["tll"], rel=1e-5)


@pytest.mark.slow
def test_both_pictures_are_drawn(small, capsys):
    net_pictures.main()
    assert {path.name for path in (small / "pictures").iterdir()} == {"rotated-digit.png", "digits-and-clothes.png"}
    assert "AUC of the score" in capsys.readouterr().out


def test_table_and_figure_take_what_is_kept(monkeypatch):
    net_runs.run("mnist", "plain Adam")
    monkeypatch.setenv(table9.KEPT_ONLY, "1")
    report = Report("table9")
    table9.run(report)
    ours = {(cell["row"], cell["metric"]): cell["ours"] for cell in report.cells}
    assert ours["plain Adam", "accuracy"] > 30
    assert "VOGN on MNIST" in report.settings["missing"] and report.settings["missing"]
    picture = Report("figure8")
    figure8.run(picture)
    assert picture.figure is not None


def test_an_interrupted_run_is_not_kept():
    with pytest.raises(KeyboardInterrupt, match="goes on from its checkpoint"):
        keep("table9", "half", {}, lambda path: {"outcome": str(Outcome.INTERRUPTED)})
    assert not is_kept("table9", "half")


def test_strangers_are_ranked():
    assert net_pictures.area(np.r_[np.zeros(200), np.ones(200)]) == 1.0
