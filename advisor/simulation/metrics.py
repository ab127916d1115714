"""Percentiles of a simulated system with confidence intervals, until they are narrow enough or a cap is reached.

Batch means over independent replications: each replication has streams of its own and drops its warm-up, so that
replications are independent, and Student's interval over them holds. For a percentile it is the interval of the share
of requests beyond it, turned into times: percentiles of single replications are biased where few requests lie beyond
them. Response times go into a histogram on a logarithmic grid: memory does not grow with the number of requests.
"""

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

from advisor.simulation.arrivals import Arrivals
from advisor.simulation.engine import Pool, run_pool

Array = NDArray[np.float64]

REPLICATIONS = 20
"""Replications of the first round: enough for a Student interval, few enough for each to be long."""
_BINS = 2**15
_LOWEST, _HIGHEST = -9.0, 14.0
"""Ends of the histogram as natural logarithms of the time over the shortest mean service."""
_BIN_FRAC = math.expm1((_HIGHEST - _LOWEST) / _BINS)
"""Width of a bin relative to its lower end, 0.07 %: the resolution of a percentile."""


@dataclass(frozen=True)
class Stream:
    """One source of requests and the pools that share it; streams of a system are independent of each other.

    Attributes
    ----------
    arrivals
        The source.
    pools
        Where requests go: each one to a pool drawn at random by the pools' shares.
    weight
        Part of all requests of the system that this stream stands for.
    """

    arrivals: Arrivals
    pools: tuple[Pool, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class Estimate:
    """A simulated figure [s] and the half width of its 95 % interval [s]."""

    value_s: float
    ci95_s: float

    @property
    def ci95_frac(self) -> float:
        """Half width relative to the value."""
        return self.ci95_s / self.value_s


@dataclass(frozen=True)
class Simulated:
    """Response times of all requests of a system.

    Attributes
    ----------
    counts
        Histogram per replication, weighted by the streams; shape (replications, bins).
    scale_s
        Time that the histogram's grid is relative to [s].
    means_s
        Mean response time per replication [s].
    requests
        Requests counted, warm-up left out.
    mean_batch
        Requests per batch.
    utilization
        Share of time that a server is busy, from the first arrival to the last.
    stopped
        Whether the interval met its target, or the cap on requests ended the run.
    """

    counts: Array
    scale_s: float
    means_s: Array
    requests: int
    mean_batch: float
    utilization: float
    stopped: Literal["target", "cap"]

    @property
    def replications(self) -> int:
        """Independent replications."""
        return int(self.means_s.size)

    @property
    def mean(self) -> Estimate:
        """Mean response time."""
        return Estimate(float(self.means_s.mean()), _half_width(self.means_s))

    def percentile(self, q: float) -> Estimate:
        """Percentile over all requests, with the farther end of its interval as half width.

        The interval is Student's for the share of requests above the value, over the replications, in log odds: there
        it is symmetric for an exponential tail, and cannot reach 0. One bin is added, since nothing is known of where
        in it a value lies.
        """
        total = self.counts.sum(axis=0)
        value = _quantile(total, q)
        place = (math.log(value) - _LOWEST) / (_HIGHEST - _LOWEST) * _BINS
        # A value on the edge of two bins may come out on either side of it: both have the same share below.
        k = min(max(int(place), 0), _BINS - 1)
        below = (self.counts[:, :k].sum(axis=1) + (place - k) * self.counts[:, k]) / self.counts.sum(axis=1)
        half = _half_width(below) / (q * (1 - q))
        low, high = (_quantile(total, float(expit(logit(q) + side * half))) for side in (-1, 1))
        return Estimate(value * self.scale_s, (max(high - value, value - low) + value * _BIN_FRAC) * self.scale_s)

    def tail(self, t: float) -> float:
        """P(T > t), linear within a bin."""
        cumulative = np.append(0.0, np.cumsum(self.counts.sum(axis=0)))
        place = (math.log(t / self.scale_s) - _LOWEST) / (_HIGHEST - _LOWEST) * _BINS
        return float(1 - np.interp(place, np.arange(_BINS + 1), cumulative) / cumulative[-1])


def _half_width(values: Array) -> float:
    """Half width of Student's 95 % interval of the mean."""
    count = values.size
    return float(stdtrit(count - 1, 0.975) * values.std(ddof=1) / math.sqrt(count))


@njit(cache=True, nogil=True)
def _count(counts: Array, response_s: Array, scale_s: float, low: float, high: float) -> float:
    """Add response times to the histogram on the logarithmic grid, what lies outside to the end bins; their sum [s]."""
    bins = counts.size
    per_unit = bins / (high - low)
    total_s = 0.0
    for value in response_s:
        k = int((math.log(value / scale_s) - low) * per_unit)
        counts[min(max(k, 0), bins - 1)] += 1.0
        total_s += value
    return total_s


def _pool_of_each(stream: Stream, requests: int, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Pool that each request goes to; None: there is one."""
    if len(stream.pools) == 1:
        return None
    edges = np.cumsum([pool.share for pool in stream.pools])[:-1]
    taken_by: NDArray[np.int64] = np.searchsorted(edges, rng.random(requests), side="right")
    return taken_by


def _quantile(counts: Array, q: float) -> float:
    """Quantile of a histogram, linear within its bin, relative to the scale."""
    cumulative = np.cumsum(counts)
    wanted = q * cumulative[-1]
    k = min(int(np.searchsorted(cumulative, wanted)), _BINS - 1)
    below = cumulative[k - 1] if k else 0.0
    share = (wanted - below) / counts[k] if counts[k] > 0 else 1.0
    return math.exp(_LOWEST + (k + share) * (_HIGHEST - _LOWEST) / _BINS)


class _Replication(NamedTuple):
    """Weighted histogram and mean [s] of one replication; requests counted and served, batches served, share busy."""

    counts: Array
    mean_s: float
    counted: int
    served: int
    batches: int
    busy_frac: float


def _replicate(system: tuple[Stream, ...], requests: int, seed: np.random.SeedSequence, scale_s: float) -> _Replication:
    """Serve one replication of every stream, each from random streams of its own."""
    counts, mean_s, counted, served, batches, busy = np.zeros(_BINS), 0.0, 0, 0, 0, 0.0
    for stream, child in zip(system, seed.spawn(len(system)), strict=True):
        arrival_rng, split_rng, *rngs = (
            np.random.Generator(np.random.PCG64(grandchild)) for grandchild in child.spawn(2 + 2 * len(stream.pools))
        )
        times, warm = stream.arrivals.times(max(1, math.ceil(requests * stream.weight)), arrival_rng)
        taken_by = _pool_of_each(stream, times.size, split_rng)
        found, total_s, busy_s = np.zeros(_BINS), 0.0, 0.0
        for index, pool in enumerate(stream.pools):
            mine = slice(None) if taken_by is None else np.flatnonzero(taken_by == index)
            run = run_pool(pool, times[mine], rngs[2 * index], rngs[2 * index + 1])
            first = warm if isinstance(mine, slice) else int(np.searchsorted(mine, warm))
            total_s += _count(found, run.response_s[first:], scale_s, _LOWEST, _HIGHEST)
            batches += run.batches
            busy_s += run.busy_s
        kept = float(found.sum())
        found *= stream.weight / kept
        counts += found
        mean_s += stream.weight * total_s / kept
        counted += times.size - warm
        served += times.size
        busy += stream.weight * busy_s / float(times[-1]) / sum(pool.servers for pool in stream.pools)
    return _Replication(counts, mean_s, counted, served, batches, busy)


def simulate(
    system: tuple[Stream, ...],
    *,
    seed: int,
    requests: int,
    most_requests: int,
    enough: Callable[[Simulated], bool],
    replications: int = REPLICATIONS,
    executor: Executor | None = None,
) -> Simulated:
    """Simulate in rounds until the result is good enough, or a round more would exceed the cap.

    Parameters
    ----------
    system
        Independent streams; their weights add up to one.
    seed
        Seed of all streams of random numbers: equal inputs and seeds give equal results.
    requests
        Requests of the first round, over all replications.
    most_requests
        Cap; each round adds as many replications as there are.
    enough
        Says whether the interval meets its target.
    replications
        Replications of the first round.
    executor
        Runs replications side by side; threads do, since the loops release Python's lock.
    """
    scale_s = min(float(pool.service.mean_s[0]) for stream in system for pool in stream.pools)
    each = math.ceil(requests / replications)
    root = np.random.SeedSequence(seed)
    run = executor.map if executor is not None else map
    rows: list[_Replication] = []
    while True:
        seeds = root.spawn(max(replications, len(rows)))
        rows += run(lambda child: _replicate(system, each, child, scale_s), seeds)
        counted = sum(row.counted for row in rows)
        result = Simulated(
            np.vstack([row.counts for row in rows]),
            scale_s,
            np.array([row.mean_s for row in rows]),
            counted,
            sum(row.served for row in rows) / sum(row.batches for row in rows),
            sum(row.busy_frac for row in rows) / len(rows),
            "target",
        )
        if enough(result):
            return result
        if 2 * counted > most_requests:
            return replace(result, stopped="cap")
