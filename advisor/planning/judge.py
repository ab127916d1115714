"""The simulator's verdict on a fleet, and the cheapest fleet that it accepts."""

from dataclasses import dataclass

from advisor.capacity.curve import ServiceCurve
from advisor.domain.plan import FleetLine, SimulatedLimit, Simulation
from advisor.domain.workload import Workload
from advisor.errors import SolverError
from advisor.optimizer.solver import Solved, cheapest_fleet
from advisor.planning.fleet import fleet_lines, fleet_requests, fleet_streams
from advisor.planning.market import Market, Setting
from advisor.planning.prediction import Prediction, fleet_method, predict
from advisor.simulation.metrics import Simulated, simulate

REQUESTS = 2_000_000
"""Requests that judge a fleet at first, at least."""
MOST_REQUESTS = 8_000_000
"""Requests before the estimate itself decides: while the interval reaches the limit, twice as many follow."""
JUDGE_STREAM = 1
"""Stream of random numbers of the judge: not those of the search, which the fleet was fitted to."""
ENLARGEMENT = 1.02
"""Factor on the capacity asked of the fleet after the simulator objects."""
MOST_ENLARGEMENTS = 20


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
    prediction
        What the plan promises.
    asked_rps
        Capacity asked of the fleet [1/s].
    """

    solved: Solved
    lines: tuple[FleetLine, ...]
    simulation: Simulation
    result: Simulated
    prediction: Prediction
    asked_rps: float


def judged_fleet(setting: Setting, market: Market, workload: Workload) -> Judged:
    """Cheapest fleet whose simulated percentiles are within the limits.

    When the simulator objects, the fleet is solved again for 2 % more capacity than it had. Where the prediction is a
    simulation, too, it must be within the limits as well.

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
        exact = fleet_method(market, lines).exactness != "simulated"
        simulation = _verdict(result, workload, setting.scenario.seed, enlarged, surely=not exact)
        found = [(limit.value_s + (not exact) * limit.ci95_s, limit.limit_s) for limit in simulation.limits]
        if simulation.passed:
            setting.progress("predicting the response time")
            prediction = predict(setting, market, lines, workload)
            if exact or all(answer.value_s <= answer.limit_s for answer in prediction.answers):
                return Judged(solved, lines, simulation, result, prediction, asked)
            found = [(answer.value_s, answer.limit_s) for answer in prediction.answers]
        setting.progress("the simulator objects; enlarging the fleet")
        asked = max(asked, market.program.total_rps(solved.counts)) * ENLARGEMENT
    value_s, limit_s = max(found, key=lambda pair: pair[0] / pair[1])
    raise SolverError(
        f"the simulator still objects after the fleet was enlarged {MOST_ENLARGEMENTS} times: "
        f"{value_s:.4g} s against the limit of {limit_s:.4g} s"
    )


def _until_decided(setting: Setting, market: Market, lines: tuple[FleetLine, ...], workload: Workload) -> Simulated:
    """Simulate until each percentile differs from its limit by more than its interval, or the cap is reached."""

    def decided(result: Simulated) -> bool:
        found = [(result.percentile(limit.percentile), limit.response_time_s) for limit in workload.limits]
        kept = all(value.value_s + value.ci95_s <= limit_s for value, limit_s in found)
        return kept or any(value.value_s - value.ci95_s > limit_s for value, limit_s in found)

    return simulate(
        fleet_streams(market, lines, ServiceCurve.at_slow_end),
        seed=(setting.scenario.seed, JUDGE_STREAM),
        requests=fleet_requests(market, lines, REQUESTS),
        most_requests=MOST_REQUESTS,
        enough=decided,
        executor=setting.executor,
    )


def _verdict(result: Simulated, workload: Workload, seed: int, enlarged: int, *, surely: bool) -> Simulation:
    """Verdict on all limits.

    With an exact model behind the fleet the estimate decides after the longest run; without one (``surely``) its upper
    end does.
    """
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
        passed=all(limit.value_s + surely * limit.ci95_s <= limit.limit_s for limit in limits),
        enlarged=enlarged,
    )
