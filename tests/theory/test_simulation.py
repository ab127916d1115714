"""The simulator against exact theory: it is the judge, so it is judged first."""

import numpy as np
import pytest

from advisor.queueing.batch import batch_queue, lognormal_noise, make_noise, no_noise
from advisor.queueing.exact import mdc, mmc
from advisor.simulation.engine import ServiceLaw, constant_service, simulate_pool
from advisor.simulation.metrics import PoolInput, simulate_fleet


def spread(times, noise):
    """Service law with the same spread at every batch size."""
    edges = np.asarray(times)[:, None] * noise.edges[None, :]
    return ServiceLaw(edges, np.repeat(noise.cumulative[None, :], len(times), axis=0))


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.7), (4, 0.8), (16, 0.9)])
def test_constant_service_is_mdc(servers, rho):
    """One queue before c servers with constant service gives the percentiles of M/D/c within five standard errors."""
    exact = mdc(rho * servers, 1.0, servers)
    runs = [
        np.quantile(
            simulate_pool(
                rho * servers,
                constant_service(np.ones(1)),
                servers=servers,
                requests=100_000,
                rng=np.random.default_rng(seed),
            ),
            0.99,
        )
        for seed in range(12)
    ]
    error = np.std(runs, ddof=1) / np.sqrt(len(runs))
    assert abs(np.mean(runs) - exact.percentile(0.99)) < 5 * error + 1e-3 * exact.percentile(0.99)


def test_exponential_service_is_mmc():
    """Exponential service at two servers gives the mean of M/M/2."""
    edges = np.append(-np.log1p(-np.linspace(0, 1, 20_001)[:-1]), 14.0)
    table = ServiceLaw(edges[None, :], np.linspace(0, 1, 20_001)[None, :])
    runs = [
        simulate_pool(1.4, table, servers=2, requests=100_000, rng=np.random.default_rng(seed)).mean()
        for seed in range(12)
    ]
    error = np.std(runs, ddof=1) / np.sqrt(len(runs))
    assert abs(np.mean(runs) - mmc(1.4, 1.0, 2).mean_s) < 5 * error


@pytest.mark.parametrize("scv", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("size", [1, 8, 32])
def test_batch_server_is_the_batch_queue(size, scv):
    """The analytic batch queue lies within four interval half-widths of the simulated percentiles."""
    times = 0.01 + 0.002 * np.arange(1, size + 1)
    law = lognormal_noise(scv) if scv else no_noise()
    rate = 0.75 * size / times[-1]
    exact = batch_queue(rate, times, (law,) * size)
    pool = PoolInput(rate, 1.0, spread(times, law))
    for q, estimate in zip((0.5, 0.99), simulate_fleet((pool,), (0.5, 0.99), requests=400_000, seed=3), strict=True):
        assert abs(exact.percentile(q) - estimate.value_s) < 4 * estimate.ci95_s + 2e-3 * estimate.value_s


def test_same_seed_same_numbers():
    """A simulation is a function of its inputs and its seed."""
    pool = PoolInput(50.0, 1.0, constant_service(np.full(4, 0.02)))
    first, second, other = (simulate_fleet((pool,), (0.99,), requests=100_000, seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_mixture_lies_between_its_pools():
    """The median over two pools lies between the medians of the two."""
    slow, fast = constant_service(np.array([0.05])), constant_service(np.array([0.01]))
    both = simulate_fleet((PoolInput(5.0, 0.5, slow), PoolInput(5.0, 0.5, fast)), (0.5,), requests=200_000, seed=1)[0]
    alone = [
        simulate_fleet((PoolInput(5.0, 1.0, table),), (0.5,), requests=200_000, seed=1)[0] for table in (slow, fast)
    ]
    assert alone[1].value_s <= both.value_s <= alone[0].value_s


def test_every_request_is_answered_in_order_of_service():
    """No response is shorter than the shortest service, and none is lost."""
    response = simulate_pool(
        100.0, constant_service(np.full(8, 0.03)), servers=1, requests=5_000, rng=np.random.default_rng(0)
    )
    assert response.size == 5_000
    assert response.min() >= 0.03 - 1e-12


def test_rare_long_calls_are_neither_lost_by_the_model_nor_by_the_judge():
    """One call in 2,000 that takes 60 times the mean moves p99, and model and simulation agree on where to."""
    law = make_noise(np.array([0.9, 60.0]), np.array([1.04, 61.0]), np.array([1 - 5e-4, 5e-4]))
    times = 0.01 + 0.001 * np.arange(1, 5)
    rate = 0.6 * 4 / times[-1]
    exact = batch_queue(rate, times, (law,) * 4)
    pool = PoolInput(rate, 1.0, spread(times, law))
    estimate = simulate_fleet((pool,), (0.99,), requests=2_000_000, seed=5)[0]
    calm = batch_queue(rate, times, (no_noise(),) * 4).percentile(0.99, rtol=1e-4)
    assert exact.percentile(0.99, rtol=1e-4) > 2 * calm
    assert abs(exact.percentile(0.99, rtol=1e-4) - estimate.value_s) < 4 * estimate.ci95_s + 0.02 * estimate.value_s
