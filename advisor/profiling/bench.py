"""The protocol: warm-up, interleaved repeats in random order, closed loop with all replicas, anchors at both ends."""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor import __version__
from advisor.domain.evidence import Evidence
from advisor.domain.measurement import IdlePower
from advisor.domain.profile import Device, Fact, FactValue, ModelInfo, Profile, Protocol, RuntimeInfo
from advisor.errors import InputError, MeasurementError
from advisor.profiling.acceptance import STEAL_LIMIT_FRAC
from advisor.profiling.cell import Configuration
from advisor.profiling.engines import EngineFactory
from advisor.profiling.environment import observe_device, observe_environment
from advisor.profiling.host import read_host, surroundings
from advisor.profiling.instruments import Instruments
from advisor.profiling.journal import Entry, Journal
from advisor.profiling.power import NoMeter
from advisor.profiling.schedule import Key
from advisor.profiling.sitting import Progress, Sitting, keep_failures
from advisor.profiling.statistics import PERCENTILE_METHOD
from advisor.profiling.summary import anchors, drift_warning, summarize_cells

FAILED = "FAILED"
"""Code of the warning that tells how a model failed on the way."""


def measure(
    engine_factory: EngineFactory,
    journal: Journal,
    instruments: Instruments,
    *,
    today: datetime.date,
    device: Device | None = None,
    profile_id: str | None = None,
    findings: Sequence[str] = (),
    on_progress: Progress | None = None,
) -> Profile:
    """Measure what the plan at the start of a journal asks for and the journal does not hold yet.

    Stopped by KeyboardInterrupt, also one that `on_progress` raises, or by a model that fails on the way, it returns
    a profile with status "partial" that holds the cells with at least one whole window and says what happened.

    Parameters
    ----------
    engine_factory
        The model.
    journal
        The plan, and where every result goes as soon as it is there.
    instruments
        What is read at both ends of every window.
    today
        Date of the evidence.
    device
        Hardware that answers; the CPUs of this machine when not given.
    profile_id
        Name of the profile; `default_profile_id` when not given.
    findings
        What spoke against measuring, as sentences; whoever calls this goes on all the same.
    on_progress
        Told about every window.

    Raises
    ------
    InputError
        When the machine, the model, its inputs, the runtime or the power meter is not that of the journal.
    MeasurementError
        When a replica cannot be opened, or fails before the first window was whole.
    KeyboardInterrupt
        When it was stopped before the first window was whole.
    """
    start = journal.start
    device = device or observe_device(machine_type=start.device.machine_type)
    if device != start.device:
        raise InputError("machine", device.name, f"the machine of the journal, {start.device.name}, with as many CPUs")
    _refuse_other_meter(journal, instruments)
    environment, before = observe_environment(), read_host()
    environment |= engine_factory.facts()
    if not start.plan.placement.local:
        environment["observed_on"] = Fact(value="the client; the machine that answers is another one")
    for gpu in instruments.gpus:
        environment |= gpu.facts()
    sat = _sit(engine_factory, journal, instruments, findings, on_progress)
    keep_failures(journal, instruments)
    steal_frac = surroundings(before, read_host()).steal_frac
    environment["steal_frac"] = Fact(
        value=steal_frac, why=None if steal_frac is not None else "the system does not count stolen time"
    )
    samples, plan = journal.samples, start.plan
    last = samples[-1].repeat
    return Profile(
        schema_version=1,
        profile_id=profile_id or default_profile_id(start.model, start.device),
        status="complete" if sat.ended_by is None else "partial",
        evidence=Evidence(kind="measured", source=f"advisor profile {engine_factory.source}", date=today),
        created=datetime.datetime.now(datetime.UTC),
        tool_version=__version__,
        command=start.command,
        model=start.model,
        runtime=merge_runtimes(sat.runtimes) if sat.runtimes else plan.runtime,
        device=start.device,
        environment=environment,
        protocol=_protocol(journal),
        duration_s=last.started_s + last.duration_s,
        idle_power=sat.idle,
        anchors=anchors(samples),
        idle_starts=journal.idle_starts,
        join_times=journal.join_times,
        warnings=(
            *engine_factory.notes,
            *plan.warnings,
            *_room_warnings(sat.without_room),
            *_run_warnings(journal, environment, sat.ended_by),
        ),
        cells=summarize_cells(plan, samples, instruments.meter, sat.idle),
    )


@dataclass(frozen=True, slots=True)
class _Sat:
    """What one sitting left beside its journal."""

    runtimes: Mapping[Configuration, RuntimeInfo]
    """Empty where it was stopped before all replicas were open."""
    idle: IdlePower | None
    ended_by: KeyboardInterrupt | MeasurementError | None
    """What ended it before its time."""
    without_room: Mapping[Key, str] = field(default_factory=dict)
    """Cells given up, with what was said."""


def _sit(
    engine_factory: EngineFactory,
    journal: Journal,
    instruments: Instruments,
    findings: Sequence[str],
    on_progress: Progress | None,
) -> _Sat:
    """Open the replicas and measure until the end, or until something ends it after the first whole window."""
    runtimes: dict[Configuration, RuntimeInfo] = {}
    try:
        with Sitting(engine_factory, journal, instruments, on_progress) as sitting:
            runtimes = sitting.open()
            journal.append(Entry(findings=tuple(findings), meter=_meter_words(instruments)))
            sitting.run()
            idle = _idle_power(journal, instruments, after=True)
            return _Sat(runtimes, idle, ended_by=None, without_room=sitting.without_room)
    except (KeyboardInterrupt, MeasurementError) as error:
        if not journal.samples:
            raise
        return _Sat(runtimes, _idle_power(journal, instruments, after=False), ended_by=error)


def default_profile_id(model: ModelInfo, device: Device) -> str:
    """Name a profile by model, precision, and GPU, what CPUID tells about the CPU, or the name of the device.

    Examples
    --------
    >>> from advisor.domain.profile import CpuIdentity
    >>> cpu = CpuIdentity(vendor="AuthenticAMD", family=25, model=1, logical_cpus=2)
    >>> device = Device(kind="cpu", name="AMD EPYC", cpu=cpu)
    >>> default_profile_id(ModelInfo(name="ResNet 50", precision="fp32"), device)
    'resnet-50-fp32-amd-25-1'
    """
    parts: list[object] = [model.name, model.precision]
    if device.gpu_id is not None:
        parts.append(device.gpu_id)
    elif device.cpu is None:
        parts.append(device.name)
    else:
        vendor = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(device.cpu.vendor, f"arm-{device.cpu.vendor}")
        family = device.cpu.family if isinstance(device.cpu.family, int) else None
        parts += [vendor, family, device.cpu.model]
    text = "-".join(str(part) for part in parts if part is not None).lower()
    return re.sub(r"[^a-z0-9._]+", "-", text).strip("-._") or "profile"


def merge_runtimes(runtimes: Mapping[Configuration, RuntimeInfo]) -> RuntimeInfo:
    """One record for all configurations; an option that differs is kept once per configuration.

    Examples
    --------
    >>> runtimes = {Configuration(1, 2): RuntimeInfo(name="x", options={"spin": False}),
    ...             Configuration(2, 1): RuntimeInfo(name="x", options={"spin": True})}
    >>> merge_runtimes(runtimes).options
    {'spin[threads=1,concurrency=2]': False, 'spin[threads=2,concurrency=1]': True}
    """
    first = next(iter(runtimes.values()))
    options: dict[str, FactValue] = {}
    for key in first.options:
        values = {configuration: runtime.options.get(key) for configuration, runtime in runtimes.items()}
        if len(set(values.values())) == 1:
            options[key] = first.options[key]
        else:
            options |= {
                f"{key}[threads={place.threads},concurrency={place.concurrency}]": value
                for place, value in values.items()
            }
    return first.model_copy(update={"options": options})


def _meter_words(instruments: Instruments) -> str:
    """Power meter with what it covers; empty without one."""
    meter = instruments.meter
    return "" if isinstance(meter, NoMeter) else f"{meter.method}, {meter.scope}"


def _refuse_other_meter(journal: Journal, instruments: Instruments) -> None:
    """Refuse another power meter than that of an earlier sitting: joules of two meters make no mean."""
    here = _meter_words(instruments)
    if journal.meter not in (None, here):
        raise InputError("power meter", here or "none", f"that of the journal, {journal.meter or 'none'}")


def _idle_power(journal: Journal, instruments: Instruments, *, after: bool) -> IdlePower | None:
    """Idle power before and, when the measurement came to its end, after."""
    if isinstance(instruments.meter, NoMeter) or journal.idle_before_w is None:
        return None
    return IdlePower(
        method=instruments.meter.method,
        before_w=journal.idle_before_w,
        after_w=instruments.idle_power_w(journal.start.plan.idle_power_s) if after else None,
    )


def _room_warnings(without_room: Mapping[Key, str]) -> list[str]:
    """Tell which cells were given up, since memory was full with all replicas at work."""
    return [
        f"MEMORY: batch {size} on {place.concurrency} replicas of {place.threads} threads was given up: {said}"
        for (size, place), said in without_room.items()
    ]


def _run_warnings(
    journal: Journal, environment: Mapping[str, Fact], ended_by: KeyboardInterrupt | MeasurementError | None
) -> tuple[str, ...]:
    """Why to doubt the whole measurement."""
    warnings = [*journal.findings, *(f"METER: {failure}" for failure in journal.meter_failures)]
    warnings += drift_warning(anchors(journal.samples))
    warnings += [
        f"IDLE_START: the calls of an idle replica of {start.threads} threads were disturbed, {start.rejected[0]}"
        for start in journal.idle_starts
        if start.rejected
    ]
    steal = environment["steal_frac"].value
    if isinstance(steal, float) and steal > STEAL_LIMIT_FRAC:
        warnings.append(f"STEAL: the hypervisor gave {steal:.1%} of the CPU time to others during the run.")
    if isinstance(ended_by, MeasurementError):
        warnings.append(f"{FAILED}: {ended_by}")
    elif ended_by is not None:
        warnings.append("STOPPED: the measurement was stopped before its end.")
    return tuple(warnings)


def _protocol(journal: Journal) -> Protocol:
    """Record how the numbers were taken."""
    plan = journal.start.plan
    return Protocol(
        warmup_calls=plan.rules.warmup_calls,
        warmup_s=plan.rules.warmup_s,
        repeats=plan.repeats,
        most_repeats=plan.most_repeats,
        mean_ci95_target_frac=plan.target_ci_frac,
        min_calls=plan.rules.min_calls,
        min_s=plan.rules.min_s,
        percentile_method=PERCENTILE_METHOD,
        order_seed=plan.seed,
        sittings=journal.sittings,
        forced=bool(journal.findings),
    )
