"""Starting and ending the company of processes, and what they have to agree on before anything is computed."""

import os
import platform
import socket
import sys
import time
from importlib import metadata
from typing import Any

import jax

from natvi.hosts.collect import collect, count

PACKAGES = ("natvi", "jax", "jaxlib", "numpy")
CURE = (
    "Start every process with the same address of process 0 (host:port, reachable from all, a port that is free), the "
    "same number of processes and its own number from 0 on."
)
NUMBERS = ("JAX_PROCESS_ID", "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK")  # of JAX, Kubernetes, Open MPI
COUNTS = ("JAX_NUM_PROCESSES", "OMPI_COMM_WORLD_SIZE")
_state: dict[str, bool] = {"agreed": False}


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    number: int | None = None,
    *,
    timeout: int = 60,
    heartbeat: int = 20,
) -> int:
    """Join the processes that fit together; after this the doors take what they get as this process's part.

    Under SLURM and Open MPI JAX finds the three by itself; elsewhere give them, or set `JAX_COORDINATOR_ADDRESS`,
    `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`. An indexed job of Kubernetes has the number (`JOB_COMPLETION_INDEX`) and
    needs the other two; with `pip install 'jax[k8s]'` and the right to read its pods JAX finds them too. Where
    `jax.distributed.initialize` was called already it is not called again.

    Args:
        coordinator: Address of process 0, `host:port`.
        processes: How many there are.
        number: Of this process, from 0 on.
        timeout: Seconds to wait for the others.
        heartbeat: Seconds without a sign of life after which a process counts as lost.

    Returns:
        The number of this process.

    Raises:
        ValueError: Where processes differ in versions or in settings that change numbers, or too little is known.
        ConnectionError: Where the others cannot be reached.

    Example:
        >>> from natvi import hosts
        >>> hosts.join()  # one process, no launcher: nothing to join
        0
    """
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    for name in COUNTS if coordinator else COUNTS[:1]:  # what a launcher says is half of the truth without an address
        processes = _from_environment(name, processes)
    for name in NUMBERS if coordinator else NUMBERS[:1]:
        number = _from_environment(name, number)
    given = (coordinator, processes, number)
    if not jax.distributed.is_initialized():
        if processes == 1 or (all(part is None for part in given) and not _has_launcher()):
            return 0
        if any(part is None for part in given) and not _has_launcher():
            raise ValueError(
                f"coordinator={coordinator!r}, processes={processes!r}, number={number!r}: all are needed "
                f"where no launcher says them. {CURE}"
            )
        _connect(coordinator, processes, number, timeout, heartbeat)
    if not _state["agreed"]:
        require_agreement(_habits(), "they would not compute the same numbers")
        _state["agreed"] = True
    return jax.process_index()


def _connect(coordinator: str | None, processes: int | None, number: int | None, timeout: int, heartbeat: int) -> None:
    known = None not in (coordinator, processes, number)  # else JAX asks the launcher
    if coordinator is not None and number:
        _wait_for(coordinator, timeout)  # JAX would end the process where nobody answers
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            number,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=heartbeat,
            cluster_detection_method="deactivate" if known else None,
        )
        jax.devices()
    except ValueError as error:
        raise ValueError(
            f"{str(error).rstrip('.')}: coordinator={coordinator!r}, processes={processes!r}, number={number!r}, and "
            f"the launcher does not say the rest. {CURE} In a job of Kubernetes set JAX_COORDINATOR_ADDRESS and "
            "JAX_NUM_PROCESSES in its manifest."
        ) from error
    except (RuntimeError, jax.errors.JaxRuntimeError) as error:
        if "before" in str(error) and "JAX" in str(error):
            raise RuntimeError(
                "natvi.hosts.join() has to come before anything that computes: JAX has begun to work alone. Call it "
                "right after the imports."
            ) from error
        what = f"process {number} of {processes} could not join the others at {coordinator or 'the address found'}"
        raise ConnectionError(
            f"{what} within {timeout} s ({str(error).splitlines()[0][:200]}). {CURE} A longer wait is timeout=."
        ) from error


def _wait_for(coordinator: str, timeout: int) -> None:
    """Wait until process 0 answers at its address."""
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdigit()):
        raise ValueError(f"the address of process 0 must be host:port, e.g. 10.0.0.1:1234; got {coordinator!r}.")
    until, tried, trouble = time.monotonic() + timeout, 0, ""
    while time.monotonic() < until:
        tried += 1
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=min(5.0, timeout)):
                return
        except OSError as error:
            trouble = str(error)
        time.sleep(0.2)
    raise ConnectionError(
        f"nobody answers at {coordinator}, where process 0 should be: {tried} tries in {timeout} s ({trouble}). {CURE} "
        "A longer wait is timeout=."
    )


def leave() -> None:
    """Say goodbye to the other processes; called at the end of a script, and by Python at its exit."""
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()
    _state["agreed"] = False


def require_agreement(own: dict[str, Any], why: str) -> None:
    """Raise in every process where not all say the same.

    Example:
        >>> require_agreement({"formula": "y ~ x"}, "they would not fit the same model")
    """
    if count() == 1:
        return
    said = collect(own)
    for name in own:
        differing = [at for at, other in enumerate(said) if other.get(name) != said[0].get(name)]
        if differing:
            there = "; ".join(f"process {at} has {said[at].get(name)!r}" for at in differing[:3])
            raise ValueError(
                f"the processes differ in {name}: process 0 has {said[0].get(name)!r}; {there}. So {why}: give all of "
                "them the same."
            )


def _habits() -> dict[str, Any]:
    versions = {f"the version of {name}": _version(name) for name in PACKAGES}
    precision = {
        name: str(getattr(jax.config, name, None)) for name in ("jax_enable_x64", "jax_default_matmul_precision")
    }
    machine = {"byte order": sys.byteorder, "Python": platform.python_version_tuple()[:2]}
    return versions | precision | machine | {"devices": jax.local_devices()[0].platform}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def _from_environment(name: str, given: int | None) -> int | None:
    text = os.environ.get(name)
    if given is not None or text is None:
        return given
    if not text.isdigit():
        raise ValueError(f"{name} must be a whole number; it is {text!r}.")
    return int(text)


def _has_launcher() -> bool:
    """Whether SLURM, Open MPI or a Kubernetes job has started this process, by the variables that JAX reads."""
    slurm = {"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"} <= set(os.environ)
    indexed = "KUBERNETES_SERVICE_HOST" in os.environ and "JOB_COMPLETION_INDEX" in os.environ
    return slurm or indexed or "OMPI_MCA_orte_hnp_uri" in os.environ
