"""Capacity of a replica: the largest rate under the SLA, monotone in everything it should be."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.capacity.curve import histogram_noise, lognormal_scv, service_curves, why_no_curve
from advisor.capacity.method import choose, response_time, streams_of
from advisor.capacity.pool import (
    EXACT_MARGIN,
    OTHER_MARGIN,
    Question,
    _simulated_rate,
    best_capacity,
    cap_capacity,
    idle_percentile_s,
    pool_rates,
    saturated_rps,
)
from advisor.capacity.traffic import Traffic
from advisor.domain.measurement import Histogram
from advisor.queueing.noise import lognormal_noise
from advisor.simulation.metrics import simulate
from tests.conftest import cpu_profile, gpu_profile

base_times = st.floats(min_value=0.002, max_value=0.05)
slopes = st.floats(min_value=0.02, max_value=1.0)


def curve(first_s=0.01, slope=0.3, sizes=(1, 2, 4, 8), **fields):
    """Curve of a GPU profile whose batch time grows by a share of the first per item."""
    return service_curves(gpu_profile({b: first_s * (1 + slope * (b - 1)) for b in sizes}, **fields))[0].at_slow_end()


def asked(limit_s, q=0.99, **traffic):
    """Question with one limit."""
    return Question(((q, limit_s),), Traffic(**traffic))


@settings(max_examples=12)
@given(base_times, slopes, st.floats(min_value=1.3, max_value=8.0), st.floats(min_value=1.05, max_value=3.0))
def test_a_looser_limit_never_lowers_the_capacity(first, slope, limit, factor):
    """More time to answer sustains at least the same rate."""
    found = curve(first, slope)
    limit_s = limit * float(found.batch_time_s[0])
    tight, loose = best_capacity(found, 1, asked(limit_s)), best_capacity(found, 1, asked(factor * limit_s))
    assert loose.rate_rps >= tight.rate_rps * (1 - 3e-3)


@settings(max_examples=12)
@given(base_times, slopes, st.floats(min_value=1.3, max_value=6.0), st.floats(min_value=1.02, max_value=2.0))
def test_slower_service_never_raises_the_capacity(first, slope, limit, factor):
    """Longer service times sustain at most the same rate under the same limit."""
    limit_s = limit * first * 1.2
    fast, slow = curve(first, slope), curve(first * factor, slope)
    assert best_capacity(slow, 1, asked(limit_s)).rate_rps <= best_capacity(fast, 1, asked(limit_s)).rate_rps * (
        1 + 3e-3
    )


@settings(max_examples=10)
@given(slopes, st.floats(min_value=1.5, max_value=6.0), st.sampled_from([1, 2, 4, 8]))
def test_capacity_is_where_the_percentile_meets_the_limit(slope, limit, cap):
    """At the capacity the percentile is within the limit; a few percent above it is not, unless saturation binds."""
    found = curve(0.01, slope)
    limit_s = limit * float(found.batch_time_s[0])
    capacity = cap_capacity(found, cap, 1, asked(limit_s))
    if capacity.rate_rps == 0:
        assert response_time(found, cap, 1e-3).tail(limit_s) >= 0.01 * (1 - 1e-9) or limit_s < idle_percentile_s(
            found, 0.99
        )
        return
    assert response_time(found, cap, capacity.rate_rps).tail(limit_s) <= 0.01 * (1 + 1e-6)
    if not capacity.stability_limited:
        assert response_time(found, cap, capacity.rate_rps * 1.03).tail(limit_s) > 0.01
    assert capacity.rate_rps < saturated_rps(found, ((0.99, math.inf),))


def test_a_stricter_percentile_never_raises_the_capacity():
    """p99.9 sustains at most what p99 does, and that at most what p95 does."""
    found = curve(p99_over_mean=1.3)
    rates = [best_capacity(found, 1, asked(0.06, q)).rate_rps for q in (0.95, 0.99, 0.999)]
    assert rates == sorted(rates, reverse=True)


def test_capacity_scales_with_time():
    """Halving all times and the limit doubles the rate."""
    one, half = curve(0.02), curve(0.01)
    assert best_capacity(half, 1, asked(0.04, 0.99)).rate_rps == pytest.approx(
        2 * best_capacity(one, 1, asked(0.08, 0.99)).rate_rps, rel=1e-3
    )


def test_an_idle_server_that_is_too_slow_sustains_nothing():
    """Below the service time of one item no rate is sustained."""
    found = curve(0.01)
    assert best_capacity(found, 1, asked(0.0105, 0.99)).rate_rps == 0.0
    assert idle_percentile_s(found, 0.99) == pytest.approx(0.0115, rel=1e-6)


def test_batches_between_measured_sizes_are_interpolated_and_never_extrapolated():
    """The curve ends at the largest batch measured and is linear between the sizes measured."""
    found = service_curves(gpu_profile({1: 0.010, 4: 0.016}))[0]
    assert found.batch_time_s.tolist() == pytest.approx([0.010, 0.012, 0.014, 0.016])


def test_a_larger_batch_that_measured_faster_lasts_as_long():
    """Noise that makes a larger batch faster is read pessimistically, and said."""
    found = service_curves(gpu_profile({1: 0.010, 2: 0.009}))[0]
    assert found.batch_time_s.tolist() == pytest.approx([0.010, 0.010])
    assert any("taken to last as long" in sentence for sentence in found.assumptions)


def test_cpu_profiles_count_only_with_all_cores_busy():
    """A CPU configuration that left cores idle is not planned with."""
    profile = cpu_profile({1: 0.05}, threads=1, logical_cpus=4)
    lonely = profile.model_copy(
        update={"cells": tuple(cell.model_copy(update={"concurrency": 1}) for cell in profile.cells)}
    )
    assert service_curves(profile)
    assert service_curves(lonely) == ()
    assert "all cores busy" in why_no_curve(lonely)


def test_throughput_that_never_leveled_off_is_said_to_be_a_floor():
    """A batch twice as large that sustains far more says so; one that sustains the same does not."""
    growing, level = (service_curves(gpu_profile({1: 0.010, 2: time_s}))[0] for time_s in (0.011, 0.020))
    assert any("not seen to level off up to batch 2" in sentence for sentence in growing.assumptions)
    assert not any("level off" in sentence for sentence in level.assumptions)


@given(st.floats(min_value=0.001, max_value=1.5))
def test_lognormal_through_p99_has_that_p99(scv):
    """The SCV read off p99/mean gives back the ratio it was read from."""
    sigma = math.sqrt(math.log1p(scv))
    ratio = math.exp(2.3263478740408408 * sigma - sigma**2 / 2)
    assert lognormal_scv(ratio, 0.99) == pytest.approx(scv, rel=1e-6)
    law = lognormal_noise(scv)
    assert law.cdf(np.array([ratio]))[0] == pytest.approx(0.99, abs=2e-4)


@given(st.lists(st.integers(min_value=0, max_value=50), min_size=1, max_size=40).filter(any), st.integers(-300, 50))
def test_noise_of_a_histogram_has_mean_one_and_its_spread(counts, first):
    """The distribution around the mean has mean 1, and as many intervals as bins with calls."""
    law = histogram_noise(Histogram(first_bin=first, counts=tuple(counts)))
    assert float(law.weights @ law.points) == pytest.approx(1.0)
    assert law.weights.size == sum(count > 0 for count in counts)
    assert law.cdf(np.array([law.upper[-1] * 1.01]))[0] == pytest.approx(1.0)


def test_several_limits_sustain_what_the_tightest_does():
    """Under two limits the capacity is the smaller of the two."""
    found = curve(p99_over_mean=1.3)
    both = Question(((0.99, 0.06), (0.5, 0.016)))
    apart = [cap_capacity(found, 4, 1, asked(limit_s, q)).rate_rps for q, limit_s in both.limits]
    assert cap_capacity(found, 4, 1, both).rate_rps == pytest.approx(min(apart), rel=2e-3)


def test_independent_replicas_sustain_in_proportion():
    """Behind a random router with Poisson arrivals eight replicas sustain eight times the rate of one."""
    found = curve()
    one, eight = (cap_capacity(found, 4, servers, asked(0.04)).rate_rps for servers in (1, 8))
    assert eight == pytest.approx(8 * one, rel=1e-12)


@pytest.mark.parametrize("routing", ["round_robin", "least_outstanding", "central_queue"])
def test_a_router_that_spreads_sustains_more_than_a_random_one(routing):
    """At a limit near the service time and one request at a time, any spreading beats chance."""
    found = curve(sizes=(1,))
    assert (
        cap_capacity(found, 1, 4, asked(0.03, routing=routing)).rate_rps
        > 1.05 * cap_capacity(found, 1, 4, asked(0.03)).rate_rps
    )


@pytest.mark.parametrize("routing", ["random", "least_outstanding", "central_queue"])
def test_bursts_lower_the_capacity(routing):
    """Arrivals in bursts sustain less than Poisson arrivals at the same mean rate, more so when bursts are higher."""
    found = curve()
    rates = [cap_capacity(found, 4, 4, asked(0.05, routing=routing)).rate_rps] + [
        cap_capacity(found, 4, 4, asked(0.05, routing=routing, shape="bursts", bursts=(ratio, 0.2, 1.0))).rate_rps
        for ratio in (2.0, 6.0)
    ]
    assert rates[0] > 1.1 * rates[1] > 1.1 * rates[2]


def test_a_simulated_capacity_is_the_exact_one_within_its_stated_noise():
    """Where both are to be had, search by simulation and by the exact model agree within three percent."""
    found = curve(sizes=(1,))
    exact = cap_capacity(found, 1, 4, asked(0.035, routing="central_queue"))
    assert choose(found, 1, 4, Traffic("central_queue")).model == "M/D/c"
    rate, stable = _simulated_rate(found, 1, 4, asked(0.035, routing="central_queue"))
    assert rate / OTHER_MARGIN == pytest.approx(exact.rate_rps / EXACT_MARGIN, rel=0.03)
    assert stable == exact.stability_limited


def test_capacity_of_a_pool_meets_its_limit_and_not_much_more_would():
    """With other random numbers the percentile is within the limit at the capacity and over it at 6 % more."""
    found, question = curve(), asked(0.03, routing="least_outstanding")
    capacity = cap_capacity(found, 4, 6, question)

    def p99(rate):
        streams = streams_of(found, 4, rate, servers=6, traffic=question.traffic)
        return simulate(streams, seed=99, requests=1_000_000, most_requests=1, enough=lambda _: True).percentile(0.99)

    assert p99(capacity.rate_rps).value_s <= 0.03
    assert p99(1.06 * capacity.rate_rps).value_s > 0.03


def test_larger_pools_sustain_more_per_replica():
    """Where replicas share requests, pooling helps: the rate per replica grows with their number, up to noise."""
    rates = pool_rates(curve(), 4, 16, asked(0.03, routing="least_outstanding"))
    each = [rate / servers for servers, rate in rates]
    assert [servers for servers, _ in rates] == [1, 2, 3, 4, 6, 8, 12, 16]
    assert all(later >= 0.99 * earlier for earlier, later in itertools.pairwise(each))


def test_capacities_found_before_are_not_searched_again():
    """A cache answers equal questions, and only those."""
    kept = {}
    found = curve()
    first = cap_capacity(found, 4, 1, Question(((0.99, 0.05),), cache=kept))
    assert len(kept) == 1
    kept.update(dict.fromkeys(kept, (123.0, False)))
    assert cap_capacity(found, 4, 1, Question(((0.99, 0.05),), cache=kept)).rate_rps == 123.0
    for limits, cap in ((((0.99, 0.06),), 4), (((0.95, 0.05),), 4), (((0.99, 0.05),), 2)):
        assert cap_capacity(found, cap, 1, Question(limits, cache=kept)).rate_rps != 123.0
    assert cap_capacity(curve(0.0101), 4, 1, Question(((0.99, 0.05),), cache=kept)).rate_rps != 123.0
    assert first.rate_rps != 123.0


def test_an_error_of_the_profile_is_an_interval_of_the_capacity():
    """Service times a tenth faster or slower move the capacity by about as much, under a limit far above them."""
    found = service_curves(gpu_profile({1: 0.01, 8: 0.03}, p99_over_mean=1.2))[0]
    low, likely, high = (
        cap_capacity(end, 8, 1, asked(0.5)).rate_rps for end in (found.at_slow_end(), found, found.at_fast_end())
    )
    assert low / likely == pytest.approx(1 / 1.1, rel=0.02)
    assert high / likely == pytest.approx(1 / 0.9, rel=0.02)
