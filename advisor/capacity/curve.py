"""Service curve: batch time against batch size, with the spread of each, read off a profile.

What a profile leaves open is filled by a named assumption, and each one widens the interval of the service time.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from advisor.capacity.knee import batch_sweeps
from advisor.domain.measurement import BINS_PER_OCTAVE, Histogram
from advisor.domain.profile import Cell, Profile
from advisor.domain.workload import CallOrder
from advisor.errors import InputError
from advisor.queueing.noise import Noise, lognormal_noise, make_noise, no_noise
from advisor.simulation.service import ServiceLaw, series_service

Array = NDArray[np.float64]

PUBLISHED_ERROR_FRAC = 0.10
"""Error of a service time that someone else measured on another host of the same kind: an assumption, stated in plans."""
OPEN_SPREAD_ERROR_FRAC = 0.05
"""Added when the source gives no percentile, so that the service time has to be taken as constant."""
SERIES_BLOCK = 50
"""Successive calls that are replayed together: longer than the series of stalls that a neighbor on the host causes."""
UNREPEATED_ERROR_FRAC = 0.10
"""Error of a measured service time without repeats, whose interval is unknown."""


@dataclass(frozen=True)
class ServiceCurve:
    """Service time of one replica against batch size.

    Attributes
    ----------
    profile_id
        Profile it was read from.
    threads
        CPU threads of one replica; 0 on a GPU.
    replicas_measured
        Replicas that ran together when it was measured; 0 when the source does not say.
    batch_time_s
        Mean τ_1 … τ_B [s], non-decreasing.
    noise
        Distribution of the time around its mean, per batch size.
    error_frac
        Half width of the interval of each batch time, as a fraction of it.
    memory_gib
        Memory of one replica [GiB]; 0 when the source does not say.
    assumptions
        Sentences for what the profile left open.
    series
        Per batch size, calls in the order measured over their mean; empty where the profile does not keep them.
    """

    profile_id: str
    threads: int
    replicas_measured: int
    batch_time_s: Array
    noise: tuple[Noise, ...]
    error_frac: Array
    memory_gib: float
    assumptions: tuple[str, ...]
    series: tuple[Array, ...] = ()

    def at_slow_end(self) -> "ServiceCurve":
        """Curve with all times at the slow end of their interval: what plans are made with."""
        return replace(self, batch_time_s=np.maximum.accumulate(self.batch_time_s * (1 + self.error_frac)))

    def at_fast_end(self) -> "ServiceCurve":
        """Curve with all times at the fast end of their interval: the other end of what is known."""
        return replace(self, batch_time_s=np.maximum.accumulate(self.batch_time_s * (1 - self.error_frac)))

    def service_law(self, max_batch: int, order: CallOrder = "independent") -> ServiceLaw:
        """Service times per batch size for the simulator: independent ones have the law that the queueing model uses."""
        if order == "as_measured":
            length = max(calls.size for calls in self.series[:max_batch])
            rows = [np.resize(calls, length) for calls in self.series[:max_batch]]
            return series_service(np.array(rows) * self.batch_time_s[:max_batch, None], SERIES_BLOCK)
        laws, times = self.noise[:max_batch], self.batch_time_s[:max_batch]
        width = max(law.edges.size for law in laws)
        edges = np.array([np.pad(law.edges, (0, width - law.edges.size), mode="edge") for law in laws])
        cumulative = np.array([np.pad(law.cumulative, (0, width - law.edges.size), mode="edge") for law in laws])
        return ServiceLaw(times, edges * times[:, None], cumulative)


def service_curves(profile: Profile) -> tuple[ServiceCurve, ...]:
    """One curve per configuration (threads, concurrency) that can be planned with; empty when none can.

    A CPU configuration counts only when it kept all logical CPUs busy, so that memory bandwidth and clocks are those
    of a full host. Of a server behind an address every number of callers counts, on a host whose CPUs are known.
    """
    return tuple(
        _curve(profile, threads or 0, concurrency or 0, cells)
        for (threads, concurrency), cells in _by_configuration(profile).items()
        if profile.device.kind != "cpu" or _keeps_cpu_busy(profile, threads, concurrency)
    )


def service_curve(profile: Profile, threads: int, concurrency: int) -> ServiceCurve:
    """Curve of one stated configuration, whether or not it kept all CPUs busy.

    Raises
    ------
    InputError
        When the profile has no service times of it.
    """
    groups = _by_configuration(profile)
    if (threads, concurrency) not in groups:
        known = ", ".join(f"{copies or '?'} × {count or '?'} threads" for count, copies in groups) or "none"
        raise InputError(
            "configuration", f"{concurrency} × {threads} threads", f"replicas that the profile measured: {known}"
        )
    return _curve(profile, threads, concurrency, groups[threads, concurrency])


def _by_configuration(profile: Profile) -> dict[tuple[int | None, int | None], list[Cell]]:
    """Cells with a service time per threads and concurrency, by batch size."""
    timed = [cell for cell in profile.cells if cell.batch_size is not None and cell.service_mean_s is not None]
    groups: dict[tuple[int | None, int | None], list[Cell]] = {}
    for cell in timed:
        groups.setdefault((cell.threads, cell.concurrency), []).append(cell)
    return {key: sorted(cells, key=lambda cell: cell.batch_size or 0) for key, cells in groups.items()}


def why_no_curve(profile: Profile) -> str:
    """Reason for an empty answer of `service_curves`."""
    if all(cell.batch_size is None or cell.service_mean_s is None for cell in profile.cells):
        return f"profile {profile.profile_id} gives no service time at a stated batch size"
    if profile.device.cpu is None:
        return f"profile {profile.profile_id} was measured on CPUs that nobody identified"
    return f"profile {profile.profile_id} was not measured with all cores busy"


def _keeps_cpu_busy(profile: Profile, threads: int | None, concurrency: int | None) -> bool:
    cpu = profile.device.cpu
    if cpu is None or threads is None or concurrency is None:
        return False
    return profile.model.is_address or threads * concurrency >= cpu.logical_cpus


def _curve(profile: Profile, threads: int, concurrency: int, cells: list[Cell]) -> ServiceCurve:
    sizes = np.array([cell.batch_size for cell in cells], dtype=float)
    means = np.maximum.accumulate(np.array([cell.service_mean_s for cell in cells], dtype=float))
    batch = np.arange(1, int(sizes[-1]) + 1)
    times = np.interp(batch, sizes, means)
    above = np.searchsorted(sizes, batch)
    laws = [_cell_noise(cell) for cell in cells]
    assumptions = []
    if sizes[0] > 1:
        assumptions.append(f"batches below {sizes[0]:.0f}, the smallest measured, are taken to last as long as it")
    if np.any(np.diff(np.array([cell.service_mean_s for cell in cells], dtype=float)) < 0):
        assumptions.append("a larger batch that measured faster than a smaller one is taken to last as long")
    if all(cell.histogram is None for cell in cells):
        assumptions.append(_spread_assumption(cells))
    errors = np.array([_error_frac(profile, cell) for cell in cells])
    assumptions.append(_error_assumption(profile, errors))
    memory = max((cell.memory_gib or 0.0 for cell in cells), default=0.0)
    if memory == 0:
        assumptions.append("the source states no memory need; it ran on this device, so it is taken to fit")
    assumptions += _floor_assumption(profile, threads, concurrency)
    return ServiceCurve(
        profile.profile_id,
        threads,
        concurrency,
        times,
        tuple(laws[index] for index in above),
        np.interp(batch, sizes, errors),
        memory,
        tuple(assumptions),
        _series(cells, above),
    )


def _floor_assumption(profile: Profile, threads: int, concurrency: int) -> list[str]:
    """Sentence for throughput that never leveled off: it is what such batches sustain, not what the machine could."""
    return [
        f"throughput was not seen to level off up to batch {sweep.points[-1].size}, the largest measured: larger batches, "
        "which are not planned with, may sustain more"
        for sweep in batch_sweeps(profile)
        if (sweep.threads or 0, sweep.concurrency or 0) == (threads, concurrency) and not sweep.saturated
    ]


def _series(cells: list[Cell], above: NDArray[np.intp]) -> tuple[Array, ...]:
    """Calls in order over their mean, for every batch size; empty when a cell does not keep them."""
    kept = [np.array(cell.series_s) for cell in cells if cell.series_s is not None]
    if len(kept) < len(cells):
        return ()
    return tuple(kept[index] / kept[index].mean() for index in above)


def _cell_noise(cell: Cell) -> Noise:
    """Spread of one cell: its histogram, else a lognormal through p99 or p95, else none."""
    if cell.histogram is not None:
        return histogram_noise(cell.histogram)
    if cell.service_mean_s is None:
        return no_noise()
    for value, q in ((cell.service_p99_s, 0.99), (cell.service_p95_s, 0.95)):
        if value is not None:
            return lognormal_noise(lognormal_scv(value / cell.service_mean_s, q))
    return no_noise()


def histogram_noise(histogram: Histogram) -> Noise:
    """Distribution of ξ from a measured histogram: uniform on each bin that holds calls."""
    counts = np.array(histogram.counts, dtype=float)
    used = np.flatnonzero(counts)
    lower = 2.0 ** ((histogram.first_bin + used) / BINS_PER_OCTAVE)
    return make_noise(lower, lower * 2.0 ** (1 / BINS_PER_OCTAVE), counts[used])


def lognormal_scv(ratio: float, q: float) -> float:
    """SCV of the lognormal whose q-quantile is ``ratio`` times its mean; 0 when the ratio is at most 1.

    ln ratio = zσ - σ²/2, z = Φ⁻¹(q); the smaller root is taken, and the peak of the curve when there is none.

    Examples
    --------
    >>> round(lognormal_scv(1.5, 0.99), 4)
    0.0334
    """
    if ratio <= 1:
        return 0.0
    z = float(ndtri(q))
    sigma = z - math.sqrt(max(0.0, z * z - 2 * math.log(ratio)))
    return math.expm1(sigma * sigma)


def _spread_assumption(cells: list[Cell]) -> str:
    if any(cell.service_p99_s is not None or cell.service_p95_s is not None for cell in cells):
        return (
            "the spread of the service time is a lognormal through its published p99, or p95 where only that is given"
        )
    return "the source gives no percentile: the service time is taken as constant"


def _error_frac(profile: Profile, cell: Cell) -> float:
    if profile.evidence.kind == "measured":
        return UNREPEATED_ERROR_FRAC if cell.mean_ci95_frac is None else cell.mean_ci95_frac
    has_spread = cell.histogram is not None or cell.service_p99_s is not None or cell.service_p95_s is not None
    return PUBLISHED_ERROR_FRAC + (0.0 if has_spread else OPEN_SPREAD_ERROR_FRAC)


def _error_assumption(profile: Profile, errors: Array) -> str:
    if profile.evidence.kind == "measured":
        return f"service times are known within ±{errors.max():.1%} (95 % interval between repeats), the plan uses the slow end"
    return (
        f"service times of {profile.evidence.kind} profiles are taken as known within ±{errors.max():.0%}, "
        "the plan uses the slow end"
    )
