"""Rate that a pool of replicas sustains under an SLA, and the batch cap that makes it largest."""

import functools
import hashlib
import math
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq

from advisor.capacity.curve import ServiceCurve
from advisor.capacity.method import CHECK_CELLS, HIGHEST_LOAD, choose, response_time, steady_requests, streams_of
from advisor.capacity.traffic import Traffic
from advisor.simulation.metrics import simulate

LEAST_GAIN = 1.05
"""A larger batch cap is tried only when it raises the saturated throughput by this factor."""
EXACT_MARGIN = 0.995
"""Part of the exact capacity that is promised: a fleet at its promise differs from the limit by more than a simulation
of a few million requests leaves open."""
OTHER_MARGIN = 0.985
"""The same where the capacity is simulated or approximated: 2.5 standard deviations of a capacity from a search with
120,000 requests."""
LONGEST_LOOK = 250.0
"""Limits beyond this many full services are looked at as if they were this long."""
LARGEST_BATCH = 128
"""Largest batch cap considered: it bounds the size of the exact chain."""
SEARCH_CELLS = 160
"""Lattice cells while searching for a rate."""
SEARCH_REQUESTS = 120_000
MOST_SEARCH_REQUESTS = 800_000
SEARCH_REPLICATIONS = 4
"""Simulated requests per rate looked at; all rates and all pools share the random numbers, so that noise cancels."""
SCANNED_LOADS = (0.1, 0.25, 0.45, 0.65, 0.82)
"""Loads looked at before the first crossing of the limit is narrowed down: behind a shared queue of batch servers the
tail may fall before it grows."""
POOL_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256)
"""Numbers of replicas for which the rate of a pool is found; between two, the smaller rate per replica holds."""
FIRST_LOAD = 0.85
"""Share of the highest rate where the search for an analytic capacity begins."""
LEAST_LOAD = 1e-4
"""A pool that misses a limit at this share of the highest rate sustains nothing."""
_TOLERANCE = 1e-3
_SIMULATED_TOLERANCE = 8e-3
"""Relative tolerance of a rate found by simulation: about one standard deviation of its noise."""

Limits = tuple[tuple[float, float], ...]
"""Percentiles as fractions with their limits [s]; all of them hold."""
Cache = MutableMapping[str, tuple[float, bool]]
"""Capacities already found: rate [1/s] and whether saturation binds, by the hash of everything they depend on."""


@dataclass(frozen=True)
class Capacity:
    """Largest rate of a pool.

    Attributes
    ----------
    rate_rps
        Requests per second of all replicas together [1/s]; 0 when even an idle replica misses a limit.
    max_batch
        Batch cap that reaches it.
    stability_limited
        Whether saturation binds before the SLA does.
    """

    rate_rps: float
    max_batch: int
    stability_limited: bool


@dataclass(frozen=True, eq=False)
class Question:
    """What capacities are asked for.

    Attributes
    ----------
    limits
        The SLA.
    traffic
        Arrivals and routing.
    seed
        Seed of simulations.
    cache
        Capacities already found.
    """

    limits: Limits
    traffic: Traffic = field(default_factory=Traffic)
    seed: int = 0
    cache: Cache = field(default_factory=dict)


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


def batch_caps(curve: ServiceCurve, limits: Limits) -> tuple[int, ...]:
    """Batch caps worth trying: powers of two whose own service fits the limits and whose throughput still grows."""
    longest = max(limit_s for _, limit_s in limits)
    caps: list[int] = []
    best = 0.0
    cap = 1
    while cap <= min(curve.batch_time_s.size, LARGEST_BATCH):
        time = float(curve.batch_time_s[cap - 1])
        if cap > 1 and time > longest:
            break
        throughput = cap / time
        if throughput >= best * LEAST_GAIN:
            caps.append(cap)
            best = throughput
        cap *= 2
    return tuple(caps)


def cap_capacity(curve: ServiceCurve, max_batch: int, servers: int, question: Question) -> Capacity:
    """Largest rate of a pool at which P(T > limit) ≤ 1 - percentile for every limit, with one batch cap."""
    if question.traffic.independent and servers > 1:
        one = cap_capacity(curve, max_batch, 1, question)
        return replace(one, rate_rps=servers * one.rate_rps)
    key = _key(curve, max_batch, servers, question)
    known = question.cache.get(key)
    if known is None:
        if any(idle_percentile_s(curve, q) > limit_s for q, limit_s in question.limits):
            known = (0.0, False)
        elif choose(curve, max_batch, servers, question.traffic).exactness == "simulated":
            known = _simulated_rate(curve, max_batch, servers, question)
        else:
            known = _analytic_rate(curve, max_batch, servers, question)
        question.cache[key] = known
    return Capacity(known[0], max_batch, stability_limited=known[1])


def _analytic_rate(curve: ServiceCurve, max_batch: int, servers: int, question: Question) -> tuple[float, bool]:
    """Root of the tail at the limits in the rate, moved to the safe side by the tolerance; whether saturation binds.

    The tail grows with the rate, so its root is found by Brent's method on its logarithm.
    """
    full_s = float(curve.batch_time_s[max_batch - 1])
    highest = _highest_rps(curve, max_batch, servers, question.traffic)
    exact = choose(curve, max_batch, servers, question.traffic).exactness == "exact"

    def excess(rate: float, cells: int = SEARCH_CELLS) -> float:
        found = response_time(curve, max_batch, rate, servers=servers, traffic=question.traffic, cells=cells)
        # The tail falls with t: looking at an earlier t is on the safe side, and saturation binds long before this one.
        return _excess(lambda limit_s: found.tail(min(limit_s, LONGEST_LOOK * full_s)), question.limits)

    @functools.cache
    def at(log_rate: float) -> float:
        return excess(math.exp(log_rate))

    # Near saturation an evaluation takes longest, and most roots lie below: it comes last.
    low = high = math.log(FIRST_LOAD * highest)
    if at(high) <= 0:
        high = math.log(highest)
        if at(high) <= 0:
            return _promised(highest, excess, exact=exact), True
    else:
        while at(low) > 0:
            high, low = low, low - math.log(2)
            if low < math.log(LEAST_LOAD * highest):
                return 0.0, False
    # In the logarithm of the rate, so that the tolerance is relative to the rate and not to the range.
    return _promised(math.exp(float(brentq(at, low, high, xtol=_TOLERANCE))), excess, exact=exact), False


def _promised(rate: float, excess: Callable[[float, int], float], *, exact: bool) -> float:
    """Rate lowered until a finer lattice agrees, and by the margin [1/s]."""
    while excess(rate, CHECK_CELLS) > 0:
        rate *= 1 - 2 * _TOLERANCE
    return rate * (EXACT_MARGIN if exact else OTHER_MARGIN)


def _simulated_rate(curve: ServiceCurve, max_batch: int, servers: int, question: Question) -> tuple[float, bool]:
    """Crossing of the limits as the load grows, the first one behind a shared queue; whether saturation binds."""
    highest = _highest_rps(curve, max_batch, servers, question.traffic)

    def excess(rate: float) -> float:
        needed = steady_requests(curve, max_batch, rate, servers=servers, traffic=question.traffic)
        found = simulate(
            streams_of(curve, max_batch, rate, servers=servers, traffic=question.traffic),
            seed=question.seed,
            requests=int(min(MOST_SEARCH_REQUESTS, max(SEARCH_REQUESTS, SEARCH_REPLICATIONS * needed))),
            most_requests=SEARCH_REQUESTS,
            enough=lambda _result: True,
            replications=SEARCH_REPLICATIONS,
        )
        return _excess(found.tail, question.limits)

    low, high = 1e-3 * highest, highest
    # A wait for full batches may break the limit at low rates alone: a capacity holds at all rates below it.
    if excess(low) > 0:
        return 0.0, False
    if excess(high) <= 0:
        return high * OTHER_MARGIN, True
    if question.traffic.routing == "central_queue" and servers > 1 and max_batch > 1:
        for load in SCANNED_LOADS:
            if excess(load * highest) > 0:
                high = load * highest
                break
            low = load * highest
    # Equal random numbers at all rates make this a function of the rate, though one with small jumps.
    crossing = brentq(
        lambda log_rate: excess(math.exp(log_rate)), math.log(low), math.log(high), xtol=_SIMULATED_TOLERANCE / 2
    )
    return OTHER_MARGIN * math.exp(float(crossing)), False


def _highest_rps(curve: ServiceCurve, max_batch: int, servers: int, traffic: Traffic) -> float:
    """Rate at which a pool is as busy as is promised at most; of periodic arrivals the highest, at that mean [1/s]."""
    return HIGHEST_LOAD * servers * max_batch / float(curve.batch_time_s[max_batch - 1]) / traffic.mean_frac


def _excess(tail: Callable[[float], float], limits: Limits) -> float:
    """Largest ln(P(T > limit) / (1 - percentile)) over the limits: above 0 when one is missed."""
    return max(math.log(max(tail(limit_s), 1e-12) / (1 - q)) for q, limit_s in limits)


def saturated_rps(curve: ServiceCurve, limits: Limits) -> float:
    """Largest throughput of one replica over the caps that fit the limits: no rate under the SLA is above it [1/s]."""
    return max(cap / float(curve.batch_time_s[cap - 1]) for cap in batch_caps(curve, limits))


def best_capacity(curve: ServiceCurve, servers: int, question: Question, *, at_least: float = 0.0) -> Capacity:
    """Capacity of a pool with its best batch cap.

    Parameters
    ----------
    curve
        Service curve, already slowed to the end of its interval that is planned with.
    servers
        Replicas.
    question
        Limits and traffic.
    at_least
        A rate that is already had elsewhere: caps whose saturated throughput is below it are not looked at [1/s].
    """
    best = Capacity(0.0, 1, stability_limited=False)
    for cap in reversed(batch_caps(curve, question.limits)):
        bound = _highest_rps(curve, cap, servers, question.traffic)
        if bound <= max(best.rate_rps, at_least):
            continue
        found = cap_capacity(curve, cap, servers, question)
        if found.rate_rps > best.rate_rps:
            best = found
        elif best.rate_rps > 0 and choose(curve, cap, servers, question.traffic).exactness == "simulated":
            # A search takes seconds here, and caps below one that is worse have not been seen to be better.
            break
    return best


def pool_rates(
    curve: ServiceCurve, max_batch: int, most_servers: int, question: Question
) -> tuple[tuple[int, float], ...]:
    """Numbers of replicas and the rates that pools of them sustain with one batch cap, up to a number [1/s]."""
    sizes = [size for size in POOL_SIZES if size < most_servers]
    sizes.append(min(most_servers, POOL_SIZES[-1]))
    return tuple((size, cap_capacity(curve, max_batch, size, question).rate_rps) for size in dict.fromkeys(sizes))


def _key(curve: ServiceCurve, max_batch: int, servers: int, question: Question) -> str:
    """Hash of everything that a capacity depends on, but for the program itself."""
    digest = hashlib.sha256()
    digest.update(np.ascontiguousarray(curve.batch_time_s[:max_batch]).tobytes())
    traffic = question.traffic
    for law in curve.noise[:max_batch]:
        digest.update(law.digest)
    if traffic.call_order == "as_measured":
        for calls in curve.series[:max_batch]:
            digest.update(calls.tobytes())
    seed = question.seed if choose(curve, max_batch, servers, traffic).exactness == "simulated" else None
    digest.update(f"{max_batch} {servers} {question.limits} {traffic.key} {seed}".encode())
    return digest.hexdigest()
