"""Traffic: how requests come and how they reach replicas, resolved to what models and simulator need."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.domain.trace import Trace
from advisor.domain.workload import (
    BurstArrivals,
    CallOrder,
    HourlyWeekArrivals,
    PoissonArrivals,
    RenewalArrivals,
    Routing,
    Scenario,
    SinusoidArrivals,
    TraceArrivals,
)
from advisor.errors import InputError
from advisor.queueing.dispersion import renewal_verdict, trace_statistics
from advisor.queueing.renewal import LOWEST_SCV, RenewalLaw, renewal_law
from advisor.simulation.arrivals import Arrivals as Process
from advisor.simulation.arrivals import BurstProcess, PeriodicProcess, PoissonProcess, RenewalProcess, Replay, sinusoid
from advisor.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

Array = NDArray[np.float64]

SLOW_PERIOD = 2e4
"""A rate that repeats after at least this many service times changes so slowly that each moment is as if it lasted
forever: the pointwise stationary p99 was within 1.5 % of simulation up to 90 % load, and errs on the safe side.

References: Green and Kolesar, The pointwise stationary approximation for queues with nonstationary arrivals, Management
Science 37, 1991; the figure is from our own comparison with simulation.
"""
Shape = Literal["poisson", "renewal", "bursts", "periodic", "replay"]


@dataclass(frozen=True, eq=False)
class Traffic:
    """How requests come and how they reach replicas.

    Attributes
    ----------
    routing
        How requests reach replicas.
    delay_s
        Longest time that a free replica waits for its batch to fill [s].
    call_order
        Whether service times are independent, or follow each other as they were measured.
    shape
        Arrival process that models and simulator use.
    law
        Gaps of renewal arrivals.
    bursts
        Of arrivals in bursts: rate in a burst over that between, share of time in bursts, mean length [s].
    pattern, slot_s
        Of periodic arrivals: rate of each slot over the highest, and length of a slot [s].
    recorded
        Trace to replay.
    reason
        Why this process and no simpler one, as a sentence.
    period
        Pattern of a day or week that the peak was taken from: its rates over the highest; empty: the rate is constant.
    period_slot_s
        Length of its slots [s].
    """

    routing: Routing = "random"
    delay_s: float = 0.0
    call_order: CallOrder = "independent"
    shape: Shape = "poisson"
    law: RenewalLaw | None = None
    bursts: tuple[float, float, float] | None = None
    pattern: tuple[float, ...] = ()
    slot_s: float = 0.0
    recorded: Trace | None = None
    reason: str = "Requests arrive independently of each other at a constant rate (Poisson), one item per request."
    period: tuple[float, ...] = ()
    period_slot_s: float = 0.0

    @property
    def key(self) -> str:
        """What capacities depend on, as text."""
        law = "" if self.law is None else f"{self.law.scv:.12g}"
        recorded = "" if self.recorded is None else self.recorded.sha256
        service = f"{self.delay_s!r} {self.call_order}"
        return f"{self.routing} {service} {self.shape} {law} {self.bursts} {self.pattern} {self.slot_s!r} {recorded}"

    @property
    def independent(self) -> bool:
        """Whether replicas are independent queues: a random split of Poisson arrivals is Poisson again."""
        return self.routing == "random" and self.shape == "poisson"

    def cycle_requests(self, rate_rps: float) -> float:
        """Mean number of requests from the start of one burst to that of the next; 0 without bursts."""
        if self.bursts is None:
            return 0.0
        _ratio, frac, burst_s = self.bursts
        return rate_rps * burst_s / frac

    def process(self, rate_rps: float) -> Process:
        """Arrivals at a mean rate; for periodic ones the rate is the highest [1/s]."""
        if self.shape == "renewal" and self.law is not None:
            return RenewalProcess(rate_rps, self.law.weights, self.law.stages, self.law.rates)
        if self.shape == "bursts" and self.bursts is not None:
            ratio, frac, burst_s = self.bursts
            calm_rps = rate_rps / (1 - frac + frac * ratio)
            return BurstProcess(calm_rps, ratio * calm_rps, burst_s * (1 - frac) / frac, burst_s)
        if self.shape == "periodic":
            return PeriodicProcess(rate_rps * np.array(self.pattern), self.slot_s)
        if self.shape == "replay" and self.recorded is not None:
            return Replay(self.recorded.times_s, rate_rps / self.recorded.rate_rps)
        return PoissonProcess(rate_rps)


def resolve_traffic(scenario: Scenario, trace: Trace | None, service_times_s: tuple[float, float]) -> Traffic:
    """Arrival process that is honest for the scenario.

    Parameters
    ----------
    scenario
        Arrivals and routing as asked for.
    trace
        Recorded arrivals, when the scenario names a trace.
    service_times_s
        Shortest and longest mean service time of the machines looked at [s]: whether a rate changes slowly and whether
        bursts matter depends on them.

    Raises
    ------
    InputError
        When the scenario names a trace that is not there.
    """
    basic = Traffic(scenario.routing, scenario.batch_delay_s, scenario.call_order)
    match scenario.workload.arrivals:
        case PoissonArrivals():
            return basic
        case RenewalArrivals(scv=scv):
            reason = f"Gaps between requests are independent with a squared coefficient of variation of {scv:g} (renewal arrivals)."
            return basic if scv == 1 else replace(basic, shape="renewal", law=renewal_law(scv), reason=reason)
        case BurstArrivals() as bursts:
            return replace(
                basic,
                shape="bursts",
                bursts=(bursts.ratio, bursts.burst_frac, bursts.burst_s),
                reason=(
                    f"Requests come in bursts: {100 * bursts.burst_frac:.3g}% of the time, for {bursts.burst_s:g} s on average, the rate is "
                    f"{bursts.ratio:g} times that between (Markov-modulated Poisson arrivals)."
                ),
            )
        case SinusoidArrivals(amplitude_frac=amplitude, period_s=period_s):
            process = sinusoid(1.0, amplitude, period_s)
            return _periodic(basic, process, period_s, service_times_s[1])
        case HourlyWeekArrivals(weights=weights):
            process = PeriodicProcess(np.array(weights) / max(weights), SECONDS_PER_HOUR)
            return _periodic(basic, process, SECONDS_PER_DAY, service_times_s[1])
        case TraceArrivals(file=file):
            if trace is None:
                raise InputError("arrivals.file", file, "a trace that was given along")
            return _of_trace(basic, trace, service_times_s)


def _periodic(basic: Traffic, process: PeriodicProcess, period_s: float, longest_s: float) -> Traffic:
    """Poisson arrivals at the peak when the rate changes slowly against the service time, else the changing rate."""
    pattern = tuple(float(rate) for rate in process.rates_rps)
    ratio = period_s / longest_s
    if ratio >= SLOW_PERIOD:
        return replace(
            basic,
            period=pattern,
            period_slot_s=process.slot_s,
            reason=(
                f"The rate repeats every {ratio:,.0f} service times, so slowly that each moment is as if it lasted: "
                "the fleet is sized for Poisson arrivals at the highest rate."
            ),
        )
    return replace(
        basic,
        shape="periodic",
        pattern=pattern,
        slot_s=process.slot_s,
        reason=(
            f"The rate repeats every {ratio:,.0f} service times, too fast to treat each moment as if it lasted: "
            "the changing rate is simulated, and the limit holds over the whole period."
        ),
    )


def _of_trace(basic: Traffic, trace: Trace, service_times_s: tuple[float, float]) -> Traffic:
    """Poisson or renewal arrivals when the trace has no bursts that they would hide, else the trace itself.

    Judged at the shortest and the longest service time: either may refuse.
    """
    verdicts = [renewal_verdict(trace.times_s, service_s) for service_s in service_times_s]
    refused = next((verdict for verdict in verdicts if not verdict.honest), None)
    if refused is not None:
        return replace(
            basic,
            shape="replay",
            recorded=trace,
            reason=f"Trace {trace.name}: {refused.reason}.",
        )
    reason = f"Trace {trace.name}: {verdicts[1].reason}."
    if all(verdict.poisson for verdict in verdicts):
        return replace(basic, reason=reason)
    scv = trace_statistics(trace.times_s).interarrival_scv
    return replace(basic, shape="renewal", law=renewal_law(max(scv, LOWEST_SCV)), reason=reason)
