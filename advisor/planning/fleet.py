"""Fleet lines from solved counts, and the simulator's verdict on them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.capacity.curve import ServiceCurve
from advisor.capacity.method import choose, response_time, streams_of
from advisor.capacity.pool import SEARCH_REQUESTS, Question, cap_capacity
from advisor.domain.plan import FleetLine, SimulatedLimit, Simulation
from advisor.domain.workload import Workload
from advisor.errors import SolverError
from advisor.optimizer.solver import Solved, cheapest_fleet
from advisor.planning.market import Market, Setting
from advisor.simulation.arrivals import PoissonProcess
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import Simulated, Stream, simulate
from advisor.units import usd_per_month

REQUESTS = 2_000_000
"""Requests that judge a fleet at first."""
MOST_REQUESTS = 8_000_000
"""Requests before the estimate itself decides: while the interval reaches the limit, twice as many follow."""
ENLARGEMENT = 1.02
"""Factor on the capacity asked of the fleet after the simulator objects."""
MOST_ENLARGEMENTS = 20


def fleet_lines(
    setting: Setting, market: Market, solved: Solved, workload: Workload, demand_rps: float
) -> tuple[FleetLine, ...]:
    """One line per offer with machines; traffic is split in proportion to capacity, so all are loaded alike."""
    total = market.program.total_rps(solved.counts)
    question = setting.question(workload, market.traffic)
    lines = []
    for index in np.flatnonzero(solved.counts):
        offer, candidate = market.offers[index], market.candidates[index]
        count = int(solved.counts[index])
        capacity = float(market.program.rates(int(index), np.array([count]))[0])
        rate = min(demand_rps, total) * capacity / total
        curve = market.curves[candidate.profile_id, candidate.threads]
        servers, cap = count * candidate.replicas, candidate.max_batch
        slow = curve.at_slow_end()
        likely, high = (cap_capacity(other, cap, servers, question).rate_rps for other in (curve, curve.at_fast_end()))
        lines.append(
            FleetLine(
                workload=workload.name,
                machine_type=offer.machine_type.split("/", 1)[1],
                label=candidate.label,
                kind=candidate.kind,
                offer=offer.kind,
                region=offer.region,
                count=count,
                price_usd_per_h=offer.price_usd_per_h,
                cost_usd_per_month=round(count * usd_per_month(offer.price_usd_per_h), 2),
                price_date=offer.price_date,
                price_source=offer.source,
                capacity_rps=capacity,
                capacity_likely_rps=max(capacity, likely),
                capacity_high_rps=max(capacity, likely, high),
                rate_rps=rate,
                utilization=_utilization(slow, cap, rate, servers=servers, question=question),
                saturation_frac=rate * float(slow.batch_time_s[cap - 1]) / cap / servers,
                replicas=candidate.replicas,
                threads=candidate.threads,
                max_batch=cap,
                profile_id=candidate.profile_id,
                precision=candidate.precision,
                extrapolated=candidate.extrapolated,
            )
        )
    return tuple(lines)


def _utilization(curve: ServiceCurve, max_batch: int, rate_rps: float, *, servers: int, question: Question) -> float:
    """Share of time that a replica is busy."""
    traffic = question.traffic
    if choose(curve, max_batch, servers, traffic).exactness != "simulated":
        return response_time(curve, max_batch, rate_rps, servers=servers, traffic=traffic).utilization
    found = simulate(
        streams_of(curve, max_batch, rate_rps, servers=servers, traffic=traffic),
        seed=question.seed,
        requests=SEARCH_REQUESTS,
        most_requests=SEARCH_REQUESTS,
        enough=lambda _result: True,
    )
    return min(1.0, found.utilization)


@dataclass(frozen=True)
class Judged:
    """A fleet that the simulator accepts, with the solution it came from.

    Attributes
    ----------
    solved
        Counts and proof.
    lines
        The fleet.
    simulation
        The verdict.
    result
        Response times that it rests on.
    asked_rps
        Capacity asked of the fleet [1/s].
    """

    solved: Solved
    lines: tuple[FleetLine, ...]
    simulation: Simulation
    result: Simulated
    asked_rps: float


def judged_fleet(setting: Setting, market: Market, workload: Workload) -> Judged:
    """Cheapest fleet whose simulated percentiles are within the limits.

    When the simulator objects, the fleet is solved again for 2 % more capacity than it had.

    Raises
    ------
    SolverError
        When HiGHS stops without an answer, or no enlargement satisfies the simulator.
    """
    asked = setting.demand_rps
    for enlarged in range(MOST_ENLARGEMENTS):
        solved = cheapest_fleet(market.program, asked)
        lines = fleet_lines(setting, market, solved, workload, setting.demand_rps)
        result = _until_decided(setting, market, lines, workload)
        simulation = _verdict(result, workload, setting.scenario.seed, enlarged)
        if simulation.passed:
            return Judged(solved, lines, simulation, result, asked)
        setting.progress("the simulator objects; enlarging the fleet")
        asked = max(asked, market.program.total_rps(solved.counts)) * ENLARGEMENT
    missed = max(simulation.limits, key=lambda limit: limit.value_s / limit.limit_s)
    raise SolverError(
        f"the simulator still objects after the fleet was enlarged {MOST_ENLARGEMENTS} times: "
        f"{missed.value_s:.4g} s against the limit of {missed.limit_s:.4g} s"
    )


def fleet_streams(
    market: Market, lines: tuple[FleetLine, ...], end: Callable[[ServiceCurve], ServiceCurve]
) -> tuple[Stream, ...]:
    """A fleet as the simulator takes it, with its curves at some end of their interval.

    Of independent replicas one stands for all of its line; else all lines share one stream of requests, split among
    them at random, and the routing works within each.
    """
    total = sum(line.rate_rps for line in lines)
    traffic = market.traffic
    laws = [
        end(market.curves[line.profile_id, line.threads]).service_law(line.max_batch, traffic.call_order)
        for line in lines
    ]
    if traffic.independent:
        return tuple(
            Stream(
                PoissonProcess(line.rate_rps / (line.count * line.replicas)),
                (Pool(1, law, delay_s=traffic.delay_s),),
                weight=line.rate_rps / total,
            )
            for line, law in zip(lines, laws, strict=True)
        )
    pools = tuple(
        Pool(line.count * line.replicas, law, traffic.routing, traffic.delay_s, line.rate_rps / total)
        for line, law in zip(lines, laws, strict=True)
    )
    return (Stream(traffic.process(total), pools),)


def _until_decided(setting: Setting, market: Market, lines: tuple[FleetLine, ...], workload: Workload) -> Simulated:
    """Simulate until each percentile differs from its limit by more than its interval, or the cap is reached."""

    def decided(result: Simulated) -> bool:
        found = [(result.percentile(limit.percentile), limit.response_time_s) for limit in workload.limits]
        kept = all(value.value_s + value.ci95_s <= limit_s for value, limit_s in found)
        return kept or any(value.value_s - value.ci95_s > limit_s for value, limit_s in found)

    return simulate(
        fleet_streams(market, lines, ServiceCurve.at_slow_end),
        seed=setting.scenario.seed,
        requests=market.traffic.requests(REQUESTS, sum(line.rate_rps for line in lines)),
        most_requests=MOST_REQUESTS,
        enough=decided,
        executor=setting.executor,
    )


def _verdict(result: Simulated, workload: Workload, seed: int, enlarged: int) -> Simulation:
    limits = []
    for limit in workload.limits:
        found = result.percentile(limit.percentile)
        limits.append(
            SimulatedLimit(
                percentile=limit.percentile, limit_s=limit.response_time_s, value_s=found.value_s, ci95_s=found.ci95_s
            )
        )
    p99 = result.percentile(0.99)
    return Simulation(
        p99_response_s=p99.value_s,
        ci95_s=p99.ci95_s,
        limits=tuple(limits),
        requests=result.requests,
        replications=result.replications,
        mean_batch=result.mean_batch,
        stopped=result.stopped,
        seed=seed,
        passed=all(limit.value_s <= limit.limit_s for limit in limits),
        enlarged=enlarged,
    )
