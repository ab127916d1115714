"""ResponseTime, what every queueing model returns: mean, tail and percentiles of wait plus service."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_BISECTION_STEPS = 60
"""Halvings of the bracket: more than the 52 bits of a float can tell apart."""


@dataclass(frozen=True)
class ResponseTime:
    """Stationary response time T (wait plus service) of one pool.

    Attributes
    ----------
    model
        Name of the queueing model and how exact it is.
    utilization
        ρ, the share of the time that a server is busy.
    mean_s
        E[T] [s]; infinite under overload.
    tail
        P(T > t) as a function of t [s].
    reason
        Why there is no finite answer, or empty.
    warnings
        What to know before the figures are trusted, one sentence each.
    """

    model: str
    utilization: float
    mean_s: float
    tail: Callable[[float], float]
    reason: str = ""
    warnings: tuple[str, ...] = ()

    def percentile(self, q: float, *, rtol: float = 1e-10) -> float:
        """Smallest t with P(T ≤ t) ≥ q [s], from above; infinite under overload.

        Parameters
        ----------
        q
            Percentile as a fraction, above 0 and below 1.
        rtol
            Relative width of the last bracket; the upper end is returned.

        Examples
        --------
        >>> from math import exp
        >>> round(ResponseTime("M/M/1", 0.5, 2.0, lambda t: exp(-t / 2)).percentile(0.99), 4)
        9.2103
        """
        if not 0 < q < 1:
            raise ValueError(f"percentile is {q}; allowed: above 0 and below 1")
        if math.isinf(self.mean_s):
            return math.inf
        low, high = 0.0, self.mean_s
        while self.tail(high) > 1 - q:
            low, high = high, 2 * high
        for _ in range(_BISECTION_STEPS):
            middle = (low + high) / 2
            if self.tail(middle) > 1 - q:
                low = middle
            else:
                high = middle
            if high - low <= rtol * high:
                break
        return high


def overloaded(model: str, utilization: float) -> ResponseTime:
    """Answer of any model at ρ ≥ 1: the queue grows without bound."""
    return ResponseTime(
        model,
        utilization,
        math.inf,
        lambda _t: 1.0,
        f"utilization {utilization:.3f} is not below 1: the queue grows without bound",
    )


def mixture(parts: Sequence[tuple[float, ResponseTime]], model: str) -> ResponseTime:
    """Response time of a request that meets one of several queues.

    Parameters
    ----------
    parts
        Chance to meet each queue, adding up to 1, and its response time.
    model
        Name of the whole.

    Examples
    --------
    >>> from advisor.queueing.exact import mmc
    >>> both = mixture([(0.5, mmc(1.0, 0.5, 1)), (0.5, mmc(1.5, 0.5, 1))], "two servers")
    >>> both.mean_s, both.utilization
    (1.5, 0.75)
    """
    return ResponseTime(
        model,
        max(response.utilization for _, response in parts),
        sum(chance * response.mean_s for chance, response in parts),
        lambda t: sum(chance * response.tail(t) for chance, response in parts),
    )
