"""SciPy's special functions, imported with SciPy's when one of them is first called.

`scipy.special` imports half of NumPy's testing tools, which takes a quarter as long as JAX, and few calls come to a
function of it. What every table and check asks for one number at a time is Python's own: quantiles of the normal
distribution and of t with few whole degrees of freedom, log-odds, and the logarithm of the gamma function.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

_STANDARD = NormalDist()
MOST_DF, LARGEST_P = 30, 0.9999


def _later(name: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        from scipy import special

        return getattr(special, name)(*args)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return `scipy.special.{name}`."
    return call


betaln, expit, gammaincinv = map(_later, ("betaln", "expit", "gammaincinv"))
ndtr, polygamma = map(_later, ("ndtr", "polygamma"))
_gammaln, _logit, _ndtri, _stdtrit = map(_later, ("gammaln", "logit", "ndtri", "stdtrit"))


def ndtri(p: Any) -> Any:
    """Return quantiles of N(0, 1).

    Example:
        >>> round(ndtri(0.975), 6)
        1.959964
    """
    return _STANDARD.inv_cdf(p) if isinstance(p, float) and 0.0 < p < 1.0 else _ndtri(p)


def logit(p: Any) -> Any:
    """Return log(p / (1 - p)).

    Example:
        >>> logit(0.5)
        0.0
    """
    return math.log(p) - math.log1p(-p) if isinstance(p, float) and 0.0 < p < 1.0 else _logit(p)


def gammaln(x: Any) -> Any:
    """Return log |Gamma(x)|.

    Example:
        >>> round(gammaln(5.0), 6)
        3.178054
    """
    return math.lgamma(x) if isinstance(x, int | float) and x > 0 else _gammaln(x)


def stdtrit(df: Any, p: Any) -> Any:
    """Return quantiles of the t distribution.

    Example:
        >>> round(stdtrit(3.0, 0.975), 6)
        3.182446
    """
    if not (isinstance(df, int | float) and isinstance(p, float)):
        return _stdtrit(df, p)
    if not (df in range(1, MOST_DF + 1) and 0.5 <= p <= LARGEST_P):
        return _stdtrit(df, p)
    low, high = 0.0, math.pi / 2
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if _within(middle, int(df)) < 2.0 * p - 1.0 else (low, middle)
    return math.sqrt(df) * math.tan(low)


def _within(angle: float, df: int) -> float:
    """Return P(|t| < sqrt(df) tan(angle)), a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(odd + 1, df, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    return (angle + sine * total) * 2.0 / math.pi if odd else sine * total
