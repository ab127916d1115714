"""The simulator against exact theory: it is the judge, so it is judged first."""

import numpy as np
import pytest

from advisor.queueing.batch import batch_queue
from advisor.queueing.exact import lognormal_points, mdc, mg1, mmc
from advisor.queueing.gaps import renewal_law
from advisor.queueing.noise import lognormal_noise, make_noise, no_noise
from advisor.queueing.qbd import gimc, mmppmc
from advisor.queueing.renewal import gidc, gig1
from advisor.simulation.arrivals import BurstProcess, PoissonProcess, RenewalProcess
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import Stream, simulate
from advisor.simulation.service import (
    ServiceLaw,
    constant_service,
    exponential_service,
    lognormal_service,
    series_service,
)

ONE = np.ones(1)
LEVELS = (0.5, 0.95, 0.99)
GPU, CPU = (10 / 11, 1 / 11), (0.05, 0.95)
"""Fixed time of a batch and time for each request in it."""


def spread(times, noise):
    """Service law with the same spread at every batch size."""
    edges = np.asarray(times)[:, None] * noise.edges[None, :]
    return ServiceLaw(np.asarray(times), edges, np.repeat(noise.cumulative[None, :], len(times), axis=0))


def renewal(rate, scv):
    """Renewal arrivals by two moments."""
    law = renewal_law(scv)
    return RenewalProcess(rate, law.weights, law.stages, law.rates)


def once(stream, *, requests=400_000, seed=1):
    """One round of twenty replications."""
    return simulate((stream,), seed=seed, requests=requests, most_requests=requests, enough=lambda _result: True)


def agree(result, exact, *, widths=2.0, slack=0.0):
    """Mean and percentiles within so many half widths of the interval, and what the lattice of a model leaves open."""
    found = [result.mean, *(result.percentile(q) for q in LEVELS)]
    wanted = [exact.mean_s, *(exact.percentile(q, rtol=1e-5) for q in LEVELS)]
    for estimate, value in zip(found, wanted, strict=True):
        assert abs(estimate.value_s - value) <= widths * estimate.ci95_s + slack * value


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.7), (4, 0.8), (16, 0.9), (64, 0.95)])
def test_constant_service_is_mdc(servers, rho):
    """One queue before c servers with constant service is M/D/c."""
    stream = Stream(PoissonProcess(rho * servers), (Pool(servers, constant_service(ONE)),))
    agree(once(stream), mdc(rho * servers, 1.0, servers))


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.5), (2, 0.8), (16, 0.9)])
@pytest.mark.parametrize("scv", [0.3, 1.0, 4.0])
def test_exponential_service_is_gimc(servers, rho, scv):
    """One queue before c servers with exponential service is GI/M/c, and M/M/c with Poisson arrivals."""
    rate = rho * servers
    exact = mmc(rate, 1.0, servers) if scv == 1 else gimc(rate, renewal_law(scv), 1.0, servers)
    arrivals = PoissonProcess(rate) if scv == 1 else renewal(rate, scv)
    agree(once(Stream(arrivals, (Pool(servers, exponential_service(ONE)),))), exact)


@pytest.mark.parametrize("scv", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_lognormal_service_is_mg1(scv, rho):
    """One server with lognormal service is M/G/1; a heavy tail needs more requests for its interval to hold."""
    stream = Stream(PoissonProcess(rho), (Pool(1, lognormal_service(ONE, scv)),))
    result = once(stream, requests=2_000_000 if scv > 1 else 400_000)
    agree(result, mg1(rho, *lognormal_points(1.0, scv)), slack=1e-3)


def test_service_from_a_table_is_mg1():
    """A table is drawn from as it is written: two atoms, and a stretch between two ends."""
    edges, below = np.array([0.2, 0.2, 1.0, 2.0, 4.0, 4.0]), np.array([0.0, 0.5, 0.5, 0.9, 0.9, 1.0])
    stretch = 1 + (np.arange(1000) + 0.5) / 1000
    times = np.concatenate(([0.2], stretch, [4.0]))
    weights = np.concatenate(([0.5], np.full(1000, 0.4 / 1000), [0.1]))
    law = ServiceLaw(np.array([weights @ times]), edges[None, :], below[None, :])
    agree(once(Stream(PoissonProcess(0.6), (Pool(1, law),))), mg1(0.6, times, weights), slack=1e-3)


@pytest.mark.parametrize("scv", [0.3, 4.0])
def test_renewal_arrivals_are_gig1_and_gidc(scv):
    """Renewal arrivals at one server are GI/G/1, with constant service at four GI/D/c."""
    law = renewal_law(scv)
    one = Stream(renewal(0.7, scv), (Pool(1, lognormal_service(ONE, 0.5)),))
    agree(once(one), gig1(0.7, law, *lognormal_points(1.0, 0.5)), slack=2e-3)
    four = Stream(renewal(3.2, scv), (Pool(4, constant_service(ONE)),))
    agree(once(four), gidc(3.2, law, 1.0, 4), slack=2e-3)


@pytest.mark.parametrize(("servers", "ratio", "burst"), [(1, 4.0, 10.0), (4, 2.0, 100.0), (4, 6.0, 2.0)])
def test_bursts_are_mmppmc(servers, ratio, burst):
    """Bursts a fifth of the time before servers with exponential service are MMPP/M/c."""
    calm = 0.6 * servers / (0.8 + 0.2 * ratio)
    process = BurstProcess(calm, ratio * calm, 4 * burst, burst)
    exact = mmppmc((calm, ratio * calm), (0.25 / burst, 1 / burst), 1.0, servers)
    agree(once(Stream(process, (Pool(servers, exponential_service(ONE)),)), requests=1_000_000), exact)


@pytest.mark.parametrize("curve", [GPU, CPU])
@pytest.mark.parametrize(("size", "scv"), [(1, 0.3), (4, 0.0), (8, 0.05), (8, 0.3), (32, 0.0), (32, 0.05)])
@pytest.mark.parametrize("rho", [0.3, 0.85])
def test_batch_server_is_the_batch_queue(size, scv, curve, rho):
    """One server that takes all that waits, up to a cap, is the exact chain of the batch queue."""
    times = curve[0] + curve[1] * np.arange(1, size + 1)
    noise = lognormal_noise(scv) if scv else no_noise()
    rate = rho * size / times[-1]
    stream = Stream(PoissonProcess(rate), (Pool(1, spread(times, noise)),))
    agree(once(stream), batch_queue(rate, times, (noise,) * size), slack=2e-3)


@pytest.mark.parametrize("size", [1, 8])
def test_random_routing_makes_servers_independent(size):
    """A random split of Poisson arrivals over c servers is c separate batch queues."""
    times = GPU[0] + GPU[1] * np.arange(1, size + 1)
    rate = 0.8 * size / times[-1]
    stream = Stream(PoissonProcess(6 * rate), (Pool(6, constant_service(times), "random"),))
    agree(once(stream), batch_queue(rate, times, (no_noise(),) * size), slack=2e-3)


@pytest.mark.parametrize("scv", [0.2, 1.0])
def test_round_robin_gives_each_server_erlang_gaps(scv):
    """In turn, each of c servers gets every c-th request of a Poisson process: Eₖ/G/1 with k = c."""
    stream = Stream(PoissonProcess(3.2), (Pool(4, lognormal_service(ONE, scv), "round_robin"),))
    agree(once(stream), gig1(0.8, renewal_law(1 / 4), *lognormal_points(1.0, scv)), slack=2e-3)


def test_looking_at_queues_lies_between_the_other_routers():
    """At high load without batching: one queue, then fewest outstanding, then in turn, then at random."""
    means = [
        once(Stream(PoissonProcess(3.6), (Pool(4, exponential_service(ONE), routing),))).mean.value_s
        for routing in ("central_queue", "least_outstanding", "round_robin", "random")
    ]
    assert means == sorted(means)
    assert means[1] < 1.2 * means[0]


def calls(count=3000, stall=40.0, together=30):
    """Measured calls with stalls, of which several follow each other."""
    rng = np.random.default_rng(7)
    series = rng.gamma(20.0, 1 / 20.0, count)
    for start in rng.integers(0, count - together, 2):
        series[start : start + together] *= stall / 10
    return series


def test_blocks_of_one_are_independent_calls():
    """A series in blocks of one call is M/G/1 with the calls as its service distribution."""
    series = calls()
    stream = Stream(PoissonProcess(0.5 / series.mean()), (Pool(1, series_service(series[None, :], 1)),))
    weights = np.full(series.size, 1 / series.size)
    agree(once(stream), mg1(0.5 / series.mean(), series, weights), slack=1e-3)


def test_stalls_in_a_row_are_worse_than_the_same_stalls_apart():
    """Blocks keep stalls together as measured, and p99 is larger than with the same calls in any order."""
    series = calls()
    apart, together = (
        once(Stream(PoissonProcess(0.5), (Pool(1, series_service(series[None, :], block)),))) for block in (1, 100)
    )
    assert together.percentile(0.99).value_s > 1.5 * apart.percentile(0.99).value_s
    assert together.utilization == pytest.approx(apart.utilization, rel=0.05)


def test_rare_long_calls_are_neither_lost_by_the_model_nor_by_the_judge():
    """One call in 2,000 that takes 60 times the mean moves p99, and model and simulation agree on where to."""
    law = make_noise(np.array([0.9, 60.0]), np.array([1.04, 61.0]), np.array([1 - 5e-4, 5e-4]))
    times = 0.01 + 0.001 * np.arange(1, 5)
    rate = 0.6 * 4 / times[-1]
    exact = batch_queue(rate, times, (law,) * 4).percentile(0.99, rtol=1e-4)
    calm = batch_queue(rate, times, (no_noise(),) * 4).percentile(0.99, rtol=1e-4)
    found = once(Stream(PoissonProcess(rate), (Pool(1, spread(times, law)),)), requests=2_000_000).percentile(0.99)
    assert exact > 2 * calm
    assert abs(exact - found.value_s) < 2 * found.ci95_s + 0.02 * exact


def known_queues():
    """Queues with an exact answer: one to 16 servers, Poisson and bursty gaps, without and with batches."""
    for rho in (0.3, 0.5, 0.7, 0.8, 0.9):
        for servers in (1, 2, 4, 16):
            rate = rho * servers
            poisson, bursty = PoissonProcess(rate), renewal(rate, 2.0)
            exponential, constant = Pool(servers, exponential_service(ONE)), Pool(servers, constant_service(ONE))
            yield Stream(poisson, (exponential,)), mmc(rate, 1.0, servers)
            yield Stream(poisson, (constant,)), mdc(rate, 1.0, servers)
            yield Stream(bursty, (exponential,)), gimc(rate, renewal_law(2.0), 1.0, servers)
        for size in (4, 8):
            times = GPU[0] + GPU[1] * np.arange(1, size + 1)
            rate = rho * size / times[-1]
            stream = Stream(PoissonProcess(rate), (Pool(1, constant_service(times)),))
            yield stream, batch_queue(rate, times, (no_noise(),) * size)


def test_intervals_hold_what_they_promise():
    """Mean, p50, p95 and p99 of exact models lie inside the simulation's 95 % intervals in 95 of 100 cases."""
    inside = []
    for number, (stream, exact) in enumerate(known_queues()):
        wanted = [exact.mean_s, *(exact.percentile(q, rtol=1e-4) for q in LEVELS)]
        for seed in range(3):
            result = once(stream, requests=200_000, seed=1000 * number + seed)
            found = [result.mean, *(result.percentile(q) for q in LEVELS)]
            inside += [abs(one.value_s - value) <= one.ci95_s for one, value in zip(found, wanted, strict=True)]
    assert len(inside) == 70 * 3 * 4
    assert np.mean(inside) >= 0.95
    # An interval that is right by being far too wide would be no use either.
    assert np.mean(inside) < 0.985
