"""Which machine types can serve a workload, with which profile and configuration, and why the others cannot."""

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.capacity.curve import ServiceCurve, why_no_curve
from advisor.capacity.pool import (
    POOL_SIZES,
    Capacity,
    Question,
    best_capacity,
    idle_percentile_s,
    pool_rates,
    saturated_rps,
)
from advisor.domain.machine import Catalog, MachineType
from advisor.domain.plan import Candidate, Rejection
from advisor.domain.profile import Profile
from advisor.domain.workload import Workload, percentile_label
from advisor.optimizer.formulation import pool_rates_between
from advisor.units import s_to_ms

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Served:
    """Best configuration of one device for the workload.

    Attributes
    ----------
    curve
        The curve, as measured.
    capacity
        Of one replica, or of the pool that the demand needs, with service times at the slow end of their interval.
    profile
        Where the curve comes from.
    pool_rps
        Rates of pools of so many replicas with its batch cap [1/s]; empty where replicas are independent.
    """

    curve: ServiceCurve
    capacity: Capacity
    profile: Profile
    pool_rps: tuple[tuple[int, float], ...] = ()

    def rate_rps(self, servers: NDArray[np.int64]) -> Array:
        """Rates of pools of so many replicas [1/s]."""
        if not self.pool_rps:
            together: Array = np.asarray(servers * self.capacity.rate_rps, dtype=np.float64)
            return together
        sizes, rates = (np.array(column) for column in zip(*self.pool_rps, strict=True))
        return pool_rates_between(sizes, rates, servers)


@dataclass(frozen=True)
class Missed:
    """A device that misses the SLA even when idle, or cannot be planned with.

    Attributes
    ----------
    reason
        Why.
    percentile
        Of the limit that it misses by most when idle, as a fraction; None: it is not too slow.
    idle_response_s
        That percentile without other requests [s].
    profile_id
        Profile that tells so.
    """

    reason: str
    percentile: float | None = None
    idle_response_s: float | None = None
    profile_id: str | None = None


Progress = Callable[[str], None]

TYPICAL_LOAD = 0.7
"""Load at which the number of replicas for a demand is estimated, before it is known."""
RANGE_OF_DEMAND = 4.0
"""Pools are looked at up to the size that this multiple of the demand needs: comparisons range so far."""


def fitting_profiles(workload: Workload, profiles: Iterable[Profile]) -> tuple[Profile, ...]:
    """Profiles of the workload's model, precision and sequence length, in order of their names."""
    return tuple(
        sorted(
            (
                profile
                for profile in profiles
                if profile.model.name == workload.model
                and (not workload.precisions or profile.model.precision in workload.precisions)
                and profile.model.sequence_length in (None, workload.sequence_length)
            ),
            key=lambda profile: profile.profile_id,
        )
    )


def device_answers(
    curves: Mapping[str, tuple[ServiceCurve, ...]],
    profiles: tuple[Profile, ...],
    devices: Mapping[str, frozenset[str]],
    *,
    question: Question,
    demand_rps: float,
    progress: Progress,
    executor: Executor | None = None,
) -> dict[str, list[Served | Missed]]:
    """For each device (GPU id, or CPU microarchitecture) every configuration worth having.

    A GPU keeps its best configuration only. A CPU keeps one per thread count, since which is best depends on the
    number of vCPUs of the machine.

    Parameters
    ----------
    curves, devices
        Service curves of each profile, and the devices that it speaks for, by profile_id.
    profiles
        Profiles of the workload's model.
    question
        Limits and traffic.
    demand_rps
        Rate that pools are sized for: the batch cap is chosen for the pool that it needs [1/s].
    progress
        Called with a line per configuration.
    executor
        Looks at configurations side by side.
    """
    groups: dict[tuple[str, int], list[tuple[ServiceCurve, Profile]]] = {}
    answers: dict[str, list[Served | Missed]] = {}
    for profile in profiles:
        found = curves[profile.profile_id]
        for device in sorted(devices[profile.profile_id]):
            if not found:
                answers.setdefault(device, []).append(Missed(why_no_curve(profile)))
            for curve in found:
                if question.traffic.call_order == "as_measured" and not curve.series:
                    reason = f"profile {profile.profile_id} does not keep the order of its calls"
                    answers.setdefault(device, []).append(Missed(reason))
                    continue
                groups.setdefault((device, curve.threads), []).append((curve, profile))
    ordered = sorted(groups.items())

    def answer(numbered: tuple[int, tuple[tuple[str, int], list[tuple[ServiceCurve, Profile]]]]) -> Served | Missed:
        number, ((device, _threads), pairs) = numbered
        progress(f"capacity of {device}, {number} of {len(ordered)}")
        return _best_of(pairs, question, demand_rps)

    spread = executor.map if executor is not None and not question.traffic.independent else map
    for ((device, _threads), _pairs), best in zip(ordered, spread(answer, enumerate(ordered, start=1)), strict=True):
        answers.setdefault(device, []).append(best)
    return answers


def _best_of(pairs: list[tuple[ServiceCurve, Profile]], question: Question, demand_rps: float) -> Served | Missed:
    pairs = sorted(pairs, key=lambda pair: (-saturated_rps(pair[0].at_slow_end(), question.limits), pair[1].profile_id))
    fastest_rps = saturated_rps(pairs[0][0].at_slow_end(), question.limits)
    needed = min(POOL_SIZES[-1], math.ceil(demand_rps / (TYPICAL_LOAD * fastest_rps)))
    servers = 1 if question.traffic.independent else needed
    best: Served | None = None
    slowest = math.inf
    missed = Missed("")
    for curve, profile in pairs:
        slow = curve.at_slow_end()
        idle = [(idle_percentile_s(slow, q), q, limit_s) for q, limit_s in question.limits]
        idle_s, percentile, limit_s = max(idle, key=lambda found: found[0] / found[2])
        if idle_s / limit_s < slowest:
            slowest = idle_s / limit_s
            reason = "answers too slowly " + ("even when idle" if slowest > 1 else "at any rate")
            missed = Missed(reason, percentile, idle_s, profile.profile_id)
        found = best_capacity(slow, servers, question, at_least=best.capacity.rate_rps if best else 0.0)
        if found.rate_rps > (best.capacity.rate_rps if best else 0.0):
            best = Served(curve, found, profile)
    if best is None:
        return missed
    if question.traffic.independent:
        return best
    most = math.ceil(RANGE_OF_DEMAND * demand_rps * servers / best.capacity.rate_rps)
    rates = pool_rates(best.curve.at_slow_end(), best.capacity.max_batch, most, question)
    if rates[-1][1] == 0:
        return missed
    return replace(best, pool_rps=rates)


def device_names(profile: Profile, catalog: Catalog) -> frozenset[str]:
    """Devices that a profile speaks for: its GPU or CPU generation, and the machine type it was measured on."""
    names = {profile.device.gpu_id}
    if profile.device.machine_type is not None:
        names.add(very_type(profile.device.kind, profile.device.machine_type))
    if profile.device.cpu is not None:
        names.add(catalog.microarchitecture(profile.device.cpu))
    return frozenset(name for name in names if name is not None)


def devices_of(machines: Iterable[MachineType]) -> frozenset[str]:
    """Devices that speak for one of these machine types, by the names of `device_names`."""
    return frozenset(
        device
        for machine in machines
        for device in (
            very_type(machine.kind, machine.name),
            *(machine.gpu_ids if machine.kind == "gpu" else machine.microarchitectures),
        )
    )


def very_type(kind: str, machine_type: str) -> str:
    """Device name of one machine type; the CPUs of a machine with GPUs do not speak for its GPUs."""
    return f"{kind} of {machine_type}"


def judge(machine: MachineType, workload: Workload, answers: dict[str, list[Served | Missed]]) -> Candidate | Rejection:
    """Candidate with the best configuration on this machine type, or the reason against it."""
    own = very_type(machine.kind, machine.name)
    if own in answers:
        return _judge_devices(machine, workload, (own,), answers, machine.name)
    if machine.gpu_model is not None and (machine.gpu_count < 1 or machine.gpu_count != int(machine.gpu_count)):
        return Rejection(
            machine_type=machine.key,
            reason="a fraction of a GPU: only a profile measured on this very type would tell",
        )
    if machine.burstable:
        return Rejection(
            machine_type=machine.key,
            reason="burstable CPU: only a profile measured on this very type would tell",
        )
    if machine.kind == "gpu":
        return _judge_devices(machine, workload, machine.gpu_ids, answers, f"GPU {machine.gpu_model}")
    if machine.vcpus is None:
        return Rejection(machine_type=machine.key, reason="the price source does not state its vCPUs")
    if not machine.microarchitectures:
        return Rejection(machine_type=machine.key, reason="the CPU generation behind this type is not known")
    return _judge_devices(
        machine,
        workload,
        machine.microarchitectures,
        answers,
        "CPU " + " or ".join(machine.microarchitectures),
    )


def _judge_devices(
    machine: MachineType,
    workload: Workload,
    devices: tuple[str, ...],
    answers: dict[str, list[Served | Missed]],
    name: str,
) -> Candidate | Rejection:
    """A CPU type needs an answer for every generation it may be; a GPU type for one of the forms its name covers."""
    unknown = [device for device in devices if device not in answers]
    if len(unknown) == len(devices) or (unknown and machine.kind == "cpu"):
        fitting = "fitting " if workload.precisions else ""
        missing = f" ({', '.join(unknown)} not measured)" if machine.kind == "cpu" and len(devices) > 1 else ""
        return Rejection(
            machine_type=machine.key, reason=f"no {fitting}profile of {workload.model} for {name}{missing}"
        )
    found = [_on_machine(machine, answers[device]) for device in devices if device in answers]
    refused = [answer for answer in found if isinstance(answer, Missed)]
    if refused:
        reason = refused[0].reason
        if refused[0].idle_response_s is not None and refused[0].percentile is not None:
            reason = f"{name} {reason}: {percentile_label(refused[0].percentile)} {s_to_ms(refused[0].idle_response_s):.4g} ms idle"
        return Rejection(
            machine_type=machine.key,
            reason=reason,
            percentile=refused[0].percentile,
            idle_response_s=refused[0].idle_response_s,
            profile_id=refused[0].profile_id,
        )
    worst = min((answer for answer in found if isinstance(answer, Candidate)), key=lambda answer: answer.capacity_rps)
    extra = []
    if len(devices) > 1:
        extra.append(f"{machine.name} may be any of {', '.join(devices)}; the slowest with a profile is planned for")
    if machine.kind == "cpu" and machine.vcpu_is == "thread":
        extra.append(f"a vCPU of {machine.name} is taken to be worth one logical CPU of the profiled host")
    return worst.model_copy(update={"assumptions": worst.assumptions + tuple(extra)})


def _on_machine(machine: MachineType, options: list[Served | Missed]) -> Candidate | Missed:
    """Best configuration that fits the machine: whole replicas, by accelerators or vCPUs, and by memory."""
    best: Candidate | None = None
    reasons = [option for option in options if isinstance(option, Missed)]
    for option in options:
        if isinstance(option, Missed):
            continue
        replicas = _replicas(machine, option.curve, option.profile)
        if replicas < 1:
            reasons.append(Missed("too small: one replica does not fit its CPUs or memory"))
            continue
        candidate = _candidate(machine, option, replicas)
        if best is None or candidate.capacity_rps > best.capacity_rps:
            best = candidate
    if best is None:
        return min(reasons, key=lambda missed: math.inf if missed.idle_response_s is None else missed.idle_response_s)
    return best


def _replicas(machine: MachineType, curve: ServiceCurve, profile: Profile) -> int:
    if machine.kind == "gpu":
        # A share of a GPU gets here only with a profile of that very type. Replicas that shared a GPU as they were
        # measured share each GPU of the machine; a source that does not say how many had one.
        per_gpu = max(1, curve.replicas_measured)
        fits_gpu = machine.gpu_memory_gib is None or per_gpu * curve.memory_gib <= machine.gpu_memory_gib
        return per_gpu * max(1, int(machine.gpu_count)) if fits_gpu else 0
    if profile.model.is_address and profile.device.cpu is not None:
        # The callers of a server share its whole host: a machine is worth as many hosts as have room in it.
        return curve.replicas_measured * int((machine.vcpus or 0) // profile.device.cpu.logical_cpus)
    count = int((machine.vcpus or 0) // curve.threads)
    if curve.memory_gib > 0 and machine.memory_gib is not None:
        count = min(count, int(machine.memory_gib // curve.memory_gib))
    return count


def _candidate(machine: MachineType, option: Served, replicas: int) -> Candidate:
    curve = option.curve
    extrapolated = machine.kind == "cpu" and replicas > 2 * curve.replicas_measured
    assumptions = list(curve.assumptions)
    if extrapolated:
        assumptions.append(
            f"extrapolated: {replicas} replicas on one host, {curve.replicas_measured} were measured together, "
            "so memory bandwidth was not"
        )
    machines = np.array(POOL_SIZES)
    rates = option.rate_rps(machines * replicas)
    return Candidate(
        machine_type=machine.key,
        label=machine.label,
        kind=machine.kind,
        profile_id=curve.profile_id,
        precision=option.profile.model.precision,
        replicas=replicas,
        threads=curve.threads,
        max_batch=option.capacity.max_batch,
        capacity_rps=float(rates[0]),
        pool_rps=tuple(zip(POOL_SIZES, rates.tolist(), strict=True)) if option.pool_rps else (),
        error_frac=float(curve.error_frac[: option.capacity.max_batch].max()),
        stability_limited=option.capacity.stability_limited,
        extrapolated=extrapolated,
        assumptions=tuple(assumptions),
    )
