"""Laws of the statistics of service times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from advisor.profiling.statistics import (
    bin_edge_s,
    histogram,
    mean_ci95_frac,
    second_moment,
    summarize,
)

times = arrays(np.float64, st.integers(1, 150), elements=st.floats(1e-6, 1e3))


@given(times)
def test_every_call_is_in_exactly_one_bin_that_holds_its_time(sample):
    """The histogram counts all calls, and its range covers the shortest and the longest."""
    counted = histogram(sample)
    assert sum(counted.counts) == len(sample)
    low, high = bin_edge_s(np.array([counted.first_bin, counted.first_bin + len(counted.counts)]))
    assert low <= sample.min()
    assert sample.max() < high
    assert counted.counts[0] > 0
    assert counted.counts[-1] > 0


@given(times, times)
def test_histograms_of_two_samples_merge_to_the_histogram_of_both(left, right):
    """Counts on one grid add up, whatever the order of measurement."""
    assert histogram(left).merged(histogram(right)) == histogram(np.concatenate([left, right]))


@given(st.integers(-640, 320))
def test_an_edge_belongs_to_the_bin_that_it_opens(index):
    """Bins are closed below and open above, also where the logarithm rounds."""
    assert histogram(bin_edge_s(np.array([index]))).first_bin == index


@pytest.mark.parametrize("sample", [[], [0.0], [1.0, -1.0]])
def test_a_time_that_is_not_above_zero_has_no_bin(sample):
    """A logarithmic grid has no place for zero."""
    with pytest.raises(ValueError, match="above zero"):
        histogram(np.array(sample))


@given(times)
def test_percentiles_rise_and_the_maximum_closes_them(sample):
    """p50 ≤ p90 ≤ p95 ≤ p99 ≤ max, and E[S²] ≥ E[S]²."""
    summary = summarize(sample)
    values = [summary.p50_s, summary.p90_s, summary.p95_s, summary.p99_s, summary.max_s]
    known = [value for value in values if value is not None]
    assert known == sorted(known)
    assert summary.m2_s2 >= summary.mean_s**2


def test_percentiles_are_linear_between_order_statistics():
    """Type 7: the p-th percentile of 0, 1 … 100 is p."""
    summary = summarize(np.arange(101.0))
    assert (summary.p50_s, summary.p90_s, summary.p95_s, summary.p99_s) == (50, 90, 95, 99)


def test_the_99th_percentile_needs_100_calls():
    """Below 100 calls it would be the maximum under another name."""
    assert summarize(np.ones(99)).p99_s is None
    assert summarize(np.ones(100)).p99_s == 1


def test_second_moment_is_variance_plus_square_of_the_mean():
    """E[S²] = Var[S] + E[S]²."""
    sample = np.random.default_rng(0).exponential(size=500)
    assert second_moment(sample) == pytest.approx(np.var(sample) + np.mean(sample) ** 2)


def test_interval_of_the_mean_is_student_over_repeats():
    """Three repeats: t(0.975, 2) = 4.303."""
    means = [0.9, 1.0, 1.1]
    assert mean_ci95_frac(means) == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-6)
    assert mean_ci95_frac([1.0, 1.0]) == 0
    assert mean_ci95_frac([1.0]) is None
