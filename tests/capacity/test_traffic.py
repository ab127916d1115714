"""Traffic: which arrival process is honest for a scenario, and which model answers for a pool."""

import numpy as np
import pytest

from advisor.capacity.curve import service_curves
from advisor.capacity.method import choose, response_time, streams_of
from advisor.capacity.pool import Question, cap_capacity
from advisor.capacity.traffic import Traffic, burst_peak_frac, resolve_traffic
from advisor.domain.trace import Trace
from advisor.domain.workload import BurstArrivals
from advisor.errors import InputError
from advisor.queueing.gaps import renewal_law
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import Stream, simulate
from tests.conftest import gpu_profile, question

TIMES_S = (0.01, 0.05)
RATE_RPS = 20.0


def resolve(arrivals, trace=None, times=TIMES_S, demand_rps=None):
    """Traffic of a question with these arrivals."""
    return resolve_traffic(question(arrivals=arrivals), trace, times, demand_rps=demand_rps or RATE_RPS)


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


SHAPES = {
    "poisson": {},
    "renewal": {"shape": "renewal", "law": renewal_law(4.0)},
    "even": {"shape": "renewal", "law": renewal_law(0.3)},
    "bursts": {"shape": "bursts", "bursts": (5.0, 0.2, 0.1)},
    "periodic": {"shape": "periodic", "pattern": (1.0, 0.5, 0.1, 0.4), "slot_s": 0.5},
}


@pytest.mark.parametrize("routing", ["random", "round_robin"])
@pytest.mark.parametrize("shape", SHAPES)
def test_one_replica_stands_for_all(routing, shape):
    """A random split, and taking turns, give one replica the same response times as the whole pool."""
    traffic = Traffic(routing, **SHAPES[shape])
    alone = streams_of(curve(1.3), 4, 700.0, servers=6, traffic=traffic)
    whole = (Stream(traffic.process(700.0), (Pool(6, curve(1.3).service_law(4), routing),)),)
    assert (alone[0].pools[0].servers, traffic.separable) == (1, True)
    assert alone[0].arrivals.rate_rps == pytest.approx(whole[0].arrivals.rate_rps / 6)
    found = [
        simulate(streams, seed=seed, requests=1_000_000, most_requests=1, enough=lambda _: True)
        for seed, streams in enumerate((alone, whole))
    ]
    for q in (0.5, 0.99):
        one, all_of_them = (result.percentile(q) for result in found)
        assert abs(one.value_s - all_of_them.value_s) < 1.5 * (one.ci95_s + all_of_them.ci95_s)
    assert found[0].mean_batch == pytest.approx(found[1].mean_batch, rel=0.02)


@pytest.mark.parametrize("routing", ["least_outstanding", "central_queue"])
def test_replicas_that_know_of_each_other_are_simulated_together(routing):
    """Where the queues decide, the whole pool is simulated; a recording is always split as a whole."""
    together = streams_of(curve(), 4, 800.0, servers=8, traffic=Traffic(routing))
    assert (together[0].arrivals.rate_rps, together[0].pools[0].servers) == (800.0, 8)
    replay = Traffic(shape="replay", recorded=recorded(np.arange(200.0)))
    assert streams_of(curve(), 4, 800.0, servers=8, traffic=replay)[0].pools[0].servers == 8


def test_a_trace_is_judged_at_the_speed_at_which_it_is_replayed():
    """Slow bursts are seen once the recording is sped up so that a burst lasts only some services."""
    rng = np.random.default_rng(2)
    counts = [2500, 500] * 10
    slow = recorded(np.concatenate([500 * k + rng.uniform(0, 500, count) for k, count in enumerate(counts)]))
    asked = {"kind": "trace", "file": "log.csv"}
    assert resolve(asked, slow, (1e-4, 1e-4), slow.rate_rps).shape != "replay"
    assert resolve(asked, slow, (1e-4, 1e-4), 1e5 * slow.rate_rps).shape == "replay"


def test_even_time_stamps_on_a_grid_are_not_taken_for_uneven_gaps():
    """Even requests whose stamps are rounded to seconds are planned for as Poisson arrivals, the safe side."""
    grid = recorded(np.floor(np.arange(20_000) / 10.0))
    assert resolve({"kind": "trace", "file": "log.csv"}, grid, (0.05, 0.1), grid.rate_rps).shape == "poisson"


def test_one_long_pause_is_replayed():
    """Gaps more uneven than any model's are replayed."""
    rng = np.random.default_rng(4)
    times = np.cumsum(rng.exponential(1.0, 20_000))
    times[10_000:] += 100_000
    found = resolve({"kind": "trace", "file": "log.csv"}, recorded(times), (1e-3, 1e-3), 1.0)
    assert found.shape == "replay"


def test_bursts_that_last_are_planned_for_at_their_rate():
    """Bursts of hours are too few in any simulation: the fleet is sized for the rate in one."""
    long = BurstArrivals(kind="bursts", ratio=50.0, burst_frac=0.005, burst_s=50_000.0)
    assert burst_peak_frac(long, 200.0) == pytest.approx(50 / (1 - 0.005 + 0.005 * 50))
    assert burst_peak_frac(long.model_copy(update={"burst_s": 1.0}), 200.0) == 1.0
    found = resolve_traffic(
        question(rate=200.0, arrivals=long.model_dump(), p99_ms=100.0), None, TIMES_S, demand_rps=8000.0
    )
    assert (found.shape, "as if it never ended" in found.reason) == ("poisson", True)


def test_the_rate_of_periodic_arrivals_is_a_peak_and_their_load_a_mean():
    """Servers of a fast swing are busy for its mean rate, so its peak may exceed what they could sustain."""
    traffic = Traffic(**SHAPES["periodic"])
    assert traffic.mean_frac == pytest.approx(0.5)
    found = cap_capacity(curve(), 4, 1, Question(((0.99, 5.0),), traffic))
    assert found.rate_rps > 1.5 * 4 / 0.016
