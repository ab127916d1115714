"""Several servers with any service distribution, where no exact solution is known, and two classical bounds.

Symbols: λ arrival rate [1/s], S service time, c servers, ρ = λE[S]/c, c_a² and c_s² squared coefficients of variation
(SCV) of interarrival and service time, W wait, Wq = E[W], V = W given that W > 0, T = W + S.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.queueing.exact import deterministic_queue, mdc, mg1, mmc
from advisor.queueing.gaps import RenewalLaw
from advisor.queueing.qbd import phase_wait, renewal_arrivals
from advisor.queueing.renewal import LatticeWait, cyclic_wait, gidc, gig1, served, single_server_wait
from advisor.queueing.response import ResponseTime, overloaded

Array = NDArray[np.float64]

P99_ERROR_FRAC = 0.05
"""Largest error of p99 for a service SCV of at most 1 and ρ ≤ 0.9, against simulation on a grid of 450 cases."""

VARIABLE_P99_ERROR_FRAC = 0.13
"""Largest error of p99 for a service SCV from 1 to 4, against simulation on the same grid."""

HIGHEST_TRIED_SCV = 4.0
"""Service SCV up to which the error was measured."""

STABILITY_LIMIT = 0.98
"""Utilization beyond which an error of 1 % in the service time moves the wait by more than half."""

_HEAVY_TAIL = 30.0
"""Longest of ten thousand service times over their mean from which on few simulations settle."""

_RARE_WAIT = 1e-9
"""P(W > 0) below which no percentile sees the wait, and the lattice has only rounding noise."""

_CELLS = 2**15


def gigc(
    arrival_rate_rps: float, law: RenewalLaw | None, times_s: Array, weights: Array, *, servers: int
) -> ResponseTime:
    """GI/G/c by interpolation between exact models: an approximation, except for one server or constant service.

    P(W > 0) and Wq come from the exact models with constant (D) and exponential (M) service of the same mean: for
    c_s² ≤ 1, Wq = (1-c_s²) Wq(D) + c_s² Wq(M), P(W > 0) likewise; for c_s² > 1, P(W > 0) of M and Wq by `whitt_ratio`,
    with Poisson arrivals its geometric mean with that of Tijms, van Hoorn and Federgruen. V has the shape of their
    delay (Poisson) or of the delay in GI/G/1 with service S/c, stretched to E[V] = Wq/P(W > 0). T = W + S, independent
    since service is first come first served.

    Parameters
    ----------
    arrival_rate_rps
        λ [1/s].
    law
        Law of the intervals, or None for Poisson arrivals.
    times_s, weights
        Points of the service distribution [s] and their probabilities.
    servers
        c.

    Notes
    -----
    Error of p99 against simulation: at most 5 % for c_s² ≤ 1 and ρ ≤ 0.9, 13 % for c_s² ≤ 4 and ρ ≤ 0.95. What lies
    outside is named in the warnings.

    References
    ----------
    Kimura, Approximations for multi-server queues: system interpolations, Queueing Systems 17, 1994. Tijms, van Hoorn,
    Federgruen, Approximations for the steady-state probabilities in the M/G/c queue, Adv. Appl. Prob. 13, 1981.

    Examples
    --------
    >>> from advisor.queueing.exact import lognormal_points
    >>> response = gigc(3.2, None, *lognormal_points(1.0, 0.5), servers=4)
    >>> round(response.mean_s, 2), round(response.percentile(0.99), 2)
    (1.57, 5.43)
    """
    weights = weights / weights.sum()
    mean = float(weights @ times_s)
    scv = max(0.0, float(weights @ times_s**2) / mean**2 - 1)
    rho = arrival_rate_rps * mean / servers
    renewal = None if law is None or law.scv == 1 else law
    model = "M/G/c" if renewal is None else "GI/G/c"
    if rho >= 1:
        return overloaded(model, rho)
    if scv < 1e-12:
        constant = float(times_s[0])
        if renewal is None:
            return mdc(arrival_rate_rps, constant, servers)
        return gidc(arrival_rate_rps, renewal, constant, servers)
    if servers == 1:
        if renewal is None:
            return mg1(arrival_rate_rps, times_s, weights)
        return gig1(arrival_rate_rps, renewal, times_s, weights)
    wait = hybrid_wait(arrival_rate_rps, renewal, times_s, weights, servers=servers)
    return ResponseTime(
        f"{model} approximation",
        rho,
        mean + wait.mean_s,
        served(wait.tail, times_s, weights),
        warnings=_warnings(rho, scv, times_s, weights) + wait.lost,
    )


@dataclass(frozen=True)
class HybridWait:
    """Wait with a given probability and mean, and the shape of another model's delay.

    Attributes
    ----------
    wait_probability
        P(W > 0).
    mean_s
        Wq [s].
    shape
        Wait of which V takes the shape.
    """

    wait_probability: float
    mean_s: float
    shape: LatticeWait

    def tail(self, t: Array) -> Array:
        """P(W > t) = P(W > 0) P(V > t); 1 below 0, and 0 above when a wait is too rare to be seen."""
        if self.wait_probability <= _RARE_WAIT:
            return np.where(t < 0, 1.0, 0.0)
        delayed = self.shape.wait_probability
        stretch = self.mean_s / self.wait_probability * delayed / self.shape.mean_s
        return np.where(t < 0, 1.0, self.wait_probability / delayed * self.shape.tail(t / stretch))

    @property
    def lost(self) -> tuple[str, ...]:
        """Warning unless the lattice holds all mass and the mean that is known without it."""
        mass = float(self.shape.pmf.sum())
        held = self.shape.step_s * float(np.arange(self.shape.pmf.size) @ self.shape.pmf) / self.shape.mean_s
        if self.wait_probability <= _RARE_WAIT or (abs(mass - 1) < 1e-4 and abs(held - 1) < 0.02):
            return ()
        return (f"The lattice holds {mass:.2%} of the delay and {held:.1%} of its mean: simulate instead.",)


def hybrid_wait(
    arrival_rate_rps: float, law: RenewalLaw | None, times_s: Array, weights: Array, *, servers: int
) -> HybridWait:
    """Wait of `gigc` for several servers, ρ < 1, service that varies and weights that sum to 1."""
    mean = float(weights @ times_s)
    scv = float(weights @ times_s**2) / mean**2 - 1
    if law is None:
        shape = _delay_among_poisson(arrival_rate_rps * mean / servers, times_s, weights, servers)
    else:
        shape = single_server_wait(arrival_rate_rps, law, times_s / servers, weights, cells=_CELLS)
    probability, wait = _wait(arrival_rate_rps, law, mean, scv, servers=servers, shape=shape)
    return HybridWait(probability, wait, shape)


def _wait(
    arrival_rate_rps: float, law: RenewalLaw | None, mean_s: float, scv: float, *, servers: int, shape: LatticeWait
) -> tuple[float, float]:
    """P(W > 0) and Wq [s] between the exact models with constant and with exponential service."""
    if law is None:
        exponential = mmc(arrival_rate_rps, mean_s, servers)
        wait_m = exponential.mean_s - mean_s
        # P(W > 0) = Wq (cμ - λ).
        probability_m = wait_m * (servers / mean_s - arrival_rate_rps)
    else:
        phases = phase_wait(renewal_arrivals(arrival_rate_rps, law), mean_s, servers)
        probability_m, wait_m = phases.wait_probability, phases.mean_s
    if scv > 1:
        rho = arrival_rate_rps * mean_s / servers
        if law is None:
            whitt = whitt_ratio(rho, 1.0, scv, servers) * (1 + scv) / 2 * wait_m
            return probability_m, math.sqrt(whitt * probability_m * shape.mean_s)
        erlang = mmc(arrival_rate_rps, mean_s, servers).mean_s - mean_s
        return probability_m, whitt_ratio(rho, law.scv, scv, servers) * (law.scv + scv) / 2 * erlang
    if law is None:
        queue = deterministic_queue(arrival_rate_rps, mean_s, servers)
        probability_d, wait_d = queue.wait_tail(0.0), queue.mean_wait_s
    else:
        cyclic = cyclic_wait(arrival_rate_rps, law, mean_s, servers)
        probability_d, wait_d = cyclic.wait_probability, cyclic.mean_s
    return (1 - scv) * probability_d + scv * probability_m, (1 - scv) * wait_d + scv * wait_m


def whitt_ratio(utilization: float, arrival_scv: float, service_scv: float, servers: int) -> float:
    """φ in Wq(GI/G/c) ≈ φ · (c_a² + c_s²)/2 · Wq(M/M/c).

    References
    ----------
    Whitt, Approximations for the GI/G/m queue, Production and Operations Management 2, 1993, equations 2.16 to 2.25.

    Examples
    --------
    >>> round(whitt_ratio(0.9, 1.0, 1.0, 4), 9)
    1.0
    """
    root = math.sqrt(4 + 5 * servers) - 2
    gamma = min(0.24, (1 - utilization) * (servers - 1) * root / (16 * servers * utilization))
    constant_service = 1 + gamma
    constant_arrivals = (1 - 4 * gamma) * math.exp(-2 * (1 - utilization) / (3 * utilization))
    middle = (arrival_scv + service_scv) / 2
    both = 1.0 if middle >= 1 else min(1.0, (constant_service + constant_arrivals) / 2) ** (2 * (1 - middle))
    if math.isclose(arrival_scv, service_scv):
        return both
    if arrival_scv > service_scv:
        total = 4 * arrival_scv - 3 * service_scv
        return 4 * (arrival_scv - service_scv) / total * constant_service + service_scv / total * both
    total = 2 * (arrival_scv + service_scv)
    return (service_scv - arrival_scv) / total * constant_arrivals + (service_scv + 3 * arrival_scv) / total * both


def _delay_among_poisson(rho: float, times_s: Array, weights: Array, servers: int) -> LatticeWait:
    """V of M/G/c: the least of c residual services, then a geometric number (ρ) of residuals of S/c."""
    order = np.argsort(times_s)
    times, weights = times_s[order], weights[order]
    mean, second = float(weights @ times), float(weights @ times**2)
    scv = second / mean**2 - 1
    residual = second / (2 * mean * servers)
    span = 2 * (24 * residual / (1 - rho) + 14 * mean / servers * (1 + 3 * scv))
    step = span / _CELLS
    points = np.arange(_CELLS // 2, dtype=np.float64) * step
    least = _residual_survivor(times, weights, points) ** servers
    part = np.fft.rfft(_cells_of(_residual_survivor(times, weights, points * servers)), _CELLS)
    transform = np.fft.rfft(_cells_of(least), _CELLS) * (1 - rho) / (1 - rho * part)
    pmf = np.clip(np.fft.irfft(transform, _CELLS)[: _CELLS // 2], 0.0, None)
    return LatticeWait(step, pmf, step * (float(least.sum()) - 0.5) + rho / (1 - rho) * residual)


def _residual_survivor(times: Array, weights: Array, x: Array) -> Array:
    """P(S_e > x) = E[(S - x)⁺]/E[S] for points in order."""
    share = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    work = np.append(np.cumsum((weights * times)[::-1])[::-1], 0.0)
    beyond = np.searchsorted(times, x, side="right")
    survivor: Array = (work[beyond] - x * share[beyond]) / work[0]
    return np.clip(survivor, 0.0, 1.0)


def _cells_of(survivor: Array) -> Array:
    """Lattice law from P(X > nh): half of each cell's mass to either end keeps the mean; the rest goes to the end."""
    pmf: Array = np.zeros(survivor.size)
    inside = -np.diff(survivor) / 2
    pmf[:-1] += inside
    pmf[1:] += inside
    pmf[0] += 1 - survivor[0]
    pmf[-1] += survivor[-1]
    return pmf


def _warnings(rho: float, scv: float, times_s: Array, weights: Array) -> tuple[str, ...]:
    found = []
    if scv > 1:
        found.append(f"Service times vary much (SCV {scv:.3g}): p99 may be off by {VARIABLE_P99_ERROR_FRAC:.0%}.")
    order = np.argsort(times_s)
    rare = np.searchsorted(np.cumsum(weights[order]), 1 - 1e-4)
    longest = float(times_s[order[min(int(rare), order.size - 1)]])
    if scv > HIGHEST_TRIED_SCV or longest > _HEAVY_TAIL * float(weights @ times_s):
        found.append("Service times have a heavy tail: high percentiles need a simulation.")
    if rho > STABILITY_LIMIT:
        found.append(
            f"Utilization {rho:.1%} is limited by stability: 1 % more service time moves the wait by more than half."
        )
    return tuple(found)


def kingman_bound(arrival_rate_rps: float, service_time_s: float, arrival_scv: float, service_scv: float) -> float:
    """Upper bound on Wq in GI/G/1: λ(σ_a² + σ_s²)/(2(1-ρ)) [s]; infinite under overload.

    A true bound on the mean wait of one server, tight in heavy traffic. It says nothing about percentiles, and is loose
    at light load, where E[A] exceeds E[S] by much.

    References
    ----------
    Kingman, Some inequalities for the queue GI/G/1, Biometrika 49, 1962.

    Examples
    --------
    >>> round(kingman_bound(0.8, 1.0, 1.0, 1.0), 6)
    5.125
    """
    rho = arrival_rate_rps * service_time_s
    if rho >= 1:
        return math.inf
    variances = arrival_scv / arrival_rate_rps**2 + service_scv * service_time_s**2
    return arrival_rate_rps * variances / (2 * (1 - rho))


def inoue_bound(arrival_rate_rps: float, per_request_s: float, fixed_s: float) -> float:
    """Upper bound on E[T] of a batch server that takes all waiting requests, τ_b = αb + τ₀ [s]; infinite if λα ≥ 1.

    min(φ₀, φ₁), φ₀ = (α+τ₀)/(2(1-λα)) (1 + 2λτ₀ + (1-λτ₀)/(1+λα)),
    φ₁ = 3τ₀/(2(1-λα)) + α(λα+2)/(2(1-λ²α²)).

    The batch is not limited. With a largest batch B this is no bound but a check of the order of magnitude, good to a
    few percent at ρ ≤ 0.7 and B ≥ 8; near saturation the true mean is several times as large. No percentiles.

    Parameters
    ----------
    arrival_rate_rps
        λ [1/s].
    per_request_s
        α [s].
    fixed_s
        τ₀ [s].

    References
    ----------
    Inoue, Queueing analysis of GPU-based inference servers with dynamic batching, Performance Evaluation 147, 2021.

    Examples
    --------
    >>> round(inoue_bound(8.0, 1 / 11, 10 / 11), 4)
    5.2632
    """
    load = arrival_rate_rps * per_request_s
    if load >= 1:
        return math.inf
    fixed_load = arrival_rate_rps * fixed_s
    light = (per_request_s + fixed_s) / (2 * (1 - load)) * (1 + 2 * fixed_load + (1 - fixed_load) / (1 + load))
    heavy = 3 * fixed_s / (2 * (1 - load)) + per_request_s * (load + 2) / (2 * (1 - load**2))
    return min(light, heavy)
