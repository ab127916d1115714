"""Percentiles of a simulated system with confidence intervals, until they are narrow enough or a cap is reached.

Batch means over independent replications: each replication has streams of its own and drops its warm-up, so that
replications are independent, and Student's interval over them holds. For a percentile it is the interval of the share
of requests beyond it, turned into times: percentiles of single replications are biased where few requests lie beyond
them. Response times go into a histogram on a logarithmic grid, of which at most `MOST_ROWS` are kept: memory does not
grow with the number of requests.
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
MOST_ROWS = 160
"""Histograms kept, 256 KB each; with more replications each is the average of several, and Student's factor is within
1 % of its limit for many."""
MOST_REPLICATIONS = 1280
"""Replications in all: a replay that is shorter than asked for would be repeated thousands of times up to the cap on
requests, though its repeats differ by their services alone."""
_BINS = 2**15
_LOWEST, _HIGHEST = -5.0, 18.0
"""Ends of the histogram as natural logarithms of the time over the shortest mean service: from 0.7 % of it to 6.6e7
times as long, an hour where a service takes 55 µs."""
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
        Histograms, weighted by the streams; shape (rows, bins). A row is one replication, or the average of equally
        many where there are more than `MOST_ROWS`: rows are independent and of equal weight.
    scale_s
        Time that the histogram's grid is relative to [s].
    means_s
        Mean response time per row [s].
    replications
        Independent replications simulated, over all rows.
    requests
        Requests counted, warm-up left out.
    mean_batch
        Requests per batch.
    utilization
        Share of time that a server is busy, from the first arrival to the last.
    stopped
        Whether the interval met its target, or a cap ended the run: that on requests or `MOST_REPLICATIONS`.
    """

    counts: Array
    scale_s: float
    means_s: Array
    replications: int
    requests: int
    mean_batch: float
    utilization: float
    stopped: Literal["target", "cap"]

    @property
    def mean(self) -> Estimate:
        """Mean response time."""
        return Estimate(float(self.means_s.mean()), _half_width(self.means_s))

    def percentile(self, q: float) -> Estimate:
        """Percentile over all requests, with the farther end of its interval as half width.

        The interval is Student's for the share of requests above the value, over the rows, in log odds: there it is
        symmetric for an exponential tail, and cannot reach 0. One bin is added, since nothing is known of where in it a
        value lies.
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


class _Rows:
    """Sums over replications, by row: replication j belongs to row j modulo the number of rows."""

    def __init__(self, rows: int) -> None:
        self.counts, self.means_s = np.zeros((rows, _BINS)), np.zeros(rows)
        self.replications = self.counted = self.served = self.batches = 0
        self.busy_frac = 0.0

    def add(self, found: _Replication) -> None:
        """Add the next replication."""
        row = self.replications % self.means_s.size
        self.counts[row] += found.counts
        self.means_s[row] += found.mean_s
        self.replications += 1
        self.counted += found.counted
        self.served += found.served
        self.batches += found.batches
        self.busy_frac += found.busy_frac

    def widened(self) -> "_Rows":
        """Twice as many rows for the next round, as long as each is one replication."""
        wide = _Rows(2 * self.means_s.size)
        wide.counts[: self.means_s.size], wide.means_s[: self.means_s.size] = self.counts, self.means_s
        wide.replications, wide.counted, wide.served = self.replications, self.counted, self.served
        wide.batches, wide.busy_frac = self.batches, self.busy_frac
        return wide

    def result(self, scale_s: float) -> Simulated:
        """Averages; after whole rounds all rows hold equally many replications."""
        each = self.replications // self.means_s.size
        return Simulated(
            self.counts / each,
            scale_s,
            self.means_s / each,
            self.replications,
            self.counted,
            self.served / self.batches,
            self.busy_frac / self.replications,
            "target",
        )


def simulate(
    system: tuple[Stream, ...],
    *,
    seed: int | tuple[int, ...],
    requests: int,
    most_requests: int,
    enough: Callable[[Simulated], bool],
    replications: int = REPLICATIONS,
    executor: Executor | None = None,
) -> Simulated:
    """Simulate in rounds until the result is good enough, or a round more would exceed a cap.

    Parameters
    ----------
    system
        Independent streams; their weights add up to one.
    seed
        Seed of all streams of random numbers: equal inputs and seeds give equal results.
    requests
        Requests of the first round, over all replications.
    most_requests
        Cap; each round adds as many replications as there are, up to `MOST_REPLICATIONS`.
    enough
        Says whether the interval meets its target.
    replications
        Replications of the first round, from 2 to `MOST_ROWS`.
    executor
        Runs replications side by side; threads do, since the loops release Python's lock.

    Raises
    ------
    ValueError
        When the number of replications is outside.
    """
    if not 2 <= replications <= MOST_ROWS:
        raise ValueError(f"replications is {replications}; allowed: from 2 to {MOST_ROWS}")
    scale_s = min(float(pool.service.mean_s[0]) for stream in system for pool in stream.pools)
    each = math.ceil(requests / replications)
    root = np.random.SeedSequence(seed)
    run = executor.map if executor is not None else map
    rows = _Rows(replications)
    while True:
        seeds = root.spawn(max(replications, rows.replications))
        # Not all at once: what an executor has finished waits in memory for its turn.
        for first in range(0, len(seeds), MOST_ROWS):
            for found in run(lambda child: _replicate(system, each, child, scale_s), seeds[first : first + MOST_ROWS]):
                rows.add(found)
        result = rows.result(scale_s)
        if enough(result):
            return result
        if 2 * rows.counted > most_requests or 2 * rows.replications > MOST_REPLICATIONS:
            return replace(result, stopped="cap")
        if 2 * rows.means_s.size <= MOST_ROWS:
            rows = rows.widened()
