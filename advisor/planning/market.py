"""Market: all offers that can serve a workload, as arrays for the fleet program."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from advisor.capacity.candidates import (
    Missed,
    Served,
    device_answers,
    device_names,
    devices_of,
    fitting_profiles,
    judge,
)
from advisor.capacity.curve import ServiceCurve, service_curves
from advisor.capacity.pool import Cache, Question, idle_percentile_s
from advisor.capacity.traffic import Traffic, burst_peak_frac, resolve_traffic
from advisor.domain.machine import Catalog, Offer
from advisor.domain.plan import Candidate, Rejection
from advisor.domain.profile import Profile
from advisor.domain.trace import Trace
from advisor.domain.workload import Scenario, Workload
from advisor.errors import InputError
from advisor.optimizer.formulation import CoveringProgram, Pooling
from advisor.units import usd_per_month

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Setting:
    """What a scenario is answered with, the same for every market that is built on the way.

    Attributes
    ----------
    scenario
        The question.
    profiles
        Profiles of the workload's model, precision and sequence length, those set aside left out.
    catalog
        Machine types and offers.
    regions
        Regions allowed.
    trace
        Recorded arrivals, when the scenario names a trace.
    cache
        Capacities already found.
    executor
        Runs simulations side by side.
    progress
        Called with a line whenever a step begins.
    """

    scenario: Scenario
    profiles: tuple[Profile, ...]
    catalog: Catalog
    regions: tuple[str, ...]
    trace: Trace | None
    cache: Cache
    executor: Executor | None
    progress: Progress

    @property
    def demand_rps(self) -> float:
        """Traffic planned for, with headroom; in bursts that last, their rate [1/s]."""
        workload = self.scenario.workload
        peak = burst_peak_frac(workload.arrivals, workload.arrival_rate_rps)
        return peak * workload.arrival_rate_rps * (1 + self.scenario.headroom_frac)

    def question(self, workload: Workload, traffic: Traffic) -> Question:
        """What capacities are asked for."""
        limits = tuple((limit.percentile, limit.response_time_s) for limit in workload.limits)
        return Question(limits, traffic, self.scenario.seed, self.cache)


EXTRAPOLATED_RELUCTANCE = 1000.0
"""Between fleets of equal cost, one machine that is extrapolated weighs as much as this many that are not."""


@dataclass(frozen=True)
class Market:
    """Offers with the candidate behind each, in one order, and everything that fell out.

    Attributes
    ----------
    offers, candidates
        Aligned with the columns of the program.
    traffic
        Arrivals and routing that capacities hold for.
    curves
        Service curves by profile and threads.
    rejections
        Machine types that are not in the running.
    fastest_idle_cpu_s
        SLA percentile of the fastest profiled CPU when idle [s]; None without a CPU profile.
    """

    offers: tuple[Offer, ...]
    candidates: tuple[Candidate, ...]
    program: CoveringProgram
    traffic: Traffic
    curves: dict[tuple[str, int], ServiceCurve]
    rejections: tuple[Rejection, ...]
    fastest_idle_cpu_s: float | None

    def of_kind(self, kind: str) -> CoveringProgram:
        """Program with the offers of one kind of machine only."""
        return self.program.subset(np.array([candidate.kind == kind for candidate in self.candidates], dtype=bool))


def allowed_regions(names: tuple[str, ...], catalog: Catalog) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Regions that the scenario allows, and a sentence for each bare name that means several.

    Raises
    ------
    InputError
        When a name fits no region of the catalog.
    """
    known = tuple(sorted({offer.region for offer in catalog.offers}))
    if not names:
        return known, ()
    allowed: set[str] = set()
    notes = []
    for name in names:
        found = catalog.regions_named(name)
        if not found:
            raise InputError("regions", name, f"one of {', '.join(known)}")
        if "/" not in name:
            notes.append(f"Region {name} is read as {', '.join(found)}.")
        allowed.update(found)
    return tuple(sorted(allowed)), tuple(notes)


def settle_sequence_length(workload: Workload, profiles: tuple[Profile, ...]) -> tuple[Workload, str | None]:
    """Workload with its sequence length, and the assumption made when the scenario does not say.

    The shortest length with a measured profile is taken; without one the shortest of all.
    """
    lengths = {
        (profile.evidence.kind != "measured", profile.model.sequence_length)
        for profile in profiles
        if profile.model.name == workload.model and profile.model.sequence_length is not None
    }
    if workload.sequence_length is not None or not lengths:
        return workload, None
    length = min(lengths)[1]
    sentence = f"The scenario does not say how long a text is: {length} tokens, as in the profiles used."
    return workload.model_copy(update={"sequence_length": length}), sentence


def prefer(
    profiles: tuple[Profile, ...], preferred: frozenset[str], model: str, catalog: Catalog
) -> tuple[Profile, ...]:
    """Profiles without those of the model that speak for a device for which a preferred profile speaks, too."""
    own = [profile for profile in profiles if profile.profile_id in preferred and profile.model.name == model]
    taken = frozenset(name for profile in own for name in device_names(profile, catalog))
    return tuple(
        profile
        for profile in profiles
        if profile.profile_id in preferred or profile.model.name != model or not device_names(profile, catalog) & taken
    )


def build_market(setting: Setting, workload: Workload) -> Market:
    """Judge every machine type that has an offer in the regions, and line up the offers of those that can serve."""
    allowed, catalog = frozenset(setting.regions), setting.catalog
    offers = [offer for offer in catalog.offers if offer.region in allowed]
    machines = [catalog.by_key[key] for key in sorted({offer.machine_type for offer in offers})]
    wanted = devices_of(machines)
    fitting = fitting_profiles(workload, setting.profiles)
    devices = {profile.profile_id: device_names(profile, catalog) & wanted for profile in fitting}
    curves = {profile.profile_id: service_curves(profile) for profile in fitting}
    traffic = resolve_traffic(
        setting.scenario,
        setting.trace,
        _service_times(curves, devices, workload),
        demand_rps=setting.demand_rps,
    )
    question = setting.question(workload, traffic)
    answers = device_answers(
        curves,
        fitting,
        devices,
        question=question,
        demand_rps=setting.demand_rps,
        progress=setting.progress,
        executor=setting.executor,
    )
    verdicts = {machine.key: judge(machine, workload, answers) for machine in machines}
    unpriced = sorted({profile.device.gpu_id for profile in fitting if profile.device.gpu_id is not None} - wanted)
    rejections = [verdict for verdict in verdicts.values() if isinstance(verdict, Rejection)]
    rejections += [
        Rejection(machine_type=gpu, reason="no price in the regions allowed, though profiled") for gpu in unpriced
    ]
    pairs = sorted(
        ((offer, verdict) for offer in offers if isinstance(verdict := verdicts[offer.machine_type], Candidate)),
        key=lambda pair: (pair[0].price_usd_per_h, pair[0].key),
    )
    candidates = tuple(candidate for _, candidate in pairs)
    return Market(
        offers=tuple(offer for offer, _ in pairs),
        candidates=candidates,
        program=CoveringProgram(
            np.array([usd_per_month(offer.price_usd_per_h) for offer, _ in pairs]),
            np.array([candidate.capacity_rps for candidate in candidates]),
            np.array([EXTRAPOLATED_RELUCTANCE if candidate.extrapolated else 1.0 for candidate in candidates]),
            _pooling(candidates),
        ),
        traffic=traffic,
        curves={
            (answer.curve.profile_id, answer.curve.threads): answer.curve
            for options in answers.values()
            for answer in options
            if isinstance(answer, Served)
        },
        rejections=tuple(rejections),
        fastest_idle_cpu_s=_fastest_idle_cpu(
            answers, workload, frozenset(device for machine in machines for device in machine.microarchitectures)
        ),
    )


def _pooling(candidates: tuple[Candidate, ...]) -> Pooling | None:
    """Rates of several machines together, where they are not in proportion to their number."""
    if not candidates or not candidates[0].pool_rps:
        return None
    machines = np.array([count for count, _ in candidates[0].pool_rps])
    return Pooling(machines, np.array([[rate for _, rate in candidate.pool_rps] for candidate in candidates]))


def _service_times(
    curves: dict[str, tuple[ServiceCurve, ...]], devices: dict[str, frozenset[str]], workload: Workload
) -> tuple[float, float]:
    """Shortest and longest mean service time of one item, over what can meet the limits at all [s]."""
    limit_s = max(limit.response_time_s for limit in workload.limits)
    times = [float(curve.batch_time_s[0]) for name, found in curves.items() if devices[name] for curve in found]
    meeting = [time for time in times if time <= limit_s] or times or [limit_s]
    return min(meeting), max(meeting)


def _fastest_idle_cpu(
    answers: dict[str, list[Served | Missed]], workload: Workload, generations: frozenset[str]
) -> float | None:
    idle = []
    for generation in generations & answers.keys():
        for option in answers[generation]:
            if isinstance(option, Served):
                idle.append(idle_percentile_s(option.curve.at_slow_end(), workload.sla.percentile))
            elif option.idle_response_s is not None:
                idle.append(option.idle_response_s)
    return min(idle, default=None)
