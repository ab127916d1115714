"""What else could be had: other machine types, and CPU against GPU over the whole range of rates."""

import numpy as np

from advisor.domain.plan import Alternative, BreakEven, FleetLine, Step, Winner
from advisor.optimizer.formulation import CoveringProgram, undominated
from advisor.optimizer.solver import cheapest_fleet
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
    for index, (offer, candidate) in enumerate(zip(market.offers, market.candidates, strict=True)):
        if candidate.machine_type in taken:
            continue
        count = market.program.least_count(index, demand_rps)
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
            utilization_frac=demand_rps / float(market.program.rates(index, np.array([count]))[0]),
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
    programs = {"cpu": market.of_kind("cpu"), "gpu": market.of_kind("gpu"), "mixed": market.program}
    up_to = _range_end(demand_rps, programs["gpu"])
    units = {name: money_unit(program, up_to) for name, program in programs.items() if program.cost_usd.size}
    stairs = {name: staircase(program, up_to, units.get(name, 1.0)) for name, program in programs.items()}
    both = "cpu" in units and "gpu" in units
    winners = compare(stairs["cpu"], stairs["gpu"], up_to) if both else ()
    steps = BreakEven(
        cpu=_steps(stairs["cpu"]),
        gpu=_steps(stairs["gpu"]),
        mixed=_steps(stairs["mixed"]),
        winners=tuple(
            Winner.model_validate({"from_rps": span.from_rps, "to_rps": span.to_rps, "winner": span.winner})
            for span in winners
        ),
        up_to_rps=up_to,
        resolution_usd=max(units.values()),
    )
    return steps, _cheapest_cost(programs["cpu"], demand_rps), _cheapest_cost(programs["gpu"], demand_rps)


def _cheapest_cost(program: CoveringProgram, demand_rps: float) -> float | None:
    """Cost of the cheapest fleet of one kind [USD/month]; None without any offer."""
    if program.cost_usd.size == 0:
        return None
    return round(cheapest_fleet(program, demand_rps).cost_usd, 2)


def _range_end(demand_rps: float, gpu: CoveringProgram) -> float:
    """Four times the demand, or twice what the cheapest GPU machine sustains, within a hundred times the demand."""
    if gpu.cost_usd.size == 0:
        return 4 * demand_rps
    cheapest = int(undominated(gpu)[0])
    return max(4 * demand_rps, min(2 * float(gpu.rate_each[cheapest]), 100 * demand_rps))


def _steps(stairs: Staircase) -> tuple[Step, ...]:
    return tuple(
        Step(rate_rps=float(rate), cost_usd_per_month=round(float(cost), 2))
        for rate, cost in zip(stairs.rate_rps, stairs.cost_usd, strict=True)
    )
