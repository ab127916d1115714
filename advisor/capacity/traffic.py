"""Traffic: how requests come and how they reach replicas, resolved to what models and simulator need."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from advisor.domain.trace import Trace
from advisor.domain.workload import (
    Arrivals,
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
from advisor.queueing.gaps import HIGHEST_SCV, RenewalLaw, renewal_law
from advisor.simulation.arrivals import Arrivals as Process
from advisor.simulation.arrivals import BurstProcess, PeriodicProcess, PoissonProcess, RenewalProcess, Replay, sinusoid
from advisor.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

SLOW_PERIOD = 2e4
"""A rate that repeats after at least this many service times changes so slowly that each moment is as if it lasted
forever: the pointwise stationary p99 was within 1.5 % of simulation up to 90 % load, and errs on the safe side.

References: Green and Kolesar, The pointwise stationary approximation for queues with nonstationary arrivals, Management
Science 37, 1991; the figure is from our own comparison with simulation.
"""
MOST_PER_PERIOD = 1_000_000
"""Requests in a period beyond which its rate is taken as slow as well: so many replicas forget faster than one."""
LONGEST_SIMULATION = 8_000_000
FEWEST_BURSTS = 200
"""A simulation of so many requests has to see so many bursts; longer ones are planned for as if each lasted."""
SEEN_BURST = 1e-3
"""Requests from one burst to the next, on average, below which bursts are not seen by single requests."""
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
    def separable(self) -> bool:
        """Whether one replica can be simulated for all.

        A random split, or taking turns, gives every replica the same share of any process: a thinned one, or each c-th
        request. A recording has to be split as a whole.
        """
        return self.routing in ("random", "round_robin") and self.shape != "replay"

    @property
    def mean_frac(self) -> float:
        """Mean rate over the rate that capacities are given in: below 1 for periodic arrivals, whose peak is given."""
        return sum(self.pattern) / len(self.pattern) if self.shape == "periodic" else 1.0

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
        if self.shape == "replay" and self.recorded is not None:
            return Replay(self.recorded.times_s, rate_rps / self.recorded.rate_rps)
        return self.at_replica(rate_rps, keep_frac=1.0, every=1)

    def at_replica(self, rate_rps: float, *, keep_frac: float, every: int) -> Process:
        """Arrivals at one replica.

        Parameters
        ----------
        rate_rps
            Rate of all requests [1/s].
        keep_frac
            Chance that a random split gives a request to this replica, or to the ones that it takes turns with.
        every
            Replicas that take requests in turn.
        """
        if self.shape == "renewal" and self.law is not None:
            left_rps = rate_rps * keep_frac / every
            return RenewalProcess(left_rps, self.law.weights, self.law.stages, self.law.rates, keep_frac, every)
        # Bursts that come and go many times between two requests are not seen by them.
        if (
            self.shape == "bursts"
            and self.bursts is not None
            and self.cycle_requests(rate_rps * keep_frac) > SEEN_BURST
        ):
            ratio, frac, burst_s = self.bursts
            calm_rps = keep_frac * rate_rps / (1 - frac + frac * ratio)
            return BurstProcess(calm_rps, ratio * calm_rps, burst_s * (1 - frac) / frac, burst_s, every)
        if self.shape == "periodic":
            return PeriodicProcess(keep_frac * rate_rps * np.array(self.pattern), self.slot_s, every)
        if every == 1:
            return PoissonProcess(keep_frac * rate_rps)
        gaps = np.array([float(every)])
        return RenewalProcess(keep_frac * rate_rps / every, np.ones(1), np.array([every]), gaps)


def burst_peak_frac(arrivals: Arrivals, rate_rps: float) -> float:
    """Rate in a burst over the mean rate, where bursts last so long that the fleet is sized for them; else 1."""
    if not isinstance(arrivals, BurstArrivals):
        return 1.0
    cycle = rate_rps * arrivals.burst_s / arrivals.burst_frac
    if LONGEST_SIMULATION / cycle >= FEWEST_BURSTS:
        return 1.0
    return arrivals.ratio / (1 - arrivals.burst_frac + arrivals.burst_frac * arrivals.ratio)


def resolve_traffic(
    scenario: Scenario, trace: Trace | None, service_times_s: tuple[float, float], *, demand_rps: float
) -> Traffic:
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
    demand_rps
        Rate planned for: a trace is judged at the speed at which it is replayed [1/s].

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
        case BurstArrivals() as bursts if burst_peak_frac(bursts, scenario.workload.arrival_rate_rps) > 1:
            reason = (
                f"Bursts of {bursts.burst_s:g} s last so long that each is as if it never ended: the fleet is sized for Poisson "
                "arrivals at the rate in a burst."
            )
            return replace(basic, reason=reason)
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
            return _periodic(basic, process, period_s, service_times_s[1], demand_rps=demand_rps)
        case HourlyWeekArrivals(weights=weights):
            process = PeriodicProcess(np.array(weights) / max(weights), SECONDS_PER_HOUR)
            return _periodic(basic, process, SECONDS_PER_DAY, service_times_s[1], demand_rps=demand_rps)
        case TraceArrivals(file=file):
            if trace is None:
                raise InputError("demand.arrivals.file", file, "a trace that was given along")
            speed = demand_rps / trace.rate_rps
            return _of_trace(basic, trace, (speed * service_times_s[0], speed * service_times_s[1]))


def _periodic(
    basic: Traffic, process: PeriodicProcess, period_s: float, longest_s: float, *, demand_rps: float
) -> Traffic:
    """Poisson arrivals at the peak when the rate changes slowly against the service time, else the changing rate."""
    pattern = tuple(float(rate) for rate in process.rates_rps)
    ratio = period_s / longest_s
    requests = demand_rps * process.rate_rps * period_s
    if ratio >= SLOW_PERIOD or requests > MOST_PER_PERIOD:
        slow = (
            f"The rate repeats every {ratio:,.0f} service times, so slowly that each moment is as if it lasted"
            if ratio >= SLOW_PERIOD
            else f"The rate repeats every {requests:,.0f} requests; that many replicas follow it, as if each moment lasted"
        )
        reason = f"{slow}: the fleet is sized for Poisson arrivals at the highest rate."
        return replace(basic, period=pattern, period_slot_s=process.slot_s, reason=reason)
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

    Judged at the shortest and the longest service time, in seconds of the recording: either may refuse. Where arrivals
    are evener than Poisson ones, or time stamps lie on a grid, which makes gaps look uneven, Poisson is the safe side.
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
    statistics = trace_statistics(trace.times_s)
    scv = statistics.interarrival_scv
    if statistics.quantum_s is not None or not scv > 1 or all(verdict.poisson for verdict in verdicts):
        return replace(basic, reason=reason)
    if scv > HIGHEST_SCV:
        reason = f"Trace {trace.name}: the SCV of its gaps, {scv:.3g}, is too large for a model, so the trace itself is replayed."
        return replace(basic, shape="replay", recorded=trace, reason=reason)
    return replace(basic, shape="renewal", law=renewal_law(scv), reason=reason)
