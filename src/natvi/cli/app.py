"""The commands, and what becomes of mistakes."""

import shutil
import sys
from typing import Annotated

import typer

from natvi.cli import commands, fitting, together
from natvi.cli.deliver import INTERRUPTED, say, versions
from natvi.run import storage
from natvi.run.program_cache import keep_programs

BOXES = 60  # columns from which on help comes in boxes; narrower ones cut words
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if shutil.get_terminal_size().columns >= BOXES else None,
    help="The command line: `natvi fit`, and what can be done with saved fits.",
)
for command in (
    fitting.fit,
    commands.predict,
    commands.report,
    commands.compare,
    commands.show,
    commands.info,
    commands.demo,
):
    app.command()(command)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(together.launch)


def _version(asked: bool | None) -> bool:
    if asked:
        sys.stdout.write(f"natvi {versions()['natvi']}\n")
        raise typer.Exit
    return False


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Full posteriors for the price of a point estimate, from a terminal."""


def run() -> None:
    """Run the command line; mistakes give a sentence and exit code 2, not a traceback."""
    keep_programs()
    try:
        app()
    except (ValueError, OSError, ImportError, storage.StorageError) as error:
        if isinstance(error, BrokenPipeError):  # `natvi show fit.natvi | head` has seen enough
            raise SystemExit(0) from None
        say(str(error), "[bold red]natvi:[/] ")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        say("stopped; nothing was written.", "[bold red]natvi:[/] ")
        raise SystemExit(INTERRUPTED) from None
