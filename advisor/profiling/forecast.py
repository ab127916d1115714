"""What a profile predicts for a server under given arrivals: the simulator is fed the very same schedule.

The luck of the arrivals is then the same on both sides, and what differs is the service: each replication draws other
service times, and another scale of them from what is known about their mean.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from advisor.capacity.curve import ServiceCurve, service_curve
from advisor.domain.measurement import BINS_PER_OCTAVE, Histogram, Predicted
from advisor.domain.profile import Profile
from advisor.domain.workload import CallOrder
from advisor.profiling.cell import Configuration
from advisor.profiling.serving import ServerSetup
from advisor.simulation.engine import Pool, run_pool
from advisor.simulation.service import ServiceLaw

FloatArray = npt.NDArray[np.float64]

REPLICATIONS = 200
"""Enough for the ends of a 95 % interval to lie between the fifth and the sixth replication from either side."""
_TAIL_PERCENT = 2.5
"""Percent of the replications beyond each end of a 95 % interval."""
_HALF_WIDTH_IN_SIGMAS = 1.96
"""Half width of a 95 % interval of a normal law, in standard deviations."""
_IDLE_SAMPLE = 1000
"""Values that stand for a histogram of idle starts: its thousandths."""


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """Service times now over those of the profile."""

    value: float = 1.0
    error_frac: float = 0.0
    """Half width of its 95 % interval as a fraction of it."""


@dataclass(frozen=True)
class ServiceModel:
    """What a profile says about the service of one server set-up.

    Attributes
    ----------
    curve
        Time of calls.
    wander_frac
        Standard deviation of the mean time of a call from one stretch of time to the next, over that mean.
    join_s
        Time to put a batch of 1 … B together [s].
    idle_start_s
        Sample of the extra time of a batch whose worker was idle [s]; None where the profile has none.
    replicas
        Workers.
    batch_delay_s
        Longest wait of a free worker for its batch to fill [s].
    notes
        Sentences about what the profile lacks.
    """

    curve: ServiceCurve
    wander_frac: float
    join_s: FloatArray
    idle_start_s: FloatArray | None
    replicas: int
    batch_delay_s: float
    notes: tuple[str, ...]

    @property
    def saturated_rps(self) -> float:
        """Requests per second when all workers serve full batches, c·B/s(B) [1/s]."""
        largest = self.join_s.size
        return self.replicas * largest / float(self.curve.batch_time_s[largest - 1] + self.join_s[-1])

    def as_planned(self) -> "ServiceModel":
        """The same as plans use it: batches take no time to put together, and idle workers start at once."""
        return replace(self, join_s=np.zeros_like(self.join_s), idle_start_s=None)

    def law(self, ratio: FloatArray | float) -> ServiceLaw:
        """Service times when calls take ``ratio`` times as long as in the profile, per batch size or at all."""
        largest = self.join_s.size
        times = self.curve.batch_time_s.copy()
        times[:largest] *= ratio
        order: CallOrder = "as_measured" if self.curve.series else "independent"
        law = replace(self.curve, batch_time_s=times).service_law(largest, order)
        join = self.join_s[:, None]
        return replace(
            law,
            mean_s=law.mean_s + self.join_s,
            series_s=None if law.series_s is None else law.series_s + join,
            edges_s=None if law.edges_s is None else law.edges_s + join,
            idle_start_s=self.idle_start_s,
        )


@dataclass(frozen=True, slots=True)
class Forecast:
    """Response times that are predicted for the requests that count."""

    mean: Predicted
    p95: Predicted
    p99: Predicted


def service_model(profile: Profile, setup: ServerSetup) -> ServiceModel:
    """Read off a profile what a server with this set-up needs.

    Raises
    ------
    InputError
        When the profile has no service times of the configuration.
    """
    place = setup.configuration
    curve = service_curve(profile, place.threads, place.concurrency)
    notes = []
    if not curve.series:
        notes.append("The profile keeps no calls in order: their times are drawn one by one, so stalls do not cluster.")
    join = _join_s(profile, setup.max_batch)
    if setup.max_batch > 1 and not profile.join_times:
        notes.append("The profile has no times for putting batches together: they are predicted to take none.")
    extra = _idle_start_s(profile, place)
    if extra is None:
        notes.append(
            "The profile has no calls of an idle replica: they are predicted to take as long as those in a row."
        )
    return ServiceModel(
        curve=curve,
        wander_frac=wander_frac(profile),
        join_s=join,
        idle_start_s=extra,
        replicas=place.concurrency,
        batch_delay_s=setup.batch_delay_s,
        notes=tuple(notes),
    )


def wander_frac(profile: Profile) -> float:
    """Standard deviation of the mean of an undisturbed window about that of its cell, as a fraction of it.

    Pooled over all cells, √(Σ Σ (mᵢⱼ/m̄ᵢ − 1)² / Σ (nᵢ − 1)): it is the machine that wanders, and the five windows of
    one cell hardly tell how far. 0 where no cell has two such windows, since then the interval of the profile is a
    guess that allows for it already.
    """
    squares, freedom = 0.0, 0
    for cell in profile.cells:
        means = np.array([repeat.service_mean_s for repeat in cell.repeats if not repeat.rejected])
        if means.size > 1:
            squares += float(np.sum((means / means.mean() - 1) ** 2))
            freedom += means.size - 1
    return float(np.sqrt(squares / freedom)) if freedom else 0.0


def forecast(
    model: ServiceModel,
    arrivals_s: FloatArray,
    *,
    counted_from: int,
    ratio: SpeedRatio,
    seed: int,
    replications: int = REPLICATIONS,
) -> Forecast:
    """Predict mean, p95 and p99 of the response time for given arrivals.

    Parameters
    ----------
    model
        Service times.
    arrivals_s
        Times of arrival, not decreasing [s].
    counted_from
        First request that counts; those before it warm up.
    ratio
        How much slower than in the profile calls are now.
    seed
        Seed of the service times: equal inputs give equal predictions.
    replications
        Runs; a figure is the median over them, its interval holds the middle 95 % of them.
    """
    largest = model.join_s.size
    # What the profile does not know of the mean, and how far the minutes of a run may lie from it.
    sigma = np.hypot(model.curve.error_frac[:largest] / _HALF_WIDTH_IN_SIGMAS, model.wander_frac)
    rows = []
    for child in np.random.SeedSequence(seed).spawn(replications):
        scale_rng, service_rng, router_rng = (np.random.default_rng(seed) for seed in child.spawn(3))
        # One draw for all batch sizes: what makes a machine slower makes all of them slower. The anchor says how fast
        # it was at one moment, and the machine may wander on until the run is over.
        spread = scale_rng.standard_normal() * sigma
        spread += scale_rng.standard_normal() * ratio.error_frac / _HALF_WIDTH_IN_SIGMAS
        law = model.law(ratio.value * np.exp(spread))
        pool = Pool(model.replicas, law, "central_queue", model.batch_delay_s)
        response_s = run_pool(pool, arrivals_s, service_rng, router_rng).response_s[counted_from:]
        rows.append((float(response_s.mean()), *np.percentile(response_s, [95, 99])))
    low, value, high = np.percentile(np.array(rows), [_TAIL_PERCENT, 50, 100 - _TAIL_PERCENT], axis=0)
    return Forecast(
        *(
            Predicted(value_s=float(value[k]), low_s=float(low[k]), high_s=float(high[k]))
            for k in range(len(Forecast.__slots__))
        )
    )


def _join_s(profile: Profile, largest: int) -> FloatArray:
    """Time to put batches of 1 … B together, linear between measured sizes; a single request is taken as it is [s]."""
    measured = sorted((found.batch_size, found.median_s) for found in profile.join_times)
    sizes, times = zip((1, 0.0), *(pair for pair in measured if pair[0] > 1), strict=True)
    found: FloatArray = np.interp(np.arange(1, largest + 1), sizes, times)
    return found


def _idle_start_s(profile: Profile, place: Configuration) -> FloatArray | None:
    """Sample of wake-up gap plus what a cold call takes longer than one in a row, of the same threads [s].

    Idle starts are measured with one replica, so they are compared with the cell of the fewest replicas. A cold call
    that came out faster than warm ones is the measurement's noise, or the quiet of the other replicas: no gain.
    """
    starts = [found for found in profile.idle_starts if found.threads == place.threads]
    if not starts:
        return None
    start = starts[0]
    warm = profile.quietest_cell(start.batch_size, start.threads)
    cold_s = 0.0
    if warm is not None and warm.service_mean_s is not None:
        cold_s = max(0.0, start.service_mean_s - warm.service_mean_s)
    return quantiles_s(start.gap, _IDLE_SAMPLE) + cold_s


def quantiles_s(histogram: Histogram, count: int) -> FloatArray:
    """Evenly spread quantiles of a histogram, linear within a bin [s].

    Examples
    --------
    >>> quantiles_s(Histogram(first_bin=0, counts=(1,)), 2).round(4).tolist()
    [1.0055, 1.0164]
    """
    counts = np.array(histogram.counts, dtype=float)
    edges_s = np.exp2((histogram.first_bin + np.arange(counts.size + 1)) / BINS_PER_OCTAVE)
    cumulative = np.append(0.0, np.cumsum(counts)) / counts.sum()
    found: FloatArray = np.interp((np.arange(count) + 0.5) / count, cumulative, edges_s)
    return found
