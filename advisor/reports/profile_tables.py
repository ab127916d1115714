"""Profiles as tables, for pages and command line. Units are in every column name; what no row states is no column."""

import datetime
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from advisor.capacity.knee import Sweep
from advisor.domain.measurement import Checked, LoadRun
from advisor.domain.profile import Cell, Fact, Profile
from advisor.reports.profile_sentences import clean_runs, method_words, runs_inside
from advisor.reports.tables import rounded_ms


def profiles_table(profiles: Sequence[Profile], *, today: datetime.date) -> pd.DataFrame:
    """Profiles at a glance."""
    return pd.DataFrame(
        [
            {
                "Profile": profile.profile_id,
                "Model": profile.model.name,
                "Device": profile.device.gpu_id or profile.device.name,
                "Kind": profile.device.kind.upper(),
                "Precision": profile.model.precision or "not stated",
                "Sequence (tokens)": profile.model.sequence_length,
                "Runtime": profile.runtime.name,
                "Evidence": profile.evidence.kind,
                "Verified under load": _verified(profile),
                "Date": profile.evidence.date.isoformat() if profile.evidence.date else "not stated",
                "Age (days)": (today - profile.evidence.date).days if profile.evidence.date else None,
                "Cells": len(profile.cells),
                "Status": profile.status,
                "Warnings": len(profile.warnings) + sum(len(cell.warnings) for cell in profile.cells),
                "Source": profile.evidence.source,
            }
            for profile in profiles
        ]
    )


def cells_table(profile: Profile) -> pd.DataFrame:
    """Cells of one profile, with the repeats that count and why others do not."""
    return _stated(
        pd.DataFrame(
            [
                {
                    "Batch": cell.batch_size,
                    "Threads": cell.threads,
                    "Replicas together": cell.concurrency,
                    "Mean (ms)": rounded_ms(cell.service_mean_s),
                    "±95 % (%)": None if cell.mean_ci95_frac is None else round(100 * cell.mean_ci95_frac, 2),
                    "p50 (ms)": rounded_ms(cell.service_p50_s),
                    "p95 (ms)": rounded_ms(cell.service_p95_s),
                    "p99 (ms)": rounded_ms(cell.service_p99_s),
                    **_tokens(cell),
                    "Throughput (items/s)": None if cell.throughput_rps is None else round(cell.throughput_rps, 2),
                    "Calls": cell.count,
                    "Windows": len(cell.repeats) or None,
                    "Undisturbed": sum(not repeat.rejected for repeat in cell.repeats) if cell.repeats else None,
                    "Counted": _counted(cell),
                    "Disturbed by": _why_rejected(cell),
                    "Memory (GiB)": None if cell.memory_gib is None else round(cell.memory_gib, 3),
                    "Warnings": " ".join(cell.warnings),
                }
                for cell in profile.cells
            ]
        ),
        always=("Batch", "Mean (ms)"),
    )


def _tokens(cell: Cell) -> dict[str, float | None]:
    """Times of the tokens of streamed answers."""
    streaming = cell.streaming
    if streaming is None:
        return {}
    inter = streaming.inter_token
    return {
        "First token p50 (ms)": rounded_ms(streaming.first_token.p50_s),
        "First token p95 (ms)": rounded_ms(streaming.first_token.p95_s),
        "Between tokens p50 (ms)": None if inter is None else rounded_ms(inter.p50_s),
        "Between tokens p95 (ms)": None if inter is None else rounded_ms(inter.p95_s),
        "Parts per answer": round(streaming.parts_mean, 1),
    }


def _counted(cell: Cell) -> str | None:
    """Which windows make up the figures."""
    if not cell.repeats:
        return None
    return "all, too few were undisturbed" if cell.contaminated else "the undisturbed"


def sweeps_table(found: Sequence[Sweep]) -> pd.DataFrame:
    """Knees and highest throughputs; "≥" marks a floor, of a sweep that never saturated."""
    return _stated(
        pd.DataFrame(
            [
                {
                    "Over": "batch size" if sweep.axis == "batch_size" else "replicas",
                    "Knee": sweep.knee.size if sweep.saturated else None,
                    "At the knee (items/s)": round(sweep.knee.throughput_rps, 2) if sweep.saturated else None,
                    "Most (items/s)": f"{'' if sweep.saturated else '≥ '}{sweep.best_rps:,.2f}",
                    "Threads": sweep.threads,
                    "Replicas together": sweep.concurrency,
                    "Batch": sweep.batch_size,
                    "Sizes measured": ", ".join(str(point.size) for point in sweep.points),
                }
                for sweep in found
            ]
        ),
        always=("Over", "Most (items/s)"),
    )


def energy_table(profile: Profile) -> pd.DataFrame:
    """Energy of one item per cell, with half widths; empty when no cell has it."""
    return _stated(
        pd.DataFrame(
            [
                {
                    "Batch": cell.batch_size,
                    "Threads": cell.threads,
                    "Replicas together": cell.concurrency,
                    "Energy (J/item)": cell.energy.gross_j,
                    "± (J/item)": cell.energy.gross_half_j,
                    "Above idle (J/item)": cell.energy.net_j,
                    "± above idle (J/item)": cell.energy.net_half_j,
                    "Power (W)": cell.power_w,
                    "Evidence": "estimate" if cell.energy.is_estimate else "measured",
                    "Method": None if cell.power_method is None else method_words(cell.power_method),
                    "Covers": cell.energy.scope,
                }
                for cell in profile.cells
                if cell.energy is not None
            ]
        ),
        always=("Batch", "Energy (J/item)"),
    )


def load_runs_table(runs: Sequence[LoadRun]) -> pd.DataFrame:
    """Runs under load: what was predicted, what was observed, and what speaks against the run."""
    return pd.DataFrame(
        [
            {
                "Load (%)": round(100 * run.load, 1),
                "Rate (req/s)": round(run.rate_rps, 2),
                "Run": "clean" if run.clean else "doubtful",
                "p99 in the interval": "yes" if run.p99.inside else "no",
                **_checked("p99", run.p99),
                **_checked("p95", run.p95),
                **_checked("Mean", run.mean),
                "p99 as plans predict it (ms)": rounded_ms(run.planned_p99_s),
                "Service against the forecast (%)": None
                if run.service_frac is None
                else round(100 * run.service_frac, 1),
                "Requests": run.count,
                "Replicas together": run.concurrency,
                "Threads": run.threads,
                "Batch cap": run.max_batch_size,
                "Mean batch": round(run.mean_batch, 2),
                "Drift (%)": round(100 * run.drift_frac, 1),
                "Drift after (%)": round(100 * run.drift_after_frac, 1),
                "Generator late, p99 (ms)": rounded_ms(run.lateness_p99_s),
                "Doubts": " ".join(run.doubts),
                "Date": run.created.date().isoformat(),
            }
            for run in runs
        ]
    )


def idle_starts_table(profile: Profile) -> pd.DataFrame:
    """Calls that found their replica idle, against the same cell kept busy with the fewest replicas."""
    rows = []
    for start in profile.idle_starts:
        busy = profile.quietest_cell(start.batch_size, start.threads)
        mean_s = None if busy is None else busy.service_mean_s
        rows.append(
            {
                "Batch": start.batch_size,
                "Threads": start.threads,
                "Waking, mean (ms)": rounded_ms(start.gap_mean_s),
                "Call after idling, mean (ms)": rounded_ms(start.service_mean_s),
                "Against busy (%)": None if mean_s is None else round(100 * (start.service_mean_s / mean_s - 1), 1),
                "Calls": start.count,
                "Disturbed by": ", ".join(reason.split(":")[0] for reason in start.rejected) or None,
            }
        )
    return _stated(pd.DataFrame(rows), always=("Batch",))


def facts_table(environment: dict[str, Fact]) -> pd.DataFrame:
    """Facts of the machine and its state; where one is not known, why."""
    rows = [
        {"Fact": name.replace("_", " "), "Value": _fact_text(fact), "Why not known": fact.why or ""}
        for name, fact in environment.items()
    ]
    return _stated(pd.DataFrame(rows), always=("Fact", "Value"))


def _verified(profile: Profile) -> str:
    """Clean runs whose p99 lay in the predicted interval, of all clean runs."""
    clean = clean_runs(profile)
    return f"{runs_inside(clean)} of {len(clean)} runs" if clean else "no"


def _why_rejected(cell: Cell) -> str | None:
    """Codes of the reasons, with how many windows each took out."""
    codes = Counter(reason.partition(":")[0] for repeat in cell.repeats for reason in repeat.rejected)
    return ", ".join(f"{code} ×{count}" if count > 1 else code for code, count in codes.items()) or None


def _checked(name: str, checked: Checked) -> dict[str, object]:
    predicted = checked.predicted
    low, value, high = (rounded_ms(seconds) for seconds in (predicted.low_s, predicted.value_s, predicted.high_s))
    return {
        f"{name} observed (ms)": rounded_ms(checked.observed_s),
        f"{name} predicted (ms)": value,
        f"{name} from (ms)": low,
        f"{name} to (ms)": high,
    }


def _fact_text(fact: Fact) -> str:
    match fact.value:
        case None:
            return "not known"
        case bool():
            return "yes" if fact.value else "no"
        case float():
            return f"{fact.value:,.4g}"
        case _:
            return str(fact.value)


def _stated(table: pd.DataFrame, *, always: tuple[str, ...]) -> pd.DataFrame:
    """Table without the columns that no row fills."""
    kept = [
        name
        for name in table.columns
        if name in always or any(not (pd.isna(value) or value == "") for value in table[name])
    ]
    return table[kept]
