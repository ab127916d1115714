"""When no fleet meets all limits: the binding one, its smallest relaxation, and what is possible within it."""

import datetime
import math
from collections.abc import Callable

from advisor.domain.machine import Catalog
from advisor.domain.plan import EvidenceLine, FleetLine, Infeasible, Relaxation
from advisor.domain.profile import Profile
from advisor.domain.workload import Scenario, Sla, Workload
from advisor.optimizer.solver import cheapest_fleet, most_served
from advisor.planning.fleet import Judged, fleet_lines
from advisor.planning.market import Market, build_market
from advisor.planning.trace import evidence_of, provenance_of, warnings_of
from advisor.units import ms_to_s, s_to_ms

MOST_LOOSENING = 10.0
"""Limits up to this many times the one given are looked at."""
LOOSENING_STEPS = 7
"""Halvings of the range in its logarithm: ten to the 1/128 is a step of 2 %."""


def no_profiles(
    scenario: Scenario, market: Market, profiles: tuple[Profile, ...], notes: tuple[str, ...], *, today: datetime.date
) -> Infeasible:
    """No machine type in the regions has a profile of the model."""
    model = scenario.workload.model
    known = sorted({profile.model.name for profile in profiles})
    of_model = [profile for profile in profiles if profile.model.name == model]
    if of_model:
        reason = f"None of the {len(of_model)} profiles of {model} fits {_what_excludes(scenario, of_model)}"
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


def _what_excludes(scenario: Scenario, of_model: list[Profile]) -> str:
    """Say which choice of the scenario no profile fits, with the values that some profile has."""
    lengths = sorted(
        {profile.model.sequence_length for profile in of_model if profile.model.sequence_length is not None}
    )
    precisions = sorted({profile.model.precision for profile in of_model if profile.model.precision is not None})
    asked = scenario.workload
    if asked.sequence_length is not None and lengths and asked.sequence_length not in lengths:
        return f"a sequence length of {asked.sequence_length}; there are {', '.join(map(str, lengths))}"
    if asked.precisions and not set(asked.precisions) & set(precisions):
        return f"the precisions {', '.join(asked.precisions)}; there are {', '.join(precisions)}"
    return "the precision and sequence length asked for on a machine type of the regions allowed"


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
    label = workload.sla.label
    now_ms, idle_ms = s_to_ms(workload.sla.response_time_s), s_to_ms(nearest.idle_response_s or math.inf)
    demand_rps = workload.arrival_rate_rps * (1 + scenario.headroom_frac)

    def feasible(limit_ms: float) -> bool:
        cost = _cost_under(limit_ms, workload, demand_rps, profiles, catalog, regions)
        return cost is not None and cost <= (scenario.budget_usd_per_month or math.inf)

    needed_ms = _smallest_limit_ms(idle_ms, feasible)
    reason = (
        f"No machine type with a profile meets {label} {now_ms:g} ms: the nearest, {nearest.machine_type}, "
        f"needs {idle_ms:.4g} ms even when idle"
    )
    relaxations = [] if needed_ms is None else [_limit_relaxation(workload.sla, needed_ms)]
    return _infeasible(
        scenario,
        market,
        notes,
        binding="response_time",
        reason=reason + ".",
        relaxations=tuple(relaxations),
        evidence=tuple(
            EvidenceLine(
                what=f"speed of {nearest.machine_type}: profile {profile.profile_id}", evidence=profile.evidence
            )
            for profile in profiles
            if profile.profile_id == nearest.profile_id
        ),
        provenance_lines=(),
        profiles=profiles,
        today=today,
    )


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
        notes + warnings_of(judged.lines, market, catalog, profiles, today=today),
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
        cost = _cost_under(limit_ms, workload, demand_rps, profiles, catalog, regions)
        return cost is not None and cost <= budget_usd

    needed_ms = _smallest_limit_ms(now_ms, affordable)
    return () if needed_ms is None else (_limit_relaxation(workload.sla, needed_ms),)


def _cost_under(
    limit_ms: float,
    workload: Workload,
    demand_rps: float,
    profiles: tuple[Profile, ...],
    catalog: Catalog,
    regions: tuple[str, ...],
) -> float | None:
    """Cost of the cheapest fleet under another limit [USD/month]; None when no machine type meets it."""
    sla = workload.sla.model_copy(update={"response_time_s": ms_to_s(limit_ms)})
    market = build_market(workload.model_copy(update={"sla": sla}), profiles, catalog, regions, lambda _line: None)
    return cheapest_fleet(market.program, demand_rps).cost_usd if market.offers else None


def _smallest_limit_ms(above_ms: float, feasible: Callable[[float], bool]) -> float | None:
    """Smallest limit that is feasible, to about 2 % and three digits, up to ten times a first one [ms]; None: none is."""
    low, high = 1.0, MOST_LOOSENING
    if not feasible(above_ms * high):
        return None
    for _ in range(LOOSENING_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if feasible(above_ms * middle) else (middle, high)
    needed = float(f"{above_ms * high:.3g}")
    while not feasible(needed):
        needed = float(f"{needed * 1.01:.3g}")
    return needed


def _limit_relaxation(sla: Sla, needed_ms: float) -> Relaxation:
    now_ms = s_to_ms(sla.response_time_s)
    return Relaxation(
        limit=sla.field,
        value_now=now_ms,
        value_needed=needed_ms,
        sentence=f"Raise the {sla.label} limit from {now_ms:,.4g} ms to about {needed_ms:,.4g} ms.",
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
    evidence: tuple[EvidenceLine, ...] = (),
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
            "evidence": (*evidence_of(provenance_lines, profiles), *evidence),
            "provenance": provenance_of(provenance_lines, market, profiles, scenario.seed, today=today, gap=gap),
        }
    )
