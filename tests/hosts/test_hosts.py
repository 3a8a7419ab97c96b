"""Real processes over loopback: the same model, the rows divided, the same answer."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi import hosts

from . import tasks

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(processes: int, folder: Path, *names: str, **last: str) -> list[subprocess.Popen[str]]:
    port, paths = str(free_port()), [path for path in [os.environ.get("PYTHONPATH")] if path]
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.hosts.worker", str(processes), str(k), port, str(folder), *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *paths]),
                **(last if k == processes - 1 else {}),
            },
        )
        for k in range(processes)
    ]


def answers(processes: int, folder: Path, *names: str) -> list[dict[str, Any]]:
    started = start(processes, folder, *names)
    said = [process.communicate(timeout=900)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes, "\n".join(said)
    return [json.loads((folder / f"{processes}-{k}.json").read_text()) for k in range(processes)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """One process, the same code: the rows come in pieces."""
    whole, many = (hosts.pieces(lambda rows=rows: [rows[:200], rows[200:]]) for rows in (tasks.table(), tasks.many()))
    found = {name: tasks.both(natvi.glm(f"{name} ~ {tasks.FIXED}", many, family=name)) for name in tasks.FAMILIES}
    mixed = {name: tasks.both(natvi.glmm(f"{name} ~ {tasks.MIXED}", whole, family=name)) for name in tasks.FAMILIES}
    return {"glm": found, "glmm": mixed}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(folder: Path) -> list[dict[str, Any]]:
    return answers(2, folder, "glm", "glmm", "keep", "batches", "refusals")


def near(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    for name in set(expected) - {"state"}:
        np.testing.assert_allclose(found[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("kind", ["glm", "glmm"])
def test_two_processes_give_the_answer_of_one(alone, two, kind):
    for name in tasks.FAMILIES:
        first, second = (said[kind][name] for said in two)
        assert first == second  # to the bit
        near(first["steps"], alone[kind][name]["steps"], 1e-10)
        near(first["end"], alone[kind][name]["end"], 1e-8)


@pytest.mark.parametrize("kind", ["glm", "glmm"])
@pytest.mark.parametrize("family", tasks.FAMILIES)
def test_one_process_gives_the_answer_of_rows_in_memory(alone, kind, family):
    formula = f"{family} ~ {tasks.FIXED if kind == 'glm' else tasks.MIXED}"
    frame = tasks.many() if kind == "glm" else tasks.table()
    plain = getattr(natvi, kind)(formula, frame, family=family).fit(method="gva", tolerance=tasks.TIGHT)
    # another start: both stop within the tolerance, not at the same point
    near(alone[kind][family]["end"], tasks.numbers_of(plain), 1e-5)


@pytest.mark.slow
def test_four_processes_give_the_answer_of_one(alone, tmp_path):
    for said in answers(4, tmp_path, "glm", "glmm"):
        for kind in ("glm", "glmm"):
            for name in tasks.FAMILIES:
                near(said[kind][name]["steps"], alone[kind][name]["steps"], 1e-10)
                near(said[kind][name]["end"], alone[kind][name]["end"], 1e-8)


WORDS = {
    "formula": ("differ in formula", "differ in formula"),
    "columns": ("process 1 of 2 stopped", "no column 'x'"),
    "kinds": ("the kind of column 'x'", "process 1 has 'factor'"),
    "levels": ("categories of column 'f'", "same order"),
    "empty": ("process 1 of 2 has no rows", "no rows"),
    "split": ("rows in several processes", "whole groups"),
    "crossed": ("several grouping factors", "one process"),
    "steps": ("max_steps", "max_steps"),
    "learned": ("scale() learns", "scale() learns"),
    "density": ("natvi.fit fits the data of one process", "process 1 of 2"),
    "deep": ("A deep GLM fits the data of one process", "process 1 of 2"),
    "response": ("must be a count", "process 0 of 2 stopped"),
}


@pytest.mark.parametrize("what", WORDS)
def test_bad_input_gets_an_answer_in_every_process(two, what):
    for said, word in zip(two, WORDS[what], strict=True):
        assert word in said["refusals"][what]


def test_a_fit_goes_on_from_its_checkpoint_to_the_same_bits(two):
    for said in two:
        for kind in ("glm", "glmm"):
            assert said["keep"][kind]["again"] == said["keep"][kind]["whole"]


@pytest.mark.parametrize("kind", ["glm", "glmm"])
def test_another_number_of_processes_goes_on_from_a_checkpoint(two, folder, kind):
    whole, formula = hosts.pieces(lambda: [tasks.table()]), {"glm": tasks.FIXED, "glmm": tasks.MIXED}[kind]
    model = getattr(natvi, kind)(f"poisson ~ {formula}", whole, family="poisson")
    found = model.fit(checkpoint=folder / f"{kind}-for-others", tolerance=1e-13)
    near(tasks.numbers_of(found), two[0]["keep"][kind]["whole"], 1e-8)
    with pytest.raises(natvi.run.storage.StorageError, match="belongs to another model"):
        other = getattr(natvi, kind)(f"gaussian ~ {formula}", whole)
        other.fit(checkpoint=folder / f"{kind}-for-others")


def test_batches_of_two_processes_give_the_answer_of_one(two, tmp_path):
    alone, said = tasks.batches(1, 0, tmp_path), [one["batches"] for one in two]
    assert said[0] == said[1]
    np.testing.assert_allclose(said[0]["rows"]["mean"], alone["rows"]["mean"], rtol=1e-9)
    np.testing.assert_allclose(said[0]["rows"]["elbo"], alone["rows"]["elbo"], rtol=1e-12)
    np.testing.assert_allclose(said[0]["groups"]["elbo"], alone["groups"]["elbo"], atol=1e-5)
    np.testing.assert_allclose(said[0]["groups"]["mean"], alone["groups"]["mean"], atol=1e-4)


@pytest.mark.parametrize("task", ["die", "die_net"])
def test_when_a_process_dies_the_other_says_so(tmp_path, task):
    first, second = start(2, tmp_path, task)
    said = first.communicate(timeout=600)[0]
    second.communicate(timeout=60)
    assert second.returncode == -9 and first.returncode == 7, said
    assert "another process of this fit has ended" in (tmp_path / "lost-0").read_text()
    assert "checkpoint" in (tmp_path / "lost-0").read_text()


def test_processes_with_other_precision_settings_are_refused(tmp_path):
    started = start(2, tmp_path, "glm", JAX_ENABLE_X64="1")
    for process in started:
        said = process.communicate(timeout=600)[0]
        assert process.returncode != 0 and "differ in jax_enable_x64" in said, said


def test_a_coordinator_that_nobody_runs_is_named(tmp_path):
    words = f"from natvi import hosts; hosts.join('127.0.0.1:{free_port()}', 2, 1, timeout=2)"
    done = subprocess.run(
        [sys.executable, "-c", words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode != 0 and "nobody answers at 127.0.0.1" in done.stderr, done.stderr


def test_too_little_said_about_the_others():
    with pytest.raises(ValueError, match="all are needed"):
        hosts.join("127.0.0.1:1234", 2)


def launched(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "natvi", "launch", "2", *words],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_the_launcher_fits_a_file_in_two_processes(tmp_path):
    frame = tasks.table()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    target = tmp_path / "summary.json"
    done = launched(
        *("fit", str(tmp_path / "rows.csv"), "poisson ~ x + (1 | g)", "--family", "poisson"),
        *("--hosts", "--json", str(target), "--effects", str(tmp_path / "effects")),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Fixed effects") == 1
    plain = natvi.glmm("poisson ~ x + (1 | g)", frame, family="poisson").fit(method="gva")
    found = json.loads(target.read_text())["coefficients"]
    for name, row in plain.fixed_effects().iterrows():
        assert found[name]["mean"] == pytest.approx(row["mean"], rel=1e-4)
    files = sorted((tmp_path / "effects").iterdir())  # one of each process, together all groups once
    effects = pd.concat(map(pd.read_parquet, files)).sort_values("g", ignore_index=True)
    assert [file.name for file in files] == [f"part-0000{k}-of-00002.parquet" for k in range(2)]
    assert effects["g"].tolist() == plain.random_effects()["g"].tolist()
    np.testing.assert_allclose(effects["mean"], plain.random_effects()["mean"], atol=1e-4)


def test_the_launcher_says_which_process_failed(tmp_path):
    done = launched("fit", str(tmp_path / "nowhere.parquet"), "y ~ x", "--hosts")
    assert done.returncode == 2
    assert "no Parquet or Arrow file" in done.stderr and "ended with code 2" in done.stderr
