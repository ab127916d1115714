"""Arrival processes for the simulator: each gives the times of one replication, the first tenth for warming up.

Rates that vary follow a time change: if Λ(t) is the mean number of arrivals by t, then Λ⁻¹ of a Poisson process of
rate 1 is the process wanted. With piecewise constant rates Λ is piecewise linear and is inverted exactly.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WARM_UP_FRAC = 0.1
"""Part of a replication that is dropped, since it starts with empty queues."""
_SINE_SLOTS = 360
"""Steps of constant rate per period of a sinusoid: a rate that is off by less than 1 % of its amplitude."""


class Arrivals(Protocol):
    """Where the requests of one replication come from."""

    @property
    def rate_rps(self) -> float:
        """Long-run mean rate λ [1/s]."""

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Times of arrival [s], not decreasing, and how many of the first are warm-up.

        ``requests`` is how many are to count; processes with a period of their own may give more.
        """


def _with_warm_up(requests: int) -> tuple[int, int]:
    warm = math.ceil(requests * WARM_UP_FRAC / (1 - WARM_UP_FRAC))
    return requests + warm, warm


@dataclass(frozen=True)
class PoissonProcess:
    """Independent arrivals at a constant rate."""

    rate_rps: float

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Cumulated exponential gaps."""
        total, warm = _with_warm_up(requests)
        return np.cumsum(rng.standard_exponential(total)) / self.rate_rps, warm


@dataclass(frozen=True)
class RenewalProcess:
    """Independent gaps from a mixture of Erlang laws, or what is left of them when a router takes only some requests.

    A gap is, with probability w_i, a sum of k_i exponentials of rate ν_i. Of the requests each is kept with probability
    p, and of those each c-th: the gap between two that are left is a sum of as many gaps as lie between them.

    Attributes
    ----------
    rate_rps
        Rate of the requests that are left [1/s].
    weights, stages, rates
        w_i, k_i and ν_i, with Σ w_i k_i/ν_i = 1.
    keep_frac
        p: chance that a random split gives a request to this replica.
    every
        c: replicas that take requests in turn.
    """

    rate_rps: float
    weights: Array
    stages: NDArray[np.int64]
    rates: Array
    keep_frac: float = 1.0
    every: int = 1

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Cumulated gaps; the phase at the start is forgotten in the warm-up."""
        total, warm = _with_warm_up(requests)
        summed = np.full(total, self.every)
        if self.keep_frac < 1:
            summed = summed + rng.negative_binomial(self.every, self.keep_frac, total)
        gaps = np.zeros(total)
        left, chance = summed, 1.0
        for weight, stages, rate in zip(self.weights, self.stages, self.rates, strict=True):
            share = min(1.0, float(weight) / chance)
            mine = left if share == 1 else rng.binomial(left, share)
            gaps += rng.standard_gamma(float(stages) * mine) / rate
            left, chance = left - mine, max(chance - float(weight), 1e-300)
        scale = self.keep_frac / self.every / self.rate_rps
        return np.cumsum(gaps) * scale, warm


@dataclass(frozen=True)
class BurstProcess:
    """Markov-modulated Poisson process of two states: calm, and bursts with a higher rate.

    Attributes
    ----------
    calm_rps, burst_rps
        Rates in the two states [1/s].
    calm_s, burst_s
        Mean lengths of stays in them [s], exponential.
    every
        Only each so-manieth request is left: those of one of so many replicas that take them in turn.
    """

    calm_rps: float
    burst_rps: float
    calm_s: float
    burst_s: float
    every: int = 1

    @property
    def rate_rps(self) -> float:
        """Mean rate: that of the states, weighted with the time spent in each [1/s]."""
        both = self.calm_rps * self.calm_s + self.burst_rps * self.burst_s
        return both / (self.calm_s + self.burst_s) / self.every

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Stays in alternation, from a state drawn by its share of time; then the change of time."""
        total, warm = _with_warm_up(requests)
        cycle_s = self.calm_s + self.burst_s
        first = int(rng.random() * cycle_s >= self.calm_s)
        unit = np.cumsum(rng.standard_gamma(float(self.every), total))
        means = np.array([self.calm_s, self.burst_s])
        rates = np.array([self.calm_rps, self.burst_rps])
        edges, expected = np.zeros(1), np.zeros(1)
        while expected[-1] < unit[-1]:
            lacking = (unit[-1] - expected[-1]) / (self.rate_rps * self.every * cycle_s)
            states = (first + np.arange(2 * math.ceil(1.1 * lacking + 4))) % 2
            stays = rng.standard_exponential(states.size) * means[states]
            edges = np.append(edges, edges[-1] + np.cumsum(stays))
            expected = np.append(expected, expected[-1] + np.cumsum(stays * rates[states]))
        return np.interp(unit, expected, edges), warm


@dataclass(frozen=True)
class PeriodicProcess:
    """Poisson arrivals whose rate follows a pattern that repeats, such as a week of hours.

    Attributes
    ----------
    rates_rps
        Rate in each slot of the period [1/s].
    slot_s
        Length of a slot [s].
    every
        Only each so-manieth request is left: those of one of so many replicas that take them in turn.
    """

    rates_rps: Array
    slot_s: float
    every: int = 1

    @property
    def rate_rps(self) -> float:
        """Mean over the period [1/s]."""
        return float(self.rates_rps.mean()) / self.every

    @property
    def period_s(self) -> float:
        """Length of the pattern [s]."""
        return self.rates_rps.size * self.slot_s

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Whole periods from a random phase, after a warm-up of part of one."""
        edges = np.arange(self.rates_rps.size + 1) * self.slot_s
        expected = np.append(0.0, np.cumsum(self.rates_rps) * self.slot_s)
        each = float(expected[-1])
        periods = max(1, math.ceil(requests * self.every / each))
        warm_periods = max(periods * WARM_UP_FRAC / (1 - WARM_UP_FRAC), min(1.0, requests * self.every / each))
        start = rng.random() * self.period_s
        low = float(np.interp(start, edges, expected))
        end = start + (periods + warm_periods) * self.period_s
        whole, rest = divmod(end, self.period_s)
        high = whole * each + float(np.interp(rest, edges, expected))
        mean = (high - low) / self.every
        unit = low + np.cumsum(rng.standard_gamma(float(self.every), math.ceil(mean + 8 * math.sqrt(mean) + 20)))
        unit = unit[unit < high]
        earlier = np.floor(unit / each)
        times = earlier * self.period_s + np.interp(unit - earlier * each, expected, edges) - start
        return times, int(np.searchsorted(times, warm_periods * self.period_s))


def sinusoid(peak_rps: float, amplitude_frac: float, period_s: float) -> PeriodicProcess:
    """Rate λ₀(1 + A sin 2πt/P) with its highest value given, in steps of a degree.

    Parameters
    ----------
    peak_rps
        λ₀(1 + A) [1/s].
    amplitude_frac
        A, from 0 to 1.
    period_s
        P [s].
    """
    middle = (np.arange(_SINE_SLOTS) + 0.5) * 2 * np.pi / _SINE_SLOTS
    rates = peak_rps / (1 + amplitude_frac) * (1 + amplitude_frac * np.sin(middle))
    return PeriodicProcess(rates, period_s / _SINE_SLOTS)


@dataclass(frozen=True)
class Replay:
    """A recorded sequence of arrivals, sped up or slowed down to a rate; every replication sees the same one.

    Attributes
    ----------
    recorded_s
        Times of arrival, from 0, not decreasing [s].
    speed
        The recording runs this many times as fast: all gaps are divided by it.
    """

    recorded_s: Array
    speed: float = 1.0

    @property
    def rate_rps(self) -> float:
        """(n - 1) gaps over the length of the recording [1/s]."""
        return (self.recorded_s.size - 1) / float(self.recorded_s[-1]) * self.speed

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """The whole recording; nothing is warm-up."""
        return self.recorded_s / self.speed, 0
