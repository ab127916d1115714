"""Fleet lines from solved counts, and the fleet as the simulator takes it."""

from collections.abc import Callable

import numpy as np

from advisor.capacity.curve import ServiceCurve
from advisor.capacity.method import choose, replica_arrivals, response_time, steady_requests, streams_of
from advisor.capacity.pool import SEARCH_REQUESTS, Question, cap_capacity
from advisor.domain.plan import FleetLine
from advisor.domain.workload import Workload
from advisor.optimizer.solver import Solved
from advisor.planning.market import Market, Setting
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import REPLICATIONS, Stream, simulate
from advisor.units import usd_per_month

LEAST_SHARE = 0.02
"""Lines that answer less than this part of the traffic do not decide how long a simulation is."""
MOST_FIRST_REQUESTS = 32_000_000
"""Requests of the first round of a simulation, at most: some seconds."""


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
                saturation_frac=rate * market.traffic.mean_frac * float(slow.batch_time_s[cap - 1]) / cap / servers,
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


def fleet_streams(
    market: Market, lines: tuple[FleetLine, ...], end: Callable[[ServiceCurve], ServiceCurve]
) -> tuple[Stream, ...]:
    """A fleet as the simulator takes it, with its curves at some end of their interval.

    Where one replica can stand for all of its line, each line is a stream; else all lines share one stream of requests,
    split among them at random, and the routing works within each.
    """
    total = sum(line.rate_rps for line in lines)
    traffic = market.traffic
    laws = [
        end(market.curves[line.profile_id, line.threads]).service_law(line.max_batch, traffic.call_order)
        for line in lines
    ]
    if traffic.separable:
        return tuple(
            Stream(
                replica_arrivals(traffic, total, line.rate_rps / total, line.count * line.replicas),
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


def fleet_requests(market: Market, lines: tuple[FleetLine, ...], least: int) -> int:
    """Requests of a simulation of a fleet, so that the empty start of no line that matters shows."""
    total = sum(line.rate_rps for line in lines)
    needed = [
        steady_requests(
            market.curves[line.profile_id, line.threads].at_slow_end(),
            line.max_batch,
            line.rate_rps,
            servers=line.count * line.replicas,
            traffic=market.traffic,
        )
        * total
        / line.rate_rps
        for line in lines
        if line.rate_rps >= LEAST_SHARE * total
    ]
    return int(min(MOST_FIRST_REQUESTS, max(least, REPLICATIONS * max(needed))))
