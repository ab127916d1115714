"""Plan for batch jobs: nodes, slack and, as far as the scenario states prices, cost per option."""

import datetime

from advisor import __version__
from advisor.capacity.curve import PUBLISHED_ERROR_FRAC, service_curves, why_no_curve
from advisor.domain.plan import EvidenceLine, JobAnswer, JobPlan, Provenance
from advisor.domain.profile import Cell, Profile
from advisor.domain.workload import JobScenario, NodeOption
from advisor.economics.jobs import days_per_month, energy_kwh, job_time, jobs_per_node, nodes_needed, slack_h
from advisor.errors import InputError
from advisor.planning.evidence import profile_hash
from advisor.units import SECONDS_PER_HOUR, usd_per_month


def plan_jobs(scenario: JobScenario, profiles: tuple[Profile, ...], *, today: datetime.date) -> JobPlan:
    """Answer a batch-job scenario, option by option, cheapest in nodes first as given.

    Raises
    ------
    InputError
        When an option names a profile that does not exist, or one of another model.
    """
    by_id = {profile.profile_id: profile for profile in profiles}
    used = []
    for index, option in enumerate(scenario.jobs.options):
        profile = by_id.get(option.profile)
        place = f"jobs.options[{index}].profile"
        if profile is None:
            fitting = [known.profile_id for known in profiles if known.model.name == scenario.model]
            raise InputError(
                place,
                option.profile,
                f"a profile of {scenario.model}, such as {', '.join(fitting[:3]) or 'one you measure'}",
            )
        if profile.model.name != scenario.model:
            raise InputError(
                place, option.profile, f"a profile of {scenario.model}; this one is of {profile.model.name}"
            )
        used.append(profile)
    answers = tuple(
        _answer(scenario, option, profile) for option, profile in zip(scenario.jobs.options, used, strict=True)
    )
    feasible = any(map(_suffices, scenario.jobs.options, answers))
    return JobPlan(
        schema_version=1,
        status="plan" if feasible else "infeasible",
        scenario=scenario,
        answers=answers,
        warnings=_warnings(used, answers),
        evidence=tuple(
            EvidenceLine(what=f"speed of {option.name}: profile {profile.profile_id}", evidence=profile.evidence)
            for option, profile in zip(scenario.jobs.options, used, strict=True)
        ),
        provenance=Provenance(
            version=__version__,
            today=today,
            seed=0,
            profile_hashes={profile.profile_id: profile_hash(profile) for profile in used},
            oldest_price=None,
            solver="closed form",
            solver_status="exact",
            mip_gap_frac=None,
        ),
    )


def _warnings(used: list[Profile], answers: tuple[JobAnswer, ...]) -> tuple[str, ...]:
    warnings = []
    precisions = {profile.model.precision or "an unstated precision" for profile in used}
    if len(precisions) > 1:
        warnings.append(f"Options run {' and '.join(sorted(precisions))}: check your accuracy.")
    if all(answer.bottleneck == "network" for answer in answers):
        warnings.append("Every option waits for its data: a faster network helps, a faster processor does not.")
    return tuple(warnings)


def _suffices(option: NodeOption, answer: JobAnswer) -> bool:
    """Whether the option meets the window: with the nodes owned, or with more that the scenario gives a rent for."""
    if answer.nodes_needed is None:
        return False
    return option.owned_count >= answer.nodes_needed or option.price_usd_per_h is not None


def _answer(scenario: JobScenario, option: NodeOption, profile: Profile) -> JobAnswer:
    speed, assumptions, extrapolated = _node_speed(option, profile)
    time = job_time(
        scenario.jobs.data_gb_per_job,
        scenario.jobs.data_mb_per_item,
        items_per_s=speed,
        network_mb_per_s=scenario.jobs.network_mb_per_s,
        fixed_s=scenario.jobs.fixed_s,
    )
    per_node = jobs_per_node(scenario.jobs.window_h, time.total_s)
    needed = nodes_needed(scenario.jobs.jobs_per_day, per_node)
    nodes = option.owned_count or needed
    busy_h = scenario.jobs.jobs_per_day * time.total_s / SECONDS_PER_HOUR
    energy = (
        energy_kwh(option.power_w, busy_h, scenario.jobs.pue)
        if option.power_w is not None and scenario.jobs.pue is not None
        else None
    )
    cost, basis = _cost(scenario, option, needed, energy)
    return JobAnswer(
        name=option.name,
        kind=profile.device.kind,
        profile_id=profile.profile_id,
        items_per_s=speed,
        data_s=time.data_s,
        compute_s=time.compute_s,
        job_s=time.total_s,
        bottleneck="network" if time.data_s >= time.compute_s else "compute",
        jobs_per_node=per_node,
        nodes_needed=needed,
        owned_count=option.owned_count,
        slack_h=None
        if nodes is None
        else slack_h(scenario.jobs.jobs_per_day, nodes, job_s=time.total_s, window_h=scenario.jobs.window_h),
        most_jobs_per_day=(nodes or 0) * per_node,
        busy_node_h_per_day=busy_h,
        energy_kwh_per_day=energy,
        cost_usd_per_month=cost,
        cost_basis=basis,
        extrapolated=extrapolated,
        assumptions=tuple(assumptions),
    )


def _node_speed(option: NodeOption, profile: Profile) -> tuple[float, list[str], bool]:
    """Items per second of a node at the slow end, from service times if there are any, else from throughput [1/s]."""
    curves = service_curves(profile)
    if curves:
        slow = [curve.at_slow_end() for curve in curves]
        on_gpu = profile.device.kind == "gpu"
        # Replicas that shared a GPU as they were measured share each GPU of a node.
        shared = [max(1, curve.replicas_measured) if on_gpu else 1 for curve in slow]
        rates = [
            copies * max((b + 1) / float(time) for b, time in enumerate(curve.batch_time_s))
            for copies, curve in zip(shared, slow, strict=True)
        ]
        best = max(range(len(slow)), key=lambda index: rates[index] / max(1, slow[index].threads))
        curve = slow[best]
        unit = (
            "one GPU"
            if on_gpu or not curve.threads
            else "one CPU thread"
            if curve.threads == 1
            else f"{curve.threads} CPU threads"
        )
        extrapolated = not on_gpu and curve.threads > 0 and option.replicas > 2 * curve.replicas_measured
        assumptions = [
            *curve.assumptions,
            f"each of the {option.replicas} replicas on a node has {unit} of its own",
        ]
        if extrapolated:
            assumptions.append(f"extrapolated: {curve.replicas_measured} replicas were measured together")
        return option.replicas * rates[best], assumptions, extrapolated
    if any(cell.batch_size is not None and cell.service_mean_s is not None for cell in profile.cells):
        # Its throughput is a floor: replicas that left CPUs idle do not tell what the whole host does.
        raise InputError("jobs.options.profile", option.profile, f"another profile: {why_no_curve(profile)}")
    rate = max((_rate(cell) for cell in profile.cells), default=0.0)
    if rate == 0.0:
        raise InputError("jobs.options.profile", option.profile, "a profile with a service time or a throughput")
    assumptions = [
        f"throughput of {profile.evidence.kind} profiles is taken as known within ±{PUBLISHED_ERROR_FRAC:.0%}, the slow end is used",
        "the source does not state the batch size; jobs are taken to run at it",
    ]
    if profile.device.kind == "cpu":
        if option.replicas != 1:
            raise InputError(
                "jobs.options.replicas", option.replicas, f"1: {option.profile} gives the throughput of a whole host"
            )
        assumptions.append("the throughput is that of the whole host")
    return option.replicas * rate / (1 + PUBLISHED_ERROR_FRAC), assumptions, False


def _rate(cell: Cell) -> float:
    """Items per second of one replica [1/s]; 0 when the cell does not say."""
    return (cell.throughput_rps or 0.0) / (cell.concurrency or 1)


def _cost(
    scenario: JobScenario, option: NodeOption, needed: int | None, energy: float | None
) -> tuple[float | None, str]:
    """Monthly cost of rent and energy as far as the scenario states them, and what it holds [USD/month]."""
    parts = []
    total = 0.0
    if option.price_usd_per_h is not None and needed is not None:
        rented = max(0, needed - option.owned_count)
        total += rented * usd_per_month(option.price_usd_per_h)
        parts.append(f"rent of {rented} nodes for 730 h")
    if energy is not None and scenario.jobs.tariff_usd_per_kwh is not None:
        total += energy * days_per_month() * scenario.jobs.tariff_usd_per_kwh
        parts.append("energy of the busy hours, PUE included")
    if not parts:
        return None, "the scenario states neither a rent nor watts with tariff and PUE"
    return round(total, 2), " and ".join(parts)
