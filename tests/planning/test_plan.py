"""Plans: right on a world small enough to check by hand, monotone, reproducible, and honest when there is none."""

import datetime
import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from advisor.capacity.curve import service_curves
from advisor.capacity.pool import Question, best_capacity
from advisor.catalog import load_catalog
from advisor.domain.plan import Infeasible, JobPlan, Plan
from advisor.domain.trace import Trace
from advisor.errors import InputError
from advisor.planning import plan
from advisor.profiling.statistics import histogram
from advisor.reports.sentences import ROUTING_NAMES, why
from advisor.store.paths import DATA, PROFILES, SCENARIOS
from advisor.store.profiles import read_profiles
from advisor.store.scenarios import read_scenario
from tests.conftest import TODAY, cpu_profile, gpu_profile, machine, make_catalog, offer, question


@pytest.fixture(scope="module")
def ask(small_catalog, small_profiles):
    """Answer a question in the small world."""

    def answer(profiles=small_profiles, catalog=small_catalog, **fields):
        return plan(question(**fields), profiles, catalog, today=TODAY)

    return answer


@pytest.fixture(scope="module")
def low(ask):
    """Plan at a rate where a CPU is cheaper."""
    result = ask(rate=10.0)
    assert isinstance(result, Plan)
    return result


@pytest.fixture(scope="module")
def high(ask):
    """Plan at a rate where a GPU is cheaper."""
    result = ask(rate=400.0)
    assert isinstance(result, Plan)
    return result


def agree(result):
    """Whether each predicted percentile lies within its stated error and two intervals of the simulated one."""
    return all(
        abs(answer.value_s - verdict.value_s)
        <= (2 * answer.method.error_frac + 2e-3) * verdict.value_s + 2 * verdict.ci95_s
        for answer, verdict in zip(result.workloads, result.simulation.limits, strict=True)
    )


def test_low_traffic_runs_on_a_cpu_and_high_traffic_on_a_gpu(low, high):
    """The cheapest fleet changes kind with the traffic, and the break-even lies between."""
    assert {line.kind for line in low.fleet} == {"cpu"}
    assert {line.kind for line in high.fleet} == {"gpu"}
    first, last = low.break_even.first_gpu_win_rps, low.break_even.last_cpu_win_rps
    assert first is not None
    assert last is not None
    assert 10.0 < first < 400.0


def test_count_is_demand_over_capacity_of_the_slow_end(low, small_profiles):
    """The number of CPU machines follows from the capacity of one replica with service times at their slow end."""
    curve = service_curves(small_profiles[0])[0].at_slow_end()
    per_replica = best_capacity(curve, 1, Question(((0.99, 0.2),))).rate_rps
    line = low.fleet[0]
    assert line.capacity_rps == pytest.approx(line.count * line.replicas * per_replica, rel=1e-9)
    replicas_needed = math.ceil(10.0 / per_replica)
    assert sum(line.count * line.replicas for line in low.fleet) >= replicas_needed


def test_predicted_and_simulated_percentiles_agree_and_meet_the_limit(low, high):
    """The analytic percentile lies within four interval half-widths of the simulated one; both within the SLA."""
    for result in (low, high):
        answer, verdict = result.workloads[0], result.simulation
        assert answer.likely_s <= answer.value_s <= answer.limit_s
        assert verdict.passed
        assert verdict.limits[0].value_s <= answer.limit_s
        assert agree(result)
        assert verdict.requests >= 1_000_000


def test_cost_is_price_times_hours(low):
    """Cost per month is count × price × 730 h, and lines add up."""
    for line in low.fleet:
        assert line.cost_usd_per_month == pytest.approx(line.count * line.price_usd_per_h * 730, abs=0.005)
    assert low.cost_usd_per_month == pytest.approx(sum(line.cost_usd_per_month for line in low.fleet))


def test_cheaper_region_is_taken(high):
    """Of two offers of the same machine the cheaper one is chosen."""
    assert {line.region for line in high.fleet} == {"cloud/here"}


def test_staircase_contains_the_plan(low, high):
    """At the demand the cost curve of any fleets shows the plan's cost."""
    for result in (low, high):
        step = next(step for step in result.break_even.mixed if step.rate_rps >= result.demand_rps * (1 - 1e-9))
        assert step.cost_usd_per_month == pytest.approx(result.cost_usd_per_month, abs=0.02)


def test_every_machine_type_is_a_candidate_or_has_a_reason(low, small_catalog):
    """Nothing is dropped silently: burstable, mixed, fractional and unprofiled types each say why."""
    reasons = {rejection.machine_type: rejection.reason for rejection in low.rejections}
    assert "burstable" in reasons["cloud/b.burst"]
    assert "no profile of net for CPU zen9" in reasons["cloud/c.other"]
    assert "zen9 not measured" in reasons["cloud/c.mixed"]
    assert "fraction of a GPU" in reasons["cloud/g.part"]
    assert "no profile of net for GPU X9" in reasons["cloud/g.rare"]
    served = {"cloud/c.small", "cloud/c.big", "cloud/g.one"}
    assert served | set(reasons) == {machine.key for machine in small_catalog.machine_types}


def test_evidence_and_provenance_name_every_source(low):
    """Each line of the fleet has evidence for its speed and its price; profiles are hashed."""
    subjects = [line.what for line in low.evidence]
    assert len(subjects) == 2 * len(low.fleet)
    assert set(low.provenance.profile_hashes) == {"net-cpu", "net-gpu"}
    assert low.provenance.mip_gap_frac == pytest.approx(0.0, abs=1e-6)


def test_same_question_same_bytes(ask, low):
    """A plan is a function of its inputs and seed."""
    assert ask(rate=10.0).model_dump_json() == low.model_dump_json()
    assert ask(rate=10.0, seed=1).simulation != low.simulation


def test_cost_never_falls_when_traffic_rises(ask):
    """More traffic never costs less."""
    costs = [ask(rate=rate).cost_usd_per_month for rate in (1.0, 7.0, 20.0, 55.0, 150.0, 900.0)]
    assert costs == sorted(costs)


def test_cost_never_falls_when_the_limit_tightens(ask):
    """A tighter limit never costs less."""
    costs = [ask(rate=60.0, p99_ms=limit).cost_usd_per_month for limit in (1000.0, 400.0, 150.0, 90.0, 30.0)]
    assert costs == sorted(costs)


def test_cost_never_falls_when_a_price_rises(ask, small_catalog, small_profiles):
    """A dearer offer never makes the plan cheaper."""
    dearer = small_catalog.model_copy(
        update={
            "offers": tuple(
                known.model_copy(update={"price_usd_per_h": known.price_usd_per_h * 1.5})
                if known.machine_type == "cloud/c.small"
                else known
                for known in small_catalog.offers
            )
        }
    )
    for rate in (10.0, 60.0):
        assert ask(rate=rate, catalog=dearer).cost_usd_per_month >= ask(rate=rate).cost_usd_per_month


def test_headroom_plans_for_more(ask, low):
    """Demand planned for is the traffic times one plus the headroom."""
    result = ask(rate=10.0, headroom_pct=50)
    assert result.demand_rps == pytest.approx(15.0)
    assert result.cost_usd_per_month >= low.cost_usd_per_month


def test_budget_is_a_hard_limit(ask):
    """Over the budget the answer is infeasible, with the budget needed, the rate possible and a best effort."""
    cost = ask(rate=30.0).cost_usd_per_month
    result = ask(rate=30.0, budget_usd_per_month=60.0)
    assert isinstance(result, Infeasible)
    assert result.binding == "budget"
    assert result.relaxations[0].value_needed == pytest.approx(cost)
    assert isinstance(ask(rate=30.0, budget_usd_per_month=cost), Plan)
    assert isinstance(ask(rate=30.0, budget_usd_per_month=cost - 0.01), Infeasible)
    assert sum(line.cost_usd_per_month for line in result.best_effort) <= 60.0
    possible = result.relaxations[1].value_needed
    assert 0 < possible < 30.0
    assert isinstance(ask(rate=possible, budget_usd_per_month=60.0), Plan)


def test_nothing_affordable_serves_nothing(ask):
    """A budget below the cheapest machine serves no share of the traffic."""
    result = ask(rate=10.0, budget_usd_per_month=1.0)
    assert isinstance(result, Infeasible)
    assert result.served_frac == 0.0
    assert result.best_effort == ()


def test_smallest_limit_that_would_do_is_named(ask):
    """When every machine is too slow, the limit named makes the question feasible and a smaller one does not."""
    result = ask(rate=1.0, p99_ms=2.0)
    assert result.relaxations[0].limit == "sla.p99_ms"
    assert [line.evidence.source for line in result.evidence] == ["test table"]
    assert isinstance(result, Infeasible)
    assert result.binding == "response_time"
    needed = result.relaxations[0].value_needed
    assert isinstance(ask(rate=1.0, p99_ms=needed), Plan)
    assert isinstance(ask(rate=1.0, p99_ms=needed * 0.95), Infeasible)


def test_the_limit_named_also_fits_the_budget(ask):
    """The limit named makes the whole question feasible, its demand and its budget included."""
    result = ask(rate=30.0, p99_ms=2.0, budget_usd_per_month=450.0)
    assert isinstance(result, Infeasible)
    needed = result.relaxations[0].value_needed
    assert isinstance(ask(rate=30.0, p99_ms=needed, budget_usd_per_month=450.0), Plan)


def test_what_no_profile_fits_is_named(ask):
    """A precision that no profile has is named with those that exist."""
    result = ask(rate=5.0, precisions=["int4"])
    assert isinstance(result, Infeasible)
    assert "int4; there are fp16, fp32" in result.reason


def test_fastest_cpu_is_named_when_only_gpus_are_fast_enough(ask):
    """A limit that no CPU meets says how fast the fastest one is."""
    result = ask(rate=10.0, p99_ms=30.0)
    assert isinstance(result, Plan)
    assert result.best_cpu_usd_per_month is None
    assert result.fastest_idle_cpu_s == pytest.approx(0.051, rel=1e-6)


def test_unknown_model_and_region(ask):
    """An unknown model is infeasible with the command to run; an unknown region is bad input."""
    result = ask(profiles=(cpu_profile({1: 0.05}, model="other", profile_id="other"),))
    assert isinstance(result, Infeasible)
    assert result.binding == "profiles"
    assert "advisor profile" in result.reason
    with pytest.raises(InputError, match="regions is 'mars'"):
        ask(regions=["mars"])


def test_bare_region_matches_every_provider_and_says_so(ask):
    """A bare region name is read as all provider/region pairs of that name."""
    result = ask(rate=10.0, regions=["here"])
    assert any("cloud/here" in warning for warning in result.warnings)


def test_old_prices_are_called_old(small_profiles):
    """A price of over ninety days ago is a warning with its date."""
    old = make_catalog([machine("c.small")], [offer("c.small", 0.08, day=datetime.date(2026, 1, 1))])
    result = plan(question(rate=5.0), small_profiles, old, today=TODAY)
    assert any("2026-01-01" in warning for warning in result.warnings)


def test_extrapolated_hosts_are_marked_and_avoided_at_equal_cost(small_profiles):
    """More than twice the replicas measured together is marked; at equal cost the measured size is preferred."""
    world = make_catalog(
        [machine("c.small"), machine("c.huge", vcpus=16.0, memory_gib=64.0)],
        [offer("c.small", 0.08), offer("c.huge", 0.64)],
    )
    result = plan(question(rate=60.0), small_profiles[:1], world, today=TODAY)
    assert all(not line.extrapolated for line in result.fleet)
    assert any(option.extrapolated for option in result.alternatives)


def test_published_times_are_planned_ten_percent_slow(ask):
    """A published profile without percentiles is planned with times 15 % slower, and says so."""
    result = ask(rate=400.0)
    answer = result.workloads[0]
    assert answer.value_s > answer.likely_s * 1.1
    assert any("taken as constant" in sentence for sentence in result.assumptions)


def test_published_p99_becomes_a_spread(ask):
    """With a published p99 the spread is a lognormal through it, and the plan names it."""
    profiles = (gpu_profile({1: 0.004, 8: 0.009}, p99_over_mean=1.4),)
    result = ask(rate=100.0, profiles=profiles)
    assert any("lognormal through its published p99" in sentence for sentence in result.assumptions)


def test_sequence_length_is_settled_and_stated(small_catalog):
    """Without a length the scenario is planned for the measured one, and a warning says so."""
    profiles = (
        cpu_profile({1: 0.05}, sequence_length=128),
        gpu_profile({1: 0.004}, sequence_length=384),
    )
    result = plan(question(rate=5.0), profiles, small_catalog, today=TODAY)
    assert any("128 tokens" in warning for warning in result.warnings)
    assert all(candidate.profile_id == "net-cpu" for candidate in result.alternatives)


def test_precisions_allowed_are_kept_to(ask):
    """A scenario that allows fp32 only never runs fp16."""
    result = ask(rate=400.0, precisions=["fp32"])
    assert {line.precision for line in result.fleet} == {"fp32"}


def test_shared_queue_needs_no_more_machines(ask):
    """What a better router would save is found by simulation and never negative."""
    result = ask(rate=60.0, p99_ms=120.0, precisions=["fp32"])
    gain = result.routing_gain
    assert gain is not None
    assert gain.count < result.fleet[0].count
    assert gain.value_s <= 0.12


def test_a_profile_of_the_very_type_admits_a_burstable_machine(small_catalog, small_profiles):
    """Burstable types are refused, unless a profile was measured on that very type."""
    measured = small_profiles[0].model_copy(
        update={
            "profile_id": "net-burst",
            "device": small_profiles[0].device.model_copy(update={"machine_type": "b.burst"}),
        }
    )
    result = plan(question(rate=5.0), (*small_profiles, measured), small_catalog, today=TODAY)
    assert {line.machine_type for line in result.fleet} == {"b.burst"}


def test_a_profiled_gpu_without_an_offer_is_shown(small_catalog, small_profiles):
    """A GPU with a profile but without a price is listed as such, never dropped."""
    extra = gpu_profile({1: 0.004}, gpu_id="L99", profile_id="net-l99")
    result = plan(question(rate=5.0), (*small_profiles, extra), small_catalog, today=TODAY)
    assert {rejection.machine_type: rejection.reason for rejection in result.rejections}["L99"].startswith("no price")


def test_over_budget_names_the_limit_that_the_budget_would_do_for(ask):
    """With the looser limit named the same budget is enough."""
    result = ask(rate=30.0, p99_ms=75.0, budget_usd_per_month=250.0, precisions=["fp32"])
    assert isinstance(result, Infeasible)
    looser = next(relaxation for relaxation in result.relaxations if relaxation.limit == "sla.p99_ms")
    assert looser.value_needed > 75.0
    assert isinstance(ask(rate=30.0, p99_ms=looser.value_needed, budget_usd_per_month=250.0, precisions=["fp32"]), Plan)


def test_own_profiles_come_before_faster_ones_of_the_same_device(small_catalog, small_profiles):
    """A user's own profile of a device is planned with, even when another profile of it is faster."""
    own = cpu_profile({1: 0.08}, profile_id="mine")
    result = plan(question(rate=5.0), (*small_profiles, own), small_catalog, today=TODAY, preferred=frozenset({"mine"}))
    assert {line.profile_id for line in result.fleet} == {"mine"}


def test_very_loose_limits_are_answered(ask):
    """A limit of an hour is no harder than one of ten seconds: saturation binds."""
    hour, seconds = ask(rate=30.0, p99_ms=3_600_000.0), ask(rate=30.0, p99_ms=20_000.0)
    assert hour.cost_usd_per_month == seconds.cost_usd_per_month


def test_the_cpu_of_a_gpu_machine_does_not_speak_for_its_gpu(small_catalog, small_profiles):
    """A CPU profile measured on a machine with a GPU leaves the GPU's own profile in force."""
    device = small_profiles[0].device.model_copy(update={"machine_type": "g.one"})
    host = small_profiles[0].model_copy(update={"profile_id": "net-host", "device": device})
    result = plan(question(rate=400.0), (*small_profiles, host), small_catalog, today=TODAY)
    assert {(line.machine_type, line.profile_id) for line in result.fleet} == {("g.one", "net-gpu")}


@pytest.mark.parametrize("routing", ["round_robin", "least_outstanding", "central_queue"])
def test_a_better_router_never_needs_more(ask, routing):
    """A fleet behind a router that spreads requests costs at most what it does behind a random one."""
    chance = ask(rate=900.0, p99_ms=60.0)
    spread = ask(rate=900.0, p99_ms=60.0, routing=routing)
    assert spread.cost_usd_per_month <= chance.cost_usd_per_month
    # One machine, or one request at a time before one queue, is answered by a model.
    modeled = all(
        line.count * line.replicas == 1 or (routing == "central_queue" and line.max_batch == 1) for line in spread.fleet
    )
    assert (spread.workloads[0].method.exactness == "simulated") != modeled
    assert spread.workloads[0].method.error_frac < 0.1
    assert agree(spread)
    assert any(ROUTING_NAMES[routing] in sentence for sentence in why(spread))


def test_bursts_need_at_least_the_fleet_of_poisson_arrivals_and_say_so(ask):
    """Arrivals in bursts cost more, and the plan names what Poisson arrivals would have seemed to need."""
    bursts = {"kind": "bursts", "ratio": 6.0, "burst_frac": 0.1, "burst_s": 2.0}
    result, calm = ask(rate=400.0, p99_ms=60.0, arrivals=bursts), ask(rate=400.0, p99_ms=60.0)
    assert result.cost_usd_per_month > calm.cost_usd_per_month
    assert result.traffic.shape == "bursts"
    assert result.traffic.poisson_usd_per_month == calm.cost_usd_per_month
    assert result.simulation.passed
    assert agree(result)


def test_all_limits_hold_and_the_tightest_decides(ask):
    """With a second limit the fleet is that of the tighter one, and both are answered and simulated."""
    both = ask(rate=900.0, sla={"p50_ms": 14.0, "p99_ms": 200.0})
    tight = ask(rate=900.0, sla={"p50_ms": 14.0})
    loose = ask(rate=900.0, sla={"p99_ms": 200.0})
    assert [answer.percentile for answer in both.workloads] == [0.99, 0.5]
    assert both.cost_usd_per_month == tight.cost_usd_per_month > loose.cost_usd_per_month
    assert all(verdict.value_s <= verdict.limit_s for verdict in both.simulation.limits)


def test_a_daily_swing_is_sized_at_its_peak_and_is_calmer_over_the_day(ask):
    """The fleet is that of constant traffic at the peak; over the day the percentile is lower."""
    day = {"kind": "sinusoid", "amplitude_frac": 0.6, "period_s": 86400.0}
    swing, constant = ask(rate=400.0, arrivals=day), ask(rate=400.0)
    assert swing.fleet == constant.fleet
    assert swing.traffic.period_s < swing.workloads[0].value_s


def test_a_swing_over_budget_says_how_long_requests_would_wait(ask):
    """When the budget is too small for the peak, the fluid delay of the fleet within it is told."""
    day = {"kind": "sinusoid", "amplitude_frac": 0.6, "period_s": 86400.0}
    enough = ask(rate=2000.0, arrivals=day)
    poor = ask(rate=2000.0, arrivals=day, budget_usd_per_month=0.8 * enough.cost_usd_per_month)
    assert isinstance(poor, Infeasible)
    assert poor.overload_delay_s > 10
    assert ask(rate=2000.0, budget_usd_per_month=0.8 * enough.cost_usd_per_month).overload_delay_s is None


def test_a_bursty_trace_needs_more_than_poisson_arrivals(small_profiles, small_catalog):
    """The trace is replayed at its own rate, the reason and the trace are in the plan."""
    rng = np.random.default_rng(8)
    starts = np.sort(rng.uniform(0, 3000, 60))
    times = np.sort(np.concatenate([start + rng.uniform(0, 1, 200) for start in starts]))
    trace = Trace("log.csv", times - times[0], "ab" * 32)
    asked = question(rate=trace.rate_rps, p99_ms=150.0, arrivals={"kind": "trace", "file": "log.csv"})
    result = plan(asked, small_profiles, small_catalog, today=TODAY, traces={"log.csv": trace})
    calm = plan(question(rate=trace.rate_rps, p99_ms=150.0), small_profiles, small_catalog, today=TODAY)
    assert result.traffic.shape == "replay"
    assert "index of dispersion" in result.traffic.reason
    assert result.cost_usd_per_month > calm.cost_usd_per_month
    assert result.provenance.trace_hash == "ab" * 32
    assert any("12,000 time stamps" in line.what for line in result.evidence)
    assert result.simulation.requests == 20 * 12_000
    assert agree(result)


def test_waiting_for_a_full_batch_is_simulated(ask):
    """A delay makes batches larger; where it eats up the limit, nothing is in time."""
    eager, patient = (
        ask(rate=300.0, routing="least_outstanding"),
        ask(rate=300.0, routing="least_outstanding", batch_delay_ms=40.0),
    )
    assert patient.simulation.mean_batch > eager.simulation.mean_batch
    assert any("40 ms" in sentence for sentence in patient.assumptions)


def test_the_distribution_falls_and_passes_through_the_percentile(ask, high):
    """P(T > t) falls in t for model and simulation, and they agree at the limit within the noise."""
    for result in (high, ask(rate=900.0, p99_ms=60.0, routing="least_outstanding")):
        predicted = [point.predicted_frac for point in result.distribution]
        simulated = [point.simulated_frac for point in result.distribution]
        for tail in (predicted, simulated):
            assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(tail))
        assert predicted[0] > 0.9
        assert predicted[-1] < 0.01
        assert max(abs(a - b) for a, b in zip(predicted, simulated, strict=True)) < 0.03


def test_capacity_has_an_interval_that_comes_from_the_profile(low, high):
    """The planned capacity is the lower end; as profiled and at best more is sustained."""
    for line in (*low.fleet, *high.fleet):
        assert line.capacity_rps < line.capacity_likely_rps < line.capacity_high_rps


def test_pooled_plans_are_the_same_every_time_and_with_any_cache(small_profiles, small_catalog):
    """Cache and executor change how long it takes, never the answer."""
    asked = question(rate=200.0, p99_ms=60.0, routing="least_outstanding")
    kept = {}
    with ThreadPoolExecutor(2) as executor:
        answers = [
            plan(asked, small_profiles, small_catalog, today=TODAY),
            plan(asked, small_profiles, small_catalog, today=TODAY, cache=kept, executor=executor),
            plan(asked, small_profiles, small_catalog, today=TODAY, cache=kept),
        ]
    assert kept
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_scenarios_are_predicted_within_their_stated_error(path):
    """Predicted and simulated percentiles of every shipped scenario agree within what the plan states."""
    found = read_scenario(path)
    result = plan(found.scenario, read_profiles(PROFILES), load_catalog(DATA), today=TODAY, traces=found.traces)
    if isinstance(result, JobPlan):
        return
    assert isinstance(result, Plan)
    assert result.simulation.passed
    assert agree(result)
    if result.traffic.poisson_usd_per_month is not None:
        assert result.cost_usd_per_month >= result.traffic.poisson_usd_per_month


def test_stalls_that_come_in_series_make_the_tail_longer(small_catalog):
    """The same calls in the order measured, with their stalls in series, give a longer p99 than independent ones."""
    calls = np.full(1000, 0.010)
    calls[np.r_[100:112, 600:612]] = 0.040
    profile = gpu_profile({1: float(calls.mean()), 4: 1.4 * float(calls.mean())})
    cells = tuple(
        cell.model_copy(update={"series_s": tuple((calls * cell.service_mean_s / calls.mean()).tolist())})
        for cell in profile.cells
    )
    law = {"histogram": histogram(calls)}
    kept = profile.model_copy(update={"cells": tuple(cell.model_copy(update=law) for cell in cells)})
    apart, order = (
        plan(question(rate=120.0, p99_ms=1000.0, call_order=order), [kept], small_catalog, today=TODAY)
        for order in ("independent", "as_measured")
    )
    assert order.workloads[0].method.exactness == "simulated"
    assert order.workloads[0].value_s > 1.1 * apart.workloads[0].value_s
    assert any("in the profile" in sentence for sentence in order.assumptions)


def test_a_profile_without_the_order_of_its_calls_is_named(ask):
    """Asked for calls in the order measured, profiles that do not keep it are refused with the remedy."""
    result = ask(call_order="as_measured")
    assert isinstance(result, Infeasible)
    assert "none keeps the order of its calls" in result.reason
    assert any("does not keep the order of its calls" in rejection.reason for rejection in result.rejections)


def test_replicas_that_shared_a_card_share_the_cards_of_a_machine(ask, small_profiles):
    """Two replicas at half the speed are one card still; behind a random router they wait a little longer."""
    cpu, gpu = small_profiles
    shared = tuple(
        cell.model_copy(update={"threads": 1, "concurrency": 2, "service_mean_s": 2 * cell.service_mean_s})
        for cell in gpu.cells
    )
    one = ask(rate=400.0, regions=["cloud/here"])
    two = ask((cpu, gpu.model_copy(update={"cells": shared})), rate=400.0, regions=["cloud/here"])
    assert {line.kind for line in two.fleet} == {"gpu"}
    assert two.fleet[0].replicas == 2 * one.fleet[0].replicas
    each = [line.capacity_rps / line.count for line in (one.fleet[0], two.fleet[0])]
    assert 0.8 * each[0] < each[1] <= each[0]


def test_callers_of_a_server_share_its_whole_host(ask, small_profiles):
    """Four callers on a host of 2 vCPUs are one host: a machine of 8 vCPUs is worth four, and not eight replicas."""
    cpu, _ = small_profiles
    cells = tuple(cell.model_copy(update={"threads": 1, "concurrency": 4}) for cell in cpu.cells)
    model = cpu.model.model_copy(update={"target": "http://127.0.0.1:8000/predict"})
    result = ask((cpu.model_copy(update={"cells": cells, "model": model}),), rate=10.0)
    assert isinstance(result, Plan)
    (line,) = result.fleet
    vcpus = {"cloud/c.small": 2, "cloud/c.big": 8}[line.machine_key]
    assert line.replicas == 4 * vcpus // 2
