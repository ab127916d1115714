"""Numbers of servers against published software, limits and brute force."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.queueing.exact import erlang_c, mdc, mmc
from advisor.queueing.staffing import (
    halfin_whitt,
    servers_for_percentile,
    servers_for_service_level,
    square_root_staffing,
)
from tests.theory.test_exact import GOLDEN, cases

PYWORKFORCE = json.loads((GOLDEN / "erlang.json").read_text())["pyworkforce_0.5.1"]


@pytest.mark.parametrize("case", cases("P(wait) limit"))
def test_halfin_whitt_matches_its_closed_form(case):
    """α = 1/(1 + βΦ/φ), and Erlang C with ten thousand servers is near it."""
    beta, alpha = case["params"]["beta"], case["expected"]["alpha"]
    assert halfin_whitt(beta) == pytest.approx(alpha, rel=case["rtol"])
    servers = 10_000
    assert erlang_c(servers - beta * servers**0.5, servers) == pytest.approx(alpha, rel=0.03)


@pytest.mark.parametrize("case", PYWORKFORCE)
def test_service_level_matches_published_software(case):
    """Positions, service level, occupancy and waiting probability as pyworkforce 0.5.1 gives them; times in minutes."""
    given_, expected = case["in"], case["out"]
    found = servers_for_service_level(
        given_["transactions"] / given_["interval"],
        given_["aht"],
        given_["asa"],
        given_["service_level"],
        highest_occupancy=given_["max_occupancy"],
        away_frac=given_["shrinkage"],
    )
    assert (found.servers, found.positions) == (expected["raw_positions"], expected["positions"])
    assert found.service_level == pytest.approx(expected["service_level"], rel=1e-9)
    assert found.occupancy == pytest.approx(expected["occupancy"], rel=1e-9)
    assert found.wait_probability == pytest.approx(expected["waiting_probability"], rel=1e-9)


@given(st.floats(0.1, 300.0), st.floats(0.0, 2.0), st.floats(0.0, 0.999))
def test_service_level_needs_no_fewer(load, wait_limit, level):
    """The number found meets the level; one fewer does not, or is overloaded."""
    found = servers_for_service_level(load, 1.0, wait_limit, level)
    assert found.service_level >= level
    assert found.occupancy < 1
    if found.servers - 1 > load:
        fewer = servers_for_service_level(load, 1.0, wait_limit, level, highest_occupancy=load / (found.servers - 1))
        assert fewer.servers >= found.servers


@given(st.floats(10.0, 2000.0), st.floats(0.01, 0.9))
def test_square_root_rule_is_right_within_two_servers(load, probability):
    """⌈a + β√a⌉ servers come within two of the fewest that keep P(W > 0)."""
    rule = square_root_staffing(load, probability)
    fewest = next(c for c in range(int(load) + 1, 10_000) if erlang_c(load, c) <= probability)
    assert abs(rule - fewest) <= 2


@given(st.floats(0.1, 200.0), st.floats(0.0, 3.0), st.sampled_from([mmc, mdc]))
def test_percentile_needs_no_fewer(load, slack, model):
    """The number found keeps the percentile and one fewer does not; None only when the service alone is too long."""
    fewest = int(load * 1.001) + 1
    limit = 0.5 + slack * 2

    def respond(servers):
        return model(load, 1.0, servers)

    found = servers_for_percentile(respond, limit, 0.95, fewest=fewest)
    if found is None:
        assert model(load, 1.0, 10 * fewest + 50).tail(limit) > 0.05
        return
    assert respond(found).tail(limit) <= 0.05
    if found > fewest:
        assert respond(found - 1).tail(limit) > 0.05


@pytest.mark.parametrize("level", [1.0, -0.1])
def test_impossible_service_level_is_refused(level):
    """No number of servers reaches certainty."""
    with pytest.raises(ValueError, match="service level"):
        servers_for_service_level(1.0, 1.0, 0.1, level)


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_square_root_rule_needs_a_probability(probability):
    """A waiting probability of 0 or 1 has no β."""
    with pytest.raises(ValueError, match="wait probability"):
        square_root_staffing(10.0, probability)
