"""Statistics of arrivals against published traces and against laws of point processes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.queueing.dispersion import renewal_verdict, trace_statistics
from advisor.store.paths import DATA
from advisor.store.traces import read_trace

# Computed by another program from AzureLLMInferenceTrace_code.csv and _conv.csv of
# Azure/AzurePublicDataset@b469a113cedc: window [s], number of windows, peak to mean, index of dispersion, and the share
# of idle windows.
AZURE = {
    "azure_llm_2023_code": (
        {"requests": 8819, "duration_s": 3435.948, "gap_s": 0.389652, "scv": 172.976, "lag1": -0.0028},
        [(1, 3435, 26.105, 13.19, 0.7339), (10, 343, 12.792, 71.851, 0.5627),
         (60, 57, 4.178, 166.893, 0.2105), (300, 11, 1.558, 151.625, 0.0)],
    ),
    "azure_llm_2023_conv": (
        {"requests": 19366, "duration_s": 3501.722, "gap_s": 0.180827, "scv": 1.197, "lag1": 0.0616},
        [(1, 3501, 2.893, 1.386, 0.0109), (10, 350, 1.771, 3.868, 0.0),
         (60, 58, 1.521, 16.411, 0.0), (300, 11, 1.324, 61.705, 0.0)],
    ),
}  # fmt: skip


def poisson(rng, n, rate_rps=1.0):
    """Poisson arrivals."""
    return np.cumsum(rng.exponential(1 / rate_rps, n))


def bursts(rng, n, *, services_per_burst, service_s=0.04):
    """Arrivals at two rates in random alternation, the higher 20 % of the time and twice the lower (an MMPP)."""
    pieces, now_s, found, high = [], 0.0, 0, False
    while found < n:
        length_s = rng.exponential(services_per_burst * service_s * (1 if high else 4))
        count = rng.poisson((116.0 if high else 58.0) * length_s)
        pieces.append(now_s + np.sort(rng.uniform(0.0, length_s, count)))
        now_s, found, high = now_s + length_s, found + count, not high
    return np.concatenate(pieces)


def hyperexponential(rng, n, scv):
    """Renewal arrivals at rate 1: a mixture of two exponentials with balanced means."""
    share = (1 + math.sqrt((scv - 1) / (scv + 1))) / 2
    return np.cumsum(np.where(rng.uniform(size=n) < share, 0.5 / share, 0.5 / (1 - share)) * rng.exponential(1.0, n))


@pytest.mark.parametrize("name", AZURE)
def test_published_traces_give_the_figures_of_another_program(name):
    """All digits of an independent computation from the source files are met."""
    overall, windows = AZURE[name]
    found = trace_statistics(read_trace(DATA / "traces" / f"{name}.csv").times_s)
    assert found.requests == overall["requests"]
    assert found.duration_s == pytest.approx(overall["duration_s"], abs=6e-4)
    assert 1 / found.rate_rps == pytest.approx(overall["gap_s"], abs=6e-7)
    assert found.interarrival_scv == pytest.approx(overall["scv"], abs=6e-4)
    assert found.lag1_autocorrelation == pytest.approx(overall["lag1"], abs=6e-5)
    assert found.quantum_s is None
    for window, (length_s, count, peak, index, idle) in zip(found.windows, windows, strict=True):
        assert (window.window_s, window.windows) == (length_s, count)
        assert window.peak_to_mean == pytest.approx(peak, abs=6e-4)
        assert window.index_of_dispersion == pytest.approx(index, abs=6e-3)
        assert window.idle_frac == pytest.approx(idle, abs=6e-5)


@pytest.mark.parametrize("rate_rps", [0.02, 1.0, 40.0])
def test_poisson_arrivals_have_index_one_at_every_window(rate_rps):
    """The index of Poisson arrivals is 1 within its standard error, which is near √(2/k)."""
    found = trace_statistics(poisson(np.random.default_rng(1), 100_000, rate_rps), service_time_s=1 / rate_rps)
    assert found.interarrival_scv == pytest.approx(1.0, abs=4 * 2 / math.sqrt(100_000))
    assert abs(found.lag1_autocorrelation) < 4 / math.sqrt(100_000)
    assert len(found.windows) >= 5
    for window in found.windows:
        assert window.index_of_dispersion == pytest.approx(1.0, abs=4 * window.index_standard_error)
        if window.windows > 100:
            assert window.index_standard_error == pytest.approx(math.sqrt(2 / window.windows), rel=0.35)


def test_the_standard_error_is_the_spread_over_repetitions():
    """Over many traces the index spreads by its standard error, for rare and frequent requests."""
    rng = np.random.default_rng(2)
    for mean in (0.2, 5.0):
        runs = [trace_statistics(poisson(rng, int(400 * mean), mean)).windows[0] for _ in range(400)]
        spread = np.std([run.index_of_dispersion for run in runs])
        assert np.mean([run.index_standard_error for run in runs]) == pytest.approx(spread, rel=0.12)


@pytest.mark.parametrize("services_per_burst", [10, 100, 1000])
def test_the_scv_hides_bursts_that_the_index_shows(services_per_burst):
    """However long the bursts, the SCV stays near 1, while the index grows and the verdict is to replay."""
    times_s = bursts(np.random.default_rng(3), 200_000, services_per_burst=services_per_burst)
    found = trace_statistics(times_s, service_time_s=0.04)
    index = {round(window.window_s / 0.04): window.index_of_dispersion for window in found.windows}
    assert 1.0 < found.interarrival_scv < 1.25
    assert index[1] < index[10] < index[100]
    assert index[100] > 4 * found.interarrival_scv
    verdict = renewal_verdict(times_s, 0.04)
    assert not verdict.honest
    assert not verdict.poisson
    assert "over 100 services (4 s) is" in verdict.reason
    assert verdict.reason.endswith("requests come in bursts, so the trace itself is replayed")


def test_the_index_of_a_renewal_process_tends_to_its_scv():
    """H2 with SCV 4 has index near 4 over long windows and is refused; gamma with SCV 1/4 is on the safe side."""
    rng = np.random.default_rng(4)
    times_s = hyperexponential(rng, 200_000, 4.0)
    longest = trace_statistics(times_s).windows[-1]
    assert longest.index_of_dispersion == pytest.approx(4.0, abs=4 * longest.index_standard_error)
    assert not renewal_verdict(times_s, 0.7).honest
    even = renewal_verdict(np.cumsum(rng.gamma(4.0, 0.25, 50_000)), 0.7)
    assert even.honest
    assert not even.poisson
    assert "the safe side" in even.reason


def test_superposition_of_even_arrivals_tends_to_poisson():
    """Many independent streams together look like Poisson arrivals in short windows, though each one is even."""
    rng = np.random.default_rng(5)
    streams = [rng.uniform(0, 100) + np.cumsum(rng.gamma(4.0, 25.0, 200)) for _ in range(100)]
    merged = np.sort(np.concatenate(streams))
    merged = merged[(merged > 1000) & (merged < 15_000)]
    found = trace_statistics(merged)
    assert trace_statistics(streams[0]).interarrival_scv < 0.4
    assert found.interarrival_scv == pytest.approx(1.0, abs=0.1)
    assert found.windows[0].index_of_dispersion == pytest.approx(1.0, abs=4 * found.windows[0].index_standard_error)


def test_poisson_arrivals_are_told_as_poisson_at_any_length():
    """From a hundred requests to ten thousand, no Poisson trace is refused and hardly any goes unrecognized."""
    rng = np.random.default_rng(6)
    verdicts = [renewal_verdict(poisson(rng, n), 0.05) for n in (100, 300, 1000, 10_000) for _ in range(100)]
    assert all(verdict.honest for verdict in verdicts)
    assert sum(verdict.poisson for verdict in verdicts) >= 390


def test_a_rate_that_changes_slowly_is_not_called_bursts():
    """A daily cycle is refused where it reaches 100 services, and named where it reaches 1,000 only."""
    rng = np.random.default_rng(7)
    times_s = poisson(rng, 600_000, 80.0)
    times_s = times_s[rng.uniform(size=times_s.size) * 1.6 < 1 + 0.6 * np.sin(2 * np.pi * times_s / 3600)]
    refused = renewal_verdict(times_s, 0.012)
    assert not refused.honest
    assert "the rate changes over the trace" in refused.reason
    drift = renewal_verdict(times_s, 0.0004)
    assert not drift.honest
    assert not drift.poisson
    assert "over 1,000 services (0.4 s) it is" in drift.reason


def test_too_little_data_is_no_ground_for_a_model():
    """Few windows, or stamps whose step is longer than 100 services, lead to replay and say so."""
    times_s = poisson(np.random.default_rng(8), 2000)
    few = renewal_verdict(times_s, 3.0)
    assert (few.honest, few.poisson) == (False, False)
    assert few.reason.startswith("2,000 requests fill 6 windows of 100 services (300 s): that does not tell")
    assert renewal_verdict(times_s, 15.0).reason.startswith("2,000 requests fill 1 window of")
    assert not renewal_verdict(times_s[:99], 0.01).honest
    coarse = renewal_verdict(np.floor(times_s / 3) * 3, 0.012)
    assert not coarse.honest
    assert coarse.reason.startswith("the time stamps step by 3 s and 100 services last 1.2 s")


@pytest.mark.parametrize("service_time_s", [0.031, 0.07, 0.1, 0.144])
def test_a_grid_of_time_stamps_is_seen_and_does_not_look_like_bursts(service_time_s):
    """Poisson arrivals rounded to a grid of 3 s with jitter are still told as Poisson, at windows of whole steps."""
    rng = np.random.default_rng(9)
    steps = np.floor(poisson(rng, 12_000, 3.4) / 3)
    jitter = rng.uniform(-0.001, 0.001, int(steps[-1]) + 1)
    times_s = 3 * steps + jitter[steps.astype(int)]
    found = trace_statistics(times_s)
    assert found.quantum_s == pytest.approx(3.0, abs=0.003)
    assert found.interarrival_scv > 5
    assert renewal_verdict(times_s, service_time_s).poisson
    assert trace_statistics(poisson(rng, 12_000, 3.4)).quantum_s is None


def test_statistics_that_do_not_exist_are_not_numbers():
    """Two requests have no SCV; equal gaps have no correlation; a trace of 3 s has no windows of 1 s."""
    two = trace_statistics(np.array([0.0, 3.0]))
    assert math.isnan(two.interarrival_scv)
    assert two.windows == ()
    even = trace_statistics(np.arange(0.0, 20.0, 0.1))
    assert math.isnan(even.lag1_autocorrelation)
    assert even.quantum_s is None
    assert even.windows[0].index_of_dispersion == 0.0
    assert even.windows[0].windows == 19


@pytest.mark.parametrize("service_time_s", [0.0, -1.0, math.inf, math.nan])
def test_a_service_time_is_a_finite_number_above_zero(service_time_s):
    """Everything else is refused."""
    with pytest.raises(ValueError, match="service time is"):
        renewal_verdict(np.array([0.0, 1.0]), service_time_s)


@given(st.lists(st.integers(0, 40_000), min_size=3, max_size=300), st.integers(-(10**6), 10**6))
def test_statistics_are_blind_to_the_start_of_the_clock(gaps, shift):
    """A shift of all times changes nothing."""
    # Sixty-fourths of a second are exact in binary, so that the shift is, too.
    times_s = np.cumsum([*gaps, 64]) / 64
    before, after = trace_statistics(times_s), trace_statistics(times_s + shift)
    assert repr(after) == repr(before)


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=300), st.sampled_from([1 / 16, 0.5, 2.0, 64.0]))
def test_in_units_of_the_service_time_the_clock_has_no_speed(gaps, factor):
    """Times and service stretched together: the rate scales, all that has no unit stays, and so does the verdict."""
    times_s = np.cumsum([*gaps, 64]) / 64
    before = trace_statistics(times_s, service_time_s=0.25)
    after = trace_statistics(times_s * factor, service_time_s=0.25 * factor)
    assert after.rate_rps == pytest.approx(before.rate_rps / factor, rel=1e-12)
    assert after.interarrival_scv == pytest.approx(before.interarrival_scv, rel=1e-9, nan_ok=True)
    scaled = {window.window_s: window for window in after.windows}
    for window in before.windows:
        if window.window_s / 0.25 in (1.0, 10.0, 100.0, 1000.0):
            twin = scaled[window.window_s * factor]
            assert twin.windows == window.windows
            assert twin.index_of_dispersion == pytest.approx(window.index_of_dispersion, rel=1e-9)
    one, other = renewal_verdict(times_s, 0.25), renewal_verdict(times_s * factor, 0.25 * factor)
    assert (one.honest, one.poisson) == (other.honest, other.poisson)


@given(st.lists(st.floats(0, 50), min_size=2, max_size=200), st.floats(0.001, 3.0))
def test_windows_count_every_request_in_them_once(gaps, service_time_s):
    """Counting by runs gives what a histogram of all windows gives."""
    times_s = np.cumsum([0.0, *gaps, 1.0])
    for window in trace_statistics(times_s, service_time_s=service_time_s).windows:
        ids = np.floor(times_s / window.window_s + 1e-6).astype(int)
        counts = np.bincount(ids)[: window.windows]
        assert counts.size == window.windows == ids[-1]
        assert window.peak_to_mean == pytest.approx(counts.max() / counts.mean())
        assert window.index_of_dispersion == pytest.approx(counts.var(ddof=1) / counts.mean(), rel=1e-7, abs=1e-9)
        assert window.idle_frac == pytest.approx((counts == 0).mean(), abs=1e-12)
