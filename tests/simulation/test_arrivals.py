"""Arrival processes have the rates and the dispersion that define them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.queueing.gaps import renewal_law
from advisor.simulation.arrivals import BurstProcess, PeriodicProcess, PoissonProcess, RenewalProcess, Replay, sinusoid

MANY = 200_000

rates = st.floats(1e-3, 1e4)


def renewal(rate, scv):
    """Renewal arrivals by two moments."""
    law = renewal_law(scv)
    return RenewalProcess(rate, law.weights, law.stages, law.rates)


def processes(rate):
    """One of each kind at a mean rate."""
    return (
        PoissonProcess(rate),
        renewal(rate, 3.0),
        renewal(rate, 0.3),
        BurstProcess(rate / 2, 3 * rate, 40 / rate, 10 / rate),
        PeriodicProcess(rate * np.array([0.2, 0.8, 2.0]), 20 / rate),
    )


@settings(max_examples=20)
@given(rates, st.integers(0, 2**32 - 1), st.integers(1, 2000))
def test_times_are_in_order_and_enough(rate, seed, requests):
    """Times do not decrease, begin after 0, and at least the requests asked for count; periods may give others."""
    for process in processes(rate):
        times, warm = process.times(requests, np.random.default_rng(seed))
        assert np.all(np.diff(times) >= 0)
        assert times.size == 0 or times[0] >= 0
        if not isinstance(process, PeriodicProcess):
            assert times.size - warm == requests


@pytest.mark.parametrize("kind", range(5))
def test_the_mean_rate_is_kept(kind):
    """Requests per second over a long time are the rate that the process states."""
    process = processes(7.0)[kind]
    assert process.rate_rps == pytest.approx(7.0)
    times, _ = process.times(MANY, np.random.default_rng(1))
    assert times.size / times[-1] == pytest.approx(7.0, rel=0.02)


@pytest.mark.parametrize("scv", [0.1, 0.3, 1.0, 4.0, 9.0])
def test_renewal_gaps_have_their_scv(scv):
    """The squared coefficient of variation of the gaps is the one asked for, and neighbors are independent."""
    times, _ = renewal(5.0, scv).times(MANY, np.random.default_rng(2))
    gaps = np.diff(times)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(scv, rel=0.05)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.01


def test_bursts_have_the_dispersion_of_theory():
    """Var N / E N of long windows is 1 + 2 (λ₁-λ₂)² r₁r₂ / ((r₁+r₂)³ λ): the SCV of the gaps hides it."""
    process = BurstProcess(2.0, 10.0, 8.0, 2.0)
    times, _ = process.times(4 * MANY, np.random.default_rng(3))
    counts = np.bincount((times / 200).astype(int))[:-1]
    first, second = 1 / process.calm_s, 1 / process.burst_s
    limit = 1 + 2 * (process.burst_rps - process.calm_rps) ** 2 * first * second / (
        (first + second) ** 3 * process.rate_rps
    )
    assert counts.var() / counts.mean() == pytest.approx(limit, rel=0.1)
    gaps = np.diff(times)
    assert gaps.var() / gaps.mean() ** 2 < limit / 3


def test_a_pattern_repeats():
    """Counts by slot of the period follow its rates."""
    process = PeriodicProcess(np.array([1.0, 5.0, 0.0, 2.0]), 3.0)
    rng = np.random.default_rng(4)
    times, warm = process.times(MANY, rng)
    periods = round((times[-1] - times[warm]) / process.period_s)
    assert (times.size - warm) / periods == pytest.approx(process.rate_rps * process.period_s, rel=0.02)
    # The phase at the start is random: the empty slot tells where the pattern stands.
    edges = np.bincount(((times % process.period_s) / 0.25).astype(int), minlength=48)
    assert np.sum(edges == 0) >= 11


def test_a_sinusoid_has_its_peak():
    """The highest rate is the one given, the mean is that over 1 + A."""
    process = sinusoid(30.0, 0.5, 3600.0)
    assert process.rates_rps.max() == pytest.approx(30.0, rel=1e-4)
    assert process.rate_rps == pytest.approx(20.0)
    assert process.period_s == pytest.approx(3600.0)


def test_a_replay_only_changes_its_speed():
    """Twice as fast, every gap is half as long; nothing is dropped."""
    recorded = np.array([0.0, 1.0, 1.5, 4.0])
    process = Replay(recorded, 2.0)
    times, warm = process.times(100, np.random.default_rng(5))
    assert times.tolist() == [0.0, 0.5, 0.75, 2.0]
    assert (warm, process.rate_rps) == (0, 1.5)
