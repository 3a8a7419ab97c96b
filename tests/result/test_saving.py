"""Saved fits come back as they were, or not at all; a file never makes natvi run anything."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.data import load_epilepsy, load_sleepstudy
from natvi.run.storage import file_format as storage
from natvi.run.storage.file_format import StorageError

EPILEPSY = "y ~ base*trt + age + visit + (1 | subject)"
SLEEP = "Reaction ~ Days + (Days | Subject)"


@pytest.fixture
def saved(counts: natvi.Result, tmp_path: Path) -> Path:
    return counts.save(tmp_path / "fit.natvi")


@pytest.mark.parametrize(("name", "load_data"), [("counts", load_epilepsy), ("sleep", load_sleepstudy)])
def test_round_trip(name: str, load_data: Callable, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result: natvi.Result = request.getfixturevalue(name)
    path = result.save(str(tmp_path / "fit.natvi"))
    assert path == tmp_path / "fit.natvi"
    back = natvi.load(path)
    for attribute in ("method", "structure", "outcome", "elbo", "elbo_se", "seconds", "trust", "trust_reasons"):
        assert getattr(back, attribute) == getattr(result, attribute)
    np.testing.assert_array_equal(back.trace, result.trace)
    for table in ("summary", "fixed_effects", "random_effects", "variance_components"):
        pd.testing.assert_frame_equal(getattr(back, table)(), getattr(result, table)(), check_exact=True)
    draws, again = result.sample(128, seed=4), back.sample(128, seed=4)
    assert list(draws) == list(again)
    assert all(draws[name].tobytes() == again[name].tobytes() for name in draws)
    rows = load_data().iloc[::17]
    for groups in ("known", "new", "population"):
        for kind in ("link", "response"):
            expected = result.predict(rows, groups=groups, kind=kind)
            pd.testing.assert_frame_equal(back.predict(rows, groups=groups, kind=kind), expected, check_exact=True)
    assert repr(back) == repr(result) and back._repr_html_() == result._repr_html_()
    assert back.report(tmp_path / "page.html").exists()
    assert list(back.to_arviz(128).posterior.data_vars) == list(result.to_arviz(128).posterior.data_vars)


def test_saving_what_was_loaded_changes_nothing(saved: Path) -> None:
    again = natvi.load(saved).save(saved.with_name("again"))
    arrays, document = storage.read(saved, "fit")
    same_arrays, same_document = storage.read(again, "fit")
    assert document == same_document and set(arrays) == set(same_arrays)
    assert all(arrays[name].tobytes() == same_arrays[name].tobytes() for name in arrays)


def test_a_result_can_be_pickled(counts: natvi.Result) -> None:
    back = pickle.loads(pickle.dumps(counts))
    assert repr(back) == repr(counts)
    pd.testing.assert_frame_equal(back.random_effects(), counts.random_effects(), check_exact=True)


@pytest.mark.parametrize(
    "labels",
    [
        pd.date_range("2020-01-01", periods=18),
        pd.interval_range(0, 18),
        [1, "a", 2.5, *"bcdefghijklmnop"],
        [(i, "x") for i in range(18)],
        [f"é, '{i}'" for i in range(18)],
        np.arange(18) / 7,
    ],
    ids=["dates", "intervals", "mixed", "tuples", "text", "fractions"],
)
def test_labels_of_every_kind_survive(labels: Any, tmp_path: Path) -> None:
    data = load_sleepstudy()
    codes = pd.factorize(data["Subject"])[0]
    data["Subject"] = pd.Series([labels[code] for code in codes], index=data.index)
    result = natvi.glmm(SLEEP, data).fit(method="gva")
    back = natvi.load(result.save(tmp_path / "fit"))
    pd.testing.assert_frame_equal(back.predict(data), result.predict(data), check_exact=True)
    assert back.predict(data)["sd"].max() < 20  # each subject's own effects are used


def test_special_columns_survive(tmp_path: Path) -> None:
    data = load_epilepsy().assign(arm=lambda d: d["trt"].map({0: "placebo", 1: "drug"}), weeks=2.0)
    formula = "y ~ scale(base)*arm + center(age) + visit + offset(log(weeks)) + (1 | subject)"
    result = natvi.glmm(formula, data, family="poisson").fit(method="gva")
    back = natvi.load(result.save(tmp_path / "fit"))
    rows = data.head(3)  # the means of the training data are used, not those of these rows
    pd.testing.assert_frame_equal(back.predict(rows), result.predict(data).head(3), rtol=1e-12)


# --- files that are not what they should be ----------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nothing\.natvi does not exist.*Check the name"):
        natvi.load(tmp_path / "nothing.natvi")
    with pytest.raises(StorageError, match="not a file"):
        natvi.load(tmp_path)


def test_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    load_epilepsy().to_csv(path)
    with pytest.raises(StorageError, match="not a natvi file"):
        natvi.load(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_truncated_file(saved: Path, share: float) -> None:
    raw = saved.read_bytes()
    saved.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(StorageError, match=r"truncated: .*Copy it again|scrap"):
        natvi.load(saved)


@pytest.mark.parametrize("where", ["array", "document"])
def test_tampered_file(saved: Path, where: str) -> None:
    raw = bytearray(saved.read_bytes())
    at = len(raw) - 20 if where == "array" else raw.index(b"poisson")
    raw[at] ^= 1
    saved.write_bytes(bytes(raw))
    with pytest.raises(StorageError, match=r"altered or damaged.*checksum"):
        natvi.load(saved)


def test_newer_version(saved: Path) -> None:
    storage.write(saved, "fit", *storage.read(saved, "fit"), version=storage.FORMAT_VERSION + 1)
    with pytest.raises(StorageError, match=r"format version 2.*reads up to version 1.*pip install -U natvi"):
        natvi.load(saved)


def test_checkpoint_in_place_of_a_fit(tmp_path: Path) -> None:
    model = natvi.glmm(EPILEPSY, load_epilepsy(), family="poisson")
    model.fit(method="gva", max_steps=2, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(StorageError, match="holds a checkpoint, and a saved fit is needed"):
        natvi.load(tmp_path / "checkpoint")


def test_fit_in_place_of_a_checkpoint(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(StorageError, match="holds a saved fit, and a checkpoint is needed"):
        natvi.glmm(EPILEPSY, load_epilepsy(), family="poisson").fit(checkpoint=saved)
    assert saved.read_bytes() == before


def test_failed_save_keeps_the_old_file(saved: Path, counts: natvi.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(OSError, match=r"no room for .* MB.*older file of this name is as it was"):
        counts.save(saved)
    assert saved.read_bytes() == before and len(list(saved.parent.iterdir())) == 1


# --- files made by someone who means harm ------------------------------------------------------------------

EVIL = "__import__('os').system('touch {}')"


def rewrite(path: Path, change: Callable[[dict[str, Any], str], None]) -> Path:
    """Change the document of a saved fit and seal it again with a valid checksum; return the file it would touch."""
    arrays, document = storage.read(path, "fit")
    victim = path.with_name("victim")
    change(document, EVIL.format(victim))
    storage.write(path, "fit", arrays, document)
    return victim


def set_everywhere(node: Any, old: str, new: str) -> Any:
    """Replace a text wherever it stands in a nested document, keys included."""
    if isinstance(node, dict):
        return {set_everywhere(k, old, new): set_everywhere(v, old, new) for k, v in node.items()}
    if isinstance(node, list):
        return [set_everywhere(item, old, new) for item in node]
    return new if node == old else node


INERT: dict[str, Callable[[dict[str, Any], str], None]] = {
    "formula": lambda document, evil: document.update(formula=f"y ~ {evil} + (1 | subject)"),
    "prior": lambda document, evil: document.update(prior=evil),
    "notes": lambda document, evil: document.update(notes=[evil]),
    "a column": lambda document, evil: document.update(columns=set_everywhere(document["columns"], "age", evil)),
    "fixed names": lambda document, evil: document.update(fixed_names=[evil, *document["fixed_names"][1:]]),
}
REFUSED: dict[str, Callable[[dict[str, Any], str], None]] = {
    "model": lambda document, evil: document.update(model=evil),
    "family": lambda document, evil: document.update(family=evil),
    "outcome": lambda document, evil: document.update(outcome=evil),
    "operation": lambda document, evil: document.update(
        columns=set_everywhere(document["columns"], "column", evil)  # the operation that reads a column
    ),
    "component": lambda document, evil: document.update(columns=set_everywhere(document["columns"], "numeric", evil)),
    "columns": lambda document, evil: document.update(columns=evil),
    "offset": lambda document, evil: document["columns"].update(offset=[evil]),
    "no formula": lambda document, evil: document.pop("formula"),
    "elbo": lambda document, evil: document.update(elbo=evil),
}


@pytest.mark.parametrize("name", INERT)
def test_code_in_a_document_is_inert(saved: Path, name: str) -> None:
    victim = rewrite(saved, INERT[name])
    back = natvi.load(saved)
    repr(back), back._repr_html_(), back.summary(), back.sample(128), back.report(saved.with_name("page.html"))
    if name == "a column":
        with pytest.raises(ValueError, match='no column "__import__'):
            back.predict(load_epilepsy())
    else:
        back.predict(load_epilepsy())
    assert not victim.exists()


@pytest.mark.parametrize("name", REFUSED)
def test_code_in_place_of_a_known_word_is_refused(saved: Path, name: str) -> None:
    victim = rewrite(saved, REFUSED[name])
    with pytest.raises(StorageError, match=r"fit\.natvi.*upgrade"):
        natvi.load(saved)
    assert not victim.exists()


def test_html_in_a_document_is_escaped(saved: Path) -> None:
    rewrite(saved, lambda document, evil: document.update(formula="<script>alert(1)</script>", notes=["<img src=x>"]))
    page = natvi.load(saved)._repr_html_()
    assert "<script>" not in page and "<img" not in page


def test_arrays_of_another_shape_are_refused(saved: Path) -> None:
    arrays, document = storage.read(saved, "fit")
    for name, array in (("mean_local", arrays["mean_local"][:, :5]), ("mean_shared", arrays["mean_shared"][:2])):
        storage.write(saved, "fit", {**arrays, name: array}, copy.deepcopy(document))
        with pytest.raises(StorageError, match=f"{name}.*shape"):
            natvi.load(saved)


# --- another process ---------------------------------------------------------------------------------------

READER = """
import sys
import natvi
result = natvi.load(sys.argv[1])
print(repr(result))
print(result.sample(128, seed=4)["base"].tobytes().hex())
"""


def test_loading_in_a_fresh_process(saved: Path, counts: natvi.Result) -> None:
    run = subprocess.run([sys.executable, "-c", READER, str(saved)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{counts!r}\n{counts.sample(128, seed=4)['base'].tobytes().hex()}\n"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (("gva snngm", "arrow"), ("gva", "snngm", "arrow")),
        (("marginal", "draws"), ("marginal", "ascent", "arrow")),
        (("exact", "dense"), ("gva", "ascent", "dense")),
        (("rvb1 adam", "block"), ("rvb1", "adam", "block")),
    ],
)
def test_words_of_earlier_files_are_understood(
    before: tuple[str, str], now: tuple[str, str, str], counts: natvi.Result, tmp_path: Path
) -> None:
    arrays, document = counts.contents()
    del document["optimizer"]
    storage.write(tmp_path / "old.natvi", "fit", arrays, document | {"method": before[0], "structure": before[1]})
    found = natvi.load(tmp_path / "old.natvi")
    assert (found.method, found.optimizer, found.structure) == now
