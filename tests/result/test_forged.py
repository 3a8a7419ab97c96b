"""Saved files forged with a right checksum: refused with a sentence, or a fit that can be read; never a crash."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.models.mixed.marginal import method as mixed_marginal
from natvi.run import storage

RNG = np.random.default_rng(5)
TABLE = pd.DataFrame({"x": RNG.normal(size=30), "g": np.repeat(["a", "b", "c", "d", "e"], 6)})
TABLE["y"] = TABLE["x"] + RNG.normal(size=30) + np.repeat(RNG.normal(size=5), 6)
VALUES = (None, True, -1, 0, 10**60, 1e400, float("nan"), "", "text", "good", [], [1], [None], {}, {"a": [0]}, [[1.0]])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("fits")
    mixed = natvi.glmm("y ~ x + (1 | g)", TABLE)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRST_DRAWS", "MOST_DRAWS"):  # each file is written, read and summed up many times
            patch.setattr(mixed_marginal, name, 256)
        fits = {
            "glm": natvi.glm("y ~ x", TABLE).fit(),
            "gva": mixed.fit(method="gva"),
            "marginal": mixed.fit(method="marginal"),
        }
    return {name: storage.read(fit.save(folder / name), "fit") for name, fit in fits.items()}


def places(document: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, the way to it."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [way, *(found for key, item in items for found in places(item, (*way, key)))]


def forge(document: dict[str, Any], way: tuple[Any, ...], value: Any) -> dict[str, Any]:
    forged = copy.deepcopy(document)
    inside: Any = forged
    for key in way[:-1]:
        inside = inside[key]
    inside[way[-1]] = value
    return forged


def read_or_refuse(path: Path, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> bool:
    """Write, load and use a forged fit; return whether it was taken. Anything but a ValueError fails the test."""
    storage.write(path, "fit", arrays, document)
    try:
        fit = natvi.load(path)
        assert str(fit) and len(fit.summary()) and fit._repr_html_()
        fit.sample(2, random_effects=False)
        fit.contents()
        fit.predict(TABLE)
    except ValueError as error:
        assert str(error)
        return False
    return True


@pytest.mark.parametrize("name", ["glm", "gva", "marginal"])
def test_fields_of_another_type(name: str, files: Any, tmp_path: Path) -> None:
    arrays, document = files[name]
    rng = np.random.default_rng(1)
    ways = places(document)[1:]
    taken = 0
    for at in rng.permutation(len(ways))[:40]:
        value = VALUES[int(rng.integers(len(VALUES)))]
        taken += read_or_refuse(tmp_path / "fit", arrays, forge(document, ways[int(at)], value))
    assert taken < 25  # some texts and numbers may be anything
    for key in document:
        read_or_refuse(tmp_path / "fit", arrays, {k: v for k, v in document.items() if k != key})


@pytest.mark.parametrize("name", ["glm", "gva", "marginal"])
def test_arrays_of_another_kind(name: str, files: Any, tmp_path: Path) -> None:
    arrays, document = files[name]
    for key, array in arrays.items():
        if key == "trace" or array.size == 0:
            continue
        holed = array.astype(np.float64)
        holed.flat[0] = np.nan
        shorter = array[:0] if array.ndim else array
        other = np.zeros(array.shape, np.int8) if array.dtype.kind == "f" else array[..., None]
        for bad in (holed, shorter, other, array[None]):
            assert not read_or_refuse(tmp_path / "fit", {**arrays, key: bad}, document), key
        if not key.startswith(("map_", "prior_")):  # files of before had none
            assert not read_or_refuse(tmp_path / "fit", {k: v for k, v in arrays.items() if k != key}, document), key


def test_sizes_beyond_the_file(files: Any, tmp_path: Path) -> None:
    arrays, document = files["glm"]
    path = tmp_path / "fit"
    storage.write(path, "fit", arrays, document)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header["mean"]["shape"] = [2**40]
    header["mean"]["data_offsets"] = [0, 2**43]
    forged = json.dumps(header).encode()
    path.write_bytes(len(forged).to_bytes(8, "little") + forged + raw[8 + length :])
    with pytest.raises(storage.StorageError):
        natvi.load(path)


def test_a_fit_that_failed_can_be_loaded(files: Any, tmp_path: Path) -> None:
    arrays, document = files["glm"]
    failed = {**document, "outcome": "nonfinite", "trust": "do not use"}
    storage.write(tmp_path / "fit", "fit", {**arrays, "mean": np.full_like(arrays["mean"], np.nan)}, failed)
    assert natvi.load(tmp_path / "fit").trust == "do not use"
