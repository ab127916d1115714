"""Renewal arrivals against published values, closed forms and each other."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.queueing.exact import deterministic_queue, lognormal_points, mdc, mg1
from advisor.queueing.gaps import HIGHEST_SCV, LOWEST_SCV, renewal_law
from advisor.queueing.renewal import cyclic_wait, gidc, gig1, heavy_traffic_wait_s, single_server_wait
from tests.theory.test_exact import CASES, cases, check, check_simulated_wait, simulated

CONSTANT = np.ones(1)
SCVS = st.floats(LOWEST_SCV, HIGHEST_SCV)
LOADS = st.floats(0.05, 0.95)


def quantile(tail, q, high):
    """Percentile of a wait by bisection."""
    low = 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > 1 - q else (low, middle)
    return high


@given(SCVS)
def test_law_has_mean_one_and_its_scv(scv):
    """For any SCV the law has mean 1 and that SCV, and its weights are probabilities."""
    law = renewal_law(scv)
    assert law.weights.min() >= 0
    assert law.weights.sum() == pytest.approx(1.0)
    assert law.weights @ (law.stages / law.rates) == pytest.approx(1.0)
    assert law.scv == pytest.approx(scv, rel=1e-6)


@pytest.mark.parametrize("scv", [0.0, LOWEST_SCV / 2, 2 * HIGHEST_SCV, math.nan])
def test_law_refuses_other_scvs(scv):
    """An SCV out of range is refused, not clipped."""
    with pytest.raises(ValueError, match="allowed"):
        renewal_law(scv)


@given(SCVS, st.floats(1e-3, 1.0))
def test_lattice_keeps_the_mean(scv, step):
    """Put on a lattice that is long enough, the law keeps mass and mean, and its SCV grows by at most h²."""
    pmf = renewal_law(scv).lattice(1.0, step, int(40 * max(1.0, scv) / step) + 2)
    points = step * np.arange(pmf.size)
    assert pmf.sum() == pytest.approx(1.0, abs=1e-9)
    assert pmf @ points == pytest.approx(1.0, rel=1e-6)
    assert -1e-6 * scv <= pmf @ points**2 - 1 - scv <= step**2


@pytest.mark.parametrize("case", cases("H2/D/c D=1"))
def test_gidc_matches_independent_lattice(case):
    """Bursty arrivals and constant service: mean, p95 and p99 up to 64 servers."""
    params = case["params"]
    response = gidc(params["lam"], renewal_law(params["ca2"]), 1.0, params["c"])
    check(response, case)
    assert response.mean_s - 1 == pytest.approx(case["expected"]["wq"], rel=case["rtol"])


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.3), (4, 0.95), (16, 0.9), (64, 0.98), (200, 0.9), (200, 0.3)])
def test_gidc_with_poisson_arrivals_is_mdc(servers, rho):
    """Exponential intervals give M/D/c: response, mean wait and waiting probability."""
    general, constant = gidc(servers * rho, renewal_law(1.0), 1.0, servers), mdc(servers * rho, 1.0, servers)
    queue = deterministic_queue(servers * rho, 1.0, servers)
    wait = cyclic_wait(servers * rho, renewal_law(1.0), 1.0, servers)
    assert general.mean_s == pytest.approx(constant.mean_s, rel=2e-4)
    assert general.percentile(0.99) == pytest.approx(constant.percentile(0.99), rel=2e-4)
    assert wait.mean_s == pytest.approx(queue.mean_wait_s, rel=2e-3, abs=1e-12)
    assert wait.wait_probability == pytest.approx(queue.wait_tail(0.0), rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("scv", [0.02, 0.3, 0.9, 4.0, 25.0])
@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_gidc_with_one_server_is_gig1(scv, rho):
    """Two factorizations, tilted and not, agree for one server with constant service."""
    tilted, plain = gidc(rho, renewal_law(scv), 1.0, 1), gig1(rho, renewal_law(scv), CONSTANT, CONSTANT)
    assert plain.mean_s == pytest.approx(tilted.mean_s, rel=1e-3)
    assert plain.percentile(0.99) == pytest.approx(tilted.percentile(0.99), rel=3e-3)


@given(LOADS, st.floats(0.05, 4.0))
def test_gig1_with_poisson_arrivals_is_mg1(rho, scv):
    """Exponential intervals give M/G/1, mean and percentiles."""
    times, weights = lognormal_points(1.0, scv)
    general, exact = gig1(rho, renewal_law(1.0), times, weights), mg1(rho, times, weights)
    assert general.mean_s == pytest.approx(exact.mean_s, rel=1e-3)
    for q in (0.5, 0.95, 0.99):
        assert general.percentile(q, rtol=1e-6) == pytest.approx(exact.percentile(q, rtol=1e-6), rel=0.01)


@pytest.mark.parametrize("ca2", [0.25, 4.0])
@pytest.mark.parametrize("rho", [0.3, 0.8, 0.95])
def test_thinned_single_server_sees_the_thinned_law(ca2, rho):
    """Of a renewal stream with SCV c², each request kept with probability p, the intervals have SCV 1 + p(c² - 1).

    In heavy traffic the wait depends on no more than that; with p near 0 the stream is Poisson.
    """
    kept = gig1(rho, renewal_law(ca2), CONSTANT, CONSTANT, keep_frac=0.5)
    if rho == 0.95:
        like = gig1(rho, renewal_law(1 + 0.5 * (ca2 - 1)), CONSTANT, CONSTANT)
        assert kept.mean_s == pytest.approx(like.mean_s, rel=0.02)
    rare = gig1(rho, renewal_law(ca2), CONSTANT, CONSTANT, keep_frac=1e-3)
    assert rare.mean_s == pytest.approx(mdc(rho, 1.0, 1).mean_s, rel=5e-3)


@pytest.mark.parametrize("keep_frac", [0.5, 0.1])
def test_thinned_hyperexponential_is_hyperexponential(keep_frac):
    """A thinned H₂ process is H₂ again, with the poles of p â/(1 - (1-p) â), and waits as if it came with them."""
    law = renewal_law(4.0)
    p = law.weights[0]
    # Intervals before thinning have the mean keep_frac.
    fast, slow = law.rates / keep_frac
    poles = -np.roots([1.0, fast + slow - (1 - keep_frac) * (p * fast + (1 - p) * slow), keep_frac * fast * slow])
    share = keep_frac * (p * fast + (1 - p) * slow)
    weight = (share - poles[1]) / (poles[0] - poles[1])
    thinned = type(law)(np.array([weight, 1 - weight]), law.stages, poles)
    assert thinned.weights @ (1 / thinned.rates) == pytest.approx(1.0)
    kept = gig1(0.8, law, CONSTANT, CONSTANT, keep_frac=keep_frac)
    direct = gig1(0.8, thinned, CONSTANT, CONSTANT)
    assert kept.mean_s == pytest.approx(direct.mean_s, rel=1e-3)
    assert kept.percentile(0.99) == pytest.approx(direct.percentile(0.99), rel=2e-3)


@pytest.mark.parametrize("keep_frac", [0.0, 1.5])
def test_share_of_a_stream_is_a_probability(keep_frac):
    """A share outside (0, 1] is refused."""
    with pytest.raises(ValueError, match="share"):
        gig1(0.5, renewal_law(1.0), CONSTANT, CONSTANT, keep_frac=keep_frac)


@pytest.mark.parametrize("row", simulated({"LN4"}, several_servers=False))
def test_wait_of_one_server_matches_simulated_queues(row):
    """Mean, p95 and p99 of the wait with lognormal service of SCV 4 against another simulator."""
    times, weights = lognormal_points(1.0, row["cv2"])
    wait = single_server_wait(row["rho"], renewal_law(1.0), times, weights)
    check_simulated_wait(wait.mean_s, quantile(wait.tail, 0.95, 500.0), quantile(wait.tail, 0.99, 500.0), row)


@pytest.mark.parametrize("case", cases("GI/G/1 upper bound"))
def test_heavy_traffic_wait_matches_its_closed_form(case):
    """ρ/(1-ρ) (c_a² + c_s²)/2 services."""
    params = case["params"]
    found = heavy_traffic_wait_s(params["rho"], 1.0, params["ca2"] + params["cs2"])
    assert found == pytest.approx(case["expected"]["vut"], rel=case["rtol"])


@given(LOADS, st.floats(0.1, 8.0), st.floats(1e-3, 1e3))
def test_scaling_time_scales_everything(rho, scv, unit):
    """In other units of time the response time is the same."""
    law = renewal_law(scv)
    for one, other in (
        (gidc(2 * rho, law, 1.0, 2), gidc(2 * rho / unit, law, unit, 2)),
        (gig1(rho, law, CONSTANT, CONSTANT), gig1(rho / unit, law, unit * CONSTANT, CONSTANT)),
    ):
        assert other.mean_s == pytest.approx(unit * one.mean_s, rel=1e-6)
        assert other.percentile(0.95) == pytest.approx(unit * one.percentile(0.95), rel=1e-6)


@given(LOADS, st.floats(0.1, 8.0))
def test_tail_falls_and_more_bursts_wait_longer(rho, scv):
    """P(T > t) falls in t from 1 to 0, and a larger SCV of the intervals does not shorten the mean."""
    response = gidc(4 * rho, renewal_law(scv), 1.0, 4)
    tail = [response.tail(t) for t in np.linspace(-1, 10 * response.mean_s, 50)]
    assert tail[0] == 1.0
    assert all(0 <= after <= before for before, after in itertools.pairwise(tail))
    assert gidc(4 * rho, renewal_law(scv + 0.5), 1.0, 4).mean_s >= response.mean_s - 1e-6


@pytest.mark.parametrize("model", [gidc, lambda rate, law, _time, _servers: gig1(rate, law, CONSTANT, CONSTANT)])
def test_overload_is_an_answer(model):
    """At ρ ≥ 1 the response time is infinite with a reason."""
    response = model(2.0, renewal_law(4.0), 1.0, 2)
    assert math.isinf(response.mean_s)
    assert "grows without bound" in response.reason


def test_golden_constants_are_for_balanced_means():
    """The golden H₂ cases use the law of this module: p = (1 + √((c²-1)/(c²+1)))/2 and rates 2p, 2(1-p)."""
    law = renewal_law(next(case for case in CASES if case["id"] == "h2dc_ca4_c4_rho0.8")["params"]["ca2"])
    assert law.weights[0] == pytest.approx((1 + math.sqrt(3 / 5)) / 2)
    assert law.rates == pytest.approx(2 * law.weights)
