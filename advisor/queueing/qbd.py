"""Several servers with exponential service and arrivals that remember a phase: MAP/M/c as a quasi-birth-death process.

A Markovian arrival process (MAP) has rate matrices D₀ (phase changes without an arrival, diagonal negative) and D₁
(with one). Level n is the number in the system, c servers of rate μ each. Covers renewal arrivals made of exponential
stages and the two-state Markov-modulated Poisson process (MMPP), whose bursts are correlated.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.queueing.gaps import RenewalLaw
from advisor.queueing.response import ResponseTime, overloaded

Array = NDArray[np.float64]

_MOST_REDUCTIONS = 60
"""Steps of the logarithmic reduction, each of which doubles the levels looked at; ten are usual."""


@dataclass(frozen=True)
class ArrivalProcess:
    """Markovian arrival process.

    Attributes
    ----------
    silent
        D₀ [1/s].
    arriving
        D₁ [1/s]; the rows of D₀ + D₁ sum to 0.
    """

    silent: Array
    arriving: Array

    @property
    def phase_law(self) -> Array:
        """Stationary law of the phase: φ(D₀ + D₁) = 0, Σφ = 1."""
        size = self.silent.shape[0]
        system = (self.silent + self.arriving).T.copy()
        system[0] = 1.0
        return np.linalg.solve(system, np.eye(size)[0])

    @property
    def rate_rps(self) -> float:
        """λ = φ D₁ 1 [1/s]."""
        return float((self.phase_law @ self.arriving).sum())


def renewal_arrivals(arrival_rate_rps: float, law: RenewalLaw) -> ArrivalProcess:
    """Renewal process as a MAP: components of one rate share a chain, entered so that their stages are left."""
    rates = np.unique(law.rates)
    lengths = [int(law.stages[law.rates == rate].max()) for rate in rates]
    ends = np.cumsum(lengths)
    size = int(ends[-1])
    silent, leaving, entry = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    for rate, length, end in zip(rates, lengths, ends, strict=True):
        stages = np.arange(end - length, end)
        silent[stages, stages] = -rate
        silent[stages[:-1], stages[1:]] = rate
        leaving[end - 1] = rate
        same = law.rates == rate
        np.add.at(entry, end - law.stages[same], law.weights[same])
    return ArrivalProcess(arrival_rate_rps * silent, arrival_rate_rps * np.outer(leaving, entry))


def modulated_arrivals(rates_rps: tuple[float, float], leaving_rates_per_s: tuple[float, float]) -> ArrivalProcess:
    """Two-state MMPP: Poisson arrivals at λ₁ or λ₂; state i is left at rate r_i [1/s]."""
    arriving = np.diag(np.asarray(rates_rps, dtype=float))
    first, second = leaving_rates_per_s
    return ArrivalProcess(np.array([[-first, first], [second, -second]]) - arriving, arriving)


@dataclass(frozen=True)
class PhaseWait:
    """Wait with P(W > t) = Σ a_i e^{-θ_i t} for t ≥ 0.

    Attributes
    ----------
    weights
        a_i; they sum to P(W > 0).
    decay_per_s
        θ_i [1/s].
    """

    weights: Array
    decay_per_s: Array

    @property
    def wait_probability(self) -> float:
        """P(W > 0)."""
        return float(self.weights.sum())

    @property
    def mean_s(self) -> float:
        """E[W] = Σ a_i/θ_i [s]."""
        return float((self.weights / self.decay_per_s).sum())

    def response_tail(self, t: float, service_time_s: float) -> float:
        """P(W + S > t) for exponential S with mean 1/μ, term by term the law of M/M/c.

        e^{-μt} + Σ a_i μ (e^{-θ_i t} - e^{-μt}) / (μ - θ_i); for θ_i = μ the term is a_i μt e^{-μt}.
        """
        if t < 0:
            return 1.0
        mu = 1 / service_time_s
        gap = np.abs(mu - self.decay_per_s)
        near = gap < 1e-9 * mu
        rise = np.where(near, t, -np.expm1(-gap * t) / np.where(near, 1.0, gap))
        waiting = float((self.weights * mu * np.exp(-np.minimum(mu, self.decay_per_s) * t) * rise).sum())
        return min(1.0, float(np.exp(-mu * t)) + waiting)


def first_passage(arrivals: ArrivalProcess, total_service_rps: float) -> Array:
    """G, phases at the first passage one level down: cμI + (D₀ - cμI)G + D₁G² = 0, by logarithmic reduction.

    References
    ----------
    Latouche, Ramaswami, A logarithmic reduction algorithm for quasi-birth-death processes, J. Appl. Prob. 30, 1993.
    """
    identity = np.eye(arrivals.silent.shape[0])
    level = total_service_rps * identity - arrivals.silent
    up = np.linalg.solve(level, arrivals.arriving)
    down = np.linalg.solve(level, total_service_rps * identity)
    passage, path = down.copy(), up.copy()
    for _ in range(_MOST_REDUCTIONS):
        both = identity - up @ down - down @ up
        up, down = np.linalg.solve(both, up @ up), np.linalg.solve(both, down @ down)
        added = path @ down
        passage += added
        path = path @ up
        if added.max() < 1e-15:
            break
    stochastic: Array = (passage / passage.sum(axis=1, keepdims=True)).astype(np.float64)
    return stochastic


def phase_wait(arrivals: ArrivalProcess, service_time_s: float, servers: int) -> PhaseWait:
    """Wait of an arrival in MAP/M/c, ρ < 1, first come first served.

    With G_n the phases at the first passage from level n to n - 1 and N_n = (nμI - D₀ - D₁G_{n+1})⁻¹, G_n = nμN_n and
    π_n = π_{n-1} D₁N_n; from level c on both are constant, π_{c+k} = π_c R^k. The rows of each G_n are divided by their
    sum, which is 1 for ρ < 1: otherwise rounding errors grow by λ/(nμ) per level. An arrival that finds c + k waits for
    k + 1 departures at rate cμ, so that

    P(W > t) = π_c (I-R)⁻¹ e^{-cμ(I-R)t} D₁1/λ, a term for each eigenvalue η of R with θ = cμ(1-η).

    References
    ----------
    Neuts, Matrix-Geometric Solutions in Stochastic Models, 1981, sections 4.2 and 6.2.
    """
    mu = 1 / service_time_s
    identity = np.eye(arrivals.silent.shape[0])
    passage = first_passage(arrivals, servers * mu)
    climbs: list[Array] = []
    for n in range(servers, 0, -1):
        visits = np.linalg.inv(n * mu * identity - arrivals.silent - arrivals.arriving @ passage).astype(np.float64)
        climbs.append(arrivals.arriving @ visits)
        if n < servers:
            passage = visits / visits.sum(axis=1, keepdims=True)
    balance = (arrivals.silent + arrivals.arriving @ passage).T
    # The balance equations of a level have one too many: the last gives way to the scale.
    balance[-1] = 1.0
    state = np.linalg.solve(balance, identity[-1]).astype(np.float64)
    total = 1.0
    for climb in reversed(climbs[1:]):
        state = state @ climb
        total += float(state.sum())
        # Levels of many servers differ by more than a float can hold.
        state, total = state / total, 1.0
    R = climbs[0]
    above = np.linalg.solve((identity - R).T, state @ R)
    left = above / (total + float(above.sum()))
    roots, vectors = np.linalg.eig(R)
    parts = (left @ vectors) * np.linalg.solve(vectors, arrivals.arriving.sum(axis=1) / arrivals.rate_rps)
    used = np.abs(roots) > 1e-9 * np.abs(roots).max()
    return PhaseWait(parts[used].real, servers * mu * (1 - roots[used].real))


def _map_response(model: str, arrivals: ArrivalProcess, service_time_s: float, servers: int) -> ResponseTime:
    rho = arrivals.rate_rps * service_time_s / servers
    if rho >= 1:
        return overloaded(model, rho)
    wait = phase_wait(arrivals, service_time_s, servers)
    return ResponseTime(model, rho, service_time_s + wait.mean_s, lambda t: wait.response_tail(t, service_time_s))


def gimc(arrival_rate_rps: float, law: RenewalLaw, service_time_s: float, servers: int) -> ResponseTime:
    """GI/M/c: renewal arrivals, exponential service; exact.

    Parameters
    ----------
    arrival_rate_rps
        λ [1/s].
    law
        Law of the intervals.
    service_time_s
        1/μ [s].
    servers
        c.

    References
    ----------
    Takács, Introduction to the Theory of Queues, 1962, chapter 2.

    Examples
    --------
    >>> from advisor.queueing.gaps import renewal_law
    >>> round(gimc(3.6, renewal_law(4.0), 1.0, 4).mean_s, 6)
    6.221583
    """
    return _map_response("GI/M/c", renewal_arrivals(arrival_rate_rps, law), service_time_s, servers)


def mmppmc(
    rates_rps: tuple[float, float], leaving_rates_per_s: tuple[float, float], service_time_s: float, servers: int
) -> ResponseTime:
    """MMPP/M/c: Poisson arrivals whose rate switches between two values, exponential service; exact.

    Parameters
    ----------
    rates_rps
        λ₁, λ₂, the arrival rates in the two states [1/s].
    leaving_rates_per_s
        r₁, r₂, the rates of leaving them [1/s]: state i lasts 1/r_i on average.
    service_time_s
        1/μ [s].
    servers
        c.

    References
    ----------
    Fischer, Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook, Performance Evaluation 18, 1993.

    Examples
    --------
    >>> round(mmppmc((0.3125, 1.25), (0.025, 0.1), 1.0, 1).mean_s, 6)
    4.355422
    """
    return _map_response("MMPP/M/c", modulated_arrivals(rates_rps, leaving_rates_per_s), service_time_s, servers)
