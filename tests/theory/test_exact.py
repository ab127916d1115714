"""Exact queueing models against tables, closed forms and independently computed values."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import gamma, norm

from advisor.queueing.batch import batch_queue, lognormal_noise, no_noise, solve_batch_queue
from advisor.queueing.exact import deterministic_queue, erlang_b, erlang_c, mdc, mg1, mmc

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "queueing.json").read_text())["cases"]
ERLANG = json.loads((GOLDEN / "erlang.json").read_text())["exact"]
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def cases(model):
    """Golden cases of one model, named by their id."""
    found = [case for case in CASES if case["model"] == model]
    assert found
    return [pytest.param(case, id=case["id"]) for case in found]


def check(response, case):
    """Compare the mean and the percentiles that the case states."""
    for name, q in QUANTILES.items():
        if name in case["expected"]:
            found = response.percentile(q, rtol=case["rtol"] / 10)
            assert found == pytest.approx(case["expected"][name], rel=case["rtol"]), name
    assert response.mean_s == pytest.approx(case["expected"]["mean"], rel=case["rtol"])


@pytest.mark.parametrize("case", cases("M/M/c P(wait)"))
def test_erlang_c_matches_forty_digit_sums(case):
    """The waiting probability of M/M/c equals its defining sum."""
    load, servers = case["params"]["a"], case["params"]["c"]
    assert erlang_c(load, servers) == pytest.approx(case["expected"]["pw"], rel=case["rtol"])
    wait = mmc(load, 1.0, servers).mean_s - 1.0
    assert wait == pytest.approx(case["expected"]["wq"], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("case", cases("M/M/c/c blocking"))
def test_erlang_b_matches_published_constants(case):
    """Blocking of the loss system equals published values."""
    assert erlang_b(case["params"]["a"], case["params"]["c"]) == pytest.approx(case["expected"]["pb"], rel=case["rtol"])


@pytest.mark.parametrize("case", [case for case in ERLANG if case["fn"] == "erlang_c"])
def test_erlang_c_matches_a_second_table(case):
    """A second, independent set of Erlang C values."""
    assert erlang_c(case["a"], case["c"]) == pytest.approx(case["out"], rel=1e-9)


@pytest.mark.parametrize("case", [case for case in ERLANG if case["fn"] == "p99_wait" and case["cv2"] == 1])
def test_p99_wait_of_mmc_is_its_exponential_tail(case):
    """P(W > t) = C e^{-(cμ-λ)t} gives the 99th percentile of the wait."""
    load = case["lam"] / case["mu"]
    rate = case["c"] * case["mu"] - case["lam"]
    wait = math.log(erlang_c(load, case["c"]) / 0.01) / rate
    assert wait == pytest.approx(case["out"], rel=1e-9)


def test_ophthalmology_clinic():
    """M/M/3 of Gross and Harris: six arrivals an hour, twenty minutes each."""
    case = next(case for case in CASES if case["id"] == "clinic_GH")
    response = mmc(6 / 3600, 1200, 3)
    assert response.mean_s / 3600 == pytest.approx(case["expected"]["W_h"], rel=1e-12)
    assert erlang_c(2.0, 3) == pytest.approx(case["expected"]["pw"], rel=1e-12)


@pytest.mark.parametrize("case", cases("M/M/c sojourn"))
def test_mmc_percentiles(case):
    """Response-time percentiles of M/M/c equal numerical convolution of wait and service."""
    params = case["params"]
    check(mmc(params["lam"], 1 / params["mu"], params["c"]), case)


@pytest.mark.parametrize("case", cases("M/D/c D=1 sojourn"))
def test_mdc_matches_crommelin(case):
    """M/D/c equals Crommelin's roots and Franx's formula, up to 200 servers."""
    params = case["params"]
    check(mdc(params["lam"], 1.0, params["c"]), case)
    queue = deterministic_queue(params["lam"], 1.0, params["c"])
    assert queue.wait_tail(0.0) == pytest.approx(case["expected"]["pw"], rel=1e-6, abs=1e-12)
    assert queue.mean_wait_s == pytest.approx(case["expected"]["wq"], rel=1e-5, abs=1e-12)


def service_law(params):
    """Points and weights of a service distribution with mean 1: means of fine intervals, so that moments are kept."""
    if params["family"] == "ln":
        sigma = math.sqrt(math.log1p(params["scv"]))
        edges = np.linspace(-6, 6 + sigma, 20_001)
        weights, means = np.diff(norm.cdf(edges)), np.diff(norm.cdf(edges - sigma))
    else:
        shape = 1 / params["scv"]
        edges = gamma.ppf(np.linspace(0, 1, 20_001), shape, scale=1 / shape)
        weights = np.diff(gamma.cdf(edges, shape, scale=1 / shape))
        means = np.diff(gamma.cdf(edges, shape + 1, scale=1 / shape))
    return means / weights, weights


@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in CASES if c["model"].startswith("M/G/1")])
def test_mg1_matches_pollaczek_khinchine(case):
    """M/G/1 percentiles equal a Wiener-Hopf solution, for lognormal and gamma service up to an SCV of 4."""
    points, weights = service_law(case["params"])
    check(mg1(case["params"]["lam"], points, weights, cells=2**19), case)


def test_mg1_with_constant_service_is_md1():
    """A one-point service distribution gives M/D/1."""
    general = mg1(0.7, np.array([1.0]), np.array([1.0]))
    constant = mdc(0.7, 1.0, 1)
    assert general.mean_s == pytest.approx(constant.mean_s, rel=1e-12)
    assert general.percentile(0.99) == pytest.approx(constant.percentile(0.99), rel=1e-3)


@pytest.mark.parametrize("case", cases("M/D(b)^[1,B]/1 work conserving"))
def test_batch_queue_matches_two_independent_derivations(case):
    """The batch queue equals an embedded-chain and a forward solution, mean and percentiles to p99.9."""
    params = case["params"]
    size = params["B"]
    times = params["a"] + params["k"] * np.arange(1, size + 1)
    check(batch_queue(params["lam"], times, (no_noise(),) * size, cells=700), case)
    queue = solve_batch_queue(params["lam"], times, (no_noise(),) * size)
    assert queue is not None
    assert queue.mean_batch == pytest.approx(case["expected"]["mean_batch"], rel=1e-9)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.9])
def test_batch_of_one_is_md1(rho):
    """With a batch cap of one and constant service the batch queue is M/D/1."""
    batch, single = batch_queue(rho, np.ones(1), (no_noise(),), cells=1500), mdc(rho, 1.0, 1)
    assert batch.mean_s == pytest.approx(single.mean_s, rel=1e-9)
    assert batch.percentile(0.99) == pytest.approx(single.percentile(0.99), rel=1e-3)


@pytest.mark.parametrize("scv", [0.05, 0.3, 1.0])
def test_batch_of_one_with_variable_service_is_mg1(scv):
    """With a batch cap of one the batch queue is M/G/1, whatever the service distribution."""
    law = lognormal_noise(scv)
    batch = batch_queue(0.6, np.ones(1), (law,), cells=800)
    general = mg1(0.6, law.points, law.weights)
    assert batch.mean_s == pytest.approx(general.mean_s, rel=4e-3)
    assert batch.percentile(0.99) == pytest.approx(general.percentile(0.99), rel=5e-3)


@pytest.mark.parametrize(
    "model", [lambda: mmc(3.0, 1.0, 3), lambda: mdc(3.5, 1.0, 3), lambda: mg1(1.0, np.ones(1), np.ones(1))]
)
def test_overload_is_an_answer(model):
    """At ρ ≥ 1 the response time is infinite and the reason is given; no number is made up."""
    response = model()
    assert math.isinf(response.mean_s)
    assert math.isinf(response.percentile(0.5))
    assert "grows without bound" in response.reason


def test_overloaded_batch_queue_has_no_stationary_law():
    """λ ≥ B/τ_B leaves no stationary queue."""
    assert solve_batch_queue(2.0, np.ones(2), (no_noise(),) * 2) is None
    assert math.isinf(batch_queue(2.0, np.ones(2), (no_noise(),) * 2).mean_s)
