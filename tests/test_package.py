"""What is published: wheel and source archive hold what they must, and work where nothing else is."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FILES = ("crabs.csv", "epilepsy.csv", "sleepstudy.csv", "contraception.csv.gz", "LICENSES.md")
SESSION = """
import natvi
from importlib import resources
assert "site-packages" in natvi.__file__, natvi.__file__
assert (resources.files("natvi") / "py.typed").is_file()
fit = natvi.glm("y ~ width", natvi.data.load_crabs(), family="bernoulli").fit()
fit.report("page.html")
fit.save("fit.natvi")
print(natvi.__version__, natvi.load("fit.natvi").trust)
"""


def run(*command: str | Path, cwd: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX", "XLA", "NATVI"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=kept, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path) -> Path:
    """Return the folder of programs of a new environment."""
    venv.create(folder, with_pip=True, clear=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    programs = environment(folder / "builder")
    try:
        run(programs / "python", "-m", "pip", "install", "-q", "hatchling>=1.27", cwd=folder)
    except AssertionError as error:
        pytest.skip(f"the builder cannot be installed: {str(error)[-200:]}")
    run(programs / "python", "-m", "hatchling", "build", "-d", folder / "dist", cwd=REPOSITORY)
    return folder / "dist"


@pytest.mark.slow
def test_the_archives_hold_what_they_must(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("METADATA"))
    modules = {path.relative_to(REPOSITORY / "src").as_posix() for path in (REPOSITORY / "src").rglob("*.py")}
    assert modules <= set(names) and "natvi/py.typed" in names
    assert {f"natvi/data/files/{name}" for name in FILES} <= set(names)
    assert not [name for name in names if not re.match(r"natvi(-[\d.]+\.dist-info)?/", name)]
    assert (
        re.search(r"^License-Expression: Apache-2.0$", metadata, re.MULTILINE) and metadata.count("License-File:") == 2
    )
    with tarfile.open(source) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    wanted = (
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "src/natvi/py.typed",
        "tests/conftest.py",
        "mkdocs.yml",
    )
    assert set(wanted) <= inside and not [name for name in inside if "/runs/" in name or name.startswith(".venv")]
    assert wheel.stat().st_size < 2_000_000 and source.stat().st_size < 5_000_000


@pytest.mark.slow
def test_the_wheel_works_where_nothing_else_is(built: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "bare")
    (wheel,) = built.glob("*.whl")
    run(programs / "python", "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    version, trust = run(programs / "python", "-c", SESSION, cwd=tmp_path).split(maxsplit=1)
    assert trust.strip() == "good" and (tmp_path / "page.html").stat().st_size > 10_000
    assert run(programs / "natvi", "--version", cwd=tmp_path) == f"natvi {version}\n"
    assert "Approximation of the posterior" in run(programs / "natvi", "demo", cwd=tmp_path)
    assert (tmp_path / "natvi-demo.html").exists()
