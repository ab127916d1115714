"""Response time that a plan promises: by a model where there is one, else by a simulation of its own."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.capacity.curve import ServiceCurve
from advisor.capacity.method import CHECK_CELLS, SIMULATED_TARGET, choose, response_time
from advisor.domain.plan import DistributionPoint, FleetLine, Method, WorkloadAnswer
from advisor.domain.workload import Workload
from advisor.planning.fleet import fleet_requests, fleet_streams
from advisor.planning.market import Market, Setting
from advisor.queueing.response import ResponseTime, mixture
from advisor.simulation.metrics import Simulated, simulate

PERCENTILE_RTOL = 1e-4
"""Predicted percentiles are printed with three digits."""
REQUESTS = 500_000
MOST_REQUESTS = 4_000_000
"""Requests of a simulated prediction at first, and at most while its interval is wide."""
PREDICTION_STREAM = 2
"""Stream of random numbers of the prediction."""
POINTS = 32
"""Points of the distribution shown."""
POINT_CELLS = 160

End = Callable[[ServiceCurve], ServiceCurve]


@dataclass(frozen=True)
class Prediction:
    """What a plan promises.

    Attributes
    ----------
    answers
        Percentile under each limit.
    p99_s
        Predicted p99 [s].
    tail
        P(T > t) at the slow end of the service times.
    """

    answers: tuple[WorkloadAnswer, ...]
    p99_s: float
    tail: Callable[[float], float]


def predict(setting: Setting, market: Market, lines: tuple[FleetLine, ...], workload: Workload) -> Prediction:
    """Percentiles over all requests of a fleet, with service times at the slow end and as profiled."""
    method = fleet_method(market, lines)
    if method.exactness == "simulated":
        slow, likely = (
            _simulated(setting, market, lines, workload, end) for end in (ServiceCurve.at_slow_end, _as_profiled)
        )
        error = max(slow.percentile(limit.percentile).ci95_frac for limit in workload.limits)
        method = method.model_copy(update={"error_frac": error})

        def percentiles(result: Simulated) -> Callable[[float], float]:
            return lambda q: result.percentile(q).value_s

        low, high = percentiles(likely), percentiles(slow)
        tail: Callable[[float], float] = slow.tail
    else:
        mixed = [_mixture(market, lines, end) for end in (ServiceCurve.at_slow_end, _as_profiled)]
        high, low = (_percentile_of(response) for response in mixed)
        tail = _mixture(market, lines, ServiceCurve.at_slow_end, cells=POINT_CELLS).tail
    values = {limit.percentile: high(limit.percentile) for limit in workload.limits}
    answers = tuple(
        WorkloadAnswer(
            workload=workload.name,
            percentile=limit.percentile,
            limit_s=limit.response_time_s,
            value_s=values[limit.percentile],
            likely_s=min(values[limit.percentile], low(limit.percentile)),
            method=method,
        )
        for limit in workload.limits
    )
    return Prediction(answers, values[0.99] if 0.99 in values else high(0.99), tail)


def fleet_method(market: Market, lines: tuple[FleetLine, ...]) -> Method:
    """Method of a whole fleet: that of its least certain line; lines that share bursts are simulated."""
    rank = {"exact": 0, "approximation": 1, "simulated": 2}
    methods = [
        choose(market.curves[line.profile_id, line.threads], line.max_batch, line.count * line.replicas, market.traffic)
        for line in lines
    ]
    if len(lines) > 1 and market.traffic.shape != "poisson":
        reason = "several types of machines share arrivals that are not Poisson"
        return Method(model="simulation", exactness="simulated", error_frac=SIMULATED_TARGET, reason=reason)
    worst = max(methods, key=lambda method: (rank[method.exactness], method.error_frac))
    equal = [method for method in methods if method.exactness == worst.exactness]
    return worst.model_copy(
        update={
            "model": " and ".join(dict.fromkeys(method.model for method in equal)),
            "reason": "; ".join(dict.fromkeys(method.reason for method in equal)),
        }
    )


def _as_profiled(curve: ServiceCurve) -> ServiceCurve:
    return curve


def _percentile_of(response: ResponseTime) -> Callable[[float], float]:
    return lambda q: response.percentile(q, rtol=PERCENTILE_RTOL)


def _simulated(
    setting: Setting, market: Market, lines: tuple[FleetLine, ...], workload: Workload, end: End
) -> Simulated:
    """Simulation of its own, not the one that judges: another seed, until the interval meets its target or the cap."""

    def narrow(result: Simulated) -> bool:
        return all(result.percentile(limit.percentile).ci95_frac <= SIMULATED_TARGET for limit in workload.limits)

    return simulate(
        fleet_streams(market, lines, end),
        seed=(setting.scenario.seed, PREDICTION_STREAM),
        requests=fleet_requests(market, lines, REQUESTS),
        most_requests=MOST_REQUESTS,
        enough=narrow,
        executor=setting.executor,
    )


def _mixture(market: Market, lines: tuple[FleetLine, ...], end: End, *, cells: int = CHECK_CELLS) -> ResponseTime:
    """Response time of a request that is answered by each line with its share of the traffic."""
    total = sum(line.rate_rps for line in lines)
    weighted = [
        (
            line.rate_rps / total,
            response_time(
                end(market.curves[line.profile_id, line.threads]),
                line.max_batch,
                line.rate_rps,
                servers=line.count * line.replicas,
                traffic=market.traffic,
                cells=cells,
            ),
        )
        for line in lines
    ]
    return mixture(weighted, fleet_method(market, lines).model)


def distribution(prediction: Prediction, judge: Simulated, workload: Workload) -> tuple[DistributionPoint, ...]:
    """Share of requests slower than a time, predicted and simulated, from nearly all to hardly any."""
    first = 0.8 * judge.percentile(0.01).value_s
    last = max(1.3 * workload.sla.response_time_s, judge.percentile(0.9995).value_s)
    return tuple(
        DistributionPoint(
            response_time_s=float(t), predicted_frac=prediction.tail(float(t)), simulated_frac=judge.tail(float(t))
        )
        for t in np.geomspace(first, last, POINTS)
    )
