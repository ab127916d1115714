"""Traffic: which arrival process is honest for a scenario, and which model answers for a pool."""

import numpy as np
import pytest

from advisor.capacity.curve import service_curves
from advisor.capacity.method import choose, response_time, streams_of
from advisor.capacity.traffic import Traffic, resolve_traffic
from advisor.domain.trace import Trace
from advisor.errors import InputError
from advisor.queueing.renewal import renewal_law
from tests.conftest import gpu_profile, question

TIMES_S = (0.01, 0.05)


def resolve(arrivals, trace=None, times=TIMES_S):
    """Traffic of a question with these arrivals."""
    return resolve_traffic(question(arrivals=arrivals), trace, times)


def curve(p99_over_mean=None):
    """Curve of a GPU profile with batches up to four."""
    return service_curves(gpu_profile({1: 0.010, 4: 0.016}, p99_over_mean=p99_over_mean))[0]


@pytest.mark.parametrize(
    ("arrivals", "shape"),
    [
        ({"kind": "poisson"}, "poisson"),
        ({"kind": "renewal", "scv": 1.0}, "poisson"),
        ({"kind": "renewal", "scv": 4.0}, "renewal"),
        ({"kind": "bursts", "ratio": 4.0, "burst_frac": 0.2, "burst_s": 1.0}, "bursts"),
        ({"kind": "sinusoid", "amplitude_frac": 0.5, "period_s": 86400.0}, "poisson"),
        ({"kind": "sinusoid", "amplitude_frac": 0.5, "period_s": 60.0}, "periodic"),
        ({"kind": "hourly_week", "weights": [1.0] * 100 + [5.0] * 68}, "poisson"),
    ],
)
def test_arrivals_become_the_simplest_process_that_is_honest(arrivals, shape):
    """Slow swings are sized at their peak, fast ones and bursts are not smoothed away."""
    found = resolve(arrivals)
    assert found.shape == shape
    assert found.reason.endswith(".")


@pytest.mark.parametrize(
    "arrivals",
    [
        {"kind": "poisson"},
        {"kind": "renewal", "scv": 0.3},
        {"kind": "renewal", "scv": 6.0},
        {"kind": "bursts", "ratio": 5.0, "burst_frac": 0.1, "burst_s": 0.5},
    ],
)
def test_the_process_has_the_rate_asked_for(arrivals):
    """Whatever the shape, as many requests come on average."""
    process = resolve(arrivals).process(40.0)
    assert process.rate_rps == pytest.approx(40.0)
    counts = [process.times(20_000, np.random.default_rng(seed))[0] for seed in range(8)]
    rates = [(times.size - 1) / (times[-1] - times[0]) for times in counts]
    assert np.mean(rates) == pytest.approx(40.0, abs=4 * np.std(rates, ddof=1) / np.sqrt(8))


def test_the_rate_of_a_swing_is_its_highest():
    """A pattern is given by its peak: its mean is lower."""
    process = resolve({"kind": "sinusoid", "amplitude_frac": 0.6, "period_s": 60.0}).process(80.0)
    assert process.rate_rps == pytest.approx(50.0, rel=1e-3)
    assert max(process.rates_rps) == pytest.approx(80.0, rel=1e-3)


def recorded(times, name="log.csv"):
    """Trace of time stamps."""
    times = np.sort(times)
    return Trace(name, times - times[0], "0" * 64)


def test_an_even_trace_is_modeled_and_a_bursty_one_replayed():
    """A trace that cannot be told from Poisson arrivals gets the exact model; one with bursts is replayed."""
    rng = np.random.default_rng(5)
    even = recorded(rng.uniform(0, 2000, 20_000))
    bursty = recorded(np.concatenate([rng.uniform(start, start + 2, 400) for start in range(0, 2000, 40)]))
    asked = {"kind": "trace", "file": "log.csv"}
    assert resolve(asked, even).shape == "poisson"
    found = resolve(asked, bursty)
    assert found.shape == "replay"
    assert "index of dispersion" in found.reason
    replayed = found.process(2 * bursty.rate_rps)
    assert replayed.times(1, rng)[0] == pytest.approx(bursty.times_s / 2)


def test_a_trace_that_was_not_given_is_named():
    """The name of the missing trace is in the sentence."""
    with pytest.raises(InputError, match=r"log\.csv"):
        resolve({"kind": "trace", "file": "log.csv"})


def test_different_traffic_has_different_keys():
    """Capacities of one traffic are never taken for those of another."""
    trace = recorded(np.arange(200.0))
    kinds = [
        Traffic(),
        Traffic("round_robin"),
        Traffic(delay_s=0.01),
        Traffic(shape="renewal", law=renewal_law(2.0)),
        Traffic(shape="renewal", law=renewal_law(3.0)),
        Traffic(shape="bursts", bursts=(4.0, 0.2, 5.0)),
        Traffic(shape="bursts", bursts=(4.0, 0.2, 6.0)),
        Traffic(shape="replay", recorded=trace),
    ]
    assert len({traffic.key for traffic in kinds}) == len(kinds)


RENEWAL = {"shape": "renewal", "law": renewal_law(2.0)}


@pytest.mark.parametrize(
    ("traffic", "max_batch", "servers", "spread", "model", "exactness"),
    [
        (Traffic(), 4, 8, 1.2, "batch queue", "exact"),
        (Traffic("central_queue"), 4, 1, 1.2, "batch queue", "exact"),
        (Traffic("central_queue"), 1, 8, None, "M/D/c", "exact"),
        (Traffic("central_queue"), 1, 8, 1.2, "M/G/c hybrid", "approximation"),
        (Traffic("central_queue"), 4, 8, 1.2, "simulation", "simulated"),
        (Traffic("least_outstanding"), 1, 8, None, "simulation", "simulated"),
        (Traffic("round_robin"), 4, 8, None, "simulation", "simulated"),
        (Traffic(delay_s=0.01), 4, 1, None, "simulation", "simulated"),
        (Traffic(delay_s=0.01), 1, 1, None, "batch queue", "exact"),
        (Traffic(**RENEWAL), 1, 8, 1.2, "GI/G/1", "exact"),
        (Traffic(**RENEWAL), 4, 8, 1.2, "simulation", "simulated"),
        (Traffic("central_queue", **RENEWAL), 1, 8, None, "GI/D/c", "exact"),
        (Traffic("central_queue", **RENEWAL), 1, 8, 1.2, "GI/G/c hybrid", "approximation"),
        (Traffic(shape="bursts", bursts=(4.0, 0.2, 5.0)), 1, 1, None, "simulation", "simulated"),
    ],
)
def test_the_model_follows_from_profile_routing_and_arrivals(traffic, max_batch, servers, spread, model, exactness):
    """Exact where theory allows, a stated error where it does not, simulation where neither is safe."""
    found = choose(curve(spread), max_batch, servers, traffic)
    assert (found.model, found.exactness) == (model, exactness)
    assert found.label.startswith(exactness if exactness != "simulated" else "simulated, 95 % CI")
    if exactness == "simulated":
        with pytest.raises(ValueError, match="no analytic model"):
            response_time(curve(spread), max_batch, 10.0, servers=servers, traffic=traffic)
    else:
        response = response_time(curve(spread), max_batch, 0.5 * servers / 0.01, servers=servers, traffic=traffic)
        assert 0.01 <= response.mean_s < 0.1


def test_service_more_variable_than_exponential_is_simulated():
    """Where the approximation errs by more than a simulation, the simulation is taken."""
    found = choose(curve(6.0), 1, 8, Traffic("central_queue"))
    assert curve(6.0).noise[0].scv > 1
    assert found.exactness == "simulated"


def test_of_independent_replicas_one_is_simulated():
    """Behind a random router with Poisson arrivals one replica stands for all; else the whole pool is simulated."""
    alone = streams_of(curve(), 4, 800.0, servers=8, traffic=Traffic())
    together = streams_of(curve(), 4, 800.0, servers=8, traffic=Traffic("round_robin"))
    assert (alone[0].arrivals.rate_rps, alone[0].pools[0].servers) == (100.0, 1)
    assert (together[0].arrivals.rate_rps, together[0].pools[0].servers) == (800.0, 8)
