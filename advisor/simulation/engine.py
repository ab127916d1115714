"""Simulator of pools of batch servers, in compiled loops.

A pool is c equal servers. Requests reach them through one queue (``central_queue``) or through a router that sends each
one to a server's own queue at once: at random, in turn, or to the server with the fewest requests not yet answered
(``least_outstanding``, ties in turn). A server that is free takes what waits in its queue up to the largest batch; with
a delay d > 0 it waits for a full batch, but no longer than until the oldest request is d old. Of several free servers
behind one queue the one that has been idle longest serves next, as workers that wait on a condition variable do.

The loops release Python's lock, so that replications run side by side in threads. They take all arrivals of one
replication at once: what is in memory is bounded by its length. Times are at most some ten million service times, which
leaves float64 a resolution of a billionth of one.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from advisor.domain.workload import Routing
from advisor.simulation.service import ServiceLaw, draw, idle_extra

Array = NDArray[np.float64]


@njit(cache=True, nogil=True)
def _replace_earliest(free: Array, value: float) -> None:
    """Put a new time in place of the earliest one in a min-heap."""
    size = free.size
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and free[child + 1] < free[child]:
            child += 1
        if free[child] >= value:
            break
        free[place] = free[child]
        place = child
    free[place] = value


@njit(cache=True, nogil=True)
def _one_queue(arrivals, largest, servers, delay_s, law, rng):  # type: ignore[no-untyped-def]  # numba infers types
    """Response times, number of batches and busy time behind one shared queue."""
    free = np.zeros(servers)
    state = np.zeros(2, dtype=np.int64)
    response = np.empty(arrivals.size)
    head, batches, busy_s = 0, 0, 0.0
    while head < arrivals.size:
        start = max(free[0], arrivals[head])
        if delay_s > 0:
            ready = arrivals[head] + delay_s
            if head + largest <= arrivals.size:
                ready = min(ready, arrivals[head + largest - 1])
            start = max(start, ready)
        size = 1
        while size < largest and head + size < arrivals.size and arrivals[head + size] <= start:
            size += 1
        service_s = draw(law, size, state, rng) + idle_extra(law, start > free[0], rng)
        end = start + service_s
        for i in range(head, head + size):
            response[i] = end - arrivals[i]
        _replace_earliest(free, end)
        head += size
        batches += 1
        busy_s += service_s
    return response, batches, busy_s


@njit(cache=True, nogil=True)
def _separate_queues(arrivals, ends, largest, delay_s, law, rng):  # type: ignore[no-untyped-def]  # numba infers types
    """As `_one_queue` with one server, server by server; each has a run of the arrivals, up to its end."""
    response = np.empty(arrivals.size)
    batches, busy_s, begin = 0, 0.0, 0
    for end in ends:
        found, some, took_s = _one_queue(arrivals[begin:end], largest, 1, delay_s, law, rng)
        response[begin:end] = found
        batches += some
        busy_s += took_s
        begin = end
    return response, batches, busy_s


class _Queues(NamedTuple):
    """State of servers whose queues a router looks at; the queues are linked lists over the requests.

    Few arrays with a row per server: the compiled loops hand them on with every call.

    Attributes
    ----------
    arrivals, response, following
        Per request: time of arrival and response time [s], next request in the same queue.
    counts
        Per server: first and last request of its queue, requests in it, requests in its batch.
    clock
        Per server: end of its last batch, when its queue became as long as a batch, when it has something to do [s].
    states
        Per server: state of its service law.
    totals
        Batches served and their time [s].
    """

    arrivals: Array
    response: Array
    following: NDArray[np.int64]
    counts: NDArray[np.int64]
    clock: Array
    states: NDArray[np.int64]
    totals: Array


_FIRST, _LAST, _WAITING, _SERVING = 0, 1, 2, 3
_FREE, _FULL_AT, _DUE = 0, 1, 2


@njit(cache=True, nogil=True)
def _watched_queues(queues, largest, delay_s, law, rng):  # type: ignore[no-untyped-def]  # numba infers types
    """Send each request to the server with the fewest outstanding; the response times are left in ``queues``.

    Servers are brought up to the present at each arrival; batches that start at the very instant of an arrival are left
    to the next call, and take it along.
    """
    arrivals, counts, clock = queues.arrivals, queues.counts, queues.clock
    servers = counts.shape[0]
    turn = 0
    for i in range(arrivals.size):
        now = arrivals[i]
        for k in range(servers):
            if clock[k, _DUE] <= now:
                _advance(queues, k, now, largest, delay_s, law, rng)
        s = _least_outstanding(counts, turn)
        turn = s + 1 if s + 1 < servers else 0
        if counts[s, _WAITING] == 0:
            counts[s, _FIRST] = i
        else:
            queues.following[counts[s, _LAST]] = i
        counts[s, _LAST] = i
        counts[s, _WAITING] += 1
        if counts[s, _WAITING] == largest:
            clock[s, _FULL_AT] = now
        if counts[s, _SERVING] == 0:
            ready = min(arrivals[counts[s, _FIRST]] + delay_s, clock[s, _FULL_AT])
            clock[s, _DUE] = max(clock[s, _FREE], ready)
    for s in range(servers):
        _advance(queues, s, np.inf, largest, delay_s, law, rng)


@njit(cache=True, nogil=True)
def _least_outstanding(counts, turn):  # type: ignore[no-untyped-def]  # numba infers types
    """Server with the fewest requests not yet answered, the first from ``turn`` on."""
    servers = counts.shape[0]
    chosen, fewest = -1, np.iinfo(np.int64).max
    for k in range(servers):
        s = turn + k if turn + k < servers else turn + k - servers
        outstanding = counts[s, _WAITING] + counts[s, _SERVING]
        if outstanding < fewest:
            chosen, fewest = s, outstanding
    return chosen


@njit(cache=True, nogil=True)
def _advance(queues, s, now, largest, delay_s, law, rng):  # type: ignore[no-untyped-def]  # numba infers types
    """Bring one server to the present: end its batch, start the next ones."""
    arrivals, counts, clock = queues.arrivals, queues.counts[s], queues.clock[s]
    while True:
        if counts[_SERVING] > 0:
            if clock[_FREE] > now:
                clock[_DUE] = clock[_FREE]
                return
            counts[_SERVING] = 0
        if counts[_WAITING] == 0:
            clock[_DUE] = np.inf
            return
        i = counts[_FIRST]
        start = max(clock[_FREE], min(arrivals[i] + delay_s, clock[_FULL_AT]))
        if start >= now:
            clock[_DUE] = start
            return
        size = min(counts[_WAITING], largest)
        service_s = draw(law, size, queues.states[s], rng) + idle_extra(law, start > clock[_FREE], rng)
        end = start + service_s
        for _ in range(size):
            queues.response[i] = end - arrivals[i]
            i = queues.following[i]
        counts[_FIRST] = i
        counts[_WAITING] -= size
        # Whoever is left came before this batch started: a full batch among them is ready at once.
        clock[_FULL_AT] = -np.inf if counts[_WAITING] >= largest else np.inf
        counts[_SERVING] = size
        clock[_FREE] = end
        queues.totals[0] += 1
        queues.totals[1] += service_s


def _empty_queues(arrivals: Array, servers: int) -> _Queues:
    counts = np.zeros((servers, 4), dtype=np.int64)
    clock = np.zeros((servers, 3))
    clock[:, [_FULL_AT, _DUE]] = np.inf
    states = np.zeros((servers, 2), dtype=np.int64)
    following = np.full(arrivals.size, -1)
    return _Queues(arrivals, np.empty(arrivals.size), following, counts, clock, states, np.zeros(2))


@dataclass(frozen=True)
class Pool:
    """Equal servers and how requests reach them.

    Attributes
    ----------
    servers
        Number of servers c.
    service
        Service times per batch size; its size is the largest batch.
    routing
        How requests reach servers.
    delay_s
        Longest time that a free server waits for its batch to fill [s].
    share
        Part of the requests of its stream that this pool answers.
    """

    servers: int
    service: ServiceLaw
    routing: Routing = "central_queue"
    delay_s: float = 0.0
    share: float = 1.0


@dataclass(frozen=True)
class Run:
    """One replication of one pool.

    Attributes
    ----------
    response_s
        Response times [s], in order of arrival.
    batches
        Batches served.
    busy_s
        Service time of all batches together [s].
    """

    response_s: Array
    batches: int
    busy_s: float


def run_pool(pool: Pool, arrivals: Array, service_rng: np.random.Generator, router_rng: np.random.Generator) -> Run:
    """Serve all arrivals with a pool that starts empty.

    Parameters
    ----------
    pool
        Servers and routing.
    arrivals
        Times of arrival, not decreasing [s].
    service_rng, router_rng
        Sources of randomness of services and of the router. Streams that share a seed would be correlated, and have
        been seen to bias a 99th percentile by a fifth: spawn them from one `SeedSequence`.

    Examples
    --------
    >>> from advisor.simulation.service import constant_service
    >>> pool = Pool(2, constant_service(np.array([1.0])), "round_robin")
    >>> rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence(1).spawn(2)]
    >>> run_pool(pool, np.array([0.0, 0.1, 0.2]), *rngs).response_s.tolist()
    [1.0, 1.0, 1.8]
    """
    largest, law = pool.service.max_batch, pool.service.arrays
    if pool.routing == "central_queue" or pool.servers == 1:
        return Run(*_one_queue(arrivals, largest, pool.servers, pool.delay_s, law, service_rng))
    if pool.routing == "least_outstanding":
        queues = _empty_queues(arrivals, pool.servers)
        _watched_queues(queues, largest, pool.delay_s, law, service_rng)
        return Run(queues.response, int(queues.totals[0]), float(queues.totals[1]))
    if pool.routing == "round_robin":
        server = np.arange(arrivals.size, dtype=np.int64) % pool.servers
    else:
        server = router_rng.integers(pool.servers, size=arrivals.size)
    # Neither looks at the queues, so each server can be followed by itself; a sort of integers of at most 16 bits is
    # linear in time.
    order = np.argsort(server.astype(np.min_scalar_type(pool.servers - 1)), kind="stable")
    ends = np.cumsum(np.bincount(server, minlength=pool.servers))
    found, batches, busy_s = _separate_queues(arrivals[order], ends, largest, pool.delay_s, law, service_rng)
    response = np.empty(arrivals.size)
    response[order] = found
    return Run(response, batches, busy_s)
