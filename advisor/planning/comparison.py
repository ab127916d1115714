"""What else could be had: other machine types, and CPU against GPU over the whole range of rates."""

import math

import numpy as np

from advisor.domain.plan import Alternative, BreakEven, FleetLine, Step, Winner
from advisor.optimizer.formulation import CoveringProgram, undominated
from advisor.optimizer.staircase import Staircase, compare, money_unit, staircase
from advisor.planning.market import Market
from advisor.units import usd_per_month

MOST_ALTERNATIVES = 5


def alternatives(
    market: Market, lines: tuple[FleetLine, ...], demand_rps: float, cost_usd: float
) -> tuple[Alternative, ...]:
    """Cheapest fleet of each other machine type alone, the five cheapest.

    Sizes of one family that cost the same with the same profile are one alternative: the size whose replicas were
    measured together, then the one with the fewest machines, stands for all.
    """
    taken = {line.machine_key for line in lines}
    best: dict[str, Alternative] = {}
    for offer, candidate in zip(market.offers, market.candidates, strict=True):
        if candidate.machine_type in taken:
            continue
        count = math.ceil(demand_rps / candidate.capacity_rps * (1 - 1e-12))
        cost = round(count * usd_per_month(offer.price_usd_per_h), 2)
        known = best.get(candidate.machine_type)
        if known is not None and known.cost_usd_per_month <= cost:
            continue
        best[candidate.machine_type] = Alternative(
            machine_type=candidate.machine_type.split("/", 1)[1],
            label=candidate.label,
            kind=candidate.kind,
            offer=offer.kind,
            region=offer.region,
            count=count,
            cost_usd_per_month=cost,
            extra_frac=cost / cost_usd - 1,
            utilization_frac=demand_rps / (count * candidate.capacity_rps),
            profile_id=candidate.profile_id,
            precision=candidate.precision,
            extrapolated=candidate.extrapolated,
        )
    ordered = sorted(
        best.values(),
        key=lambda option: (
            option.cost_usd_per_month,
            option.extrapolated,
            option.count,
            option.machine_type,
        ),
    )
    distinct: dict[tuple[str, float, str], Alternative] = {}
    for option in ordered:
        distinct.setdefault((option.profile_id, option.cost_usd_per_month, option.region), option)
    return tuple(distinct.values())[:MOST_ALTERNATIVES]


def break_even(market: Market, demand_rps: float) -> tuple[BreakEven, float | None, float | None]:
    """Cost staircases of all-CPU, all-GPU and any fleets, and what the first two cost at the demand."""
    cpu, gpu = market.of_kind("cpu"), market.of_kind("gpu")
    up_to = _range_end(demand_rps, gpu)
    most = max(_single_type_cost(program, up_to) for program in (cpu, gpu) if program.cost_usd.size)
    unit = money_unit(most)
    stairs = {
        "cpu": staircase(cpu, up_to, unit),
        "gpu": staircase(gpu, up_to, unit),
        "mixed": staircase(market.program, up_to, unit),
    }
    both = cpu.cost_usd.size > 0 and gpu.cost_usd.size > 0
    winners = compare(stairs["cpu"], stairs["gpu"], up_to) if both else ()
    steps = BreakEven(
        cpu=_steps(stairs["cpu"]),
        gpu=_steps(stairs["gpu"]),
        mixed=_steps(stairs["mixed"]),
        winners=tuple(
            Winner.model_validate({"from_rps": w.from_rps, "to_rps": w.to_rps, "winner": w.winner}) for w in winners
        ),
        up_to_rps=up_to,
        resolution_usd=unit,
    )
    return steps, _cost_at(stairs["cpu"], demand_rps), _cost_at(stairs["gpu"], demand_rps)


def _range_end(demand_rps: float, gpu: CoveringProgram) -> float:
    """Four times the demand, or twice what the cheapest GPU machine sustains, within a hundred times the demand."""
    if gpu.cost_usd.size == 0:
        return 4 * demand_rps
    cheapest = int(undominated(gpu)[0])
    return max(4 * demand_rps, min(2 * float(gpu.capacity_rps[cheapest]), 100 * demand_rps))


def _single_type_cost(program: CoveringProgram, rate_rps: float) -> float:
    """Least cost of covering a rate with one type of machine [USD/month]."""
    return float((np.ceil(rate_rps / program.capacity_rps) * program.cost_usd).min())


def _steps(stairs: Staircase) -> tuple[Step, ...]:
    return tuple(
        Step(rate_rps=float(rate), cost_usd_per_month=round(float(cost), 2))
        for rate, cost in zip(stairs.rate_rps, stairs.cost_usd, strict=True)
    )


def _cost_at(stairs: Staircase, rate_rps: float) -> float | None:
    cost = float(stairs.cost_at(np.array([rate_rps]))[0])
    return None if math.isinf(cost) else round(cost, 2)
