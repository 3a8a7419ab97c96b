"""What processes tell each other: small things whole, sums of arrays, and that one of them is gone."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import jax
import numpy as np

from natvi.hosts.program import over_hosts, own, spread
from natvi.over_hosts import add_up, as_first
from natvi.x64 import float64

Answer = TypeVar("Answer")
LOST = (
    "another process of this fit has ended, or cannot be reached: process {} of {} stops too ({}). Look at the output "
    "of the others for the first error. With checkpoint= the fit goes on from its last checkpoint when all are started "
    "again, as many as before or another number."
)
SIGNS = ("gloo", "nccl", "connection", "peer", "coordination", "heartbeat", "unavailable", "deadline")


class HostLostError(RuntimeError):
    """A process of the fit is gone; the message says what to do."""


class OtherHostError(ValueError):
    """What another process could not use; the message says which one, and why."""


def count() -> int:
    """Return the number of processes.

    Example:
        >>> count()
        1
    """
    # to ask JAX itself would start its threads, and a process that has not fitted yet may be forked
    return jax.process_count() if jax.distributed.is_initialized() else 1


def number() -> int:
    """Return the number of this process; number 0 decides, writes files and shows progress."""
    return jax.process_index() if count() > 1 else 0


def is_first() -> bool:
    """Whether this process decides.

    Example:
        >>> is_first()
        True
    """
    return number() == 0


def require_one(what: str) -> None:
    """Refuse what knows nothing of other processes: each would fit its own part, and wait where the others do not.

    Example:
        >>> require_one("natvi.fit")
    """
    if count() > 1:
        raise ValueError(
            f"{what} fits the data of one process, and this is process {number()} of {count()} that have joined. Rows "
            "in many processes are for natvi.glm, natvi.glmm, natvi.glm_batches and natvi.bnn; for anything else start "
            "a process that does not join."
        )


@contextmanager
def company() -> Iterator[None]:
    """Turn the failure of an exchange into words."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        text = str(error)
        signs = SIGNS if isinstance(error, jax.errors.JaxRuntimeError) else SIGNS[:2]  # some come as a plain ValueError
        if count() == 1 or not any(sign in text.lower() for sign in signs):
            raise
        raise HostLostError(LOST.format(number(), count(), text.splitlines()[0][:200])) from error


def collect(thing: Answer) -> list[Answer]:
    """Return what every process has brought, in their order; all of them call it.

    Example:
        >>> collect("here")
        ['here']
    """
    if count() == 1:
        return [thing]
    from jax.experimental.multihost_utils import process_allgather

    told = np.frombuffer(pickle.dumps(thing), dtype=np.uint8)
    with company():
        sizes = np.asarray(process_allgather(np.array([len(told)], np.int32))).ravel()
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: len(told)] = told
        found = np.asarray(process_allgather(padded)).reshape(len(sizes), -1)
    # bytes of this very program, written a moment ago by processes that joined by the same address
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(found, sizes, strict=True)]


def checked(work: Callable[[], Answer]) -> Answer:
    """Do a piece of work that may fail in one process alone; if it does, all of them say so and none waits.

    Example:
        >>> checked(lambda: 1 + 1)
        2
    """
    if count() == 1:
        return work()
    answer, trouble = None, None
    try:
        answer = work()
    except Exception as error:  # told to the others, then raised
        trouble = error
    words = [None if trouble is None else str(trouble)]
    said = [part[0] for part in collect(words)]
    if trouble is not None:
        raise trouble
    for at, text in enumerate(said):
        if text is not None:
            raise OtherHostError(f"process {at} of {count()} stopped, and with it this one: {text}")
    return answer  # type: ignore[return-value]


def total(tree: Any) -> Any:
    """Return the sums of arrays over all processes, as NumPy; the same bits in every process."""
    return tree if count() == 1 else _exchange(_adding(), tree)


def of_first(tree: Any) -> Any:
    """Return the arrays of process 0, as NumPy."""
    return tree if count() == 1 else _exchange(_sharing(), tree)


def _exchange(program: Callable[[Any], Any], tree: Any) -> Any:
    with company(), float64():
        return jax.tree.map(np.asarray, own(program(spread(tree))))


@cache
def _adding() -> Callable[[Any], Any]:
    return over_hosts(add_up)


@cache
def _sharing() -> Callable[[Any], Any]:
    return over_hosts(as_first)
