"""Exact queueing models against tables, closed forms and independently computed values."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import gamma, norm

from advisor.queueing.batch import batch_queue, solve_batch_queue
from advisor.queueing.exact import (
    deterministic_queue,
    erlang_b,
    erlang_c,
    lognormal_points,
    mdc,
    mg1,
    mmc,
)
from advisor.queueing.noise import lognormal_noise, no_noise

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "queueing.json").read_text())["cases"]
ERLANG = json.loads((GOLDEN / "erlang.json").read_text())["exact"]
SIMULATED = list(csv.DictReader((GOLDEN / "queue_formula_check.csv").read_text().splitlines()))
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


def simulated(services, *, several_servers=True):
    """Rows of the table of simulated queues for services M, D or LN4, each with its load as a number."""
    return [
        pytest.param(
            {key: value if key == "svc" else float(value) for key, value in row.items()},
            id=f"{row['svc']}-c{row['c']}-{row['rho']}",
        )
        for row in SIMULATED
        if row["svc"] in services and (several_servers or row["c"] == "1")
    ]


def check_simulated(response, row):
    """Within 5 % or two standard deviations of simulated percentiles, whichever is more."""
    for name, q in (("p95", 0.95), ("p99", 0.99)):
        target, deviation = row[f"des_{name}_resp"], row[f"sd_{name}_resp"]
        assert abs(response.percentile(q) - target) <= max(0.05 * target, 2 * deviation), name


def check_simulated_wait(mean, p95, p99, row):
    """Same for the wait; the table gives no deviation for its mean and its p95."""
    assert mean == pytest.approx(row["des_mean_wait"], rel=0.05, abs=1e-4)
    assert p95 == pytest.approx(row["des_p95_wait"], rel=0.05, abs=1e-4)
    target = row["des_p99_wait"]
    assert abs(p99 - target) <= max(0.05 * target, 2 * row["sd_p99_wait"], 1e-4)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_every_golden_case_is_asked_for(case):
    """Each golden case, or all of its model, is named by a test: a new one cannot lie there unchecked."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert f'cases("{case["model"]}")' in tests or f'"{case["id"]}"' in tests


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


def test_two_servers_at_half_load():
    """Wq = ρ²/(1-ρ²) and P(W > 0) = 2ρ²/(1+ρ) for two servers."""
    case = next(case for case in CASES if case["id"] == "mm2_half")
    assert mmc(1.0, 1.0, 2).mean_s - 1 == pytest.approx(case["expected"]["wq"], rel=case["rtol"])
    assert erlang_c(1.0, 2) == pytest.approx(case["expected"]["pw"], rel=case["rtol"])


# Table printed by the spreadsheet "Multiple Server Queueing Model" of Cengage Learning for λ = 10, μ = 12
# (scribd.com/document/820718700): servers, P(wait), number waiting, number in the system, time in the system.
PRINTED = [
    (2, 0.245, 0.175, 1.008, 0.101),
    (3, 0.058, 0.022, 0.856, 0.086),
    (4, 0.011, 0.003, 0.836, 0.084),
    (5, 0.002, 0.000, 0.834, 0.083),
]


@pytest.mark.parametrize(("servers", "waits", "waiting", "inside", "time"), PRINTED)
def test_mmc_matches_a_printed_table(servers, waits, waiting, inside, time):
    """M/M/c with two to five servers, to the three decimals that a textbook's spreadsheet prints."""
    mean = mmc(10.0, 1 / 12, servers).mean_s
    assert erlang_c(10 / 12, servers) == pytest.approx(waits, abs=5.01e-4)
    assert 10 * (mean - 1 / 12) == pytest.approx(waiting, abs=5.01e-4)
    assert 10 * mean == pytest.approx(inside, abs=5.01e-4)
    assert mean == pytest.approx(time, abs=5.01e-4)


def test_mmc_matches_the_template_of_a_textbook():
    """Mean and tail of M/M/4 as printed by the template of Hillier and Lieberman, Introduction to Operations Research.

    Filled in for λ = 3.84, μ = 1.3333 at scribd.com/document/536311111.
    """
    response = mmc(3.84, 1 / 1.3333, 4)
    assert response.mean_s == pytest.approx(1.058234373, rel=1e-9)
    assert response.mean_s - 1 / 1.3333 == pytest.approx(0.308215623, rel=1e-8)
    assert response.tail(3.0) == pytest.approx(0.0451016, abs=5.01e-8)
    assert erlang_c(3.84 / 1.3333, 4) * math.exp(-(4 * 1.3333 - 3.84) * 3) == pytest.approx(0.005218, abs=5.01e-7)


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


@pytest.mark.parametrize("case", cases("M/G/1 sojourn, mean-1 service"))
def test_mg1_matches_pollaczek_khinchine(case):
    """M/G/1 percentiles equal a Wiener-Hopf solution, for lognormal and gamma service up to an SCV of 4."""
    points, weights = service_law(case["params"])
    check(mg1(case["params"]["lam"], points, weights, cells=2**19), case)


@pytest.mark.parametrize("row", simulated({"M", "D"}))
def test_exact_models_match_simulated_queues(row):
    """M/M/c and M/D/c against another simulator: response and wait, one to 64 servers."""
    servers = int(row["c"])
    rate = row["c"] * row["rho"]
    if row["svc"] == "D":
        response = mdc(rate, 1.0, servers)
        p95, p99 = response.percentile(0.95) - 1, response.percentile(0.99) - 1
    else:
        response = mmc(rate, 1.0, servers)
        waits = erlang_c(rate, servers)
        p95, p99 = (max(0.0, math.log(waits / above) / (servers - rate)) for above in (0.05, 0.01))
    check_simulated(response, row)
    check_simulated_wait(response.mean_s - 1, p95, p99, row)


@pytest.mark.parametrize("row", simulated({"LN4"}, several_servers=False))
def test_mg1_matches_simulated_queues(row):
    """M/G/1 with lognormal service of SCV 4 against another simulator."""
    response = mg1(row["rho"], *lognormal_points(1.0, row["cv2"]))
    check_simulated(response, row)
    assert response.mean_s - 1 == pytest.approx(row["des_mean_wait"], rel=0.05)


@pytest.mark.parametrize("scv", [0.01, 0.5, 4.0, 25.0])
def test_lognormal_points_keep_mean_and_scv(scv):
    """The points of a lognormal service time have its mean exactly and its SCV to 0.1 %."""
    times, weights = lognormal_points(3.0, scv)
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert weights @ times == pytest.approx(3.0, rel=1e-12)
    assert weights @ times**2 / 9 - 1 == pytest.approx(scv, rel=1e-3)


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
