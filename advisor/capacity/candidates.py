"""Which machine types can serve a workload, with which profile and configuration, and why the others cannot."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from advisor.capacity.curve import ServiceCurve, service_curves, why_no_curve
from advisor.capacity.pool import Capacity, best_capacity, idle_percentile_s, saturated_rps
from advisor.domain.machine import Catalog, MachineType
from advisor.domain.plan import Candidate, Rejection
from advisor.domain.profile import Profile
from advisor.domain.workload import Workload
from advisor.units import s_to_ms


@dataclass(frozen=True)
class Served:
    """Best configuration of one device for the workload.

    Attributes
    ----------
    curve
        The curve, as measured.
    capacity
        Of one replica, with service times at the slow end of their interval.
    profile
        Where the curve comes from.
    """

    curve: ServiceCurve
    capacity: Capacity
    profile: Profile


@dataclass(frozen=True)
class Missed:
    """A device that misses the SLA even when idle, or cannot be planned with."""

    reason: str
    idle_response_s: float | None
    profile_id: str | None = None


Progress = Callable[[str], None]


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
    workload: Workload,
    profiles: tuple[Profile, ...],
    catalog: Catalog,
    wanted: frozenset[str],
    progress: Progress,
) -> dict[str, list[Served | Missed]]:
    """For each wanted device (GPU id, or CPU microarchitecture) every configuration worth having.

    A GPU keeps its best configuration only. A CPU keeps one per thread count, since which is best depends on the
    number of vCPUs of the machine.
    """
    groups: dict[tuple[str, int], list[tuple[ServiceCurve, Profile]]] = {}
    answers: dict[str, list[Served | Missed]] = {}
    for profile in profiles:
        curves = service_curves(profile)
        for device in device_names(profile, catalog) & wanted:
            if not curves:
                answers.setdefault(device, []).append(Missed(why_no_curve(profile), None))
            for curve in curves:
                groups.setdefault((device, curve.threads), []).append((curve, profile))
    limit_s, percentile = workload.sla.response_time_s, workload.sla.percentile
    for (device, _threads), pairs in sorted(groups.items()):
        progress(device)
        pairs.sort(key=lambda pair: (-saturated_rps(pair[0].at_slow_end(), limit_s), pair[0].profile_id))
        answers.setdefault(device, []).append(_best_of(pairs, percentile, limit_s))
    return answers


def _best_of(pairs: list[tuple[ServiceCurve, Profile]], percentile: float, limit_s: float) -> Served | Missed:
    best: Served | None = None
    idle, fastest = math.inf, ""
    for curve, profile in pairs:
        slow = curve.at_slow_end()
        alone = idle_percentile_s(slow, percentile)
        if alone < idle:
            idle, fastest = alone, profile.profile_id
        found = best_capacity(slow, percentile, limit_s, at_least=best.capacity.rate_rps if best else 0.0)
        if found.rate_rps > (best.capacity.rate_rps if best else 0.0):
            best = Served(curve, found, profile)
    if best is None:
        return Missed("answers too slowly even when idle", idle, fastest)
    return best


def device_names(profile: Profile, catalog: Catalog) -> frozenset[str]:
    """Devices that a profile speaks for: its GPU or CPU generation, and the machine type it was measured on."""
    names = {profile.device.gpu_id}
    if profile.device.machine_type is not None:
        names.add(very_type(profile.device.kind, profile.device.machine_type))
    if profile.device.cpu is not None:
        names.add(catalog.microarchitecture(profile.device.cpu))
    return frozenset(name for name in names if name is not None)


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
        if refused[0].idle_response_s is not None:
            reason = f"{name} {reason}: {workload.sla.label} {s_to_ms(refused[0].idle_response_s):.4g} ms"
        return Rejection(
            machine_type=machine.key,
            reason=reason,
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
        replicas = _replicas(machine, option.curve)
        if replicas < 1:
            reasons.append(Missed("too small: one replica does not fit its CPUs or memory", None))
            continue
        rate = replicas * option.capacity.rate_rps
        if best is None or rate > best.capacity_rps:
            best = _candidate(machine, option, replicas)
    if best is None:
        return min(reasons, key=lambda missed: math.inf if missed.idle_response_s is None else missed.idle_response_s)
    return best


def _replicas(machine: MachineType, curve: ServiceCurve) -> int:
    if machine.kind == "gpu":
        # A share of a GPU gets here only with a profile of that very type.
        count = max(1, int(machine.gpu_count))
        fits_gpu = machine.gpu_memory_gib is None or curve.memory_gib <= machine.gpu_memory_gib
        return count if fits_gpu else 0
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
    return Candidate(
        machine_type=machine.key,
        label=machine.label,
        kind=machine.kind,
        profile_id=curve.profile_id,
        precision=option.profile.model.precision,
        replicas=replicas,
        threads=curve.threads,
        max_batch=option.capacity.max_batch,
        capacity_rps=replicas * option.capacity.rate_rps,
        error_frac=float(curve.error_frac[: option.capacity.max_batch].max()),
        stability_limited=option.capacity.stability_limited,
        extrapolated=extrapolated,
        assumptions=tuple(assumptions),
    )
