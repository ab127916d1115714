"""Statistics of service times: histogram, percentiles, second moment, interval of the mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.domain.measurement import BINS_PER_OCTAVE, Histogram

FloatArray = npt.NDArray[np.float64]

PERCENTILE_METHOD = "linear interpolation between order statistics (numpy 'linear', Hyndman and Fan type 7)"
MIN_CALLS_FOR_P99 = 100
"""Below this the 99th percentile would be nothing but the longest call."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a sample of service times says; all in seconds, the second moment in s²."""

    count: int
    mean_s: float
    m2_s2: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float | None
    max_s: float


def summarize(service_s: FloatArray) -> Summary:
    """Summarize a sample of service times [s]; no call is trimmed.

    Examples
    --------
    >>> summary = summarize(np.array([1.0, 2.0, 3.0]))
    >>> summary.mean_s, summary.p50_s, summary.p99_s, summary.max_s
    (2.0, 2.0, None, 3.0)
    """
    mean_s = float(np.mean(service_s))
    p50_s, p90_s, p95_s, p99_s = (float(value) for value in np.percentile(service_s, [50, 90, 95, 99], method="linear"))
    return Summary(
        count=len(service_s),
        mean_s=mean_s,
        m2_s2=max(second_moment(service_s), mean_s**2),
        p50_s=p50_s,
        p90_s=p90_s,
        p95_s=p95_s,
        p99_s=p99_s if len(service_s) >= MIN_CALLS_FOR_P99 else None,
        max_s=float(np.max(service_s)),
    )


def second_moment(service_s: FloatArray) -> float:
    """Mean of the squares, E[S²] [s²]: with the mean it gives the variance that queueing needs.

    Examples
    --------
    >>> second_moment(np.array([1.0, 3.0]))
    5.0
    """
    return float(np.mean(np.square(service_s)))


def histogram(service_s: FloatArray) -> Histogram:
    """Count service times [s] on the grid of `Histogram`: bin k holds [2^(k/32), 2^((k+1)/32)).

    Raises
    ------
    ValueError
        When the sample is empty or a time is not above zero.

    Examples
    --------
    >>> histogram(np.array([1.0, 1.0, 2.0 ** (2 / 32)]))
    Histogram(first_bin=0, counts=(2, 0, 1))
    """
    if len(service_s) == 0 or not bool(np.all(service_s > 0)):
        raise ValueError("a histogram needs at least one service time, all above zero")
    bins = np.floor(BINS_PER_OCTAVE * np.log2(service_s)).astype(np.int64)
    # The logarithm may round across an edge; the edges themselves decide.
    bins -= service_s < bin_edge_s(bins)
    bins += service_s >= bin_edge_s(bins + 1)
    first = int(bins.min())
    return Histogram(first_bin=first, counts=tuple(int(count) for count in np.bincount(bins - first)))


def bin_edge_s(index: npt.NDArray[np.int64]) -> FloatArray:
    """Lower edge 2^(k/32) of each bin k [s]."""
    return np.exp2(index / BINS_PER_OCTAVE)


def mean_ci95_frac(repeat_means_s: Sequence[float]) -> float | None:
    """Half width of the 95 % interval of the mean as a fraction of it, from the means of the repeats.

    Student's t over repeat means, t(0.975, R-1)·sd/√R: the drift between repeats is what limits the mean,
    calls inside a repeat are not independent. None for fewer than two repeats.

    Examples
    --------
    >>> round(mean_ci95_frac([0.99, 1.00, 1.01]), 4)
    0.0248
    >>> mean_ci95_frac([1.0]) is None
    True
    """
    if len(repeat_means_s) < 2:
        return None
    return half_width95(repeat_means_s) / float(np.mean(repeat_means_s))


def half_width95(sample: Sequence[float]) -> float:
    """Half width of the 95 % interval of the mean of two or more values, t(0.975, n-1)·sd/√n, in their unit.

    Examples
    --------
    >>> round(half_width95([0.99, 1.00, 1.01]), 4)
    0.0248
    """
    # Importing it takes longer than all the rest, and a look at the machine or a list of options needs no quantile.
    from scipy.special import stdtrit  # noqa: PLC0415

    count = len(sample)
    deviation = float(np.std(sample, ddof=1))
    return float(stdtrit(count - 1, 0.975)) * deviation / math.sqrt(count)
