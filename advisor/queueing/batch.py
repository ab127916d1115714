"""One server that takes waiting requests in batches: the exact stationary response time.

Model M/G(b)^[1,B]/1, work conserving: Poisson arrivals at rate λ; whenever the server falls idle it takes all waiting
requests up to B at once, or waits for the next arrival. A batch of b takes τ_b·ξ_b, where ξ_b has mean 1 and any
distribution, such as the measured one of that batch size.

Solved as an embedded Markov chain on the queue left at service completions; the response-time distribution follows
from what a Poisson arrival finds (PASTA): the batch in service, its residual, and the queue ahead.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import gammaln

from advisor.queueing.exact import lattice_pmf
from advisor.queueing.noise import Noise
from advisor.queueing.response import ResponseTime, overloaded

Array = NDArray[np.float64]

_MOST_STATES = 1500
"""States that one long service may add to the chain: a dense solve grows with their cube."""

_FEW = 24
"""Points of a lattice law up to which adding shifted arrays is faster than a product of matrices."""

_LARGEST_LOG = 50.0
"""ln z₀ beyond which the queue has no tail to speak of."""

_MOST_STEPS = 60
"""Newton steps: six are usual."""


@dataclass(frozen=True)
class BatchQueue:
    """Solved chain of one batch server.

    Attributes
    ----------
    arrival_rate_rps
        λ [1/s].
    batch_time_s
        τ_1 … τ_B [s], non-decreasing.
    noise
        Distributions of ξ_1 … ξ_B.
    left
        π_n, n = 0, 1, …: stationary queue left at service completions.
    """

    arrival_rate_rps: float
    batch_time_s: Array
    noise: tuple[Noise, ...]
    left: Array

    @property
    def max_batch(self) -> int:
        """Largest batch B."""
        return int(self.batch_time_s.size)

    @property
    def next_batch(self) -> NDArray[np.int64]:
        """Size of the batch that starts after a completion that leaves n."""
        return np.clip(np.arange(self.left.size), 1, self.max_batch)

    @property
    def mean_cycle_s(self) -> float:
        """Mean time between completions: Σ π_n τ_b(n) + π_0/λ [s]."""
        return float(self.left @ self.batch_time_s[self.next_batch - 1]) + float(self.left[0]) / self.arrival_rate_rps

    @property
    def mean_response_s(self) -> float:
        """E[T] by Little's law on the queue that a request leaves behind when its service starts [s].

        Wq = Σ π_n (b n - b(b+1)/2) / (λ Σ π_n b), T = Wq + Σ π_n b τ_b / Σ π_n b.
        """
        n = np.arange(self.left.size)
        b = self.next_batch
        behind = np.where(n == 0, 0.0, b * n - b * (b + 1) / 2)
        requests = float(self.left @ b)
        wait = float(self.left @ behind) / requests / self.arrival_rate_rps
        return wait + float(self.left @ (b * self.batch_time_s[b - 1])) / requests

    @property
    def mean_batch(self) -> float:
        """Mean size of a batch."""
        return float(self.left @ self.next_batch)

    @property
    def utilization(self) -> float:
        """Share of time the server is busy: 1 - π_0/(λ · mean cycle)."""
        return 1 - float(self.left[0]) / self.arrival_rate_rps / self.mean_cycle_s

    def tail(self, t: float, *, cells: int = 400) -> float:
        """P(T > t) on a lattice of t/cells.

        A request that finds the server idle is served alone. One that finds a batch with residual r and m requests
        ahead of it waits W = r + k full services, k = ⌊m/B⌋, then is served in a batch of
        min(B, a + 1 + Poisson(λW)), a = m mod B: all k batches ahead are full, so W depends on the past only.
        """
        if t <= 0:
            return 1.0
        idle = float(self.left[0]) / self.arrival_rate_rps / self.mean_cycle_s
        served = idle * float(self.noise[0].cdf(np.array([t / self.batch_time_s[0]]))[0])
        step = t / cells
        done = self._done_given_wait(step, cells, t)
        largest = self.noise[-1]
        # What lies beyond t gathers in the cells after it, which the cut drops.
        full = lattice_pmf(self.batch_time_s[-1] * largest.points, largest.weights, step, cells + 2)[:cells]
        size = self.max_batch
        # Requests ahead beyond what can be cleared within t, or that are hardly ever there, never count as served.
        longest = self._longest_queue()
        width = min(size * _most_services(full, longest // size + 1), longest)
        ahead = self._found(step, cells, width)
        for start in range(0, ahead.shape[1], size):
            block = ahead[:, start : start + size]
            served += float(np.sum(block * done[:, : block.shape[1]]))
            done = _after(full, done)
            if done.max() < 1e-12:
                break
        return float(np.clip(1 - served, 0.0, 1.0))

    def _longest_queue(self) -> int:
        """Requests ahead of an arrival that are exceeded with a probability below about 1e-10."""
        beyond = 1 - np.cumsum(self.left)
        joined = self.arrival_rate_rps * max(
            float(time * noise.points[-1]) for time, noise in zip(self.batch_time_s, self.noise, strict=True)
        )
        return int(np.searchsorted(-beyond, -1e-10)) + int(joined + 8 * np.sqrt(joined) + 12)

    def _found(self, step: float, cells: int, width: int) -> Array:
        """Joint law of residual (cell, up to t) and requests ahead m < width that an arrival finds at a busy server.

        With a batch of length ℓ in service, the arrival instant is uniform on it: residual r, elapsed ℓ - r, and
        Poisson(λ(ℓ - r)) arrivals have joined what was left.
        """
        size = self.max_batch
        largest = self.noise[-1]
        longest = max(float(time * noise.points[-1]) for time, noise in zip(self.batch_time_s, self.noise, strict=True))
        reach = min(int(longest / step) + 2, 6 * cells)
        below = np.zeros(reach + 1)
        counts = np.bincount(self.next_batch[: size + 1] - 1, self.left[: size + 1], minlength=size)
        for b in range(1, size):
            noise = self.noise[b - 1]
            below += lattice_pmf(
                self.batch_time_s[b - 1] * noise.points, counts[b - 1] * noise.weights, step, reach + 1
            )
        full = lattice_pmf(self.batch_time_s[-1] * largest.points, largest.weights, step, reach + 1)
        queue_left = self.left[size:] if size > 1 else np.concatenate(([self.left[0] + self.left[1]], self.left[2:]))
        elapsed = (np.arange(reach) + 0.5) * step * self.arrival_rate_rps
        arrivals = _poisson_matrix(elapsed, width)
        weight = step / self.mean_cycle_s
        found = _residuals(below, arrivals, cells)
        mixing = np.zeros((width, width))
        for shift, probability in enumerate(queue_left[:width]):
            np.fill_diagonal(mixing[:, shift:], probability)
        found += _residuals(full, arrivals, cells) @ mixing
        return weight * found

    def _done_given_wait(self, step: float, cells: int, t: float) -> Array:
        """P(own service ends by t | W in cell, a requests in the own batch ahead), a = 0 … B-1; shape (cells, B)."""
        size = self.max_batch
        wait = (np.arange(cells) + 0.5) * step
        ends = np.column_stack(
            [noise.cdf((t - wait) / time) for time, noise in zip(self.batch_time_s, self.noise, strict=True)]
        )
        joining = _poisson_matrix(self.arrival_rate_rps * wait, size)
        done = np.empty((cells, size))
        for a in range(size):
            partial = joining[:, : size - 1 - a]
            done[:, a] = np.einsum("wi,wi->w", partial, ends[:, a : size - 1]) + (1 - partial.sum(axis=1)) * ends[:, -1]
        return done


def _most_services(full: Array, enough: int) -> int:
    """One more than the full services that end within the lattice with a probability that matters, up to a bound."""
    services = 1
    done = full
    while services < enough and done.sum() > 1e-9:
        done = np.convolve(done, full)[: full.size]
        services += 1
    return services


def _residuals(lengths: Array, arrivals: Array, cells: int) -> Array:
    """Σ_e lengths[r + e + 1] arrivals[e] for residuals r < cells: weight of residual r and elapsed e in one service."""
    used = np.flatnonzero(lengths)
    if used.size > _FEW:
        padded = np.concatenate((lengths[1:], np.zeros(cells)))
        product: Array = np.ascontiguousarray(sliding_window_view(padded, arrivals.shape[0])[:cells]) @ arrivals
        return product
    found = np.zeros((cells, arrivals.shape[1]))
    for length in used.tolist():
        last = min(cells, length)
        found[:last] += lengths[length] * arrivals[length - last : length][::-1]
    return found


def _after(service: Array, done: Array) -> Array:
    """E[done(W + S)]: shift the condition by one full service with lattice pmf ``service``."""
    used = np.flatnonzero(service > 1e-15)
    cells = done.shape[0]
    if used.size > _FEW:
        padded = np.concatenate((np.zeros(cells - 1), service[:cells]))
        # Row w of the reversed windows holds service[v - w] at column v.
        moved: Array = np.ascontiguousarray(sliding_window_view(padded, cells)[::-1]) @ done
        return moved
    shifted = np.zeros_like(done)
    for s in used.tolist():
        shifted[: cells - s] += service[s] * done[s:]
    return shifted


def _poisson_matrix(means: NDArray[np.floating[Any]], width: int) -> Array:
    """Poisson pmf: row per mean, which is above 0; column per count 0 … width-1."""
    count = np.arange(width)
    exponent = np.log(means)[:, None] * count - gammaln(count + 1) - means[:, None]
    pmf: Array = np.exp(exponent, out=exponent)
    return pmf


def solve_batch_queue(arrival_rate_rps: float, batch_time_s: Array, noise: tuple[Noise, ...]) -> BatchQueue | None:
    """Solve the embedded chain; None when λτ_B/B ≥ 1.

    The chain is cut at M with a geometric closure π_n = π_M z₀^-(n-M), z₀ > 1 the root of E e^{λτ_B ξ(z-1)} = z^B.

    Parameters
    ----------
    arrival_rate_rps
        λ [1/s].
    batch_time_s
        τ_1 … τ_B [s]; made non-decreasing by a running maximum, which is the pessimistic reading of noise.
    noise
        Distributions of ξ_1 … ξ_B.
    """
    times = np.maximum.accumulate(batch_time_s)
    size = times.size
    if arrival_rate_rps * times[-1] / size >= 1:
        return None
    coarse = [law.atoms for law in noise]
    decay = 1 / _growth_root(arrival_rate_rps * times[-1], size, coarse[-1])
    # The single decay rate of the closure holds only beyond what one long service brings in.
    joined = arrival_rate_rps * max(float(time * law.points[-1]) for time, law in zip(times, noise, strict=True))
    longest = 3 * size + 120 + int(min(2 * joined, _MOST_STATES))
    last = int(min(34 / -np.log(decay) + 2 * size + 10, longest)) if decay > 0 else 2 * size + 10
    arrivals = np.vstack(
        [
            law.weights @ _poisson_matrix(arrival_rate_rps * time * law.points, last + 1)
            for time, law in zip(times, coarse, strict=True)
        ]
    )
    # Up to B requests are served together and leave only those that arrive; more leave n - B as well.
    matrix = np.empty((last + 1, last + 1))
    matrix[0] = arrivals[0]
    matrix[1 : size + 1] = arrivals
    padded = np.concatenate((np.zeros(last + 1), arrivals[-1]))
    matrix[size:] = sliding_window_view(padded, last + 1)[last + 1 : size : -1]
    # States beyond M hold multiples of π_M: their inflow is added to row M.
    for beyond in range(1, size + last):
        start = last + beyond - size
        share = decay**beyond
        if share < 1e-16 or start > last:
            break
        matrix[last, start:] += share * arrivals[-1, : last + 1 - start]
    system = matrix.T - np.eye(last + 1)
    system[0] = 1.0
    system[0, last] = 1 / (1 - decay)
    target = np.zeros(last + 1)
    target[0] = 1.0
    left = np.linalg.solve(system, target)
    extra = int(min(np.ceil(37 / -np.log(decay)), 4_000_000)) if decay > 0 else 0
    left = np.concatenate((left, left[-1] * decay ** np.arange(1, extra + 1)))
    left = np.clip(left, 0.0, None)
    return BatchQueue(arrival_rate_rps, times, noise, left / left.sum())


def _growth_root(load: float, size: int, noise: Noise) -> float:
    """z₀ > 1 with E e^{λτ_B ξ(z-1)} = z^B, in logarithms to keep within range.

    ln E e^{λτ_B ξ(z-1)} - B ln z is convex in ln z: Newton's steps from the right of the root do not overshoot it.
    """
    points, weights = noise.points, noise.weights

    def excess(log_z: float) -> tuple[float, float]:
        exponent = load * points * math.expm1(log_z)
        peak = float(exponent.max())
        shares = weights * np.exp(exponent - peak)
        total = float(shares.sum())
        slope = load * math.exp(log_z) * float(shares @ points) / total
        return peak + math.log(total) - size * log_z, slope - size

    # Root of the parabola through 0 with the same slope and curvature there.
    log_z = min(1.0, 2 * (size - load) / (load + load**2 * noise.scv))
    while excess(log_z)[0] < 0:
        log_z *= 2
        if log_z > _LARGEST_LOG:
            return math.exp(_LARGEST_LOG)
    for _ in range(_MOST_STEPS):
        value, slope = excess(log_z)
        step = value / slope
        log_z -= step
        if step <= 1e-13 * log_z:
            break
    return math.exp(log_z)


def batch_queue(
    arrival_rate_rps: float, batch_time_s: Array, noise: tuple[Noise, ...], *, cells: int = 400
) -> ResponseTime:
    """Response time of one batch server under Poisson arrivals.

    Parameters
    ----------
    arrival_rate_rps
        λ [1/s].
    batch_time_s
        τ_1 … τ_B [s].
    noise
        Distributions of the service time around its mean, one per batch size.
    cells
        Lattice cells between 0 and the t asked for.

    Examples
    --------
    >>> from advisor.queueing.noise import no_noise
    >>> response = batch_queue(0.942857, (10 + np.arange(1.0, 5.0)) / 11, (no_noise(),) * 4, cells=1500)
    >>> round(response.mean_s, 4), round(response.percentile(0.99), 3)
    (1.4393, 2.247)
    """
    queue = solve_batch_queue(arrival_rate_rps, batch_time_s, noise)
    if queue is None:
        return overloaded("batch queue", arrival_rate_rps * float(batch_time_s.max()) / batch_time_s.size)
    return ResponseTime("batch queue", queue.utilization, queue.mean_response_s, lambda t: queue.tail(t, cells=cells))
