"""Which arrivals a plan rests on, and what simpler ones would have said."""

from dataclasses import replace

import numpy as np

from advisor.capacity.method import response_time
from advisor.domain.plan import TrafficAnswer
from advisor.domain.workload import PoissonArrivals, Workload
from advisor.optimizer.solver import cheapest_fleet
from advisor.planning.judge import Judged
from advisor.planning.market import Market, Setting, build_market
from advisor.planning.prediction import PERCENTILE_RTOL, fleet_method
from advisor.queueing.response import mixture

LOAD_LEVELS = 24
"""Levels to which the rates of a day or week are rounded up: the response time is computed once for each."""


def traffic_answer(setting: Setting, market: Market, judged: Judged, workload: Workload) -> TrafficAnswer:
    """Arrival process of the plan, why, and the fleet that Poisson arrivals would have made seem enough."""
    shape, reason = market.traffic.shape, market.traffic.reason
    if shape == "poisson":
        return TrafficAnswer(shape=shape, reason=reason, period_s=_over_the_period(market, judged, workload))
    setting.progress("asking what Poisson arrivals would have needed")
    mean_rps = workload.arrival_rate_rps * market.traffic.mean_frac
    calm = workload.model_copy(update={"arrivals": PoissonArrivals(), "arrival_rate_rps": mean_rps})
    calm_market = build_market(
        replace(setting, scenario=setting.scenario.model_copy(update={"workload": calm}), trace=None), calm
    )
    solved = cheapest_fleet(calm_market.program, setting.demand_rps * market.traffic.mean_frac)
    return TrafficAnswer(
        shape=shape,
        reason=reason,
        poisson_machines=int(solved.counts.sum()),
        poisson_usd_per_month=round(solved.cost_usd, 2),
    )


def _over_the_period(market: Market, judged: Judged, workload: Workload) -> float | None:
    """Percentile of the SLA over the whole day or week [s]: each moment counts with its requests.

    None where the rate is constant, or where the fleet has no analytic model.
    """
    pattern = np.array(market.traffic.period)
    if pattern.size == 0 or fleet_method(market, judged.lines).exactness == "simulated":
        return None
    levels = np.ceil(pattern * LOAD_LEVELS) / LOAD_LEVELS
    loads = np.unique(levels[levels > 0])
    weights = np.array([pattern[levels == load].sum() for load in loads]) / pattern.sum()
    total = sum(line.rate_rps for line in judged.lines)
    parts = [
        (
            float(weight) * line.rate_rps / total,
            response_time(
                market.curves[line.profile_id, line.threads].at_slow_end(),
                line.max_batch,
                float(load) * line.rate_rps,
                servers=line.count * line.replicas,
                traffic=market.traffic,
            ),
        )
        for load, weight in zip(loads, weights, strict=True)
        for line in judged.lines
    ]
    return mixture(parts, "over the period").percentile(workload.sla.percentile, rtol=PERCENTILE_RTOL)
