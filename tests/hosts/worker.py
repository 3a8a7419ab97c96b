"""One of several processes in tests: `python -m tests.hosts.worker PROCESSES NUMBER PORT FOLDER TASK...`."""

import json
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    """Join, do the tasks, and write what came out of each."""
    processes, number = int(sys.argv[1]), int(sys.argv[2])
    folder, tasks = Path(sys.argv[4]), sys.argv[5:]
    from tests.hosts import tasks as known

    from natvi import hosts

    answers: dict[str, Any] = {}
    hosts.join(f"127.0.0.1:{sys.argv[3]}", processes, number, timeout=60)
    for task in tasks:
        try:
            answers[task] = getattr(known, task)(processes, number, folder)
        except Exception as error:
            traceback.print_exc()
            answers[task] = {"error": f"{type(error).__name__}: {error}"}
        (folder / f"{processes}-{number}.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
