"""Plan for online traffic: one workload, all offers, the cheapest fleet that answers in time."""

import datetime

from advisor.domain.plan import Infeasible, Plan
from advisor.planning.comparison import alternatives, break_even
from advisor.planning.evidence import assumptions_of, evidence_of, provenance_of, warnings_of
from advisor.planning.infeasible import no_profiles, over_budget, too_slow
from advisor.planning.judge import judged_fleet
from advisor.planning.market import Setting, build_market, settle_sequence_length
from advisor.planning.prediction import distribution
from advisor.planning.routing import routing_gain
from advisor.planning.traffic import traffic_answer

PRICED_ROUNDING_USD = 0.005


def plan_online(setting: Setting, notes: tuple[str, ...], *, today: datetime.date) -> Plan | Infeasible:
    """Cheapest fleet under the SLA and the budget, judged by simulation, or the limit that binds.

    Parameters
    ----------
    setting
        The question and what it is answered with.
    notes
        Sentences on how the scenario was read.
    today
        Date against which prices age.

    Raises
    ------
    InputError
        When the scenario names a trace that was not given along.
    SolverError
        When HiGHS stops without an answer.
    """
    scenario = setting.scenario
    workload, length_note = settle_sequence_length(scenario.workload, setting.profiles)
    notes += (length_note,) if length_note else ()
    market = build_market(setting, workload)
    if not market.offers:
        slow = [rejection for rejection in market.rejections if rejection.idle_response_s is not None]
        if slow:
            return too_slow(setting, workload, market, notes, today=today)
        return no_profiles(setting, market, notes, today=today)
    setting.progress("simulating the fleet")
    judged = judged_fleet(setting, market, workload)
    cost = round(sum(line.cost_usd_per_month for line in judged.lines), 2)
    if scenario.budget_usd_per_month is not None and cost > scenario.budget_usd_per_month + PRICED_ROUNDING_USD:
        return over_budget(setting, workload, market, judged, notes, today=today)
    setting.progress("comparing with the alternatives")
    steps, best_cpu, best_gpu = break_even(market, setting.demand_rps)
    return Plan(
        schema_version=1,
        status="plan",
        scenario=scenario,
        demand_rps=setting.demand_rps,
        asked_rps=judged.asked_rps,
        fleet=judged.lines,
        cost_usd_per_month=cost,
        p99_response_s=judged.prediction.p99_s,
        workloads=judged.prediction.answers,
        traffic=traffic_answer(setting, market, judged, workload),
        distribution=distribution(judged.prediction, judged.result, workload),
        simulation=judged.simulation,
        alternatives=alternatives(market, judged.lines, setting.demand_rps, cost),
        break_even=steps,
        routing_gain=routing_gain(setting, market, judged.lines, workload),
        best_cpu_usd_per_month=best_cpu,
        best_gpu_usd_per_month=best_gpu,
        fastest_idle_cpu_s=market.fastest_idle_cpu_s,
        warnings=notes + warnings_of(judged.lines, market, setting, today=today),
        assumptions=assumptions_of(judged.lines, market, scenario),
        rejections=market.rejections,
        evidence=evidence_of(judged.lines, setting.profiles, setting.trace),
        provenance=provenance_of(judged.lines, market, setting, today=today, solved=judged.solved),
    )
