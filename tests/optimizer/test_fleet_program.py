"""The fleet program against exhaustive enumeration and against its own staircase."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import SolverError
from advisor.optimizer import solver
from advisor.optimizer.formulation import CoveringProgram, Pooling, undominated
from advisor.optimizer.solver import cheapest_fleet, most_served
from advisor.optimizer.staircase import Staircase, compare, money_unit, staircase

offers = st.lists(
    st.tuples(st.integers(min_value=100, max_value=5_000), st.floats(min_value=1.0, max_value=60.0)),
    min_size=1,
    max_size=4,
)


def program(pairs):
    """Program from (cents per month, rate) pairs."""
    return CoveringProgram(
        np.array([cents / 100 for cents, _ in pairs]),
        np.array([rate for _, rate in pairs]),
        np.ones(len(pairs)),
    )


def enumerate_cheapest(fleet, demand):
    """Cost of the cheapest covering fleet by trying all counts."""
    tops = [int(np.ceil(demand / rate)) for rate in fleet.capacity_rps]
    return min(
        float(np.dot(counts, fleet.cost_usd))
        for counts in itertools.product(*(range(top + 1) for top in tops))
        if np.dot(counts, fleet.capacity_rps) >= demand * (1 - 1e-12)
    )


@given(offers, st.floats(min_value=0.5, max_value=100.0))
def test_cheapest_fleet_equals_enumeration(pairs, demand):
    """No combination of machines that covers the demand is cheaper, and the reported gap is closed."""
    fleet = program(pairs)
    solved = cheapest_fleet(fleet, demand)
    assert solved.counts @ fleet.capacity_rps >= demand * (1 - 1e-6)
    assert solved.cost_usd == pytest.approx(enumerate_cheapest(fleet, demand), abs=1e-6)
    assert solved.gap_frac <= 1e-6


@given(offers, st.floats(min_value=0.5, max_value=100.0))
def test_staircase_equals_the_program(pairs, demand):
    """The cost curve at any rate is the optimum of the fleet program."""
    fleet = program(pairs)
    steps = staircase(fleet, 100.0, 0.01)
    assert steps.cost_at(np.array([demand]))[0] == pytest.approx(cheapest_fleet(fleet, demand).cost_usd, abs=0.005)


@given(offers, st.floats(min_value=0.5, max_value=50.0), st.floats(min_value=1.0, max_value=2.0))
def test_cost_never_falls_when_demand_rises(pairs, demand, factor):
    """More traffic never costs less."""
    fleet = program(pairs)
    assert cheapest_fleet(fleet, demand * factor).cost_usd >= cheapest_fleet(fleet, demand).cost_usd - 1e-6


@given(offers, st.floats(min_value=1.0, max_value=200.0))
def test_most_served_stays_within_the_budget(pairs, budget):
    """What a budget buys costs no more than it, and no single type of machine serves more within it."""
    fleet = program(pairs)
    bought = most_served(fleet, budget)
    assert bought.cost_usd <= budget * (1 + 1e-6)
    singles = np.floor(budget / fleet.cost_usd * (1 + 1e-12)) * fleet.capacity_rps
    assert bought.counts @ fleet.capacity_rps >= singles.max() * (1 - 1e-6)


def test_ties_go_to_fewer_machines_then_to_better_evidence():
    """Of fleets of equal cost the one with the fewest machines is taken, unless its evidence is weaker."""
    fleet = CoveringProgram(np.array([1.0, 4.0]), np.array([1.0, 4.0]), np.ones(2))
    assert cheapest_fleet(fleet, 4.0).counts.tolist() == [0, 1]
    doubtful = CoveringProgram(fleet.cost_usd, fleet.capacity_rps, np.array([1.0, 1000.0]))
    assert cheapest_fleet(doubtful, 4.0).counts.tolist() == [4, 0]


def test_dominated_offers_fall_out():
    """An offer that costs more and sustains less is never needed."""
    fleet = CoveringProgram(np.array([1.0, 2.0, 2.5]), np.array([5.0, 4.0, 9.0]), np.ones(3))
    assert undominated(fleet).tolist() == [0, 2]


def test_no_offer_is_an_error():
    """An empty program has no answer."""
    empty = CoveringProgram(np.zeros(0), np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="no offer"):
        cheapest_fleet(empty, 1.0)
    assert staircase(empty, 10.0, 0.01).rate_rps.size == 0


def test_exact_crossings_of_two_staircases():
    """CPU 0.40 an hour for 8 req/s against GPU 1.20 for 42: three CPUs cost exactly one GPU, which is a tie."""
    cpu = staircase(CoveringProgram(np.array([0.40]), np.array([8.0]), np.ones(1)), 60.0, 0.01)
    gpu = staircase(CoveringProgram(np.array([1.20]), np.array([42.0]), np.ones(1)), 60.0, 0.01)
    spans = [(round(span.from_rps, 6), round(span.to_rps, 6), span.winner) for span in compare(cpu, gpu, 60.0)]
    assert spans == [
        (0.0, 16.0, "cpu"),
        (16.0, 24.0, "tie"),
        (24.0, 42.0, "gpu"),
        (42.0, 48.0, "tie"),
        (48.0, 60.0, "gpu"),
    ]


def test_money_is_counted_in_cents_or_finer_while_the_table_lasts():
    """The unit is a whole part of the best offer's price, at most a cent; coarser only for very large ranges."""
    fleet = CoveringProgram(np.array([55.845, 384.0]), np.array([8.0, 20.0]), np.ones(2))
    for up_to, most in ((100.0, 0.01), (1e6, 60.0)):
        unit = money_unit(fleet, up_to)
        assert unit <= most
        assert 55.845 / unit == pytest.approx(round(55.845 / unit))


def test_large_ranges_of_the_best_offer_stay_exact():
    """Thousands of machines of the best offer cost exactly their number times its price, whatever the unit."""
    fleet = CoveringProgram(np.array([55.845, 384.0]), np.array([8.0, 20.0]), np.ones(2))
    steps = staircase(fleet, 8e5, money_unit(fleet, 8e5))
    assert steps.cost_at(np.array([8e5]))[0] == pytest.approx(55.845 * 1e5, rel=1e-9)


def test_cost_beyond_the_last_step_is_infinite():
    """A staircase says nothing beyond its range."""
    steps = Staircase(np.array([10.0]), np.array([1.0]))
    assert steps.cost_at(np.array([10.0, 10.1])).tolist() == [1.0, np.inf]


def pooled_program(pairs, gain):
    """Program whose machines help each other: n of them sustain n^gain times the rate of one."""
    machines = np.array([1, 2, 4, 8, 16, 32, 64, 128])
    linear = program(pairs)
    rates = linear.capacity_rps[:, None] * machines[None, :] ** gain
    return CoveringProgram(linear.cost_usd, linear.capacity_rps, linear.reluctance, Pooling(machines, rates))


def pooled_cheapest(fleet, demand):
    """Cost of the cheapest covering fleet by trying all counts."""
    tops = [fleet.least_count(offer, demand) for offer in range(fleet.cost_usd.size)]
    return min(
        float(np.dot(counts, fleet.cost_usd))
        for counts in itertools.product(*(range(top + 1) for top in tops))
        if fleet.total_rps(np.array(counts)) >= demand * (1 - 1e-12)
    )


pooled_offers = st.lists(
    st.tuples(st.integers(min_value=100, max_value=5_000), st.floats(min_value=4.0, max_value=60.0)),
    min_size=1,
    max_size=3,
)


@given(pooled_offers, st.floats(1.0, 1.2), st.floats(min_value=0.5, max_value=60.0))
def test_pools_are_bought_as_cheaply_as_by_enumeration(pairs, gain, demand):
    """Where machines help each other no combination that covers the demand is cheaper, within the stated gap."""
    fleet = pooled_program(pairs, gain)
    solved = cheapest_fleet(fleet, demand)
    assert fleet.total_rps(solved.counts) >= demand * (1 - 1e-6)
    assert solved.cost_usd <= pooled_cheapest(fleet, demand) * (1 + 1.1e-3) + 1e-6
    assert solved.bound_usd <= pooled_cheapest(fleet, demand) + 1e-6


@given(pooled_offers, st.floats(min_value=0.5, max_value=60.0))
def test_pools_in_proportion_are_the_linear_program(pairs, demand):
    """A table in proportion to the number of machines gives the same cost, counts and staircase as none."""
    linear, pooled = program(pairs), pooled_program(pairs, 1.0)
    assert cheapest_fleet(pooled, demand).cost_usd == pytest.approx(cheapest_fleet(linear, demand).cost_usd, rel=1.1e-3)
    for offer in range(linear.cost_usd.size):
        assert pooled.least_count(offer, demand) == linear.least_count(offer, demand)
    unit = money_unit(pooled, 60.0)
    steps = staircase(pooled, 60.0, unit)
    exact = cheapest_fleet(linear, demand).cost_usd
    machines = cheapest_fleet(linear, demand).counts.sum()
    assert exact - 1e-6 <= steps.cost_at(np.array([demand]))[0] <= exact + (machines + 1) * unit


@given(pooled_offers, st.floats(1.0, 1.2), st.floats(min_value=1.0, max_value=200.0))
def test_pools_within_a_budget_serve_at_least_what_one_type_does(pairs, gain, budget):
    """What a budget buys costs no more than it, and serves at least what the best single type does, within the gap."""
    fleet = pooled_program(pairs, gain)
    bought = most_served(fleet, budget)
    assert bought.cost_usd <= budget * (1 + 1e-6)
    singles = [fleet.rates(offer, np.array([int(budget / cost)]))[0] for offer, cost in enumerate(fleet.cost_usd)]
    assert fleet.total_rps(bought.counts) >= max(singles) * (1 - 1.1e-3)


@given(st.floats(0.8, 1.2), st.integers(1, 300))
def test_between_known_pools_no_machine_is_promised_more_than_in_either(gain, count):
    """The rate per machine between two known numbers is the smaller of theirs, and that of the last one beyond."""
    fleet = pooled_program([(1000, 10.0)], gain)
    known = fleet.pooling.rates_rps[0] / fleet.pooling.machines
    each = fleet.rates(0, np.array([count]))[0] / count
    after = int(np.searchsorted(fleet.pooling.machines, count))
    if after == known.size:
        assert each == pytest.approx(known[-1])
    elif fleet.pooling.machines[after] == count:
        assert each == pytest.approx(known[after])
    else:
        assert each == pytest.approx(min(known[after - 1], known[after]))


@given(st.floats(0.8, 1.2), st.floats(0.5, 5e3))
def test_the_fewest_machines_that_sustain_a_rate(gain, rate):
    """One machine fewer does not sustain the rate, nor does any smaller number."""
    fleet = pooled_program([(1000, 10.0)], gain)
    fewest = fleet.least_count(0, rate)
    rates = fleet.rates(0, np.arange(1, fewest + 1))
    assert rates[-1] >= rate * (1 - 1e-9)
    assert (rates[:-1] < rate).all()


def test_beyond_the_table_numbers_of_machines_are_not_tried_one_by_one():
    """A billion machines are counted at once; an offer whose largest pool sustains nothing never reaches."""
    fleet = pooled_program([(1000, 10.0)], 1.0)
    assert fleet.least_count(0, 1e10) == 10**9
    pooling = Pooling(np.array([1, 2]), np.array([[5.0, 0.0]]))
    helpless = CoveringProgram(np.ones(1), np.array([5.0]), np.ones(1), pooling)
    assert helpless.least_count(0, 4.0) == 1
    with pytest.raises(ValueError, match="rate of one machine of offer 0 is 0/s; allowed: above 0 to reach 6/s"):
        helpless.least_count(0, 6.0)


def exchangeable_sizes():
    """Six sizes of one family in proportion: HiGHS needs long to prove which mix of them is cheapest."""
    sizes = np.array([1.0, 2, 4, 8, 12, 16])
    machines = 2 ** np.arange(9)
    rates = 13.0 * sizes[:, None] * machines[None, :]
    return CoveringProgram(62.05 * sizes, rates[:, 0], np.ones(6), Pooling(machines, rates))


def test_a_fleet_found_before_the_time_is_over_is_taken_with_its_gap(monkeypatch):
    """Out of time the best fleet so far covers the demand, and its gap holds: a plan does not end without a fleet."""
    monkeypatch.setattr(solver, "POOLED_TIME_LIMIT_S", 0.5)
    monkeypatch.setattr(solver, "_POOLED_GAP", 1e-9)
    fleet = exchangeable_sizes()
    found = cheapest_fleet(fleet, 4958.4)
    assert found.status == "stopped by time"
    assert fleet.total_rps(found.counts) >= 4958.4 * (1 - 1e-6)
    assert 0 < found.gap_frac < 0.05
    # 382 units of the smallest size are needed, in whatever sizes.
    assert found.bound_usd <= 382 * 62.05 <= found.cost_usd * (1 + 1e-9)


def test_without_a_fleet_in_time_there_is_an_error(monkeypatch):
    """No time at all leaves nothing to take."""
    monkeypatch.setattr(solver, "POOLED_TIME_LIMIT_S", 0.0)
    with pytest.raises(SolverError, match="Time limit reached"):
        cheapest_fleet(exchangeable_sizes(), 4958.4)


def test_the_status_says_what_was_proven():
    """In proportion the optimum is over all fleets, with tables over the numbers of machines looked at."""
    assert cheapest_fleet(program([(1000, 10.0)]), 25.0).status == "optimal"
    assert most_served(program([(1000, 10.0)]), 25.0).status == "optimal"
    pooled = pooled_program([(1000, 10.0)], 1.1)
    assert cheapest_fleet(pooled, 25.0).status == "optimal among the numbers of machines looked at"
    assert most_served(pooled, 25.0).status == "optimal among the numbers of machines looked at"
