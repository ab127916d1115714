"""Rates that change: slow ones as if each moment lasted, overload at a peak as a fluid, both against simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.queueing.exact import mmc
from advisor.queueing.fluid import longest_fluid_delay_s
from advisor.queueing.response import mixture
from advisor.simulation.arrivals import sinusoid
from advisor.simulation.engine import Pool, run_pool
from advisor.simulation.metrics import Stream, simulate
from advisor.simulation.service import exponential_service


def day(peak, slots=96):
    """Rates of a day with its peak in the middle."""
    return peak / 1.6 * (1 + 0.6 * np.sin(np.linspace(-np.pi / 2, 1.5 * np.pi, slots, endpoint=False)))


@pytest.mark.parametrize("peak", [1.05, 1.1])
def test_the_fluid_delay_is_that_of_a_simulated_day(peak):
    """Over peaks of 5 and 10 % above the capacity the longest wait of a simulated day is within a tenth."""
    servers, service_s, slot_s = 8, 0.5, 900.0
    capacity = servers / service_s
    rates = day(peak * capacity)
    rng = np.random.default_rng(3)
    arrivals = np.sort(
        np.concatenate(
            [slot_s * (k + rng.random(rng.poisson(rate * slot_s))) for k, rate in enumerate(np.tile(rates, 2))]
        )
    )
    pool = Pool(servers, exponential_service(np.array([service_s])))
    response = run_pool(pool, arrivals, np.random.default_rng(1), np.random.default_rng(2)).response_s
    later = response[arrivals > 96 * slot_s]
    smooth = np.convolve(later, np.ones(2000) / 2000, mode="valid").max()
    assert longest_fluid_delay_s(rates, slot_s, capacity) == pytest.approx(smooth, rel=0.1)


@given(st.floats(0.5, 1.5), st.floats(1.01, 2.0))
def test_more_capacity_never_waits_longer(peak, factor):
    """The delay falls with the capacity, is zero when the peak fits, and endless when the mean does not."""
    rates = day(peak)
    small, large = (longest_fluid_delay_s(rates, 900.0, capacity) for capacity in (1.0, factor))
    assert large <= small
    assert (small == 0) == (rates.max() <= 1.0)
    assert np.isinf(longest_fluid_delay_s(rates, 900.0, 0.99 * rates.mean()))


@pytest.mark.parametrize(("servers", "peak"), [(4, 0.8), (4, 0.9), (16, 0.8)])
def test_a_slow_swing_is_as_if_each_moment_lasted(servers, peak):
    """With 20,000 services from peak to peak p99 over the period is that of the moments, each with its requests."""
    process = sinusoid(peak * servers, 0.6, 2e4)
    moments = [(float(rate), mmc(float(rate), 1.0, servers)) for rate in process.rates_rps[::4]]
    total = sum(rate for rate, _ in moments)
    whole = mixture([(rate / total, moment) for rate, moment in moments], "moments")
    pool = Pool(servers, exponential_service(np.array([1.0])))
    found = simulate((Stream(process, (pool,)),), seed=2, requests=2_000_000, most_requests=1, enough=lambda _: True)
    p99 = found.percentile(0.99)
    assert abs(whole.percentile(0.99, rtol=1e-5) - p99.value_s) < 0.015 * p99.value_s + p99.ci95_s
    assert whole.mean_s == pytest.approx(found.mean.value_s, rel=0.015)
