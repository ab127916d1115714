"""The simulator against exact theory: it is the judge, so it is judged first."""

import numpy as np
import pytest

from advisor.queueing.batch import batch_queue, lognormal_noise, no_noise
from advisor.queueing.exact import mdc, mmc
from advisor.simulation.engine import simulate_pool
from advisor.simulation.metrics import PoolInput, simulate_fleet


def sample(noise, points=4096):
    """Equally likely values of a distribution around 1."""
    middle = np.cumsum(noise.weights) - noise.weights / 2
    values = np.interp((np.arange(points) + 0.5) / points, middle, noise.points)
    return values / values.mean()


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.7), (4, 0.8), (16, 0.9)])
def test_constant_service_is_mdc(servers, rho):
    """One queue before c servers with constant service gives the percentiles of M/D/c within five standard errors."""
    exact = mdc(rho * servers, 1.0, servers)
    runs = [
        np.quantile(
            simulate_pool(
                rho * servers,
                np.ones((1, 1)),
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
    u = (np.arange(20_000) + 0.5) / 20_000
    table = -np.log1p(-u)[None, :]
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
    pool = PoolInput(rate, 1.0, times[:, None] * sample(law)[None, :])
    for q, estimate in zip((0.5, 0.99), simulate_fleet((pool,), (0.5, 0.99), requests=400_000, seed=3), strict=True):
        assert abs(exact.percentile(q) - estimate.value_s) < 4 * estimate.ci95_s + 2e-3 * estimate.value_s


def test_same_seed_same_numbers():
    """A simulation is a function of its inputs and its seed."""
    pool = PoolInput(50.0, 1.0, np.full((4, 1), 0.02))
    first, second, other = (simulate_fleet((pool,), (0.99,), requests=100_000, seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_mixture_lies_between_its_pools():
    """The median over two pools lies between the medians of the two."""
    slow, fast = np.full((1, 1), 0.05), np.full((1, 1), 0.01)
    both = simulate_fleet((PoolInput(5.0, 0.5, slow), PoolInput(5.0, 0.5, fast)), (0.5,), requests=200_000, seed=1)[0]
    alone = [
        simulate_fleet((PoolInput(5.0, 1.0, table),), (0.5,), requests=200_000, seed=1)[0] for table in (slow, fast)
    ]
    assert alone[1].value_s <= both.value_s <= alone[0].value_s


def test_every_request_is_answered_in_order_of_service():
    """No response is shorter than the shortest service, and none is lost."""
    response = simulate_pool(100.0, np.full((8, 1), 0.03), servers=1, requests=5_000, rng=np.random.default_rng(0))
    assert response.size == 5_000
    assert response.min() >= 0.03 - 1e-12
