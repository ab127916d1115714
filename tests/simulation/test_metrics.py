"""Percentiles and their intervals: consistent in themselves, and a function of the seed alone."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain.workload import Routing
from advisor.simulation.arrivals import PoissonProcess, Replay
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import MOST_REPLICATIONS, MOST_ROWS, Stream, simulate
from advisor.simulation.service import constant_service, exponential_service, lognormal_service

BIN_FRAC = 1e-3
"""Somewhat more than a bin of the histogram."""


def run(*system, requests=40_000, seed=1, enough=lambda _result: True, most_requests=10**7, executor=None):
    """Simulate a system; one round unless told otherwise."""
    return simulate(system, seed=seed, requests=requests, most_requests=most_requests, enough=enough, executor=executor)


def pool_of(servers=2, scv=0.5, routing="central_queue", share=1.0, batch=1, scale=1.0):
    """Pool of lognormal servers."""
    times = scale * (1 + 0.2 * np.arange(batch))
    return Pool(servers, lognormal_service(times, scv), routing, share=share)


def equal(first, second):
    """Whether two results are the same to the last bit."""
    return np.array_equal(first.counts, second.counts) and np.array_equal(first.means_s, second.means_s)


@settings(max_examples=20)
@given(st.floats(0.1, 0.95), st.sampled_from(get_args(Routing)), st.integers(1, 3), st.integers(1, 8))
def test_percentiles_rise_and_tails_fall(load, routing, servers, batch):
    """A higher percentile is not shorter, P(T > t) falls from 1 to 0, and each is the other's inverse."""
    pool = pool_of(servers, routing=routing, batch=batch)
    rate = load * servers * batch / float(pool.service.mean_s[-1])
    result = run(Stream(PoissonProcess(rate), (pool,)), requests=20_000)
    levels = (0.001, 0.05, 0.3, 0.5, 0.9, 0.99, 0.999)
    values = [result.percentile(q).value_s for q in levels]
    assert all(first <= second for first, second in itertools.pairwise(values))
    tails = [result.tail(t) for t in np.geomspace(1e-3, 1e5, 60)]
    assert tails[0] == 1.0
    assert tails[-1] == 0.0
    assert all(second <= first for first, second in itertools.pairwise(tails))
    for q, value in zip(levels, values, strict=True):
        assert result.tail(value) == pytest.approx(1 - q, abs=1e-6)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_the_seed_decides(seed):
    """Equal seeds give equal results, side by side in threads or not; another seed gives another one."""
    stream = Stream(PoissonProcess(1.5), (pool_of(),))
    first, other = (run(stream, requests=4_000, seed=s) for s in (seed, seed + 1))
    with ThreadPoolExecutor(2) as executor:
        assert equal(first, run(stream, requests=4_000, seed=seed, executor=executor))
    assert not equal(first, other)


def test_rounds_go_on_until_it_is_enough():
    """Each round doubles the replications, and what was simulated before is kept."""
    stream = Stream(PoissonProcess(1.5), (pool_of(),))
    one, two = run(stream), run(stream, enough=lambda result: result.requests >= 80_000)
    assert (one.replications, two.replications, two.stopped) == (20, 40, "target")
    assert np.array_equal(two.counts[:20], one.counts)
    assert two.percentile(0.99).ci95_s < one.percentile(0.99).ci95_s


def test_the_cap_ends_a_run_that_is_never_enough():
    """No round is begun that would exceed the cap, and the result says so."""
    result = run(Stream(PoissonProcess(1.5), (pool_of(),)), enough=lambda _result: False, most_requests=200_000)
    assert (result.requests, result.stopped) == (160_000, "cap")


def test_a_short_replay_ends_at_the_cap_on_replications():
    """A trace of two requests is not repeated millions of times: rows and replications are bounded, threads or not."""
    brief = Stream(Replay(np.array([0.0, 1000.0])), (Pool(1, exponential_service(np.array([1.0]))),))
    result = run(brief, enough=lambda _result: False)
    assert (result.replications, result.requests, result.stopped) == (MOST_REPLICATIONS, 2 * MOST_REPLICATIONS, "cap")
    assert result.counts.shape[0] == result.means_s.size == MOST_ROWS
    with ThreadPoolExecutor(2) as executor:
        assert equal(result, run(brief, enough=lambda _result: False, executor=executor))


def test_rows_of_several_replications_are_batch_means():
    """Rows are averages of equal weight, so the interval of a mean goes on shrinking with replications."""
    brief = Stream(Replay(np.array([0.0, 1000.0])), (Pool(1, exponential_service(np.array([1.0]))),))
    result = run(brief, enough=lambda _result: False)
    assert np.allclose(result.counts.sum(axis=1), 1.0)
    # Two exponential responses per replication: their mean has a standard deviation of 1/√2.
    assert result.mean.ci95_s == pytest.approx(1.975 / np.sqrt(2 * MOST_REPLICATIONS), rel=0.25)
    assert abs(result.mean.value_s - 1.0) < 2 * result.mean.ci95_s


def test_replications_that_do_not_double_to_the_most_rows_keep_equal_rows():
    """Any number of replications of the first round leads to rows of equal weight, the cap included."""
    brief = Stream(Replay(np.array([0.0, 1000.0])), (Pool(1, exponential_service(np.array([1.0]))),))
    result = simulate((brief,), seed=1, requests=2, most_requests=10**7, enough=lambda _result: False, replications=101)
    assert (result.replications, result.counts.shape[0]) == (808, 101)
    assert np.allclose(result.counts.sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="replications is 161; allowed: from 2 to 160"):
        simulate((brief,), seed=1, requests=2, most_requests=1, enough=lambda _result: True, replications=161)


def test_a_seed_may_have_several_parts():
    """A tuple of whole numbers is a seed, and each of them counts."""
    stream = Stream(PoissonProcess(1.5), (pool_of(),))
    first, again, other = (run(stream, requests=4_000, seed=seed) for seed in ((1, 2), (1, 2), (1, 3)))
    assert equal(first, again)
    assert not equal(first, other)


def test_an_hour_fits_the_histogram_of_a_fast_model():
    """Response times of an hour are told apart where the fastest service takes a tenth of a millisecond."""
    fast, slow = (Pool(1, constant_service(np.array([time]))) for time in (1e-4, 3600.0))
    rare = Replay(np.arange(100) * 1e4)
    result = run(Stream(rare, (fast,), 0.8), Stream(rare, (slow,), 0.2), requests=2_000)
    assert result.percentile(0.9).value_s == pytest.approx(3600.0, rel=BIN_FRAC)
    assert result.tail(3500.0) == pytest.approx(0.2)
    assert result.tail(3700.0) == pytest.approx(0.0)


def test_a_certain_value_has_the_resolution_as_its_interval():
    """Where all responses are equal the interval is one bin, and holds the value."""
    lonely = Stream(Replay(np.arange(1000.0)), (Pool(1, constant_service(np.array([0.3]))),))
    found = run(lonely, requests=1000).percentile(0.5)
    assert 0 < found.ci95_frac < BIN_FRAC
    assert abs(found.value_s - 0.3) <= found.ci95_s


def test_the_interval_of_a_mean_is_that_of_its_replications():
    """Student's interval over replications, and the mean is theirs."""
    result = run(Stream(PoissonProcess(1.2), (pool_of(),)))
    error = result.means_s.std(ddof=1) / np.sqrt(20)
    assert result.mean.value_s == pytest.approx(result.means_s.mean())
    assert result.mean.ci95_s == pytest.approx(2.093 * error, rel=1e-3)


def test_a_mixture_lies_between_its_parts():
    """Percentiles over two pools lie between those of each, whether one source is split or there are two."""
    slow, fast = pool_of(scale=3.0, share=0.5), pool_of(share=0.5)
    split = run(Stream(PoissonProcess(0.6), (slow, fast)))
    apart = run(
        Stream(PoissonProcess(0.3), (pool_of(scale=3.0),), weight=0.5), Stream(PoissonProcess(0.3), (pool_of(),), 0.5)
    )
    alone = [run(Stream(PoissonProcess(0.3), (pool_of(scale=scale),))) for scale in (1.0, 3.0)]
    for q in (0.2, 0.5, 0.99):
        ends = [result.percentile(q).value_s for result in alone]
        assert ends[0] < split.percentile(q).value_s < ends[1]
        assert abs(split.percentile(q).value_s - apart.percentile(q).value_s) < 3 * split.percentile(q).ci95_s


def test_weights_decide_what_a_stream_counts():
    """A stream of weight 0.9 moves the mean nine times as much as the other one."""
    fast, slow = (constant_service(np.array([time])) for time in (1.0, 10.0))
    rare = PoissonProcess(1e-4)
    result = run(Stream(rare, (Pool(1, fast),), 0.9), Stream(rare, (Pool(1, slow),), 0.1))
    assert result.mean.value_s == pytest.approx(1.9, rel=0.01)


def test_replications_of_a_replay_differ_by_service_alone():
    """A trace is the same in each replication: with constant service they are equal."""
    trace = Replay(np.cumsum(np.random.default_rng(3).standard_exponential(2000)))
    constant = run(Stream(trace, (Pool(1, constant_service(np.array([0.7]))),)), requests=2000)
    varied = run(Stream(trace, (Pool(1, exponential_service(np.array([0.7]))),)), requests=2000)
    assert np.ptp(constant.means_s) == 0
    assert np.ptp(varied.means_s) > 0


def test_load_and_batches_are_counted():
    """Utilization is λE[S]/c, and at light load batches are of one."""
    result = run(Stream(PoissonProcess(2.8), (pool_of(4, scv=0.1),)), requests=400_000)
    assert result.utilization == pytest.approx(0.7, rel=0.01)
    assert result.mean_batch == 1.0
    assert run(Stream(PoissonProcess(0.01), (pool_of(1, batch=8),))).mean_batch == pytest.approx(1.0, abs=0.02)
    assert run(Stream(PoissonProcess(30.0), (pool_of(1, batch=8),))).mean_batch == pytest.approx(8.0, rel=0.02)
