"""Exact models without batching: M/M/c, M/D/c and M/G/1, first come first served.

Symbols: λ arrival rate [1/s], E[S] mean service time [s], μ = 1/E[S], c servers, a = λE[S] offered load [erlang],
ρ = a/c utilization. Service without batching: one request, one server.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, ndtr, xlogy

from advisor.queueing.response import ResponseTime, overloaded

Array = NDArray[np.float64]


def erlang_b(offered_load_erlangs: float, servers: int) -> float:
    """Probability that all servers are busy in the loss system M/M/c/c.

    Recursion B_k = aB_{k-1} / (k + aB_{k-1}), B_0 = 1.

    References
    ----------
    Erlang 1917.

    Examples
    --------
    >>> round(erlang_b(5.0, 1), 6)
    0.833333
    """
    blocking = 1.0
    for k in range(1, servers + 1):
        blocking = offered_load_erlangs * blocking / (k + offered_load_erlangs * blocking)
    return blocking


def erlang_c(offered_load_erlangs: float, servers: int) -> float:
    """Probability that an arrival waits in M/M/c: C = B / (1 - ρ + ρB); 1 under overload.

    Examples
    --------
    >>> round(erlang_c(2.0, 3), 6)
    0.444444
    """
    utilization = offered_load_erlangs / servers
    if utilization >= 1:
        return 1.0
    blocking = erlang_b(offered_load_erlangs, servers)
    return blocking / (1 - utilization + utilization * blocking)


def mmc(arrival_rate_rps: float, service_time_s: float, servers: int) -> ResponseTime:
    """M/M/c: Poisson arrivals, exponential service.

    With θ = cμ - λ, P(W > t) = C e^{-θt}, and for θ ≠ μ

    P(T > t) = (1-C) e^{-μt} + C (θ e^{-μt} - μ e^{-θt}) / (θ - μ); for θ = μ: e^{-μt} (1 + Cμt).

    References
    ----------
    Gross, Shortle, Thompson, Harris: Fundamentals of Queueing Theory, section 3.3.
    """
    mu = 1 / service_time_s
    load = arrival_rate_rps * service_time_s
    if load >= servers:
        return overloaded("M/M/c", load / servers)
    wait_probability = erlang_c(load, servers)
    theta = servers * mu - arrival_rate_rps

    def tail(t: float) -> float:
        if t < 0:
            return 1.0
        if abs(theta - mu) < 1e-9 * mu:
            return math.exp(-mu * t) * (1 + wait_probability * mu * t)
        waiting = (theta * math.exp(-mu * t) - mu * math.exp(-theta * t)) / (theta - mu)
        return (1 - wait_probability) * math.exp(-mu * t) + wait_probability * waiting

    return ResponseTime("M/M/c", load / servers, service_time_s + wait_probability / theta, tail)


@dataclass(frozen=True)
class DeterministicQueue:
    """Stationary number waiting in M/D/c, seen at any time.

    Attributes
    ----------
    waiting_pmf
        P(Lq = n), n = 0, 1, ….
    """

    arrival_rate_rps: float
    service_time_s: float
    servers: int
    waiting_pmf: Array

    @property
    def mean_wait_s(self) -> float:
        """Wq = E[Lq]/λ by Little's law [s]."""
        return float(np.arange(self.waiting_pmf.size) @ self.waiting_pmf) / self.arrival_rate_rps

    def wait_tail(self, t: float) -> float:
        """P(W > t) by Franx's sum, whose terms are all positive.

        P(W ≤ t) = Σ_{j=0}^{kc-1} Q_{kc-1-j} Poisson(j; λ(kD - t)), k = ⌊t/D⌋ + 1, Q the cdf of Lq.

        References
        ----------
        Franx, A simple solution for the M/D/c waiting time distribution, Operations Research Letters 29, 2001.
        """
        if t < 0:
            return 1.0
        k = math.floor(t / self.service_time_s) + 1
        last = k * self.servers - 1
        cdf = np.minimum(np.cumsum(self.waiting_pmf), 1.0)
        index = np.arange(last + 1)
        queue = cdf[np.minimum(last - index, cdf.size - 1)]
        arrivals = poisson_pmf(index, self.arrival_rate_rps * (k * self.service_time_s - t))
        return max(0.0, 1.0 - float(queue @ arrivals))


def deterministic_queue(arrival_rate_rps: float, service_time_s: float, servers: int) -> DeterministicQueue:
    """Number waiting in M/D/c from the Lindley recursion Lq' = max(Lq + A - c, 0), A Poisson(a).

    Spitzer's identity is evaluated on the tilted circle |z| = 1/ρ, the saddle point of E z^(A-c), where the ladder
    heights do not alias even at light load and many servers.

    Raises
    ------
    ValueError
        When ρ is not below 1.
    """
    load = arrival_rate_rps * service_time_s
    rho = load / servers
    if not 0 < rho < 1:
        raise ValueError(f"utilization is {rho}; allowed: above 0 and below 1")
    reach = 40 * max(1.0, rho / (2 * (1 - rho))) + 20 * math.sqrt(load) + 4 * servers + 200
    size = 2 ** math.ceil(math.log2(2 * reach))
    radius = 1 / rho
    z = radius * np.exp(-2j * np.pi * np.arange(size) / size)
    step = np.exp(load * (z - 1) - servers * np.log(z))
    tilted = np.fft.ifft(np.log1p(-step)).real
    half = np.arange(1, size // 2)
    ladder = np.zeros(size)
    with np.errstate(under="ignore"):
        ladder[half] = tilted[half] * radius ** (-half.astype(float))
    pmf = np.fft.ifft(np.exp(ladder.sum() - np.fft.fft(ladder))).real
    pmf = np.clip(pmf[: size // 2], 0.0, None)
    return DeterministicQueue(arrival_rate_rps, service_time_s, servers, pmf / pmf.sum())


def mdc(arrival_rate_rps: float, service_time_s: float, servers: int) -> ResponseTime:
    """M/D/c: Poisson arrivals, constant service; T = W + D.

    References
    ----------
    Crommelin 1932; Franx 2001.
    """
    load = arrival_rate_rps * service_time_s
    if load >= servers:
        return overloaded("M/D/c", load / servers)
    queue = deterministic_queue(arrival_rate_rps, service_time_s, servers)
    return ResponseTime(
        "M/D/c",
        load / servers,
        service_time_s + queue.mean_wait_s,
        lambda t: queue.wait_tail(t - service_time_s) if t >= service_time_s else 1.0,
    )


def lattice_pmf(times_s: Array, weights: Array, step_s: float, size: int) -> Array:
    """Put a discrete distribution on the lattice 0, h, 2h, … so that its mean is kept.

    Each point's weight is shared between its two neighbours on the lattice. Points beyond the lattice go to its end.
    """
    position = np.minimum(times_s / step_s, size - 1.000001)
    left = np.floor(position).astype(int)
    share = position - left
    pmf: Array = np.zeros(size)
    np.add.at(pmf, left, weights * (1 - share))
    np.add.at(pmf, left + 1, weights * share)
    return pmf


def lognormal_points(mean_s: float, scv: float, *, count: int = 2000) -> tuple[Array, Array]:
    """Points and weights of a lognormal service time: the means of intervals of equal length in the normal score.

    σ² = ln(1 + SCV), ln(S/E[S]) = σz - σ²/2. The mean is kept exactly, the SCV to a millionth; percentiles of S itself
    move in steps of (11 + σ)σ/count.

    Parameters
    ----------
    mean_s
        E[S] [s].
    scv
        Squared coefficient of variation, above 0.
    count
        Number of points.

    Examples
    --------
    >>> times, weights = lognormal_points(2.0, 4.0)
    >>> round(float(weights @ times), 9), round(float(weights @ times**2) / 4 - 1, 4)
    (2.0, 4.0)
    """
    sigma = math.sqrt(math.log1p(scv))
    score = np.linspace(-5.0, 6.0 + sigma, count + 1)
    score[0], score[-1] = -np.inf, np.inf
    # Above 0 the upper tail is subtracted, whose small probabilities keep their digits.
    weights = np.where(score[:-1] < 0, np.diff(ndtr(score)), -np.diff(ndtr(-score)))
    shifted = score - sigma
    shares = np.where(shifted[:-1] < 0, np.diff(ndtr(shifted)), -np.diff(ndtr(-shifted)))
    return mean_s * shares / weights, weights


def mg1(arrival_rate_rps: float, times_s: Array, weights: Array, *, cells: int = 2**15) -> ResponseTime:
    """M/G/1 with any discrete service distribution, such as a measured histogram.

    Pollaczek-Khinchine: W is a geometric sum of equilibrium residuals, ŵ(z) = (1-ρ) / (1 - ρ ŝ_e(z)), inverted by FFT;
    E[W] = λE[S²] / (2(1-ρ)); T = W + S.

    Parameters
    ----------
    arrival_rate_rps
        λ [1/s].
    times_s, weights
        Points of the service distribution [s] and their probabilities.
    cells
        Lattice points. The lattice spans the service times and the tail of the wait by its decay rate, but of a heavy
        tail no more than 24 mean waits and 14(1 + 3c_s²) services: the rest is below one in ten million.
    """
    weights = weights / weights.sum()
    mean = float(weights @ times_s)
    second = float(weights @ times_s**2)
    rho = arrival_rate_rps * mean
    if rho >= 1:
        return overloaded("M/G/1", rho)
    wait_s = arrival_rate_rps * second / (2 * (1 - rho))
    heavy = 24 * wait_s + 14 * mean * (1 + 3 * (second / mean**2 - 1))
    span = min(float(times_s.max()) + 34 / _decay_rate(arrival_rate_rps, times_s, weights), heavy)
    step = span / (cells // 2)
    service = lattice_pmf(times_s, weights, step, cells)
    survivor = np.concatenate(([1.0], 1 - np.cumsum(service)))[:-1]
    # A cell of the residual is uniform between two lattice points: half its mass to each keeps the mean.
    residual = np.zeros(cells)
    inside = survivor - service
    inside[0] = survivor[0] - service[0]
    residual += inside / 2
    residual[1:] += inside[:-1] / 2
    residual = np.clip(residual, 0, None)
    residual /= residual.sum()
    transform = np.fft.rfft(residual)
    wait = (1 - rho) / (1 - rho * transform)
    pmf = np.fft.irfft(wait * np.fft.rfft(service), cells)
    upper = 1 - np.concatenate(([0.0], np.cumsum(np.clip(pmf, 0, None))))
    edges = (np.arange(cells + 1) - 0.5) * step

    def tail(t: float) -> float:
        return float(np.clip(np.interp(t, edges, upper), 0.0, 1.0))

    return ResponseTime("M/G/1", rho, mean + wait_s, tail)


def _decay_rate(arrival_rate_rps: float, times_s: Array, weights: Array) -> float:
    """Decay rate θ > 0 of the wait: λ(E e^{θS} - 1) = θ [1/s]."""
    longest = float(times_s.max())

    def excess(theta: float) -> float:
        return arrival_rate_rps * float(weights @ np.expm1(theta * times_s)) - theta

    mean = float(weights @ times_s)
    low = 1e-9 / mean
    high = (1 - arrival_rate_rps * mean) / (arrival_rate_rps * float(weights @ times_s**2)) * 4
    high = min(high, 500 / longest)
    while excess(high) < 0 and high * longest < 500:
        high = min(2 * high, 500 / longest)
    if excess(high) < 0:
        return high
    return float(brentq(excess, low, high, rtol=1e-9))


def poisson_pmf(count: NDArray[Any], mean: NDArray[Any] | float) -> Array:
    """P(Poisson(mean) = count); arrays broadcast, a mean of 0 gives all mass to 0.

    Examples
    --------
    >>> poisson_pmf(np.arange(3), 0.0).tolist()
    [1.0, 0.0, 0.0]
    """
    pmf: Array = np.exp(xlogy(count, mean) - mean - gammaln(count + 1))
    return pmf
