"""Simulator of batch servers behind one queue, in compiled loops.

One server with its own queue is a pool of one; independent replicas behind a random router are independent such
pools, since a random split of a Poisson stream gives independent Poisson streams.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]


@njit(cache=True)
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


@njit(cache=True)
def _serve(arrivals: Array, uniforms: Array, service_s: Array, servers: int) -> Array:
    """Response times of all arrivals: a free server takes what waits, up to the largest batch."""
    free = np.zeros(servers)
    response = np.empty(arrivals.size)
    largest = service_s.shape[0]
    resolution = service_s.shape[1]
    head = 0
    batches = 0
    while head < arrivals.size:
        start = max(free[0], arrivals[head])
        size = 1
        while size < largest and head + size < arrivals.size and arrivals[head + size] <= start:
            size += 1
        end = start + service_s[size - 1, int(uniforms[batches] * resolution)]
        for i in range(head, head + size):
            response[i] = end - arrivals[i]
        _replace_earliest(free, end)
        head += size
        batches += 1
    return response


def simulate_pool(
    arrival_rate_rps: float, service_s: Array, *, servers: int, requests: int, rng: np.random.Generator
) -> Array:
    """Response times of a pool that starts empty [s], in order of arrival; the first tenth is warm-up and dropped.

    Parameters
    ----------
    arrival_rate_rps
        Poisson rate λ [1/s].
    service_s
        Row b-1 holds equally likely service times of a batch of b [s]; shape (B, points).
    servers
        Servers that share the queue.
    requests
        Requests returned.
    rng
        Source of all randomness: arrivals and services draw from it one after the other.
    """
    total = requests + requests // 9 + 1
    arrivals = np.cumsum(rng.exponential(1 / arrival_rate_rps, total))
    uniforms = rng.random(total)
    response = _serve(arrivals, uniforms, np.ascontiguousarray(service_s), servers)
    return response[-requests:]
