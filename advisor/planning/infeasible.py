"""When no fleet meets all limits: the binding one, its smallest relaxation, and what is possible within it."""

import datetime
import math
from collections.abc import Callable

import numpy as np

from advisor.domain.plan import EvidenceLine, FleetLine, Infeasible, Rejection, Relaxation
from advisor.domain.profile import Profile
from advisor.domain.workload import Scenario, Sla, Workload
from advisor.optimizer.solver import Solved, cheapest_fleet, most_served
from advisor.planning.evidence import evidence_of, provenance_of, warnings_of
from advisor.planning.fleet import fleet_lines
from advisor.planning.judge import Judged
from advisor.planning.market import Market, Setting, build_market
from advisor.queueing.fluid import longest_fluid_delay_s
from advisor.units import s_to_ms

MOST_LOOSENING = 10.0
"""Limits up to this many times the one given are looked at."""
LOOSENING_STEPS = 7
"""Halvings of the range in its logarithm: ten to the 1/128 is a step of 2 %."""


def no_profiles(setting: Setting, market: Market, notes: tuple[str, ...], *, today: datetime.date) -> Infeasible:
    """No machine type in the regions has a profile of the model."""
    scenario, profiles = setting.scenario, setting.profiles
    model = scenario.workload.model
    known = sorted({profile.model.name for profile in profiles})
    of_model = [profile for profile in profiles if profile.model.name == model]
    if of_model:
        reason = f"None of the {len(of_model)} profiles of {model} fits {_what_excludes(scenario, of_model)}"
    else:
        reason = f"There is no profile of {model} yet; profiles exist for {', '.join(known)}"
    return _infeasible(
        setting,
        market,
        notes,
        binding="profiles",
        reason=f'{reason}. Run "advisor profile MODEL.onnx -o profile.json" on the target machine and load the file.',
        provenance_lines=(),
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
    if scenario.call_order == "as_measured" and all(cell.series_s is None for p in of_model for cell in p.cells):
        return "call_order as_measured: none keeps the order of its calls; measure again, or set it to independent"
    return "the precision and sequence length asked for on a machine type of the regions allowed"


def too_slow(
    setting: Setting, workload: Workload, market: Market, notes: tuple[str, ...], *, today: datetime.date
) -> Infeasible:
    """Every machine type with a profile misses a response-time limit even when idle, or at any rate."""
    slow = [rejection for rejection in market.rejections if rejection.idle_response_s is not None]
    nearest = min(slow, key=lambda rejection: (_excess(rejection, workload), rejection.machine_type))
    missed = _limit_missed(nearest, workload)
    idle_ms = s_to_ms(nearest.idle_response_s or math.inf)

    def feasible(factor: float) -> bool:
        cost = _cost_under(factor, setting, workload)
        return cost is not None and cost <= (setting.scenario.budget_usd_per_month or math.inf)

    needed = _smallest_factor(max(1.0, _excess(nearest, workload)), workload, feasible)
    when = "even when idle" if _excess(nearest, workload) > 1 else "when idle, and more at any rate"
    return _infeasible(
        setting,
        market,
        notes,
        binding="response_time",
        reason=(
            f"No machine type with a profile meets {missed.label} {s_to_ms(missed.response_time_s):g} ms: the nearest, "
            f"{nearest.machine_type}, needs {idle_ms:.4g} ms {when}."
        ),
        relaxations=() if needed is None else (_looser(workload, needed),),
        evidence=tuple(
            EvidenceLine(
                what=f"speed of {nearest.machine_type}: profile {profile.profile_id}", evidence=profile.evidence
            )
            for profile in setting.profiles
            if profile.profile_id == nearest.profile_id
        ),
        provenance_lines=(),
        today=today,
    )


def _limit_missed(rejection: Rejection, workload: Workload) -> Sla:
    """Limit that a machine type misses by most when idle."""
    return next((limit for limit in workload.limits if limit.percentile == rejection.percentile), workload.sla)


def _excess(rejection: Rejection, workload: Workload) -> float:
    """Response time when idle over the limit."""
    return (rejection.idle_response_s or math.inf) / _limit_missed(rejection, workload).response_time_s


def over_budget(
    setting: Setting,
    workload: Workload,
    market: Market,
    judged: Judged,
    notes: tuple[str, ...],
    *,
    today: datetime.date,
) -> Infeasible:
    """The cheapest fleet that meets the SLA costs more than the budget."""
    budget, demand_rps = setting.scenario.budget_usd_per_month, setting.demand_rps
    if budget is None:
        raise ValueError("a budget is needed to be over it")
    cost = round(sum(line.cost_usd_per_month for line in judged.lines), 2)
    affordable = most_served(market.program, budget)
    served_rps = min(demand_rps, market.program.total_rps(affordable.counts))
    best_effort = fleet_lines(setting, market, affordable, workload, served_rps) if served_rps > 0 else ()
    return _infeasible(
        setting,
        market,
        notes + warnings_of(judged.lines, market, setting, today=today),
        binding="budget",
        reason=(
            f"The cheapest fleet that meets the limit costs ${cost:,.2f} a month, ${cost - budget:,.2f} over the "
            f"budget of ${budget:,.2f}."
        ),
        relaxations=(
            *_budget_relaxations(budget, cost, workload.arrival_rate_rps, served_rps / demand_rps),
            *_looser_limit(setting, workload, budget),
        ),
        cheapest=judged.lines,
        best_effort=best_effort,
        served_frac=served_rps / demand_rps,
        overload_delay_s=_overload_delay_s(market, best_effort, demand_rps),
        provenance_lines=judged.lines,
        today=today,
        solved=judged.solved,
    )


def _overload_delay_s(market: Market, lines: tuple[FleetLine, ...], demand_rps: float) -> float | None:
    """Longest delay at the peak if all traffic of a day or week reached a fleet too small for it [s].

    Infinite where it never catches up; None where the fleet is not saturated at the peak, or there is none.
    """
    if not lines:
        return None
    pattern = np.array(market.traffic.period or (1.0,))
    saturated_rps = sum(line.rate_rps / line.saturation_frac for line in lines)
    longest = longest_fluid_delay_s(demand_rps * pattern, market.traffic.period_slot_s, saturated_rps)
    return longest if longest > 0 else None


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


def _looser_limit(setting: Setting, workload: Workload, budget_usd: float) -> tuple[Relaxation, ...]:
    """Limits at which the budget would do, within a few percent and at most ten times those given; empty if none."""

    def affordable(factor: float) -> bool:
        cost = _cost_under(factor, setting, workload)
        return cost is not None and cost <= budget_usd

    needed = _smallest_factor(1.0, workload, affordable)
    return () if needed is None else (_looser(workload, needed),)


def _cost_under(factor: float, setting: Setting, workload: Workload) -> float | None:
    """Cost of the cheapest fleet when all limits are looser by a factor [USD/month]; None: no machine type meets them."""
    limits = tuple(
        limit.model_copy(update={"response_time_s": factor * limit.response_time_s}) for limit in workload.limits
    )
    market = build_market(setting, workload.model_copy(update={"limits": limits}))
    return cheapest_fleet(market.program, setting.demand_rps).cost_usd if market.offers else None


def _smallest_factor(above: float, workload: Workload, feasible: Callable[[float], bool]) -> float | None:
    """Smallest factor on the limits that is feasible, up to ten times a first one; None: none is.

    To about 2 %, and such that the limit of the highest percentile has three digits.
    """
    low, high = 1.0, MOST_LOOSENING
    if not feasible(above * high):
        return None
    for _ in range(LOOSENING_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if feasible(above * middle) else (middle, high)
    now_ms = s_to_ms(workload.sla.response_time_s)
    needed_ms = float(f"{now_ms * above * high:.3g}")
    while not feasible(needed_ms / now_ms):
        needed_ms = float(f"{needed_ms * 1.01:.3g}")
    return needed_ms / now_ms


def _looser(workload: Workload, factor: float) -> Relaxation:
    """All limits looser by a factor, in words."""
    now_ms = s_to_ms(workload.sla.response_time_s)
    changes = [
        f"the {limit.label} limit from {s_to_ms(limit.response_time_s):,.4g} ms to about "
        f"{s_to_ms(factor * limit.response_time_s):,.4g} ms"
        for limit in workload.limits
    ]
    return Relaxation(
        limit=workload.sla.field,
        value_now=now_ms,
        value_needed=float(f"{now_ms * factor:.6g}"),
        sentence=f"Raise {' and '.join(changes)}.",
    )


def _infeasible(
    setting: Setting,
    market: Market,
    notes: tuple[str, ...],
    *,
    binding: str,
    reason: str,
    provenance_lines: tuple[FleetLine, ...],
    today: datetime.date,
    relaxations: tuple[Relaxation, ...] = (),
    cheapest: tuple[FleetLine, ...] = (),
    best_effort: tuple[FleetLine, ...] = (),
    served_frac: float = 0.0,
    overload_delay_s: float | None = None,
    solved: Solved | None = None,
    evidence: tuple[EvidenceLine, ...] = (),
) -> Infeasible:
    return Infeasible.model_validate(
        {
            "schema_version": 1,
            "status": "infeasible",
            "scenario": setting.scenario,
            "demand_rps": setting.demand_rps,
            "binding": binding,
            "reason": reason,
            "relaxations": relaxations,
            "cheapest": cheapest,
            "cheapest_usd_per_month": round(sum(line.cost_usd_per_month for line in cheapest), 2) if cheapest else None,
            "best_effort": best_effort,
            "served_frac": served_frac,
            "traffic_reason": market.traffic.reason,
            "overload_delay_s": None if overload_delay_s == math.inf else overload_delay_s,
            "never_catches_up": overload_delay_s == math.inf,
            "fastest_idle_cpu_s": market.fastest_idle_cpu_s,
            "warnings": notes,
            "rejections": market.rejections,
            "evidence": (*evidence_of(provenance_lines, setting.profiles, setting.trace), *evidence),
            "provenance": provenance_of(provenance_lines, market, setting, today=today, solved=solved),
        }
    )
