"""Simulator of batch servers behind one queue, in compiled loops.

One server with its own queue is a pool of one; independent replicas behind a random router are independent such
pools, since a random split of a Poisson stream gives independent Poisson streams.
"""

from dataclasses import dataclass

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
def _draw(edges_s: Array, cumulative: Array, uniform: float) -> float:
    """Inverse of a piecewise linear distribution function."""
    found = int(np.searchsorted(cumulative, uniform, side="right")) - 1
    k = min(max(found, 0), edges_s.size - 2)
    width = cumulative[k + 1] - cumulative[k]
    share = (uniform - cumulative[k]) / width if width > 0 else 0.0
    return float(edges_s[k] + share * (edges_s[k + 1] - edges_s[k]))


@njit(cache=True)
def _serve(arrivals: Array, uniforms: Array, edges_s: Array, cumulative: Array, servers: int) -> Array:
    """Response times of all arrivals: a free server takes what waits, up to the largest batch."""
    free = np.zeros(servers)
    response = np.empty(arrivals.size)
    largest = edges_s.shape[0]
    head = 0
    batches = 0
    while head < arrivals.size:
        start = max(free[0], arrivals[head])
        size = 1
        while size < largest and head + size < arrivals.size and arrivals[head + size] <= start:
            size += 1
        end = start + _draw(edges_s[size - 1], cumulative[size - 1], uniforms[batches])
        for i in range(head, head + size):
            response[i] = end - arrivals[i]
        _replace_earliest(free, end)
        head += size
        batches += 1
    return response


@dataclass(frozen=True)
class ServiceLaw:
    """Distribution of the service time per batch size: piecewise linear between edges.

    Attributes
    ----------
    edges_s
        Row b-1: increasing edges of a batch of b [s]; shape (B, points + 1).
    cumulative
        Row b-1: P(S ≤ edge), from 0 to 1; same shape.
    """

    edges_s: Array
    cumulative: Array


def constant_service(batch_time_s: Array) -> ServiceLaw:
    """Service without spread."""
    edges = np.repeat(np.asarray(batch_time_s, dtype=float)[:, None], 2, axis=1)
    return ServiceLaw(edges, np.repeat(np.array([[0.0, 1.0]]), edges.shape[0], axis=0))


def simulate_pool(
    arrival_rate_rps: float, service: ServiceLaw, *, servers: int, requests: int, rng: np.random.Generator
) -> Array:
    """Response times of a pool that starts empty [s], in order of arrival; the first tenth is warm-up and dropped.

    Parameters
    ----------
    arrival_rate_rps
        Poisson rate λ [1/s].
    service
        Service times per batch size; its rows set the largest batch.
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
    response: Array = _serve(arrivals, uniforms, service.edges_s, service.cumulative, servers)
    return response[-requests:]
