"""`natvi fit --hosts` in every process that a launcher has started, and a launcher for one machine."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from natvi import hosts
from natvi.cli.deliver import say
from natvi.cli.tables import ARROW, PARQUET, Reading, read_table
from natvi.formula.design import parse_formula
from natvi.hosts.collect import count, number
from natvi.hosts.tables import labels_hash

GRACE = 60.0  # seconds that the others have to stop by themselves once one has failed
LOST = 4  # exit code


@contextmanager
def joined() -> Iterator[None]:
    """Join the other processes; a mistake or a lost process ends this one at once, and with it the others."""
    try:
        hosts.join()
        yield
    except (ValueError, OSError, ImportError, hosts.HostLostError) as error:
        if count() == 1 and not isinstance(error, ConnectionError):
            raise
        say(str(error), f"[bold red]natvi, process {number()}:[/] ")
        sys.stdout.flush()
        sys.stderr.flush()
        # to leave by the front door would be to wait for processes that wait for this one
        os._exit(LOST if isinstance(error, hosts.HostLostError) else 2)


def own_part(path: Path, formula: str, how: Reading) -> Any:
    """Return the rows of this process: of Parquet and Arrow files in pieces, of other files a slice or its groups."""
    if path.is_dir() or path.name.endswith(PARQUET + ARROW) or not path.exists():
        return hosts.parquet(path)
    frame = read_table(path, how)
    group = parse_formula(formula).group
    if group is not None and group in frame:
        return frame[labels_hash(frame[group]) % count() == number()]
    return frame.iloc[len(frame) * number() // count() : len(frame) * (number() + 1) // count()]


def launch(
    context: typer.Context,
    processes: Annotated[int, typer.Argument(help="How many processes to start on this machine.")],
) -> None:
    """Start several processes of natvi here: natvi launch 2 fit rows.parquet "y ~ x" --hosts.

    Process 0 prints; when one fails the others are stopped.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    common = os.environ | {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(processes)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "natvi", *context.args],
            env=common | {"JAX_PROCESS_ID": str(k)},
            stdout=None if k == 0 else subprocess.DEVNULL,
        )
        for k in range(processes)
    ]
    try:
        code = _watch(started)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
    raise typer.Exit(code)


def _watch(started: list[subprocess.Popen]) -> int:
    """Wait for all; once one has failed, for the others not longer than they need to notice it."""
    failed, until, told = 0, None, set()
    while True:
        running = any(process.poll() is None for process in started)
        for k, process in enumerate(started):
            if process.returncode and k not in told:
                told.add(k)
                code = process.returncode
                what = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                say(f"process {k} of {len(started)} {what}.", "[bold red]natvi:[/] ")
                failed, until = failed or (128 - code if code < 0 else code), time.monotonic() + GRACE
        if not running or (until is not None and time.monotonic() > until):
            return failed
        time.sleep(0.1)
