"""Compiled programs are kept between processes, so that a user waits for the compiler once.

JAX writes them into a folder of the user's, `~/.cache/natvi/...` (under XDG_CACHE_HOME where that is set), named after
the version of jaxlib and the processor's features: programs of another version or machine lie elsewhere. A folder that
the user has chosen for JAX stays in use. The environment variable NATVI_CACHE names another folder, or turns keeping
`off`. Nothing that happens to the folder can fail a fit: what cannot be read is compiled, what cannot be written is not
kept. Beyond a gigabyte the oldest programs go.
"""

import hashlib
import os
import platform
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

import jax
import jaxlib
from jax.experimental.compilation_cache import compilation_cache

from natvi.run.program_names import processor

SWITCH = "NATVI_CACHE"
OFF = ("off", "no", "false", "0")
MOST_BYTES = 1 << 30


@cache
def keep_programs() -> Path | None:
    """Let JAX keep compiled programs, and return where; None where it is not to, or does so elsewhere.

    A second call does nothing.
    """
    wish, settings = os.environ.get(SWITCH, ""), jax.config.values
    own = settings["jax_compilation_cache_dir"] or not settings["jax_enable_compilation_cache"]
    if wish.lower() in OFF or own:
        return None
    folder = Path(wish).expanduser() if wish else _usual_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _forget_the_oldest(folder)
    except OSError:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    compilation_cache.reset_cache()  # JAX decides at its first compilation, which may have been
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    return folder


def _usual_folder() -> Path:
    features = hashlib.sha256(processor().encode()).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "natvi" / f"jaxlib-{jaxlib.__version__}-{platform.machine()}-{features}"


def _forget_the_oldest(folder: Path) -> None:
    """Delete the oldest files of a folder that holds too much, until it is half full, and files without content."""
    found = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process tidies up too
            found.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    found.sort()
    total = sum(size for _, size, _ in found)
    limit = MOST_BYTES // 2 if total > MOST_BYTES else total
    for _, size, path in found:
        if size == 0 or total > limit:
            Path(path).unlink(missing_ok=True)
            total -= size
