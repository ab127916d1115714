"""How many servers: for a percentile of any model, for a service level in M/M/c, and by the square-root rule.

Symbols: a = λE[S] offered load [erlang], c servers, C Erlang's waiting probability, α its limit for many servers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.special import ndtr

from advisor.queueing.exact import erlang_c
from advisor.queueing.response import ResponseTime

_SAME = 1e-9
"""Difference of two probabilities below which more servers no longer help."""


@dataclass(frozen=True)
class Staffing:
    """Servers for a service level, and what they give.

    Attributes
    ----------
    servers
        Servers that must be up.
    positions
        Servers to be held so that the share that is away leaves enough up.
    service_level
        P(W ≤ wait limit).
    occupancy
        Share of the time that a server is busy.
    wait_probability
        P(W > 0).
    """

    servers: int
    positions: int
    service_level: float
    occupancy: float
    wait_probability: float


def halfin_whitt(beta: float) -> float:
    """Limit of P(W > 0) in M/M/c for many servers, c = a + β√a: α = 1/(1 + β Φ(β)/φ(β)), β > 0.

    References
    ----------
    Halfin, Whitt, Heavy-traffic limits for queues with many exponential servers, Operations Research 29, 1981.

    Examples
    --------
    >>> round(halfin_whitt(1.0), 6)
    0.223361
    """
    density = math.exp(-beta * beta / 2) / math.sqrt(2 * math.pi)
    return density / (density + beta * float(ndtr(beta)))


def square_root_staffing(offered_load_erlangs: float, wait_probability: float) -> int:
    """Servers ⌈a + β√a⌉ with α(β) = the wanted P(W > 0): right within a server or two from ten erlangs on.

    Parameters
    ----------
    offered_load_erlangs
        a.
    wait_probability
        Wanted P(W > 0), above 0 and below 1.

    Raises
    ------
    ValueError
        When the probability is outside.

    Examples
    --------
    >>> square_root_staffing(100.0, 0.2)
    111
    """
    if not 0 < wait_probability < 1:
        raise ValueError(f"wait probability is {wait_probability}; allowed: above 0 and below 1")
    # α falls like φ(β)/β: at β = 38 the density is the smallest float.
    beta = brentq(lambda b: halfin_whitt(b) - wait_probability, 0.0, 38.0)
    return math.ceil(offered_load_erlangs + beta * math.sqrt(offered_load_erlangs))


def servers_for_service_level(
    arrival_rate_rps: float,
    service_time_s: float,
    wait_limit_s: float,
    level: float,
    *,
    highest_occupancy: float = 1.0,
    away_frac: float = 0.0,
) -> Staffing:
    """Fewest servers of M/M/c with P(W ≤ t) = 1 - C e^{-(c-a)t/E[S]} ≥ level and an occupancy a/c within its limit.

    Parameters
    ----------
    arrival_rate_rps
        λ [1/s].
    service_time_s
        E[S] [s].
    wait_limit_s
        t [s].
    level
        Wanted P(W ≤ t), below 1.
    highest_occupancy
        Largest a/c.
    away_frac
        Share of the servers that is away at any time, called shrinkage in call centers.

    Raises
    ------
    ValueError
        When the level is 1 or more, since no number of servers reaches it.

    Examples
    --------
    >>> servers_for_service_level(100 / 1800, 180.0, 20.0, 0.8, away_frac=0.3).positions
    20
    """
    if not 0 <= level < 1:
        raise ValueError(f"service level is {level}; allowed: from 0 to below 1")
    load = arrival_rate_rps * service_time_s

    def reached(servers: int) -> float:
        return 1 - erlang_c(load, servers) * math.exp(-(servers - load) * wait_limit_s / service_time_s)

    # A load such as 5000 × 0.02 / 0.8 is a whole number but for its last bit.
    fewest = max(math.floor(load) + 1, math.ceil(load / highest_occupancy - 1e-9))
    servers = _fewest(lambda c: 1 - reached(c), 1 - level, fewest)
    if servers is None:
        raise ValueError(f"service level is {level}; allowed: at most {1 - _SAME}")
    positions = math.ceil(servers / (1 - away_frac) - 1e-9)
    return Staffing(servers, positions, reached(servers), load / servers, erlang_c(load, servers))


def servers_for_percentile(
    respond: Callable[[int], ResponseTime], limit_s: float, q: float, *, fewest: int
) -> int | None:
    """Fewest servers with P(T > limit) ≤ 1 - q; None when the service time alone exceeds the limit too often.

    Parameters
    ----------
    respond
        Response time with so many servers; more servers do not raise it.
    limit_s
        Limit of the percentile [s].
    q
        Percentile as a fraction.
    fewest
        Servers to begin with, at which ρ < 1.

    Examples
    --------
    >>> from advisor.queueing.exact import mmc
    >>> servers_for_percentile(lambda c: mmc(10.0, 0.1, c), 0.5, 0.99, fewest=2)
    3
    >>> servers_for_percentile(lambda c: mmc(10.0, 0.1, c), 0.4, 0.99, fewest=2) is None
    True
    """
    return _fewest(lambda servers: respond(servers).tail(limit_s), 1 - q, fewest)


def _fewest(miss: Callable[[int], float], allowed: float, fewest: int) -> int | None:
    """Smallest number from ``fewest`` on whose miss is allowed, by doubling and halving; None when more do not help."""
    low, step, last = fewest - 1, 1, math.inf
    high = fewest
    while (found := miss(high)) > allowed:
        if last - found <= _SAME and step > 2:
            return None
        low, high, last, step = high, high + step, found, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        if miss(middle) > allowed:
            low = middle
        else:
            high = middle
    return high
