"""Open-loop load: requests leave on a schedule that no answer and no delay can move.

A generator that waits for answers, or that starts its schedule anew after it was late, leaves out the very requests
that a stall would have hit (coordinated omission). Here each request has its time before the start, it is sent as soon
as that time is reached, and its response counts from the schedule: the lateness of the generator counts as well.
"""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from advisor.profiling.window import NsArray

FloatArray = npt.NDArray[np.float64]

LEAD_S = 0.05
"""Time from the making of the schedule to its start, so that the first request is not late: an assumption."""

_NS_PER_S = 1e9


def poisson_arrivals(rate_rps: float, count: int, rng: np.random.Generator) -> FloatArray:
    """Times of independent arrivals at a constant rate, from 0 [s].

    Examples
    --------
    >>> poisson_arrivals(100.0, 3, np.random.default_rng(1)).round(4).tolist()
    [0.0107, 0.0138, 0.0676]
    """
    return np.cumsum(rng.standard_exponential(count)) / rate_rps


def schedule(arrivals_s: FloatArray, start_ns: int) -> NsArray:
    """Times at which requests are due, on the clock of `time.perf_counter_ns` [ns].

    Examples
    --------
    >>> schedule(np.array([0.0, 0.5]), 7).tolist()
    [7, 500000007]
    """
    return start_ns + np.rint(arrivals_s * _NS_PER_S).astype(np.int64)


def drive(put: Callable[[int], None], due_ns: NsArray, *, failed: Callable[[], bool]) -> NsArray:
    """Send each request when it is due, at once where that time is over; the times at which they were sent [ns].

    Parameters
    ----------
    put
        Takes the number of a request.
    due_ns
        Schedule, not decreasing; see `schedule`.
    failed
        Whether the server broke down: the rest is not sent then, and has the time 0.
    """
    sent: list[int] = [0] * due_ns.size
    clock, sleep = time.perf_counter_ns, time.sleep
    for request, due in enumerate(due_ns.tolist()):
        while (left_ns := due - clock()) > 0:
            sleep(left_ns / _NS_PER_S)
        if failed():
            break
        sent[request] = clock()
        put(request)
    return np.array(sent, np.int64)
