"""The command line: `natvi fit`, and what can be done with saved fits."""

import gc

from natvi.collector import collector_at_rest


def main() -> None:
    """Run the command line, imported without pauses; what was imported is never garbage."""
    with collector_at_rest():
        from natvi.cli.app import run

        gc.freeze()
    run()
