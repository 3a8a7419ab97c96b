"""Programs are kept between processes, and nothing that happens to their folder fails a fit."""

import os
import subprocess
import sys
from pathlib import Path

import jaxlib
import pytest

from natvi.run import program_cache

FIT = """
import os
if os.environ.get("FULL"):  # no file may grow, as on a full disk
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
import jax
jax.jit(lambda x: x + 1)(1.0)  # JAX has compiled before natvi is used
import natvi
counts = {"hits": 0, "all": 0}
def listen(event, **_):
    counts["hits"] += event == "/jax/compilation_cache/cache_hits"
    counts["all"] += event == "/jax/compilation_cache/compile_requests_use_cache"
jax.monitoring.register_event_listener(listen)
fit = natvi.glm_arrays([[0.0], [1.0], [2.0], [4.0]], [1.0, 2.0, 2.5, 5.0]).fit(method="gva")
print(fit.outcome, counts["hits"], counts["all"])
"""


def fit(folder: Path | str, **more: str) -> tuple[str, int, int, str]:
    """Fit in a process of its own; return the outcome, programs found and asked for, and what was said."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "NATVI_CACHE"))}
    environment |= {"NATVI_CACHE": str(folder)} | more
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    outcome, hits, asked = done.stdout.split()
    return outcome, int(hits), int(asked), done.stderr


def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = fit(tmp_path), fit(tmp_path)
    assert first[0] == second[0] == "converged"
    assert first[2] > 5 and first[1] < first[2] and second[1] == second[2]
    for entry in tmp_path.iterdir():  # half-written programs, as a full disk leaves them
        entry.write_bytes(entry.read_bytes()[:40])
    spoilt = fit(tmp_path)
    assert spoilt[:2] == ("converged", 0) and "Error" not in spoilt[3]


def test_a_folder_that_cannot_be_used_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert fit(tmp_path / "file" / "below")[:2] == ("converged", 0)
    assert fit("off", HOME=str(tmp_path), XDG_CACHE_HOME="")[:2] == ("converged", 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    full = fit(tmp_path / "full", FULL="yes")
    assert full[:2] == ("converged", 0) and "Error" not in full[3]


def test_a_file_that_another_process_deletes_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, of two versions perhaps, may tidy up one folder at the same time."""
    (tmp_path / "kept-cache").write_bytes(b"x")
    (tmp_path / "gone-cache").symlink_to(tmp_path / "nowhere")
    program_cache._forget_the_oldest(tmp_path)
    assert (tmp_path / "kept-cache").exists()


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Show JAX's settings as they would be changed, without changing them."""
    settings: dict[str, object] = {}
    monkeypatch.setattr(program_cache.jax.config, "update", settings.__setitem__)
    monkeypatch.setattr(program_cache.compilation_cache, "reset_cache", lambda: None)
    monkeypatch.setattr(program_cache.warnings, "filterwarnings", lambda *args, **options: None)
    monkeypatch.delenv(program_cache.SWITCH, raising=False)
    return settings


def test_the_usual_folder_names_version_and_processor(
    unset: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert program_cache.keep_programs.__wrapped__() is None and unset == {}  # the tests' own folder stands
    usual = program_cache._usual_folder()
    assert usual.parent == tmp_path / "natvi" and jaxlib.__version__ in usual.name


def test_the_oldest_programs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(6):
        (tmp_path / f"{k}-cache").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{k}-cache", (k, k))
    (tmp_path / "empty-cache").touch()
    program_cache._forget_the_oldest(tmp_path)
    assert len(list(tmp_path.iterdir())) == 6
    monkeypatch.setattr(program_cache, "MOST_BYTES", 500)
    program_cache._forget_the_oldest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4-cache", "5-cache"]
