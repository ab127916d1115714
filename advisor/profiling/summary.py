"""From the samples of a measurement to the cells of a profile, with the warnings that belong to them."""

from collections.abc import Sequence

import numpy as np

from advisor.domain.measurement import Anchor, IdlePower, Spread, Streaming
from advisor.domain.profile import Cell
from advisor.profiling.cell import PlannedCell
from advisor.profiling.grid import GridPlan
from advisor.profiling.journal import Sample
from advisor.profiling.power import EnergyWindow, Meter, NoMeter, item_energy
from advisor.profiling.statistics import MIN_CALLS_FOR_P99, FloatArray, histogram, mean_ci95_frac, summarize
from advisor.units import s_to_ms

WALL_OVER_CPU_LIMIT = 1.1
"""A single-threaded call that takes longer than this times its CPU time was kept waiting by others."""

SERIES_CALLS = 1000
"""Calls whose order is kept per cell: enough for series of stalls, few enough for a file that people can open."""

CLIENT_LIMIT_CPUS = 0.5
"""Work of the client that asks an endpoint; beyond this its own waiting shows in the times, say trials."""

CI_LIMIT_FRAC = 0.05
"""Repeats that differ by more than this do not describe one state of the machine."""

DRIFT_LIMIT_FRAC = 0.03
"""Anchors that differ by more than this were taken on what is, in effect, two machines."""


def summarize_cells(
    plan: GridPlan, samples: Sequence[Sample], meter: Meter | NoMeter, idle: IdlePower | None
) -> tuple[Cell, ...]:
    """Cells with at least one window, in the order of the plan."""
    cells = []
    for planned in plan.cells:
        own = [
            sample
            for sample in samples
            if (sample.batch_size, sample.configuration) == (planned.batch_size, planned.configuration)
        ]
        if own:
            cells.append(_summarize_cell(planned, own, plan, meter, idle))
    return tuple(cells)


def usable(samples: Sequence[Sample]) -> list[Sample]:
    """Windows that make up a cell: the accepted ones, or all of them where fewer than two were accepted."""
    accepted = [sample for sample in samples if sample.accepted]
    return accepted if len(accepted) > 1 or len(accepted) == len(samples) else list(samples)


def _summarize_cell(
    planned: PlannedCell, samples: list[Sample], plan: GridPlan, meter: Meter | NoMeter, idle: IdlePower | None
) -> Cell:
    """Pool the windows of one cell."""
    used = usable(samples)
    times_s = [sample.service_s for sample in used]
    service_s = np.concatenate(times_s)
    summary = summarize(service_s)
    # Each window has the same weight, as in the interval of the mean: the anchors are longer than the others.
    mean_s = float(np.mean([sample.repeat.service_mean_s for sample in used]))
    m2_s2 = float(np.mean([sample.repeat.service_m2_s2 for sample in used]))
    draft = Cell(
        batch_size=planned.batch_size,
        threads=planned.configuration.threads,
        concurrency=planned.configuration.concurrency,
        count=summary.count,
        service_mean_s=mean_s,
        service_m2_s2=max(m2_s2, mean_s**2),
        service_p50_s=summary.p50_s,
        service_p90_s=summary.p90_s,
        service_p95_s=summary.p95_s,
        service_p99_s=summary.p99_s,
        service_max_s=summary.max_s,
        mean_ci95_frac=mean_ci95_frac([sample.repeat.service_mean_s for sample in used]),
        histogram=histogram(service_s),
        series_s=_series(used),
        # What the client of an endpoint spends on a call says nothing about the model.
        cpu_mean_s=None if plan.placement.kind == "endpoint" else _cpu_mean_s(used),
        throughput_rps=float(np.mean([sample.repeat.throughput_rps for sample in used])),
        memory_gib=planned.memory_gib,
        repeats=tuple(sample.repeat for sample in samples),
        outliers=tuple(outlier for sample in samples for outlier in sample.outliers),
        streaming=_streaming(used),
    )
    draft = _with_energy(draft, used, meter, idle)
    return draft.model_copy(update={"warnings": _cell_warnings(draft, samples, plan)})


def _cpu_mean_s(used: list[Sample]) -> float:
    return float(np.mean([sample.repeat.cpu_mean_s for sample in used]))


def _streaming(used: list[Sample]) -> Streaming | None:
    """Times of the tokens of all answers; None where answers came whole."""
    first_s = np.concatenate([sample.first_token_s for sample in used])
    inter_s = np.concatenate([sample.inter_token_s for sample in used])
    if not first_s.size:
        return None
    return Streaming(
        first_token=_spread(first_s),
        inter_token=_spread(inter_s) if inter_s.size else None,
        parts_mean=1 + inter_s.size / first_s.size,
    )


def _spread(times_s: FloatArray) -> Spread:
    summary = summarize(times_s)
    return Spread(
        count=summary.count, mean_s=summary.mean_s, p50_s=summary.p50_s, p95_s=summary.p95_s, p99_s=summary.p99_s
    )


def _with_energy(cell: Cell, used: list[Sample], meter: Meter | NoMeter, idle: IdlePower | None) -> Cell:
    """Add power and energy, where a meter ran in every window."""
    windows = [
        EnergyWindow(
            energy_j=sample.repeat.energy_j,
            duration_s=sample.repeat.duration_s,
            items=sample.calls * sample.batch_size,
        )
        for sample in used
        if sample.repeat.energy_j is not None
    ]
    if isinstance(meter, NoMeter) or len(windows) < len(used):
        return cell
    power_w = sum(window.energy_j for window in windows) / sum(window.duration_s for window in windows)
    energy = item_energy(windows, meter, idle)
    return cell.model_copy(update={"power_w": power_w, "power_method": meter.method, "energy": energy})


def _series(used: list[Sample]) -> tuple[float, ...] | None:
    """Calls of the first replica in order of time, an equal number from each repeat, with five digits [s]."""
    each = SERIES_CALLS // len(used)
    calls = np.concatenate([sample.service_s[: min(each, sample.first_caller_calls)] for sample in used])
    return tuple(float(f"{value:.5g}") for value in calls) if calls.size > 1 else None


def _cell_warnings(cell: Cell, samples: list[Sample], plan: GridPlan) -> tuple[str, ...]:
    """Why to doubt a cell, as sentences that start with a code."""
    warnings = []
    turns = sum(not sample.anchor for sample in samples)
    if turns < plan.repeats:
        warnings.append(f"FEW_REPEATS: {turns} of {plan.repeats} repeats were made.")
    warnings += _contamination(samples)
    if plan.placement.kind == "endpoint":
        warnings += _client_warning(cell, _cpu_mean_s(usable(samples)))
    if plan.placement.kind == "cpu" and cell.threads == 1 and cell.cpu_mean_s and cell.service_mean_s:
        ratio = cell.service_mean_s / cell.cpu_mean_s
        if ratio > WALL_OVER_CPU_LIMIT:
            warnings.append(
                f"WALL_OVER_CPU: calls took {ratio:.2f} times their CPU time; other work, or Python's lock "
                "where calls are very short, kept them waiting."
            )
    warnings += unsettled_warning(cell)
    if any(sample.repeat.warmup_settled is False for sample in usable(samples)):
        warnings.append("WARM_UP: calls still became faster or slower when the window began.")
    warnings += few_samples_warning(cell)
    if cell.memory_gib is None:
        warnings.append("MEMORY_UNKNOWN: the memory that one replica adds could not be told from the process.")
    return tuple(warnings)


def unsettled_warning(cell: Cell) -> tuple[str, ...]:
    """Tell when the repeats do not agree on the mean, or there is only one."""
    if cell.mean_ci95_frac is None:
        return ("UNSETTLED: one repeat does not tell how much the mean drifts.",)
    if cell.mean_ci95_frac > CI_LIMIT_FRAC:
        return (f"UNSETTLED: the mean of the repeats is known to ±{cell.mean_ci95_frac:.1%} only (95 % interval).",)
    return ()


def few_samples_warning(cell: Cell) -> tuple[str, ...]:
    """Tell when there are too few calls for a 99th percentile."""
    if cell.count is None or cell.count >= MIN_CALLS_FOR_P99:
        return ()
    return (f"FEW_SAMPLES: {cell.count} calls give no 99th percentile, {MIN_CALLS_FOR_P99} would.",)


def _client_warning(cell: Cell, cpu_mean_s: float) -> list[str]:
    """Tell when the client's own work is a large part of what was measured.

    Python runs one thread at a time, so that callers that need much of one CPU together wait for each other.
    """
    busy_cpus = cpu_mean_s * (cell.throughput_rps or 0.0) / (cell.batch_size or 1)
    if busy_cpus <= CLIENT_LIMIT_CPUS:
        return []
    return [
        f"CLIENT_BOUND: the client kept {busy_cpus:.2f} CPUs busy, over {CLIENT_LIMIT_CPUS:g}: the times are those of "
        "the client as well."
    ]


def _contamination(samples: list[Sample]) -> list[str]:
    """Tell when windows were disturbed, with the commonest reason: what is left is the host in its better moments."""
    accepted = sum(sample.accepted for sample in samples)
    if accepted == len(samples):
        return []
    reasons = [reason for sample in samples for reason in sample.repeat.rejected]
    codes = [reason.split(":")[0] for reason in reasons]
    commonest = max(sorted(set(codes)), key=codes.count)
    example = next(reason for reason in reasons if reason.startswith(commonest))
    detail = example.split(": ", 1)[1].rstrip(".")
    if accepted > 1:
        return [f"DISTURBED: {accepted} of {len(samples)} repeats count; mostly {commonest}, such as: {detail}."]
    used = "none counts" if accepted == 0 else "only one counts"
    return [f"CONTAMINATED: of {len(samples)} repeats {used}, so all are used; mostly {commonest}, such as: {detail}."]


def anchors(samples: Sequence[Sample]) -> tuple[Anchor, ...]:
    """The long windows of the same cell at the start and at the end."""
    return tuple(
        Anchor(
            at_s=sample.repeat.started_s,
            batch_size=sample.batch_size,
            threads=sample.threads,
            concurrency=sample.concurrency,
            count=sample.repeat.count,
            service_mean_s=sample.repeat.service_mean_s,
        )
        for sample in samples
        if sample.anchor
    )


def drift_warning(found: Sequence[Anchor]) -> tuple[str, ...]:
    """Tell when the machine became faster or slower between the first and the last anchor."""
    if len(found) < 2:
        return ()
    first, last = found[0], found[-1]
    drift_frac = last.service_mean_s / first.service_mean_s - 1
    if abs(drift_frac) <= DRIFT_LIMIT_FRAC:
        return ()
    return (
        f"DRIFT: batch {first.batch_size} took {s_to_ms(first.service_mean_s):.4g} ms at the start and "
        f"{s_to_ms(last.service_mean_s):.4g} ms at the end ({drift_frac:+.1%}); the machine changed meanwhile.",
    )
