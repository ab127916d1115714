"""Plan for online traffic: one workload, all offers, the cheapest fleet that answers in time."""

import datetime

from advisor.domain.machine import Catalog
from advisor.domain.plan import Infeasible, Plan
from advisor.domain.profile import Profile
from advisor.domain.workload import Scenario
from advisor.planning.comparison import alternatives, break_even
from advisor.planning.fleet import answer_workload, judged_fleet, routing_gain
from advisor.planning.infeasible import no_profiles, over_budget, too_slow
from advisor.planning.market import Progress, allowed_regions, build_market, settle_sequence_length
from advisor.planning.trace import assumptions_of, evidence_of, provenance_of, warnings_of

PRICED_ROUNDING_USD = 0.005


def plan_online(
    scenario: Scenario,
    profiles: tuple[Profile, ...],
    catalog: Catalog,
    *,
    today: datetime.date,
    progress: Progress,
) -> Plan | Infeasible:
    """Cheapest fleet under the SLA and the budget, judged by simulation, or the limit that binds.

    Raises
    ------
    InputError
        When a region does not exist.
    SolverError
        When HiGHS stops without an answer.
    """
    regions, notes = allowed_regions(scenario.regions, catalog)
    workload, length_note = settle_sequence_length(scenario.workload, profiles)
    notes += (length_note,) if length_note else ()
    demand_rps = workload.arrival_rate_rps * (1 + scenario.headroom_frac)
    market = build_market(workload, profiles, catalog, regions, progress)
    if not market.offers:
        slow = [rejection for rejection in market.rejections if rejection.idle_response_s is not None]
        if slow:
            return too_slow(scenario, workload, market, profiles, catalog, regions, notes, today=today)
        return no_profiles(scenario, market, profiles, notes, today=today)
    progress("simulating the fleet")
    judged = judged_fleet(market, workload, demand_rps, scenario.seed)
    cost = round(sum(line.cost_usd_per_month for line in judged.lines), 2)
    if scenario.budget_usd_per_month is not None and cost > scenario.budget_usd_per_month + PRICED_ROUNDING_USD:
        return over_budget(scenario, workload, market, judged, profiles, catalog, regions, notes, today=today)
    answer, p99_s = answer_workload(market, judged.lines, workload)
    progress("comparing with the alternatives")
    steps, best_cpu, best_gpu = break_even(market, demand_rps)
    return Plan(
        schema_version=1,
        status="plan",
        scenario=scenario,
        demand_rps=demand_rps,
        asked_rps=judged.asked_rps,
        fleet=judged.lines,
        cost_usd_per_month=cost,
        p99_response_s=p99_s,
        workloads=(answer,),
        simulation=judged.simulation,
        alternatives=alternatives(market, judged.lines, demand_rps, cost),
        break_even=steps,
        routing_gain=routing_gain(market, judged.lines, workload.sla, scenario.seed),
        best_cpu_usd_per_month=best_cpu,
        best_gpu_usd_per_month=best_gpu,
        fastest_idle_cpu_s=market.fastest_idle_cpu_s,
        warnings=notes + warnings_of(judged.lines, market, catalog, profiles, today=today),
        assumptions=assumptions_of(judged.lines, market, scenario),
        rejections=market.rejections,
        evidence=evidence_of(judged.lines, profiles),
        provenance=provenance_of(
            judged.lines, market, profiles, scenario.seed, today=today, gap=judged.solved.gap_frac
        ),
    )
