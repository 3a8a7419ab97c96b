"""Compiled programs that outlive a fit: the same log-density again, with other numbers in it, is not compiled again.

A log-density is traced at every fit, since what it reads from outside may have changed; the program is found again by
what the trace says. The arrays that the trace met, data among them, are arguments of the program.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array

from natvi.run.compiled_code import quick_jit

KEPT = 32  # programs


class Program(NamedTuple):
    """A function of many points that is compiled at its first call.

    Attributes:
        compiled: Of the arrays that the trace met, and of the points.
        arrays: These arrays, as they are now.
        trace: Kept so that no name in its text can come to mean something else.
    """

    compiled: Callable[..., Any]
    arrays: tuple[Any, ...]
    trace: Any

    def __call__(self, points: np.ndarray) -> tuple[Array, ...]:
        """Return what the function says at the points, without waiting for it."""
        return tuple(self.compiled(self.arrays, points))


_programs: OrderedDict[tuple[Any, ...], Program] = OrderedDict()


def program_of(function: Callable[[Array], tuple[Array, ...]], d: int) -> Program:
    """Return the program of a function of one point, for many points; inside `float64()`.

    Example:
        >>> number = 2.0
        >>> program_of(lambda x: (number * jnp.sum(x),), 3)(np.ones((2, 3)))[0].tolist()
        [6.0, 6.0]
    """
    traced = jax.make_jaxpr(lambda point: function(point))(jnp.zeros(d))
    arrays = tuple(traced.consts)
    inner = tuple((np.shape(a), np.asarray(a).tobytes()) for a in _hidden_arrays(traced.jaxpr))
    key = (str(traced.jaxpr), tuple((np.shape(a), str(jnp.result_type(a))) for a in arrays), inner)
    known = _programs.get(key)
    if known is None:

        def at_many(arrays: tuple[Any, ...], points: Array) -> list[Array]:
            of = jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, arrays))
            return jax.vmap(of)(points)

        known = Program(quick_jit(at_many), (), traced)
        _programs[key] = known
        if len(_programs) > KEPT:
            _programs.popitem(last=False)
    _programs.move_to_end(key)
    return known._replace(arrays=arrays)


def forget_programs() -> None:
    """Forget all programs: the next fit compiles its own again."""
    _programs.clear()


def _hidden_arrays(jaxpr: Any) -> Iterator[Any]:
    """Return the arrays that inner functions of a trace hold, which its text does not show."""
    for equation in jaxpr.eqns:
        for variable in equation.invars:
            if hasattr(variable, "val") and np.ndim(variable.val):
                yield variable.val
        for leaf in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            if hasattr(leaf, "consts"):
                yield from leaf.consts
            inner = getattr(leaf, "jaxpr", leaf)
            if hasattr(inner, "eqns"):
                yield from _hidden_arrays(inner)
