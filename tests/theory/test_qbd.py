"""Quasi-birth-death models against published values, roots of Takács's equation and limiting cases."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from advisor.queueing.exact import erlang_c, mmc
from advisor.queueing.gaps import LOWEST_SCV, renewal_law
from advisor.queueing.qbd import (
    first_passage,
    gimc,
    mmppmc,
    modulated_arrivals,
    phase_wait,
    renewal_arrivals,
)
from tests.theory.test_exact import cases

SCVS = st.floats(LOWEST_SCV, 20.0)
LOADS = st.floats(0.05, 0.98)


@pytest.mark.parametrize("case", cases("H2(balanced means)/M/c"))
def test_gimc_matches_independent_values(case):
    """Waiting probability and mean wait with bursty arrivals, up to 64 servers."""
    params = case["params"]
    wait = phase_wait(renewal_arrivals(params["lam"], renewal_law(params["ca2"])), 1 / params["mu"], params["c"])
    assert wait.wait_probability == pytest.approx(case["expected"]["pw"], rel=case["rtol"])
    assert wait.mean_s == pytest.approx(case["expected"]["wq"], rel=case["rtol"])


@pytest.mark.parametrize("case", cases("MMPP2/M/c"))
def test_mmppmc_matches_independent_values(case):
    """Waiting probability and mean wait of arrivals whose rate switches."""
    params = case["params"]
    rates, leaving = (params["l1"], params["l2"]), (params["r1"], params["r2"])
    wait = phase_wait(modulated_arrivals(rates, leaving), 1 / params["mu"], params["c"])
    assert wait.wait_probability == pytest.approx(case["expected"]["pw"], rel=case["rtol"])
    assert wait.mean_s == pytest.approx(case["expected"]["wq"], rel=case["rtol"])
    assert mmppmc(rates, leaving, 1 / params["mu"], params["c"]).mean_s == pytest.approx(wait.mean_s + 1)


@given(SCVS, LOADS, st.integers(1, 100))
def test_gimc_decays_by_the_root_of_takacs(scv, rho, servers):
    """W given W > 0 is exponential with rate cμ(1-σ), σ the root of σ = E e^{-cμ(1-σ)A}."""
    law = renewal_law(scv)
    wait = phase_wait(renewal_arrivals(servers * rho, law), 1.0, servers)
    sigma = brentq(lambda s: math.exp(law.log_transform((1 - s) / rho)) - s, 0.0, 1 - 1e-4 * (1 - rho), xtol=1e-14)
    assert wait.decay_per_s == pytest.approx([servers * (1 - sigma)], rel=1e-6)
    assert 0 <= wait.wait_probability <= 1


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.3), (4, 0.75), (16, 0.95), (200, 0.9), (200, 0.05)])
def test_scv_one_is_mmc(servers, rho):
    """Exponential intervals give M/M/c; so does an MMPP with equal rates."""
    exact = mmc(servers * rho, 1.0, servers)
    for response in (
        gimc(servers * rho, renewal_law(1.0), 1.0, servers),
        mmppmc((servers * rho, servers * rho), (0.1, 0.4), 1.0, servers),
    ):
        assert response.mean_s == pytest.approx(exact.mean_s, rel=1e-9)
        assert response.percentile(0.99) == pytest.approx(exact.percentile(0.99), rel=1e-8)
    wait = phase_wait(renewal_arrivals(servers * rho, renewal_law(1.0)), 1.0, servers)
    assert wait.wait_probability == pytest.approx(erlang_c(servers * rho, servers), rel=1e-9, abs=1e-300)


def test_slow_switching_is_a_mixture_of_two_stationary_queues():
    """When the rate switches once in a million services, arrivals see M/M/c at the rate of their state."""
    rates = (1.0, 3.0)
    slow = mmppmc(rates, (1e-6, 1e-6), 1.0, 4)
    mixed = sum(rate * mmc(rate, 1.0, 4).tail(3.0) for rate in rates) / sum(rates)
    assert slow.tail(3.0) == pytest.approx(mixed, rel=1e-3)


def test_fast_switching_is_poisson():
    """When the rate switches a thousand times per service, only its mean counts."""
    assert mmppmc((1.0, 5.0), (1e4, 1e4), 1.0, 4).mean_s == pytest.approx(mmc(3.0, 1.0, 4).mean_s, rel=1e-3)


@given(st.floats(0.1, 3.0), st.floats(0.1, 3.0), st.floats(0.01, 10.0))
def test_first_passage_solves_its_equation(first, second, leaving):
    """cμI + (D₀ - cμI)G + D₁G² = 0, and the rows of G sum to 1."""
    arrivals = modulated_arrivals((first, second), (leaving, 1.0))
    G = first_passage(arrivals, 4.0)
    rest = 4 * np.eye(2) + (arrivals.silent - 4 * np.eye(2)) @ G + arrivals.arriving @ G @ G
    assert rest == pytest.approx(np.zeros((2, 2)), abs=1e-10)
    assert G.sum(axis=1) == pytest.approx(np.ones(2))


@pytest.mark.parametrize("rates", [(0.5, 45.0), (0.0, 48.0), (20.0, 22.0)])
def test_mmppmc_equals_the_truncated_chain(rates):
    """Waiting probability and mean wait equal those of the chain cut at 600 and solved as one linear system."""
    servers, last, leaving = 40, 600, (0.2, 0.5)
    size = 2 * (last + 1)
    generator = np.zeros((size, size))
    for n in range(last + 1):
        for phase in (0, 1):
            state = 2 * n + phase
            generator[state, 2 * n + 1 - phase] += leaving[phase]
            if n < last:
                generator[state, state + 2] += rates[phase]
            if n:
                generator[state, state - 2] += min(n, servers)
    generator -= np.diag(generator.sum(axis=1))
    system = generator.T.copy()
    system[0] = 1.0
    seen = np.linalg.solve(system, np.eye(size)[0]).reshape(-1, 2) @ np.array(rates)
    seen /= seen.sum()
    wait = phase_wait(modulated_arrivals(rates, leaving), 1.0, servers)
    assert wait.wait_probability == pytest.approx(seen[servers:].sum(), rel=1e-8, abs=1e-13)
    assert wait.mean_s == pytest.approx(
        seen[servers:] @ np.arange(1, last + 2 - servers) / servers, rel=1e-6, abs=1e-13
    )


@given(SCVS, LOADS, st.integers(1, 20))
def test_more_servers_never_raise_the_response(scv, rho, servers):
    """One more server shortens mean and percentiles; the tail falls in t and its integral is the mean."""
    law = renewal_law(scv)
    response, more = (gimc(servers * rho, law, 1.0, c) for c in (servers, servers + 1))
    assert more.mean_s <= response.mean_s + 1e-9
    assert more.percentile(0.95) <= response.percentile(0.95) * (1 + 1e-8)
    t = np.linspace(0, response.percentile(1 - 1e-6), 401)
    tail = np.array([response.tail(x) for x in t])
    assert (np.diff(tail) <= 1e-12).all()
    assert np.trapezoid(tail, t) == pytest.approx(response.mean_s, rel=2e-3)


@given(SCVS, LOADS, st.floats(1e-3, 1e3))
def test_scaling_time_scales_everything(scv, rho, unit):
    """In other units of time the response time is the same."""
    law = renewal_law(scv)
    one, other = gimc(3 * rho, law, 1.0, 3), gimc(3 * rho / unit, law, unit, 3)
    assert other.mean_s == pytest.approx(unit * one.mean_s, rel=1e-8)
    assert other.percentile(0.99) == pytest.approx(unit * one.percentile(0.99), rel=1e-8)


def test_equal_rates_of_wait_and_service_have_their_own_form():
    """At cμ - λ = μ the tail is the limit of its neighbors."""
    near, at = mmppmc((2.0 - 1e-6, 2.0 - 1e-6), (1.0, 1.0), 1.0, 3), mmppmc((2.0, 2.0), (1.0, 1.0), 1.0, 3)
    assert at.tail(2.0) == pytest.approx(near.tail(2.0), rel=1e-5)
    assert at.tail(-1.0) == 1.0


@pytest.mark.parametrize(
    "model", [lambda: gimc(2.0, renewal_law(4.0), 1.0, 2), lambda: mmppmc((1.0, 4.0), (1.0, 1.0), 1.0, 2)]
)
def test_overload_is_an_answer(model):
    """At ρ ≥ 1 on average the response time is infinite with a reason."""
    response = model()
    assert math.isinf(response.mean_s)
    assert "grows without bound" in response.reason
