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
    """Independent gaps from a mixture of Erlang laws: with probability w_i a sum of k_i exponentials of rate ν_i·λ.

    Attributes
    ----------
    rate_rps
        λ [1/s].
    weights, stages, rates
        w_i, k_i and ν_i, with Σ w_i k_i/ν_i = 1: the law of a gap of mean 1.
    """

    rate_rps: float
    weights: Array
    stages: NDArray[np.int64]
    rates: Array

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Cumulated gaps of the mixture; the phase at the start is forgotten in the warm-up."""
        total, warm = _with_warm_up(requests)
        branch = np.minimum(np.searchsorted(np.cumsum(self.weights), rng.random(total)), self.weights.size - 1)
        gaps = rng.standard_gamma(self.stages[branch].astype(float)) / self.rates[branch]
        return np.cumsum(gaps) / self.rate_rps, warm


@dataclass(frozen=True)
class BurstProcess:
    """Markov-modulated Poisson process of two states: calm, and bursts with a higher rate.

    Attributes
    ----------
    calm_rps, burst_rps
        Rates in the two states [1/s].
    calm_s, burst_s
        Mean lengths of stays in them [s], exponential.
    """

    calm_rps: float
    burst_rps: float
    calm_s: float
    burst_s: float

    @property
    def rate_rps(self) -> float:
        """Mean rate: that of the states, weighted with the time spent in each [1/s]."""
        return (self.calm_rps * self.calm_s + self.burst_rps * self.burst_s) / (self.calm_s + self.burst_s)

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Stays in alternation, from a state drawn by its share of time; then the change of time."""
        total, warm = _with_warm_up(requests)
        cycle_s = self.calm_s + self.burst_s
        first = int(rng.random() * cycle_s >= self.calm_s)
        unit = np.cumsum(rng.standard_exponential(total))
        means = np.array([self.calm_s, self.burst_s])
        rates = np.array([self.calm_rps, self.burst_rps])
        edges, expected = np.zeros(1), np.zeros(1)
        while expected[-1] < unit[-1]:
            lacking = (unit[-1] - expected[-1]) / (self.rate_rps * cycle_s)
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
    """

    rates_rps: Array
    slot_s: float

    @property
    def rate_rps(self) -> float:
        """Mean over the period [1/s]."""
        return float(self.rates_rps.mean())

    @property
    def period_s(self) -> float:
        """Length of the pattern [s]."""
        return self.rates_rps.size * self.slot_s

    def times(self, requests: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Whole periods from a random phase, after a warm-up of part of one."""
        edges = np.arange(self.rates_rps.size + 1) * self.slot_s
        expected = np.append(0.0, np.cumsum(self.rates_rps) * self.slot_s)
        each = float(expected[-1])
        periods = max(1, math.ceil(requests / each))
        warm_periods = max(periods * WARM_UP_FRAC / (1 - WARM_UP_FRAC), min(1.0, requests / each))
        start = rng.random() * self.period_s
        low = float(np.interp(start, edges, expected))
        end = start + (periods + warm_periods) * self.period_s
        whole, rest = divmod(end, self.period_s)
        high = whole * each + float(np.interp(rest, edges, expected))
        # Given their number, the arrivals of a Poisson process are uniform on the changed time.
        unit = np.sort(rng.uniform(low, high, rng.poisson(high - low)))
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
