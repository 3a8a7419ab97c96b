"""Real processes that learn from a launcher's variables who the others are."""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOLD = ("JAX_", "SLURM_", "OMPI_", "KUBERNETES_", "JOB_COMPLETION_INDEX")
WORDS = """
from natvi import hosts
number = hosts.join(timeout=60)
from natvi.hosts.collect import collect
print("said", number, collect(number * 10), flush=True)
"""


def free_job() -> int:
    """Return the number of a job for which JAX will take a port that is free: 61440 and the number modulo 4096."""
    while True:
        job = random.randrange(4096)
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", 61440 + job)) != 0:
                return job


def run(variables: Mapping[str, str], words: str = WORDS) -> subprocess.Popen[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(TOLD)}
    return subprocess.Popen(
        [sys.executable, "-c", words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=plain | {"PYTHONPATH": str(ROOT / "src")} | dict(variables),
    )


def variables_of(launcher: str, k: int, job: int) -> dict[str, str]:
    address = f"127.0.0.1:{61440 + job}"
    size, rank, local = "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"
    return {
        "SLURM": {
            **{"SLURM_JOB_ID": str(job), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"},
            **{"SLURM_PROCID": str(k), "SLURM_LOCALID": str(k)},
        },
        "Open MPI 4": {
            **{size: "2", rank: str(k), local: str(k)},
            "OMPI_MCA_orte_hnp_uri": f"{job * 4096}.0;tcp://127.0.0.1:1",
        },
        "Open MPI 5": {size: "2", rank: str(k), "JAX_COORDINATOR_ADDRESS": address},
        "Kubernetes": {
            **{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": str(k)},
            **{"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"},
        },
    }[launcher]


@pytest.mark.parametrize("launcher", ["SLURM", "Open MPI 4", "Open MPI 5", "Kubernetes"])
def test_processes_find_each_other_by_the_variables_of_a_launcher(launcher):
    job = free_job()
    started = [run(variables_of(launcher, k, job)) for k in range(2)]
    for k, process in enumerate(started):
        said = process.communicate(timeout=300)[0]
        assert process.returncode == 0 and f"said {k} [0, 10]" in said, said


def test_a_job_of_kubernetes_that_says_too_little_is_told_what_is_missing():
    process = run({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1"})
    said = process.communicate(timeout=300)[0]
    assert process.returncode != 0 and "set JAX_COORDINATOR_ADDRESS and JAX_NUM_PROCESSES in its manifest" in said, said


def test_a_number_that_is_none_is_named():
    process = run({"JAX_NUM_PROCESSES": "two"})
    assert "JAX_NUM_PROCESSES must be a whole number" in process.communicate(timeout=300)[0]
