"""The compiled loops against a second simulator, request by request, and what holds on every path."""

import itertools
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain.workload import Routing
from advisor.simulation.engine import Pool, run_pool
from advisor.simulation.service import constant_service, exponential_service, lognormal_service
from tests.simulation.reference import Reference

SAME = 1e-9
"""Difference of two times that is rounding."""

seeds = st.integers(0, 2**32 - 1)
loads = st.floats(0.1, 1.5)
routings = st.sampled_from(get_args(Routing))
delays = st.sampled_from([0.0, 0.3, 1.0, 3.0])
servers_of = st.integers(1, 5)
# Whole numbers and halves make many events coincide: arrivals, ends of batches and timers at one instant.
coarse_arrivals = st.lists(st.integers(0, 3), min_size=1, max_size=60).map(lambda gaps: np.cumsum(gaps) / 2)
coarse_times = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(lambda steps: (2.0 + np.cumsum(steps)) / 2)


@st.composite
def random_arrivals(draw):
    """Up to 150 Poisson arrivals, a load for one server of unit service, and batch times that grow."""
    rng = np.random.default_rng(draw(seeds))
    size = draw(st.integers(1, 6))
    times = 1 + draw(st.floats(0.0, 1.0)) * np.arange(size)
    gaps = rng.standard_exponential(draw(st.integers(1, 150))) / (draw(loads) * size / times[-1])
    return np.cumsum(gaps), times


def run(arrivals, law, servers, routing, *, delay=0.0, seed=0):
    """One run with streams of its own, and where a random router sends each request."""
    service, router = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    found = run_pool(Pool(servers, law, routing, delay), arrivals, service, router)
    again = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1])
    return found, again.integers(servers, size=arrivals.size)


def both(arrivals, times, servers, routing, delay):
    """One run of the compiled loops and of the reference."""
    found, choices = run(arrivals, constant_service(times), servers, routing, delay=delay)
    return found, Reference(arrivals.tolist(), times.tolist(), servers, routing, delay, choices)


def agree(found, reference):
    """Response times, number of batches and busy time are the same."""
    np.testing.assert_allclose(found.response_s, reference.response, atol=SAME)
    assert found.batches == len(reference.batches)
    assert found.busy_s == pytest.approx(sum(end - start for start, end, _, _ in reference.batches))


@settings(max_examples=300)
@given(random_arrivals(), servers_of, routings, delays)
def test_loops_and_reference_give_the_same_responses(system, servers, routing, delay):
    """Every request gets the response time that a simulator written event by event gives it."""
    arrivals, times = system
    agree(*both(arrivals, times, servers, routing, delay))


@settings(max_examples=300)
@given(coarse_arrivals, coarse_times, servers_of, routings, st.sampled_from([0.0, 0.5, 1.0, 2.5]))
def test_events_at_one_instant_change_nothing(arrivals, times, servers, routing, delay):
    """The same when arrivals, ends of batches and timers coincide: at one instant ends come first, starts last."""
    agree(*both(arrivals, times, servers, routing, delay))


@settings(max_examples=200)
@given(random_arrivals(), servers_of, routings, delays, st.floats(0.0, 2.0))
def test_a_server_that_was_idle_takes_longer_by_the_extra(system, servers, routing, delay, extra):
    """The loops and the reference agree on which batches found their server idle, and add the same time to them."""
    arrivals, times = system
    law = replace(constant_service(times), idle_start_s=np.array([extra]))
    found, choices = run(arrivals, law, servers, routing, delay=delay)
    agree(found, Reference(arrivals.tolist(), times.tolist(), servers, routing, delay, choices, idle_extra=extra))


@given(random_arrivals(), servers_of, routings, seeds)
def test_no_idle_extra_and_an_extra_of_zero_are_the_same(system, servers, routing, seed):
    """With constant service an extra of nothing changes no bit, though random numbers are drawn for it."""
    arrivals, times = system
    law = constant_service(times)
    with_zero = replace(law, idle_start_s=np.zeros(3))
    plain, zero = (run(arrivals, one, servers, routing, seed=seed)[0] for one in (law, with_zero))
    assert np.array_equal(plain.response_s, zero.response_s)


def test_idle_extras_are_drawn_from_their_sample():
    """Requests far apart all find the server idle; their extras have the mean of the sample and no other values."""
    sample = np.array([0.1, 0.2, 0.6])
    law = replace(constant_service(np.array([1.0])), idle_start_s=sample)
    found, _ = run(10.0 + 10.0 * np.arange(3000), law, 1, "central_queue")
    extra = np.round(found.response_s - 1.0, 6)
    assert set(extra) == set(sample)
    # Three standard errors of the mean of 3000 draws.
    assert extra.mean() == pytest.approx(sample.mean(), abs=3 * sample.std() / np.sqrt(3000))


@given(random_arrivals(), servers_of, routings, delays)
def test_littles_law_holds_on_the_path(system, servers, routing, delay):
    """The time integral of the number of requests inside is the sum of their response times."""
    found, reference = both(*system, servers, routing, delay)
    assert found.response_s.sum() == pytest.approx(reference.inside_s)


@given(random_arrivals(), servers_of, routings, delays)
def test_every_request_is_served_once_by_a_server_that_is_free(system, servers, routing, delay):
    """Each request is in one batch, no batch is above the cap, and no server has two batches at a time."""
    arrivals, times = system
    _, reference = both(arrivals, times, servers, routing, delay)
    assert sorted(i for *_, served in reference.batches for i in served) == list(range(arrivals.size))
    assert max(len(served) for *_, served in reference.batches) <= times.size
    for number in range(servers):
        spans = sorted((start, end) for start, end, server, _ in reference.batches if server == number)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


@given(random_arrivals(), servers_of, routings, delays)
def test_at_most_all_servers_are_busy(system, servers, routing, delay):
    """Batches read off the response times alone: never more at a time than servers, none above the cap."""
    arrivals, times = system
    found, _ = run(arrivals, constant_service(times), servers, routing, delay=delay)
    starts, ends, sizes = spans(arrivals, times, found)
    if starts.size == found.batches:
        assert sizes.max() <= times.size
        for instant in starts + 1e-6:
            assert np.sum((starts < instant) & (ends > instant)) <= servers


def spans(arrivals, times, found):
    """Start, end and size of batches: requests that end together. Of different servers none do, but for chance."""
    ends, sizes = np.unique(np.round(arrivals + found.response_s, 7), return_counts=True)
    return ends - times[np.minimum(sizes, times.size) - 1], ends, sizes


@given(random_arrivals(), servers_of)
def test_no_server_idles_while_a_request_waits_for_it(system, servers):
    """Behind one queue without delay a request that waits finds all servers busy, and starts when one falls free."""
    arrivals, times = system
    _, reference = both(arrivals, times, servers, "central_queue", 0.0)
    starts, ends = np.array([batch[:2] for batch in reference.batches]).T
    for start, _, _, served in reference.batches:
        if start > arrivals[served[0]]:
            assert np.any(np.abs(ends - start) < SAME)
            middle = (start + arrivals[served[0]]) / 2
            assert np.sum((starts <= middle) & (ends > middle)) == servers


@given(random_arrivals(), servers_of, st.sampled_from(get_args(Routing)), st.floats(0.05, 3.0))
def test_a_batch_waits_no_longer_than_its_oldest_request_may(system, servers, routing, delay):
    """A batch starts when it is full, or its first request is as old as the delay, or a server falls free later."""
    arrivals, times = system
    _, reference = both(arrivals, times, servers, routing, delay)
    ends = np.array([end for _, end, _, _ in reference.batches])
    for start, _, _, served in reference.batches:
        due = arrivals[served[0]] + delay
        if len(served) < times.size and start < due - SAME:
            raise AssertionError("neither full nor due")
        if start > due + SAME:
            assert np.any(np.abs(ends - start) < SAME)


@given(random_arrivals(), servers_of, seeds)
def test_requests_of_one_server_are_answered_in_order(system, servers, seed):
    """First come, first served at each server, whatever the service times."""
    arrivals, times = system
    for routing in ("round_robin", "random"):
        found, choices = run(arrivals, lognormal_service(times, 1.0), servers, routing, seed=seed)
        server = np.arange(arrivals.size) % servers if routing == "round_robin" else choices
        for number in range(servers):
            ends = (arrivals + found.response_s)[server == number]
            assert np.all(np.diff(ends) >= -SAME)


@given(random_arrivals(), servers_of, routings, delays)
def test_no_response_is_shorter_than_its_service(system, servers, routing, delay):
    """A response time is at least the time of a batch of one, since larger ones take no less."""
    arrivals, times = system
    found, _ = run(arrivals, constant_service(times), servers, routing, delay=delay)
    assert found.response_s.min() >= times[0] - SAME


@given(random_arrivals(), servers_of, routings, delays, seeds)
def test_a_run_is_a_function_of_its_seed(system, servers, routing, delay, seed):
    """Equal seeds give equal runs, and another seed another one."""
    arrivals, times = system
    first, second, other = (
        run(arrivals, exponential_service(times), servers, routing, delay=delay, seed=s)[0].response_s
        for s in (seed, seed, seed + 1)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@given(random_arrivals(), servers_of, seeds)
def test_more_servers_delay_no_one(system, servers, seed):
    """With the same service times one more server behind one queue makes no response longer."""
    arrivals, _ = system
    fewer, more = (
        run(arrivals, exponential_service(np.ones(1)), c, "central_queue", seed=seed)[0] for c in (servers, servers + 1)
    )
    assert np.all(more.response_s <= fewer.response_s + SAME)


@given(random_arrivals(), servers_of)
def test_constant_service_in_turn_is_one_queue(system, servers):
    """With constant service one queue before c servers serves in turn: round robin gives the same responses."""
    arrivals, _ = system
    shared, turns = (
        run(arrivals, constant_service(np.ones(1)), servers, routing)[0] for routing in ("central_queue", "round_robin")
    )
    np.testing.assert_allclose(shared.response_s, turns.response_s, atol=SAME)


@given(random_arrivals(), delays)
def test_routing_is_nothing_to_one_server(system, delay):
    """A single server has the same responses behind any router."""
    arrivals, times = system
    runs = [
        run(arrivals, constant_service(times), 1, routing, delay=delay)[0].response_s for routing in get_args(Routing)
    ]
    assert all(np.array_equal(runs[0], other) for other in runs[1:])


def test_more_servers_than_sixteen_bits_can_count_keep_their_queues_apart():
    """In turn over 70,000 servers each one gets its own second request, which waits for its first one alone."""
    servers = 70_000
    arrivals = np.arange(2 * servers) * 1e-5
    response = run_pool(
        Pool(servers, constant_service(np.array([1.0])), "round_robin"),
        arrivals,
        *(np.random.default_rng(child) for child in np.random.SeedSequence(1).spawn(2)),
    ).response_s
    assert response[:servers] == pytest.approx(1.0)
    assert response[servers:] == pytest.approx(1.3)
