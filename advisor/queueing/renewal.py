"""Renewal arrivals by two moments: one server with any service, and several servers with constant service.

Symbols: A interarrival time, S service time, λ = 1/E[A] arrival rate [1/s], c_a² and c_s² squared coefficients of
variation (SCV) of A and S, h step of a lattice [s]. Both queues are solved exactly for distributions on the lattice
0, h, 2h, …: W is the maximum of the random walk with steps S - A, by Wiener-Hopf factorization with FFTs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from advisor.queueing.exact import lattice_pmf
from advisor.queueing.gaps import RenewalLaw
from advisor.queueing.response import ResponseTime, overloaded

Array = NDArray[np.float64]

NO_WAIT_LOG = -45.0
"""Logarithm of a probability that is lost in the rounding of those it would be added to."""
_LARGEST_LATTICE = 2**18
"""Points beyond which a finer lattice costs more than the model error it removes."""


@dataclass(frozen=True)
class LatticeWait:
    """Wait whose law is known on a lattice, with an atom at 0 and a smooth part above.

    Attributes
    ----------
    step_s
        h [s].
    pmf
        P(W = nh), n = 0, 1, …
    mean_s
        E[W] [s].
    """

    step_s: float
    pmf: Array
    mean_s: float

    @cached_property
    def _survivor(self) -> tuple[Array, Array]:
        """Ends of the cells and P(W > end)."""
        above = np.cumsum(self.pmf[::-1])[::-1][1:]
        # Point 0 of the lattice holds what truly lies below h/2; half of its neighbor is that share.
        first = min(1.0, float(above[0] + self.pmf[1] / 2))
        ends = (np.arange(above.size + 1, dtype=np.float64) - 0.5) * self.step_s
        ends[0] = 0.0
        return ends, np.concatenate(([first], above))

    @property
    def wait_probability(self) -> float:
        """P(W > 0)."""
        return float(self._survivor[1][0])

    def tail(self, t: Array | float) -> Array:
        """P(W > t), linear between the ends of the cells; 1 below 0."""
        ends, above = self._survivor
        return np.where(np.less(t, 0.0), 1.0, np.interp(t, ends, above, right=0.0))


def served(wait: Callable[[Array], Array], times_s: Array, weights: Array) -> Callable[[float], float]:
    """P(T > t) of T = W + S for independent W and S: Σ w P(W > t - s), which keeps the atoms of both."""

    def tail(t: float) -> float:
        return min(1.0, float(weights @ wait(t - times_s)))

    return tail


def heavy_traffic_wait_s(utilization: float, service_time_s: float, scvs: float) -> float:
    """Wq ≈ E[S] ρ/(1-ρ) (c_a² + c_s²)/2 [s] of one server in heavy traffic; ``scvs`` is the sum of both SCVs.

    References
    ----------
    Kingman, The heavy traffic approximation in the theory of queues, 1965.
    """
    return service_time_s * utilization / (1 - utilization) * scvs / 2


def single_server_wait(
    arrival_rate_rps: float,
    law: RenewalLaw,
    times_s: Array,
    weights: Array,
    *,
    keep_frac: float = 1.0,
    cells: int = 2**15,
) -> LatticeWait:
    """Wait in GI/G/1, λE[S] < 1, by the Wiener-Hopf factorization of 1 - φ, φ = E z^{(S-A)/h}.

    (1 - φ(z))/(1 - 1/z) has no zero on the unit circle; the positive coefficients g_n of its logarithm give
    E z^{W/h} = exp(-Σ g_n (1 - zⁿ)). No decay rate is needed, so service times may have heavy tails.

    Parameters
    ----------
    arrival_rate_rps
        λ of the stream that reaches the server [1/s].
    law
        Law of the intervals before thinning.
    times_s, weights
        Points of the service distribution [s] and their probabilities, summing to 1.
    keep_frac
        Share p of the renewal stream that reaches this server, each request independently: its intervals are geometric
        sums with transform p â/(1 - (1-p) â) and SCV 1 + p(c_a² - 1).
    cells
        Lattice points; half of them span the wait.
    """
    mean = float(weights @ times_s)
    service_variance = float(weights @ times_s**2) - mean**2
    step, cells = _lattice_of(arrival_rate_rps, law, mean, service_variance / mean**2, keep_frac=keep_frac, cells=cells)
    service = lattice_pmf(times_s, weights, step, cells // 2)
    interval = law.lattice(keep_frac / arrival_rate_rps, step, cells // 2)
    drift, extra = _drift_and_extra_variance(service, interval, keep_frac)
    extra -= (service_variance + (1 + keep_frac * (law.scv - 1)) / arrival_rate_rps**2) / step**2
    arrival = np.fft.rfft(interval, cells)
    arrival = keep_frac * arrival / (1 - (1 - keep_frac) * arrival)
    walk = np.fft.rfft(service, cells) * np.conj(arrival)
    # numpy's forward transform has e^{-iω}: the point z = e^{-iω}, so that 1/z = e^{iω}.
    back = np.exp(2j * np.pi * np.arange(cells // 2 + 1) / cells)
    ratio = np.empty_like(walk)
    ratio[1:] = (1 - walk[1:]) / (1 - back[1:])
    ratio[0] = -drift
    logarithm = np.log(np.abs(ratio)) + 1j * np.unwrap(np.angle(ratio))
    ladder = -np.fft.irfft(logarithm, cells)[: cells // 2]
    ladder[0] = 0.0
    return _from_ladder(ladder, step, excess=extra / (-2 * drift))


def _lattice_of(
    arrival_rate_rps: float, law: RenewalLaw, service_time_s: float, service_scv: float, *, keep_frac: float, cells: int
) -> tuple[float, int]:
    """Step and points of a lattice, half of which spans the wait, the service and the longest intervals."""
    scv = 1 + keep_frac * (law.scv - 1)
    wait = heavy_traffic_wait_s(arrival_rate_rps * service_time_s, service_time_s, scv + service_scv)
    slowest = keep_frac / arrival_rate_rps / float(law.rates.min())
    # Nearly even intervals leave idle times with a beat, which fades by 2π²Var/gap² per gap.
    gap = keep_frac / arrival_rate_rps
    beat = 1.5 * gap**3 / (law.scv * gap**2 + service_scv * service_time_s**2)
    interval = max(20 / arrival_rate_rps, 20 * slowest, beat)
    span = 2 * (24 * wait + 14 * service_time_s * (1 + 3 * service_scv) + interval)
    while span / cells > max(service_time_s / 8, wait / 100) and cells < _LARGEST_LATTICE:
        cells *= 2
    return span / cells, cells


def _drift_and_extra_variance(service: Array, interval: Array, keep_frac: float) -> tuple[float, float]:
    """Mean and variance of the step S - A of the walk on the lattice, A a geometric sum of ``interval`` [h, h²]."""
    points = np.arange(service.size)
    mean_s, mean_a = float(points @ service), float(points @ interval)
    variance_s, variance_a = float(points**2 @ service) - mean_s**2, float(points**2 @ interval) - mean_a**2
    return mean_s - mean_a / keep_frac, variance_s + variance_a / keep_frac + mean_a**2 * (1 - keep_frac) / keep_frac**2


def _from_ladder(ladder: Array, step_s: float, *, excess: float) -> LatticeWait:
    """Law of W with E z^{W/h} = exp(-Σ g_n (1 - zⁿ)): mean hΣ n g_n, the rest by FFT.

    ``excess`` is what the variance v that the lattice adds to the walk's step X does to the mean: of
    E[W] = E[X²]/(2|E X|) - E[I²]/(2E[I]), I the idle time, the first term grows by v/(2|E X|) [h]. The step is shrunk
    so that this is taken back.
    """
    cells = 2 * ladder.size
    pmf = np.fft.irfft(np.exp(np.fft.rfft(ladder, cells) - ladder.sum()), cells)[: cells // 2]
    mean = float(np.arange(ladder.size) @ ladder)
    scale = step_s * max(0.5, 1 - excess / mean) if mean > 1e-12 else step_s
    return LatticeWait(scale, np.clip(pmf, 0.0, None), scale * mean)


def gig1(
    arrival_rate_rps: float, law: RenewalLaw, times_s: Array, weights: Array, *, keep_frac: float = 1.0
) -> ResponseTime:
    """GI/G/1 with any discrete service distribution: exact up to the lattice, 0.1 % of the mean.

    Parameters as of `single_server_wait`; with ``keep_frac`` 1/c this is one of c servers under random routing.

    Raises
    ------
    ValueError
        When ``keep_frac`` is not above 0 and at most 1.

    References
    ----------
    Asmussen, Applied Probability and Queues, 2003, chapter VIII.

    Examples
    --------
    >>> from advisor.queueing.gaps import renewal_law
    >>> response = gig1(0.8, renewal_law(1.0), np.ones(1), np.ones(1))
    >>> round(response.mean_s, 2), round(response.percentile(0.99), 2)
    (3.0, 11.36)
    """
    if not 0 < keep_frac <= 1:
        raise ValueError(f"share of the stream is {keep_frac}; allowed: above 0 and at most 1")
    weights = weights / weights.sum()
    mean = float(weights @ times_s)
    rho = arrival_rate_rps * mean
    if rho >= 1:
        return overloaded("GI/G/1", rho)
    wait = single_server_wait(arrival_rate_rps, law, times_s, weights, keep_frac=keep_frac)
    return ResponseTime("GI/G/1", rho, mean + wait.mean_s, served(wait.tail, times_s, weights))


def cyclic_wait(arrival_rate_rps: float, law: RenewalLaw, service_time_s: float, servers: int) -> LatticeWait:
    """Wait in GI/D/c, ρ < 1: with constant service the servers take turns, each of them a GI^{c*}/D/1 queue.

    The walk D - (A_1 + … + A_c) is tilted by θ = argmin θD + c ln E e^{-θA}, where its ladder heights fall fastest in
    both directions and do not alias even at light load.
    """
    mean = 1 / arrival_rate_rps
    tilt, decay = _tilt(law, service_time_s / mean, servers)
    # Chernoff: P(D > ΣA) is below the exponential of this. Where that is below what a float tells from 0 nobody waits.
    if tilt * service_time_s / mean + servers * law.log_transform(tilt) < NO_WAIT_LOG:
        return LatticeWait(service_time_s, np.array([1.0, 0.0]), 0.0)
    slowest = 40 * mean / (float(law.rates.min()) + tilt)
    span = max(32 * mean / min(tilt, decay - tilt), 3 * service_time_s + slowest)
    cells = 2**14
    wait = heavy_traffic_wait_s(service_time_s / mean / servers, service_time_s / servers, law.scv)
    while span / cells > max(mean / 12, min(wait / 200, service_time_s / 8)) and cells < _LARGEST_LATTICE:
        cells *= 2
    multiple = max(1, math.floor(service_time_s * cells / span))
    step = service_time_s / multiple
    damping = np.exp(-tilt * step / mean * np.arange(cells))
    lattice = law.lattice(mean, step, cells)
    interval = lattice * damping
    norm = float(interval.sum())
    turn = np.fft.rfft(interval / norm) ** servers
    frequency = np.arange(cells // 2 + 1)
    # D is a whole number of steps; its tilted weight and that of the c intervals together are E e^{θ(D - ΣA)} < 1.
    weight = math.exp(tilt * service_time_s / mean + servers * math.log(norm))
    walk = weight * np.exp(-2j * np.pi * frequency * (multiple % cells) / cells) * np.conj(turn)
    ladder = -np.fft.irfft(np.log1p(-walk), cells)[: cells // 2] * damping[: cells // 2]
    ladder[0] = 0.0
    # Sharing a smooth law between fine lattice points adds h²/6 to its variance; of a coarse one the whole is known.
    added = float(np.arange(cells) ** 2 @ lattice) - (1 + law.scv) * (mean / step) ** 2 if step > mean / 12 else 1 / 6
    return _from_ladder(ladder, step, excess=servers * added * step / (2 * (servers * mean - service_time_s)))


def _tilt(law: RenewalLaw, service: float, servers: int) -> tuple[float, float]:
    """Minimizer θ and second root θ₀ of θD + c ln E e^{-θA}, per mean interval."""

    def slope(theta: float) -> float:
        return service - servers * law.mean_under_tilt(theta)

    def cumulant(theta: float) -> float:
        return theta * service + servers * law.log_transform(theta)

    high = 1.0
    while slope(high) < 0:
        high *= 2
    tilt = float(brentq(slope, 0.0, high, rtol=1e-10))
    high = 2 * tilt
    while cumulant(high) < 0:
        high *= 2
    return tilt, float(brentq(cumulant, tilt, high, rtol=1e-10))


def gidc(arrival_rate_rps: float, law: RenewalLaw, service_time_s: float, servers: int) -> ResponseTime:
    """GI/D/c: renewal arrivals, constant service, T = W + D; exact up to the lattice, 0.2 % of the percentiles.

    Parameters
    ----------
    arrival_rate_rps
        λ of the whole stream [1/s].
    law
        Law of its intervals.
    service_time_s
        D [s].
    servers
        c.

    References
    ----------
    Iversen, Decomposition of an M/D/rk queue with FIFO into k E_k/D/r queues with FIFO, 1983; the same argument.

    Examples
    --------
    >>> from advisor.queueing.gaps import renewal_law
    >>> response = gidc(3.2, renewal_law(4.0), 1.0, 4)
    >>> round(response.mean_s, 2), round(response.percentile(0.99), 2)
    (2.71, 9.73)
    """
    rho = arrival_rate_rps * service_time_s / servers
    if rho >= 1:
        return overloaded("GI/D/c", rho)
    wait = cyclic_wait(arrival_rate_rps, law, service_time_s, servers)
    return ResponseTime(
        "GI/D/c",
        rho,
        service_time_s + wait.mean_s,
        lambda t: float(wait.tail(t - service_time_s)),
    )
