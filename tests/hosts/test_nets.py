"""Nets whose examples lie in two processes: as one process with the minibatches of both."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from natvi.models.deep.bnn import BnnModel
from natvi.models.deep.training import Training, train
from natvi.run.batches.parts import PartBatches, shares_of
from natvi.target.rows import FunctionRows
from natvi.x64 import float32

from . import tasks
from .test_hosts import answers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nets")


@pytest.fixture(scope="module")
def two(folder: Path) -> list[dict[str, Any]]:
    return answers(2, folder, "nets", "keep_net", "net_refusals")


class Joined:
    """The minibatches of two processes as one, and how often each row counts beside the others."""

    def __init__(self, parts: list[tuple[np.ndarray, np.ndarray]], batch_size: int) -> None:
        of_each = tuple(len(y) for _, y in parts)
        rows = [{"x": X, "y": y.astype(np.int32)} for X, y in parts]
        self.parts = [PartBatches(one, of_each, k, batch_size) for k, one in enumerate(rows)]
        self.num_rows, self.batch_size = sum(of_each), batch_size
        assert sum(part.in_use for part in self.parts) == batch_size

    def take(self, step: int, count: int) -> Any:
        mean = self.num_rows / self.batch_size
        shares = [jax.tree.map(lambda a, k=p.in_use: a[:, :k], p.take(step, count)) for p in self.parts]
        shares = [s | {"w": np.full(s["y"].shape, p.scale / mean)} for s, p in zip(shares, self.parts, strict=True)]
        return jax.tree.map(lambda *each: np.concatenate(each, axis=1), *shares)


def alone(model: BnnModel, optimizer: str) -> Any:
    """Train in this process on the minibatches of both."""
    parts = [tasks.own_examples(k, equal=optimizer == "vogn") for k in range(2)]
    joined, training = Joined(parts, tasks.NET["batch_size"]), Training(optimizer, **tasks.NET)
    rows = {"x": np.concatenate([X for X, _ in parts]), "y": np.concatenate([y for _, y in parts]).astype(np.int32)}
    with float32():
        plain, start = model.prepare(rows, training)
        net = model.net

        def weighted(theta: Any, rows: Any) -> Any:
            return rows["w"] * net(theta, rows)

        target = FunctionRows(weighted, plain.rows, plain.prior, plain.num_rows)
        return train(target, start, rows, training, batches=joined)


@pytest.mark.parametrize("optimizer", tasks.OPTIMIZERS)
def test_two_processes_train_as_one_with_the_joined_minibatches(two, optimizer):
    first, second = (said["nets"][optimizer] for said in two)
    assert first == second  # to the bit: state, tables, verdict
    fitted = alone(tasks.net(), optimizer)
    near = {"rtol": 2e-4, "atol": 2e-5}  # single precision, and another order of sums
    np.testing.assert_allclose(first["mean"], fitted.gaussian.mean, **near)
    if optimizer != "point":
        np.testing.assert_allclose(first["sds"], np.abs(fitted.gaussian.factor.values), **near)
    np.testing.assert_allclose(first["elbo"], fitted.elbo, rtol=1e-4)


def test_a_validation_set_is_that_of_all_processes(two):
    said, held = two[0]["nets"]["adam"], [tasks.own_examples(k) for k in range(2)]
    X, y = (np.concatenate([part[at][:20] for part in held]) for at in range(2))
    model = tasks.net()
    fit = model.fit(X, y, epochs=1).model
    same = replace(fit, mean=np.float32(said["mean"]), sds=np.float32(said["sds"]))
    assert same.evaluate(X, y, num_draws=8)["log_likelihood"] == pytest.approx(said["validation"][-1], rel=1e-5)


def test_a_net_goes_on_from_its_checkpoint_to_the_same_bits(two):
    for said in two:
        assert said["keep_net"]["stopped"]["outcome"] == "interrupted"  # process 0 was asked to stop, and all did
        assert said["keep_net"]["again"] == said["keep_net"]["whole"]


def test_another_number_of_processes_goes_on_from_the_checkpoint_of_a_net(two, folder):
    X, y, _ = tasks.examples()
    fit = tasks.net().fit(X, y, checkpoint=folder / "net-for-others", **tasks.NET)
    assert str(fit.outcome) == two[0]["keep_net"]["whole"]["outcome"]
    assert fit.elbo == pytest.approx(two[0]["keep_net"]["whole"]["elbo"], rel=0.2)  # other minibatches


WORDS = {
    "step": ("differ in training", "differ in training"),
    "shape": ("process 1 of 2 stopped", "apply could not be evaluated"),
    "dtype": ("the kind of numbers in x", "the kind of numbers in x"),
    "empty": ("process 1 of 2 stopped", "holds no examples"),
    "labels": ("process 1 of 2 stopped", "Labels must be"),
    "batch": ("larger than the data, 200 examples", "larger than the data, 200 examples"),
    "validation": ("differ in validation", "differ in validation"),
    "other file": ("belongs to another model", "process 0 of 2 stopped"),
}


@pytest.mark.parametrize("what", WORDS)
def test_nets_that_do_not_fit_together_are_refused_in_every_process(two, what):
    for said, word in zip(two, WORDS[what], strict=True):
        assert word in said["net_refusals"][what]


def test_shares_add_up():
    assert shares_of(37, (67, 133)) == [12, 25]
    assert sum(shares_of(128, (1000, 999, 5, 123))) == 128
    assert shares_of(4, (1, 1, 1, 1)) == [1, 1, 1, 1]


def test_a_share_is_drawn_from_own_rows_each_once_in_an_epoch():
    source = PartBatches({"x": np.arange(60)}, (60, 40), 0, 10)
    assert source.in_use == 6 and source.scale == 10.0
    taken = source.take(0, 10)["x"][:, : source.in_use]
    assert sorted(taken.ravel().tolist()) == list(range(60))
