"""What a better router would save."""

import math
from dataclasses import replace

from advisor.capacity.method import steady_requests
from advisor.domain.plan import FleetLine, RoutingGain
from advisor.domain.workload import Routing, Workload
from advisor.planning.market import Market, Setting
from advisor.simulation.engine import Pool
from advisor.simulation.metrics import REPLICATIONS, Simulated, Stream, simulate
from advisor.units import usd_per_month

REQUESTS, MOST_REQUESTS = 400_000, 8_000_000
"""Requests per size of pool looked at, at least and at most."""
ROUTING_STREAM = 3
"""Stream of random numbers, beside those of search, judge and prediction."""
BETTER: tuple[Routing, ...] = ("least_outstanding", "central_queue")
"""Routings that are looked at, the one that is easier to have first."""


def routing_gain(
    setting: Setting, market: Market, lines: tuple[FleetLine, ...], workload: Workload
) -> RoutingGain | None:
    """Machines that would do behind another router for a fleet of one type, found by simulation.

    None when the fleet has several types, is a single machine, or no other router saves a machine.
    """
    if len(lines) != 1 or lines[0].count < 2:
        return None
    line = lines[0]
    best: tuple[int, Routing, Simulated] | None = None
    for routing in BETTER:
        if routing == setting.scenario.routing:
            continue
        found = _fewest(setting, market, line, routing, workload)
        if found is not None and (best is None or found[0] < best[0]):
            best = (found[0], routing, found[1])
    if best is None:
        return None
    count, routing, result = best
    value = result.percentile(workload.sla.percentile)
    return RoutingGain(
        routing=routing,
        count=count,
        value_s=value.value_s,
        ci95_s=value.ci95_s,
        saves_usd_per_month=round((line.count - count) * usd_per_month(line.price_usd_per_h), 2),
    )


def _fewest(
    setting: Setting, market: Market, line: FleetLine, routing: Routing, workload: Workload
) -> tuple[int, Simulated] | None:
    """Fewest machines, fewer than the line has, whose simulated percentiles are surely within the limits."""
    curve = market.curves[line.profile_id, line.threads].at_slow_end()
    law = curve.service_law(line.max_batch, market.traffic.call_order)
    least = line.saturation_frac * line.count
    low, high = max(1, math.ceil(least * 1.02)), line.count
    best: tuple[int, Simulated] | None = None
    while low < high:
        middle = (low + high) // 2
        pool = Pool(middle * line.replicas, law, routing, market.traffic.delay_s)
        traffic = replace(market.traffic, routing=routing)
        needed = steady_requests(curve, line.max_batch, line.rate_rps, servers=middle * line.replicas, traffic=traffic)
        result = simulate(
            (Stream(traffic.process(line.rate_rps), (pool,)),),
            seed=(setting.scenario.seed, ROUTING_STREAM),
            requests=int(min(MOST_REQUESTS, max(REQUESTS, REPLICATIONS * needed))),
            most_requests=REQUESTS,
            enough=lambda _result: True,
            executor=setting.executor,
        )
        values = [(result.percentile(limit.percentile), limit.response_time_s) for limit in workload.limits]
        if all(value.value_s + value.ci95_s <= limit_s for value, limit_s in values):
            best, high = (middle, result), middle
        else:
            low = middle + 1
    return best
