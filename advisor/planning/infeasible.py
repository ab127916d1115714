"""When no fleet meets all limits: the binding one, its smallest relaxation, and what is possible within it."""

import datetime
import math

from advisor.domain.machine import Catalog
from advisor.domain.plan import FleetLine, Infeasible, Rejection, Relaxation
from advisor.domain.profile import Profile
from advisor.domain.workload import Scenario, Workload
from advisor.optimizer.solver import cheapest_fleet, most_served
from advisor.planning.fleet import Judged, fleet_lines
from advisor.planning.market import Market, build_market
from advisor.planning.trace import evidence_of, provenance_of
from advisor.units import ms_to_s, s_to_ms

MOST_LOOSENING = 10.0
"""Limits up to this many times the one given are looked at."""
LOOSENING_STEPS = 5
"""Halvings of the range in its logarithm: ten to the 1/32 is a step of 7 %."""


def no_profiles(
    scenario: Scenario, market: Market, profiles: tuple[Profile, ...], notes: tuple[str, ...], *, today: datetime.date
) -> Infeasible:
    """No machine type in the regions has a profile of the model."""
    model = scenario.workload.model
    known = sorted({profile.model.name for profile in profiles})
    of_model = [profile for profile in profiles if profile.model.name == model]
    if of_model:
        reason = (
            f"None of the {len(of_model)} profiles of {model} fits the precision, the sequence length or a machine type "
            "in the regions allowed"
        )
    else:
        reason = f"There is no profile of {model} yet; profiles exist for {', '.join(known)}"
    return _infeasible(
        scenario,
        market,
        notes,
        binding="profiles",
        reason=f'{reason}. Run "advisor profile MODEL.onnx -o profile.json" on the target machine and load the file.',
        provenance_lines=(),
        profiles=profiles,
        today=today,
    )


def too_slow(
    scenario: Scenario,
    workload: Workload,
    market: Market,
    profiles: tuple[Profile, ...],
    catalog: Catalog,
    regions: tuple[str, ...],
    notes: tuple[str, ...],
    *,
    today: datetime.date,
) -> Infeasible:
    """Every machine type with a profile misses the response-time limit even when idle."""
    slow = [rejection for rejection in market.rejections if rejection.idle_response_s is not None]
    nearest = min(slow, key=lambda rejection: (rejection.idle_response_s or math.inf, rejection.machine_type))
    needed_s = _smallest_limit(nearest, workload, profiles, catalog, regions)
    label = workload.sla.label
    now_ms, needed_ms = s_to_ms(workload.sla.response_time_s), s_to_ms(needed_s)
    idle_ms = s_to_ms(nearest.idle_response_s or math.inf)
    reason = (
        f"No machine type with a profile meets {label} {now_ms:g} ms: the nearest, {nearest.machine_type}, "
        f"needs {idle_ms:.4g} ms even when idle"
    )
    relaxation = Relaxation(
        limit=workload.sla.field,
        value_now=now_ms,
        value_needed=needed_ms,
        sentence=f"Raise the {label} limit from {now_ms:g} ms to {needed_ms:g} ms, or add the profile of a faster machine.",
    )
    return _infeasible(
        scenario,
        market,
        notes,
        binding="response_time",
        reason=reason + ".",
        relaxations=(relaxation,),
        provenance_lines=(),
        profiles=profiles,
        today=today,
    )


def _smallest_limit(
    nearest: Rejection,
    workload: Workload,
    profiles: tuple[Profile, ...],
    catalog: Catalog,
    regions: tuple[str, ...],
) -> float:
    """Smallest limit, in whole milliseconds (tenths below 10 ms), at which some machine type sustains a rate [s]."""
    idle_ms = s_to_ms(nearest.idle_response_s or math.inf)
    grain = 0.1 if idle_ms < 10 else 1.0
    limit_ms = math.ceil(idle_ms / grain + 1e-9) * grain
    while True:
        limit_s = ms_to_s(round(limit_ms, 1))
        relaxed = workload.model_copy(update={"sla": workload.sla.model_copy(update={"response_time_s": limit_s})})
        if build_market(relaxed, profiles, catalog, regions, lambda _line: None).offers:
            return limit_s
        limit_ms += grain


def over_budget(
    scenario: Scenario,
    workload: Workload,
    market: Market,
    judged: Judged,
    profiles: tuple[Profile, ...],
    catalog: Catalog,
    regions: tuple[str, ...],
    notes: tuple[str, ...],
    *,
    today: datetime.date,
) -> Infeasible:
    """The cheapest fleet that meets the SLA costs more than the budget."""
    budget = scenario.budget_usd_per_month
    if budget is None:
        raise ValueError("a budget is needed to be over it")
    demand_rps = workload.arrival_rate_rps * (1 + scenario.headroom_frac)
    cost = round(sum(line.cost_usd_per_month for line in judged.lines), 2)
    affordable = most_served(market.program, budget)
    served_rps = min(demand_rps, float(affordable.counts @ market.program.capacity_rps))
    best_effort = fleet_lines(market, affordable, workload, served_rps) if served_rps > 0 else ()
    return _infeasible(
        scenario,
        market,
        notes,
        binding="budget",
        reason=(
            f"The cheapest fleet that meets the limit costs ${cost:,.2f} a month, ${cost - budget:,.2f} over the "
            f"budget of ${budget:,.2f}."
        ),
        relaxations=(
            *_budget_relaxations(budget, cost, workload.arrival_rate_rps, served_rps / demand_rps),
            *_looser_limit(workload, demand_rps, budget, profiles, catalog, regions),
        ),
        cheapest=judged.lines,
        best_effort=best_effort,
        served_frac=served_rps / demand_rps,
        provenance_lines=judged.lines,
        profiles=profiles,
        today=today,
        gap=judged.solved.gap_frac,
    )


def _budget_relaxations(
    budget_usd: float, cost_usd: float, rate_rps: float, served_frac: float
) -> tuple[Relaxation, ...]:
    """Budget that would do, and rate that the budget does for."""
    money = Relaxation(
        limit="budget_usd_per_month",
        value_now=budget_usd,
        value_needed=cost_usd,
        sentence=f"Raise the budget from ${budget_usd:,.2f} to ${cost_usd:,.2f} a month.",
    )
    possible = math.floor(rate_rps * served_frac * 100) / 100
    if possible == 0:
        return (money,)
    traffic = Relaxation(
        limit="demand.rate_rps",
        value_now=rate_rps,
        value_needed=possible,
        sentence=f"Within the budget {possible:g} of {rate_rps:g} requests/s can be served.",
    )
    return (money, traffic)


def _looser_limit(
    workload: Workload,
    demand_rps: float,
    budget_usd: float,
    profiles: tuple[Profile, ...],
    catalog: Catalog,
    regions: tuple[str, ...],
) -> tuple[Relaxation, ...]:
    """Limit at which the budget would do, within a few percent and at most ten times the one given; empty if none."""
    now_ms = s_to_ms(workload.sla.response_time_s)

    def affordable(limit_ms: float) -> bool:
        sla = workload.sla.model_copy(update={"response_time_s": ms_to_s(limit_ms)})
        market = build_market(workload.model_copy(update={"sla": sla}), profiles, catalog, regions, lambda _line: None)
        return bool(market.offers) and cheapest_fleet(market.program, demand_rps).cost_usd <= budget_usd

    low, high = 1.0, MOST_LOOSENING
    if not affordable(now_ms * high):
        return ()
    for _ in range(LOOSENING_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if affordable(now_ms * middle) else (middle, high)
    needed_ms = float(f"{now_ms * high:.3g}")
    while not affordable(needed_ms):
        needed_ms = float(f"{needed_ms * 1.01:.3g}")
    label = workload.sla.label
    return (
        Relaxation(
            limit=workload.sla.field,
            value_now=now_ms,
            value_needed=needed_ms,
            sentence=f"With a {label} limit of about {needed_ms:,.4g} ms instead of {now_ms:,.4g} ms the budget would do.",
        ),
    )


def _infeasible(
    scenario: Scenario,
    market: Market,
    notes: tuple[str, ...],
    *,
    binding: str,
    reason: str,
    provenance_lines: tuple[FleetLine, ...],
    profiles: tuple[Profile, ...],
    today: datetime.date,
    relaxations: tuple[Relaxation, ...] = (),
    cheapest: tuple[FleetLine, ...] = (),
    best_effort: tuple[FleetLine, ...] = (),
    served_frac: float = 0.0,
    gap: float | None = None,
) -> Infeasible:
    return Infeasible.model_validate(
        {
            "schema_version": 1,
            "status": "infeasible",
            "scenario": scenario,
            "demand_rps": scenario.workload.arrival_rate_rps * (1 + scenario.headroom_frac),
            "binding": binding,
            "reason": reason,
            "relaxations": relaxations,
            "cheapest": cheapest,
            "cheapest_usd_per_month": round(sum(line.cost_usd_per_month for line in cheapest), 2) if cheapest else None,
            "best_effort": best_effort,
            "served_frac": served_frac,
            "fastest_idle_cpu_s": market.fastest_idle_cpu_s,
            "warnings": notes,
            "rejections": market.rejections,
            "evidence": evidence_of(provenance_lines, profiles),
            "provenance": provenance_of(provenance_lines, market, profiles, scenario.seed, today=today, gap=gap),
        }
    )
