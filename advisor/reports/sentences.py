"""Every sentence that the command line, the pages and the files say about a plan."""

import math

from advisor.domain.plan import BreakEven, FleetLine, Infeasible, JobAnswer, JobPlan, Plan
from advisor.domain.workload import Routing, percentile_label
from advisor.queueing.dispersion import TraceStatistics
from advisor.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, s_to_ms

TIE_FRAC = 0.03
"""Costs closer than this are within the error of any price list."""


def money(usd: float) -> str:
    """Whole dollars from a hundred up, cents below.

    Examples
    --------
    >>> money(1184.2), money(42.5)
    ('$1,184', '$42.50')
    """
    return f"${usd:,.0f}" if abs(usd) >= 100 else f"${usd:,.2f}"


def milliseconds(seconds: float) -> str:
    """Milliseconds with three significant digits, whole from a hundred up.

    Examples
    --------
    >>> milliseconds(0.0834), milliseconds(0.2506)
    ('83.4 ms', '251 ms')
    """
    ms = s_to_ms(seconds)
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def rate(rps: float) -> str:
    """Requests per second with three significant digits.

    Examples
    --------
    >>> rate(1234.5), rate(14.46)
    ('1,230 req/s', '14.5 req/s')
    """
    digits = float(f"{rps:.3g}")
    return f"{digits:,.0f} req/s" if digits >= 100 else f"{digits:g} req/s"


def fleet_words(lines: tuple[FleetLine, ...]) -> str:
    """Machines of a fleet, such as 3× g6.xlarge (L4) and 1× c6a.large."""
    words = [f"{line.count}× {line.label}" for line in lines]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def headline(result: Plan | Infeasible | JobPlan) -> str:
    """One sentence that answers the question."""
    match result:
        case Plan():
            return _plan_headline(result)
        case Infeasible():
            return result.reason
        case JobPlan():
            return _jobs_headline(result)


def _plan_headline(plan: Plan) -> str:
    answer = plan.workloads[0]
    label = percentile_label(answer.percentile)
    first = (
        f"Run it on {fleet_words(plan.fleet)}: {money(plan.cost_usd_per_month)} a month, {label} {milliseconds(answer.value_s)} "
        f"at {rate(plan.demand_rps)}{_headroom(plan)}"
    )
    return first + _against_other_kind(plan)


def _headroom(plan: Plan) -> str:
    frac = plan.scenario.headroom_frac
    return f" ({rate(plan.scenario.workload.arrival_rate_rps)} plus {frac:.0%} headroom)" if frac else ""


def _against_other_kind(plan: Plan) -> str:
    kinds = {line.kind for line in plan.fleet}
    if len(kinds) > 1:
        return ", CPUs and GPUs together."
    kind = kinds.pop()
    other, other_cost = ("GPU", plan.best_gpu_usd_per_month) if kind == "cpu" else ("CPU", plan.best_cpu_usd_per_month)
    if other_cost is not None:
        saving = 1 - plan.cost_usd_per_month / other_cost
        if abs(saving) < TIE_FRAC:
            return f"; the best all-{other} fleet costs the same within {TIE_FRAC:.0%}."
        share = "more than 99%" if saving > 0.99 else f"{abs(saving):.0%}"
        return f", {share} {'cheaper' if saving > 0 else 'dearer'} than the best all-{other} fleet."
    limit_s, idle_s = plan.workloads[0].limit_s, plan.fastest_idle_cpu_s
    if other == "CPU" and idle_s is not None and idle_s > limit_s:
        return f". No CPU fleet meets {milliseconds(limit_s)}: the fastest profiled CPU needs {milliseconds(idle_s)} even when idle."
    return f". No {other} with a profile is in the running."


def break_even_sentence(steps: BreakEven) -> str:
    """From which rate on which kind of machine is cheaper."""
    end = rate(steps.up_to_rps)
    if not steps.winners:
        kind = "CPU" if steps.cpu else "GPU"
        return f"Only {kind} fleets are in the running, so there is no break-even."
    wins = [span for span in steps.winners if span.winner != "tie"]
    if not wins:
        return f"CPU and GPU fleets cost the same at every rate up to {end}."
    first, last = wins[0], wins[-1]
    names = {"cpu": "CPU", "gpu": "GPU"}
    changes = [index for index in range(1, len(wins)) if wins[index].winner != wins[index - 1].winner]
    if not changes:
        return f"{names[first.winner]} fleets are never dearer at any rate up to {end}."
    if len(changes) == 1:
        before, after = wins[changes[0] - 1], wins[changes[0]]
        return (
            f"{names[before.winner]} fleets are cheaper up to {rate(before.to_rps)}, {names[after.winner]} fleets from "
            f"{rate(after.from_rps)} on (looked at up to {end})."
        )
    low, high = wins[changes[0] - 1].to_rps, wins[changes[-1]].from_rps
    return (
        f"{names[first.winner]} fleets are cheaper up to {rate(low)}, {names[last.winner]} fleets from {rate(high)} on; "
        f"between, it alternates because machines come whole (looked at up to {end})."
    )


def budget_sentence(plan: Plan) -> str | None:
    """How the cost stands to the budget."""
    budget = plan.scenario.budget_usd_per_month
    if budget is None:
        return None
    return f"Inside the {money(budget)} budget by {money(budget - plan.cost_usd_per_month)} a month."


def likely_sentence(plan: Plan) -> str:
    """Interval of the predicted percentile that comes from the service times."""
    return " ".join(
        f"{percentile_label(answer.percentile)} is {milliseconds(answer.likely_s)} with service times as profiled and "
        f"{milliseconds(answer.value_s)} at the slow end of their interval, which the plan uses; the limit is {milliseconds(answer.limit_s)}."
        for answer in plan.workloads
    )


def simulation_sentence(plan: Plan) -> str:
    """The simulator's verdict."""
    verdict = plan.simulation
    enlarged = f" The fleet was enlarged {verdict.enlarged} times before it passed." if verdict.enlarged else ""
    found = [
        f"{percentile_label(limit.percentile)} {milliseconds(limit.value_s)} ± {milliseconds(limit.ci95_s)}, "
        f"{'within' if limit.value_s <= limit.limit_s else 'not within'} the limit of {milliseconds(limit.limit_s)}"
        for limit in verdict.limits
    ]
    until = "until the interval decided" if verdict.stopped == "target" else "up to the most allowed"
    return f"Simulated with {verdict.requests:,} requests, {until} (95 % intervals): {'; '.join(found)}.{enlarged}"


def why(plan: Plan) -> tuple[str, ...]:
    """Reasons for the fleet, line by line, then proof, traffic, method, break-even and routing."""
    sentences = [_line_reason(line) for line in plan.fleet]
    gap = plan.provenance.mip_gap_frac
    status = plan.provenance.solver_status
    if status == "optimal":
        proof = "proven cheapest" if gap is not None and gap < 1e-6 else f"within {gap or 0:.2%} of the cheapest"
    else:
        off = f"within {gap:.2%} of the cheapest" if gap is not None and gap >= 5e-5 else "the cheapest"
        proof = f"{off} among the numbers of machines looked at"
        proof += ", when the solver's time was up" if "time" in status else ""
    enlarged = (
        f" for a capacity of {rate(plan.asked_rps)}, raised because the simulator objected to less"
        if plan.asked_rps > plan.demand_rps
        else ""
    )
    sentences.append(
        f"Among all offers in the regions allowed it is {proof}{enlarged}, for one workload and as many machines as are needed."
    )
    return (
        *sentences,
        traffic_sentence(plan),
        method_sentence(plan),
        likely_sentence(plan),
        break_even_sentence(plan.break_even),
        _routing_sentence(plan),
    )


ROUTING_NAMES: dict[Routing, str] = {
    "random": "at random",
    "round_robin": "in turn (round robin)",
    "least_outstanding": "to the replica with the fewest outstanding requests",
    "central_queue": "through one queue shared by all replicas of a type",
}


def _routing_sentence(plan: Plan) -> str:
    gain = plan.routing_gain
    now = f"Requests are routed {ROUTING_NAMES[plan.scenario.routing]}"
    if gain is not None:
        return (
            f"{now}. Routed {ROUTING_NAMES[gain.routing]}, {gain.count} machines would do "
            f"(simulated {milliseconds(gain.value_s)} ± {milliseconds(gain.ci95_s)}), {money(gain.saves_usd_per_month)} a month less."
        )
    if len(plan.fleet) > 1:
        return f"{now}; other routings were not looked at, since the fleet has several types of machines."
    if plan.fleet[0].count == 1:
        return f"{now}; with one machine another router cannot save any."
    return f"{now}; no other routing looked at would save a machine."


def method_sentence(plan: Plan) -> str:
    """How the predicted percentiles were found, and how far to trust them."""
    method = plan.workloads[0].method
    match method.exactness:
        case "exact":
            found = f"The response time is computed exactly for the service times given ({method.model})"
        case "approximation":
            found = f"The response time is approximated ({method.model}); up to 90 % load p99 is within {method.error_frac:.0%} of simulation"
        case "simulated":
            found = (
                f"The response time is simulated, to ±{method.error_frac:.1%} with 95 % confidence, "
                "apart from the simulation that judges the fleet"
            )
    replayed = (
        " The interval covers chance in service and routing, not what another recording would have brought."
        if plan.traffic.shape == "replay"
        else ""
    )
    return f"{found}: {method.reason}.{replayed}"


def traffic_sentence(plan: Plan) -> str:
    """Which arrivals the plan rests on, and what simpler ones would have said."""
    traffic = plan.traffic
    sentences = [traffic.reason]
    seeming, seeming_usd = traffic.poisson_machines, traffic.poisson_usd_per_month
    if seeming is not None and seeming_usd is not None:
        calm = "independent requests (Poisson) at the same mean rate"
        if abs(plan.cost_usd_per_month - seeming_usd) < TIE_FRAC * seeming_usd:
            sentences.append(f"For {calm} a fleet would cost as much: {money(seeming_usd)} a month.")
        else:
            sentences.append(
                f"For {calm}, {_machines(seeming)} at {money(seeming_usd)} a month would seem enough; "
                f"this plan has {fleet_words(plan.fleet)} at {money(plan.cost_usd_per_month)}."
            )
    if traffic.period_s is not None:
        label = percentile_label(plan.workloads[0].percentile)
        sentences.append(f"Over the whole period, not only its peak, {label} is {milliseconds(traffic.period_s)}.")
    return " ".join(sentences)


def overload_sentence(result: Infeasible) -> str | None:
    """How late requests would be if all of them reached a fleet that is too small for the peak."""
    if result.never_catches_up:
        return "If all of the traffic reached this fleet, it would never catch up: the queue grows for as long as it lasts."
    if result.overload_delay_s is None:
        return None
    return (
        f"If all of the traffic reached this fleet, requests at the peak would wait up to {duration(result.overload_delay_s)} "
        "(a fluid estimate: the queue that builds up while more comes in than goes out)."
    )


def trace_sentence(name: str, statistics: TraceStatistics) -> str:
    """Size, rate and variability of a trace."""
    scv = statistics.interarrival_scv
    variability = "" if math.isnan(scv) else f"; SCV of the gaps between requests {scv:.3g} (1: independent requests)"
    return (
        f"{name}: {statistics.requests:,} requests in {duration(statistics.duration_s)}, {rate(statistics.rate_rps)} on "
        f"average{variability}. An index of dispersion far above 1 means bursts."
    )


def duration(seconds: float) -> str:
    """Time in the unit that people would use.

    Examples
    --------
    >>> duration(12.3), duration(754), duration(9000), duration(200000)
    ('12.3 s', '12.6 min', '2.5 h', '2.31 days')
    """
    for unit, length_s, up_to in (("s", 1.0, 120), ("min", 60.0, 120), ("h", SECONDS_PER_HOUR, 48)):
        if seconds < up_to * length_s:
            return f"{seconds / length_s:.3g} {unit}"
    return f"{seconds / SECONDS_PER_DAY:,.3g} days"


def _machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'}"


def _line_reason(line: FleetLine) -> str:
    copies = "one replica" if line.replicas == 1 else f"{line.replicas} replicas"
    threads = f" of {line.threads} thread{'' if line.threads == 1 else 's'}" if line.threads else ""
    machine = f"{line.label} with {copies}{threads} and batches up to {line.max_batch}"
    if line.count == 1:
        sustains = f"One {machine} sustains {rate(line.capacity_rps)} under the limit; it takes"
    else:
        each = rate(line.capacity_rps / line.count)
        sustains = f"{line.count}× {machine} sustain {rate(line.capacity_rps)} together under the limit, {each} each; they take"
    return (
        f"{sustains} {rate(line.rate_rps)}, {line.rate_rps / line.capacity_rps:.0%} of what is possible, "
        f"at {line.saturation_frac:.0%} of saturation."
    )


def _jobs_headline(plan: JobPlan) -> str:
    jobs = f"{plan.scenario.jobs.jobs_per_day:g} jobs a day in {plan.scenario.jobs.window_h:g} h"
    return f"{jobs}: " + "; ".join(job_sentence(answer) for answer in plan.answers) + "."


def job_sentence(answer: JobAnswer) -> str:
    """One option for batch jobs in words."""
    if answer.nodes_needed is None:
        return f"{answer.name}: not even one job ({answer.job_s / SECONDS_PER_HOUR:.1f} h) fits the window"
    nodes = f"{answer.nodes_needed} node{'s' if answer.nodes_needed > 1 else ''} needed"
    if answer.slack_h is None:
        return f"{answer.name}: {nodes}"
    if answer.owned_count == 0:
        return f"{answer.name}: {nodes}, {answer.slack_h:.1f} h of slack with them"
    if answer.slack_h < 0:
        return f"{answer.name}: {nodes}, the {answer.owned_count} owned end {-answer.slack_h:.1f} h too late"
    return f"{answer.name}: {nodes}, the {answer.owned_count} owned end with {answer.slack_h:.1f} h of slack"
