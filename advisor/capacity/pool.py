"""Rate that one replica sustains under an SLA, and the batch cap that makes it largest."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from advisor.capacity.curve import ServiceCurve
from advisor.queueing.batch import batch_queue
from advisor.queueing.response import ResponseTime

MAX_UTILIZATION = 0.98
"""Above this share of the saturated throughput nothing is promised."""
LEAST_GAIN = 1.05
"""A larger batch cap is tried only when it raises the saturated throughput by this factor."""
CAPACITY_MARGIN = 0.995
"""Part of the exact capacity that is promised: a fleet at its promise differs from the limit by more than a simulation
of a few million requests leaves open."""
LONGEST_LOOK = 250.0
"""Limits beyond this many full services are looked at as if they were this long."""
LARGEST_BATCH = 128
"""Largest batch cap considered: it bounds the size of the exact chain."""
SEARCH_CELLS = 160
"""Lattice cells while searching for a rate."""
CHECK_CELLS = 400
"""Lattice cells of the last check, which lowers the rate if need be."""


@dataclass(frozen=True)
class Capacity:
    """Largest rate of one replica.

    Attributes
    ----------
    rate_rps
        Requests per second [1/s]; 0 when even an idle server misses the limit.
    max_batch
        Batch cap that reaches it.
    stability_limited
        Whether saturation binds before the SLA does.
    """

    rate_rps: float
    max_batch: int
    stability_limited: bool


def response_time(curve: ServiceCurve, max_batch: int, rate_rps: float, *, cells: int = CHECK_CELLS) -> ResponseTime:
    """Response time of one replica under Poisson arrivals with batches up to a cap."""
    return batch_queue(rate_rps, curve.batch_time_s[:max_batch], curve.noise[:max_batch], cells=cells)


def idle_percentile_s(curve: ServiceCurve, q: float) -> float:
    """Percentile of the response time when there is no other request: that of the service time of one item [s]."""
    law = curve.noise[0]
    time = float(curve.batch_time_s[0])
    low, high = 0.0, time * float(law.points[-1]) * 2
    for _ in range(60):
        middle = (low + high) / 2
        if float(law.cdf(np.array([middle / time]))[0]) < q:
            low = middle
        else:
            high = middle
    return high


def batch_caps(curve: ServiceCurve, limit_s: float) -> tuple[int, ...]:
    """Batch caps worth trying: powers of two whose own service fits the limit and whose throughput still grows."""
    caps: list[int] = []
    best = 0.0
    cap = 1
    while cap <= min(curve.batch_time_s.size, LARGEST_BATCH):
        time = float(curve.batch_time_s[cap - 1])
        if cap > 1 and time > limit_s:
            break
        throughput = cap / time
        if throughput >= best * LEAST_GAIN:
            caps.append(cap)
            best = throughput
        cap *= 2
    return tuple(caps)


def cap_capacity(curve: ServiceCurve, max_batch: int, percentile: float, limit_s: float) -> Capacity:
    """Largest rate at which P(T > limit) ≤ 1 - percentile, for one batch cap.

    The tail grows with the rate, so its root is found by Brent's method on its logarithm, then moved to the safe side
    by the tolerance.
    """
    full_s = float(curve.batch_time_s[max_batch - 1])
    saturated = max_batch / full_s
    # The tail falls with t: looking at an earlier t is on the safe side, and saturation binds long before this one.
    limit_s = min(limit_s, LONGEST_LOOK * full_s)
    highest = MAX_UTILIZATION * saturated
    lowest = 1e-4 * saturated
    tolerance = 1e-3

    def excess(rate: float, cells: int = SEARCH_CELLS) -> float:
        tail = response_time(curve, max_batch, rate, cells=cells).tail(limit_s)
        return float(np.log(max(tail, 1e-12) / (1 - percentile)))

    if idle_percentile_s(curve, percentile) > limit_s or excess(lowest) > 0:
        return Capacity(0.0, max_batch, stability_limited=False)
    rate = highest
    if excess(highest) > 0:
        # In the logarithm of the rate, so that the tolerance is relative to the rate and not to the range.
        found = brentq(lambda log_rate: excess(math.exp(log_rate)), math.log(lowest), math.log(highest), xtol=tolerance)
        rate = math.exp(float(found))
    while excess(rate, CHECK_CELLS) > 0:
        rate *= 1 - 2 * tolerance
    return Capacity(rate * CAPACITY_MARGIN, max_batch, stability_limited=rate == highest)


def saturated_rps(curve: ServiceCurve, limit_s: float) -> float:
    """Largest throughput of the caps that fit the limit: no rate under the SLA is above it [1/s]."""
    return max(cap / float(curve.batch_time_s[cap - 1]) for cap in batch_caps(curve, limit_s))


def best_capacity(curve: ServiceCurve, percentile: float, limit_s: float, *, at_least: float = 0.0) -> Capacity:
    """Capacity of one replica with its best batch cap.

    Parameters
    ----------
    curve
        Service curve, already slowed to the end of its interval that is planned with.
    percentile, limit_s
        The SLA, limit in seconds.
    at_least
        A rate that is already had elsewhere: caps whose saturated throughput is below it are not looked at [1/s].
    """
    best = Capacity(0.0, 1, stability_limited=False)
    for cap in reversed(batch_caps(curve, limit_s)):
        bound = MAX_UTILIZATION * cap / float(curve.batch_time_s[cap - 1])
        if bound <= max(best.rate_rps, at_least):
            continue
        found = cap_capacity(curve, cap, percentile, limit_s)
        if found.rate_rps > best.rate_rps:
            best = found
    return best
