"""Fleet lines from solved counts, their predicted response time, and the simulator's verdict."""

import math
from dataclasses import dataclass

import numpy as np

from advisor.capacity.curve import ServiceCurve
from advisor.capacity.pool import response_time
from advisor.domain.plan import FleetLine, RoutingGain, Simulation, WorkloadAnswer
from advisor.domain.workload import Sla, Workload
from advisor.errors import SolverError
from advisor.optimizer.solver import Solved, cheapest_fleet
from advisor.planning.market import Market
from advisor.queueing.response import ResponseTime
from advisor.simulation.engine import ServiceLaw, simulate_pool
from advisor.simulation.metrics import REPLICATIONS, Estimate, PoolInput, simulate_fleet
from advisor.units import usd_per_month

REQUESTS = 2_000_000
"""Requests that judge a fleet at first."""
MOST_REQUESTS = 8_000_000
"""Requests before the simulator objects: while the interval reaches the limit, a run four times as long follows."""
PERCENTILE_RTOL = 1e-4
"""Predicted percentiles are printed with three digits."""
ROUTING_REQUESTS = 200_000
"""Requests per run when looking for what a shared queue would save."""
ENLARGEMENT = 1.02
"""Factor on the capacity asked of the fleet after the simulator objects."""
MOST_ENLARGEMENTS = 20


def fleet_lines(market: Market, solved: Solved, workload: Workload, demand_rps: float) -> tuple[FleetLine, ...]:
    """One line per offer with machines; traffic is split in proportion to capacity, so all are loaded alike."""
    used = np.flatnonzero(solved.counts)
    total = float(solved.counts @ market.program.capacity_rps)
    lines = []
    for index in used:
        offer, candidate = market.offers[index], market.candidates[index]
        count = int(solved.counts[index])
        capacity = count * candidate.capacity_rps
        rate = min(demand_rps, total) * capacity / total
        curve = market.curves[candidate.profile_id, candidate.threads].at_slow_end()
        per_replica = rate / (count * candidate.replicas)
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
                rate_rps=rate,
                utilization=response_time(curve, candidate.max_batch, per_replica).utilization,
                saturation_frac=per_replica * float(curve.batch_time_s[candidate.max_batch - 1]) / candidate.max_batch,
                replicas=candidate.replicas,
                threads=candidate.threads,
                max_batch=candidate.max_batch,
                profile_id=candidate.profile_id,
                precision=candidate.precision,
                extrapolated=candidate.extrapolated,
            )
        )
    return tuple(lines)


def answer_workload(market: Market, lines: tuple[FleetLine, ...], workload: Workload) -> tuple[WorkloadAnswer, float]:
    """Predicted SLA percentile over all requests of a fleet, and the predicted p99 [s]."""
    slow = _mixture([(line, _curve(market, line).at_slow_end()) for line in lines])
    likely = _mixture([(line, _curve(market, line)) for line in lines])
    percentile = workload.sla.percentile
    answer = WorkloadAnswer(
        workload=workload.name,
        percentile=percentile,
        limit_s=workload.sla.response_time_s,
        value_s=slow.percentile(percentile, rtol=PERCENTILE_RTOL),
        likely_s=likely.percentile(percentile, rtol=PERCENTILE_RTOL),
        method=slow.model,
    )
    p99_s = answer.value_s if percentile == 0.99 else slow.percentile(0.99, rtol=PERCENTILE_RTOL)
    return answer, p99_s


def _curve(market: Market, line: FleetLine) -> ServiceCurve:
    return market.curves[line.profile_id, line.threads]


def _mixture(parts: list[tuple[FleetLine, ServiceCurve]]) -> ResponseTime:
    """Response time of a request that is answered by each line with its share of the traffic."""
    total = sum(line.rate_rps for line, _ in parts)
    weighted = [
        (
            line.rate_rps / total,
            response_time(curve, line.max_batch, line.rate_rps / (line.count * line.replicas)),
        )
        for line, curve in parts
    ]
    return ResponseTime(
        "exact batch queue per replica, random routing, spread of service times as profiled",
        max(response.utilization for _, response in weighted),
        sum(share * response.mean_s for share, response in weighted),
        lambda t: sum(share * response.tail(t) for share, response in weighted),
    )


@dataclass(frozen=True)
class Judged:
    """A fleet that the simulator accepts, with the solution it came from."""

    solved: Solved
    lines: tuple[FleetLine, ...]
    simulation: Simulation
    asked_rps: float


def judged_fleet(market: Market, workload: Workload, demand_rps: float, seed: int) -> Judged:
    """Cheapest fleet whose simulated percentile is within the limit.

    When the simulator objects, the fleet is solved again for 2 % more capacity than it had.

    Raises
    ------
    SolverError
        When HiGHS stops without an answer, or no enlargement satisfies the simulator.
    """
    asked = demand_rps
    for enlarged in range(MOST_ENLARGEMENTS):
        solved = cheapest_fleet(market.program, asked)
        lines = fleet_lines(market, solved, workload, demand_rps)
        simulation = simulate_lines(market, lines, workload.sla, seed, enlarged)
        if simulation.passed:
            return Judged(solved, lines, simulation, asked)
        asked = max(asked, float(solved.counts @ market.program.capacity_rps)) * ENLARGEMENT
    raise SolverError(
        f"the simulator still objects after the fleet was enlarged {MOST_ENLARGEMENTS} times: "
        f"{simulation.value_s:.4g} s against the limit of {workload.sla.response_time_s:.4g} s"
    )


def simulate_lines(market: Market, lines: tuple[FleetLine, ...], sla: Sla, seed: int, enlarged: int) -> Simulation:
    """Simulate a fleet with service times at the slow end of their interval, until its interval is below the limit.

    At the most requests the estimate itself decides.
    """
    total = sum(line.rate_rps for line in lines)
    pools = tuple(
        PoolInput(
            line.rate_rps / (line.count * line.replicas),
            line.rate_rps / total,
            _curve(market, line).at_slow_end().service_law(line.max_batch),
        )
        for line in lines
    )
    requests = REQUESTS
    p99, value = simulate_fleet(pools, (0.99, sla.percentile), requests=requests, seed=seed)
    while value.value_s + value.ci95_s > sla.response_time_s and requests < MOST_REQUESTS:
        requests *= 4
        p99, value = simulate_fleet(pools, (0.99, sla.percentile), requests=requests, seed=seed)
    return Simulation(
        p99_response_s=p99.value_s,
        ci95_s=p99.ci95_s,
        percentile=sla.percentile,
        value_s=value.value_s,
        value_ci95_s=value.ci95_s,
        requests=requests,
        replications=REPLICATIONS,
        seed=seed,
        passed=value.value_s <= sla.response_time_s,
        enlarged=enlarged,
    )


def routing_gain(market: Market, lines: tuple[FleetLine, ...], sla: Sla, seed: int) -> RoutingGain | None:
    """Machines that would do if all replicas of a one-type fleet drew from one queue, found by simulation.

    None when the fleet has several types, is a single machine, or a shared queue saves nothing.
    """
    if len(lines) != 1 or lines[0].count < 2:
        return None
    line = lines[0]
    curve = _curve(market, line).at_slow_end()
    law = curve.service_law(line.max_batch)
    saturated = line.replicas * line.max_batch / float(curve.batch_time_s[line.max_batch - 1])
    low, high = max(1, math.ceil(line.rate_rps / saturated * 1.02)), line.count
    best: tuple[int, Estimate] | None = None
    while low < high:
        middle = (low + high) // 2
        found = _shared_queue(line.rate_rps, law, middle * line.replicas, sla.percentile, seed)
        if found.value_s + found.ci95_s <= sla.response_time_s:
            best, high = (middle, found), middle
        else:
            low = middle + 1
    if best is None:
        return None
    count, value = best
    return RoutingGain(
        routing="central_queue",
        count=count,
        value_s=value.value_s,
        ci95_s=value.ci95_s,
        saves_usd_per_month=round((line.count - count) * usd_per_month(line.price_usd_per_h), 2),
    )


def _shared_queue(rate_rps: float, law: ServiceLaw, servers: int, percentile: float, seed: int) -> Estimate:
    """Percentile of one queue before all servers, with a Student interval over five runs."""
    values = [
        float(
            np.quantile(
                simulate_pool(
                    rate_rps,
                    law,
                    servers=servers,
                    requests=ROUTING_REQUESTS,
                    rng=np.random.default_rng(stream),
                ),
                percentile,
            )
        )
        for stream in np.random.SeedSequence([seed, servers]).spawn(5)
    ]
    return Estimate(float(np.mean(values)), 2.776 * float(np.std(values, ddof=1)) / math.sqrt(5))
