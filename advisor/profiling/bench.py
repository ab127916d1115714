"""The protocol: warm-up, interleaved repeats in random order, closed loop with all replicas, two clocks."""

import datetime
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from advisor import __version__
from advisor.domain.evidence import Evidence
from advisor.domain.profile import (
    Cell,
    Device,
    Fact,
    FactValue,
    ModelInfo,
    Profile,
    Protocol,
    RuntimeInfo,
)
from advisor.profiling.engines import Engine, EngineFactory
from advisor.profiling.environment import (
    STEAL_LIMIT_FRAC,
    observe_device,
    observe_environment,
    read_cpu_ticks,
    steal_during,
)
from advisor.profiling.grid import ITEMS_PER_CELL, Configuration, GridPlan, PlannedCell
from advisor.profiling.statistics import (
    MIN_CALLS_FOR_P99,
    PERCENTILE_METHOD,
    histogram,
    mean_ci95_frac,
    summarize,
)
from advisor.profiling.window import Window, run_window
from advisor.units import s_to_ms

Progress: TypeAlias = Callable[[int, int, float, str], None]
"""Called with windows done, windows in all, seconds left, and the last result as a line."""

WALL_OVER_CPU_LIMIT = 1.1
"""A single-threaded call that takes longer than this times its CPU time was kept waiting by others."""

SERIES_CALLS = 1000
"""Calls whose order is kept per cell: enough for series of stalls, few enough for a file that people can open."""

CI_LIMIT_FRAC = 0.05
"""Repeats that differ by more than this do not describe one state of the machine."""

Windows: TypeAlias = dict[PlannedCell, list[Window]]


def measure(
    engine_factory: EngineFactory,
    plan: GridPlan,
    *,
    today: datetime.date,
    profile_id: str | None = None,
    machine_type: str | None = None,
    on_progress: Progress | None = None,
) -> Profile:
    """Measure every cell of a plan and return the profile.

    Stopped by KeyboardInterrupt, also one that `on_progress` raises, it returns a profile with status
    "partial" that holds the cells with at least one whole window.

    `today` dates the evidence; `profile_id` is `default_profile_id` when not given; `machine_type` is the
    cloud machine type, when the user names it.

    Raises
    ------
    MeasurementError
        When a replica cannot be opened or fails.
    KeyboardInterrupt
        When it was stopped before the first window was whole.
    """
    environment, device = observe_environment(), observe_device(machine_type=machine_type)
    ticks, started = read_cpu_ticks(), time.perf_counter()
    outcome = _Outcome(windows={cell: [] for cell in plan.cells})
    _carry_out(engine_factory, plan, outcome, on_progress)
    environment["steal_frac"] = steal_during(ticks, read_cpu_ticks())
    return Profile(
        schema_version=1,
        profile_id=profile_id or default_profile_id(plan.model, device),
        status="partial" if outcome.stopped else "complete",
        evidence=Evidence(kind="measured", source=f"advisor profile {engine_factory.source}", date=today),
        created=datetime.datetime.now(datetime.UTC),
        tool_version=__version__,
        model=plan.model,
        runtime=merge_runtimes(outcome.runtimes),
        device=device,
        environment=environment,
        protocol=_protocol(plan),
        duration_s=time.perf_counter() - started,
        warnings=(
            *engine_factory.notes,
            *plan.warnings,
            *_run_warnings(environment, stopped=outcome.stopped),
        ),
        cells=_summarize_cells(plan, outcome.windows),
    )


def default_profile_id(model: ModelInfo, device: Device) -> str:
    """Name a profile by model, precision and what CPUID tells about the CPU.

    Examples
    --------
    >>> from advisor.domain.profile import CpuIdentity
    >>> cpu = CpuIdentity(vendor="AuthenticAMD", family=25, model=1, logical_cpus=2)
    >>> device = Device(kind="cpu", name="AMD EPYC", cpu=cpu)
    >>> default_profile_id(ModelInfo(name="ResNet 50", precision="fp32"), device)
    'resnet-50-fp32-amd-25-1'
    """
    parts: list[object] = [model.name, model.precision]
    if device.cpu is not None:
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


@dataclass(slots=True)
class _Outcome:
    """What a measurement has seen so far."""

    windows: Windows
    runtimes: dict[Configuration, RuntimeInfo] = field(default_factory=dict)
    stopped: bool = False


def _carry_out(engine_factory: EngineFactory, plan: GridPlan, outcome: _Outcome, on_progress: Progress | None) -> None:
    """Open all replicas once, run the schedule, close them; an interrupt keeps what is whole."""
    replicas: dict[Configuration, list[Engine]] = {}
    try:
        for place in plan.configurations:
            opened = replicas.setdefault(place, [])
            for _ in range(place.concurrency):
                opened.append(engine_factory.open(place.threads, concurrency=place.concurrency))
            outcome.runtimes[place] = opened[0].describe()[1]
        _run_schedule(plan, replicas, outcome.windows, on_progress)
    except KeyboardInterrupt:
        if not any(outcome.windows.values()):
            raise
        outcome.stopped = True
    finally:
        for engines in replicas.values():
            for engine in engines:
                engine.close()


def _run_schedule(
    plan: GridPlan,
    replicas: Mapping[Configuration, list[Engine]],
    windows: Windows,
    on_progress: Progress | None,
) -> None:
    """Run all windows, repeat by repeat, each in its own random order, so that drift meets every cell."""
    rng = np.random.default_rng(plan.seed)
    schedule = [plan.cells[index] for _ in range(plan.repeats) for index in rng.permutation(len(plan.cells))]
    planned_s = [cell.seconds(plan.rules) for cell in schedule]
    started = time.perf_counter()
    if on_progress is not None:
        on_progress(0, len(schedule), plan.estimated_s, "")
    for done, cell in enumerate(schedule, start=1):
        engines = replicas[cell.configuration]
        items = [engines[0].prepare(cell.batch_size, rng) for _ in range(ITEMS_PER_CELL)]
        window = run_window(engines, items, plan.rules, threads=cell.configuration.threads)
        windows[cell].append(window)
        if on_progress is not None:
            pace = (time.perf_counter() - started) / sum(planned_s[:done])
            on_progress(done, len(schedule), pace * sum(planned_s[done:]), _line(cell, window))


def _line(cell: PlannedCell, window: Window) -> str:
    """Show the result of one window as a line for people."""
    mean_ms = s_to_ms(float(np.mean(window.service_s)))
    place = cell.configuration
    rate_rps = window.calls * cell.batch_size / window.duration_s
    return (
        f"batch {cell.batch_size}, threads {place.threads} × replicas {place.concurrency}: "
        f"{mean_ms:.3g} ms per call, {rate_rps:.4g} items/s"
    )


def _summarize_cells(plan: GridPlan, windows: Windows) -> tuple[Cell, ...]:
    """Cells with at least one whole window, in the order of the plan."""
    return tuple(_summarize_cell(cell, windows[cell], repeats=plan.repeats) for cell in plan.cells if windows[cell])


def _summarize_cell(cell: PlannedCell, windows: list[Window], *, repeats: int) -> Cell:
    """Pool the windows of one cell."""
    service_s = np.concatenate([window.service_s for window in windows])
    summary = summarize(service_s)
    ci95_frac = mean_ci95_frac([float(np.mean(window.service_s)) for window in windows])
    calls = sum(window.calls for window in windows)
    cpu_mean_s = sum(window.cpu_mean_s * window.calls for window in windows) / calls
    draft = Cell(
        batch_size=cell.batch_size,
        threads=cell.configuration.threads,
        concurrency=cell.configuration.concurrency,
        count=summary.count,
        service_mean_s=summary.mean_s,
        service_m2_s2=summary.m2_s2,
        service_p50_s=summary.p50_s,
        service_p90_s=summary.p90_s,
        service_p95_s=summary.p95_s,
        service_p99_s=summary.p99_s,
        service_max_s=summary.max_s,
        mean_ci95_frac=ci95_frac,
        histogram=histogram(service_s),
        series_s=_series(windows),
        cpu_mean_s=cpu_mean_s,
        throughput_rps=calls * cell.batch_size / sum(window.duration_s for window in windows),
        memory_gib=cell.memory_gib,
    )
    warnings = _cell_warnings(draft, windows=len(windows), repeats=repeats)
    return draft.model_copy(update={"warnings": warnings})


def _series(windows: list[Window]) -> tuple[float, ...] | None:
    """Calls of the first replica in order of time, an equal number from each repeat, with five digits [s]."""
    each = SERIES_CALLS // len(windows)
    calls = np.concatenate([window.service_s[: min(each, window.first_caller_calls)] for window in windows])
    return tuple(float(f"{value:.5g}") for value in calls) if calls.size > 1 else None


def _cell_warnings(cell: Cell, *, windows: int, repeats: int) -> tuple[str, ...]:
    """Why to doubt a cell, as sentences that start with a code."""
    warnings = []
    if windows < repeats:
        warnings.append(f"STOPPED: {windows} of {repeats} repeats were made.")
    if cell.threads == 1 and cell.cpu_mean_s and cell.service_mean_s:
        ratio = cell.service_mean_s / cell.cpu_mean_s
        if ratio > WALL_OVER_CPU_LIMIT:
            warnings.append(
                f"WALL_OVER_CPU: calls took {ratio:.2f} times their CPU time; other work, or Python's lock "
                "where calls are very short, kept them waiting."
            )
    if cell.mean_ci95_frac is None:
        warnings.append("UNSETTLED: one repeat does not tell how much the mean drifts.")
    elif cell.mean_ci95_frac > CI_LIMIT_FRAC:
        warnings.append(
            f"UNSETTLED: the mean of the repeats is known to ±{cell.mean_ci95_frac:.1%} only (95 % interval)."
        )
    if cell.count is not None and cell.count < MIN_CALLS_FOR_P99:
        warnings.append(f"FEW_SAMPLES: {cell.count} calls give no 99th percentile, {MIN_CALLS_FOR_P99} would.")
    if cell.memory_gib is None:
        warnings.append("MEMORY_UNKNOWN: the memory that one replica adds could not be told from the process.")
    return tuple(warnings)


def _run_warnings(environment: Mapping[str, Fact], *, stopped: bool) -> tuple[str, ...]:
    """Why to doubt the whole measurement."""
    warnings = []
    steal = environment["steal_frac"].value
    if isinstance(steal, float) and steal > STEAL_LIMIT_FRAC:
        warnings.append(f"STEAL: the hypervisor gave {steal:.1%} of the CPU time to others during the run.")
    if stopped:
        warnings.append("STOPPED: the measurement was stopped before its end.")
    return tuple(warnings)


def _protocol(plan: GridPlan) -> Protocol:
    """Record how the numbers were taken."""
    return Protocol(
        warmup_calls=plan.rules.warmup_calls,
        warmup_s=plan.rules.warmup_s,
        repeats=plan.repeats,
        min_calls=plan.rules.min_calls,
        min_s=plan.rules.min_s,
        percentile_method=PERCENTILE_METHOD,
        order_seed=plan.seed,
    )
