"""Plans as tables: the one source of the pages, the command line, CSV and Excel. Units are in every column name."""

import csv
import io
import json

import pandas as pd

from advisor.domain.machine import MachineType, Offer
from advisor.domain.plan import Alternative, BreakEven, FleetLine, Infeasible, JobPlan, Plan, Rejection
from advisor.domain.workload import percentile_label
from advisor.queueing.dispersion import TraceStatistics
from advisor.reports.sentences import headline
from advisor.units import s_to_ms

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


FLEET_COLUMNS = [
    "Machine",
    "Region",
    "Offer",
    "Count",
    "Price (USD/h each)",
    "Cost (USD/month)",
    "Traffic (req/s)",
    "Capacity under the limit (req/s)",
    "Capacity, likely (req/s)",
    "Capacity, at best (req/s)",
    "Saturation (%)",
    "Replicas each",
    "Batch cap",
    "Precision",
    "Profile",
    "Price date",
]


def fleet_table(lines: tuple[FleetLine, ...]) -> pd.DataFrame:
    """Fleet, one row per line."""
    rows = [
        {
            "Machine": line.label,
            "Region": line.region,
            "Offer": line.offer.replace("_", " "),
            "Count": line.count,
            "Price (USD/h each)": line.price_usd_per_h,
            "Cost (USD/month)": line.cost_usd_per_month,
            "Traffic (req/s)": round(line.rate_rps, 2),
            "Capacity under the limit (req/s)": round(line.capacity_rps, 2),
            "Capacity, likely (req/s)": round(line.capacity_likely_rps, 2),
            "Capacity, at best (req/s)": round(line.capacity_high_rps, 2),
            "Saturation (%)": round(100 * line.saturation_frac, 1),
            "Replicas each": line.replicas,
            "Batch cap": line.max_batch,
            "Precision": line.precision or "not stated",
            "Profile": line.profile_id,
            "Price date": line.price_date.isoformat(),
        }
        for line in lines
    ]
    return pd.DataFrame(rows, columns=FLEET_COLUMNS)


def limits_table(plan: Plan) -> pd.DataFrame:
    """Response time under each limit: predicted, as profiled, simulated, and how it was found."""
    columns = [
        "Percentile",
        "Limit (ms)",
        "Predicted (ms)",
        "As profiled (ms)",
        "Simulated (ms)",
        "± 95 % (ms)",
        "Method",
    ]
    rows = [
        {
            "Percentile": percentile_label(answer.percentile),
            "Limit (ms)": rounded_ms(answer.limit_s),
            "Predicted (ms)": rounded_ms(answer.value_s, digits=4),
            "As profiled (ms)": rounded_ms(answer.likely_s, digits=4),
            "Simulated (ms)": rounded_ms(verdict.value_s, digits=4),
            "± 95 % (ms)": rounded_ms(verdict.ci95_s, digits=2),
            "Method": answer.method.label,
        }
        for answer, verdict in zip(plan.workloads, plan.simulation.limits, strict=True)
    ]
    return pd.DataFrame(rows, columns=columns)


def distribution_table(plan: Plan) -> pd.DataFrame:
    """Share of requests that are answered later than a time."""
    columns = ["Response time (ms)", "Slower, predicted (%)", "Slower, simulated (%)"]
    rows = [
        (rounded_ms(point.response_time_s), 100 * point.predicted_frac, 100 * point.simulated_frac)
        for point in plan.distribution
    ]
    return pd.DataFrame(rows, columns=columns)


def alternatives_table(plan: Plan) -> pd.DataFrame:
    """Cheapest fleets of other machine types."""
    columns = [
        "Machine",
        "Region",
        "Count",
        "Cost (USD/month)",
        "Against the plan (%)",
        "Demand over capacity (%)",
        "Precision",
        "Profile",
        "Note",
    ]
    rows = [
        {
            "Machine": option.label,
            "Region": option.region,
            "Count": option.count,
            "Cost (USD/month)": option.cost_usd_per_month,
            "Against the plan (%)": round(100 * option.extra_frac, 1),
            "Demand over capacity (%)": round(100 * option.utilization_frac, 1),
            "Precision": option.precision or "not stated",
            "Profile": option.profile_id,
            "Note": _alternative_note(option),
        }
        for option in plan.alternatives
    ]
    return pd.DataFrame(rows, columns=columns)


def break_even_table(steps: BreakEven) -> pd.DataFrame:
    """Steps of the cheapest all-CPU, all-GPU and mixed fleets in one long table."""
    rows = [
        {"Fleet": name, "Up to (req/s)": round(step.rate_rps, 3), "Cost (USD/month)": step.cost_usd_per_month}
        for name, stairs in (("CPU", steps.cpu), ("GPU", steps.gpu), ("Any", steps.mixed))
        for step in stairs
    ]
    return pd.DataFrame(rows, columns=["Fleet", "Up to (req/s)", "Cost (USD/month)"])


def rejection_table(rejections: tuple[Rejection, ...]) -> pd.DataFrame:
    """Machine types not in the running, with reasons."""
    rows = [{"Machine type": rejection.machine_type, "Reason": rejection.reason} for rejection in rejections]
    return pd.DataFrame(rows, columns=["Machine type", "Reason"])


def rejection_summary(rejections: tuple[Rejection, ...]) -> pd.DataFrame:
    """How many machine types fell out for which reason, most first."""
    counts: dict[str, int] = {}
    for rejection in rejections:
        counts[rejection.reason] = counts.get(rejection.reason, 0) + 1
    rows = [
        {"Reason": reason, "Machine types": count}
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return pd.DataFrame(rows, columns=["Reason", "Machine types"])


def evidence_table(result: Plan | Infeasible | JobPlan) -> pd.DataFrame:
    """Where each number comes from."""
    rows = [
        {
            "What": line.what,
            "Evidence": line.evidence.kind,
            "Source": line.evidence.source,
            "Date": line.evidence.date.isoformat() if line.evidence.date else "not stated",
        }
        for line in result.evidence
    ]
    return pd.DataFrame(rows, columns=["What", "Evidence", "Source", "Date"])


def jobs_table(plan: JobPlan) -> pd.DataFrame:
    """Options for batch jobs."""
    return pd.DataFrame(
        [
            {
                "Option": answer.name,
                "Nodes needed": answer.nodes_needed,
                "Nodes owned": answer.owned_count,
                "Slack (h)": None if answer.slack_h is None else round(answer.slack_h, 2),
                "Most jobs per day on them": answer.most_jobs_per_day,
                "Time per job (h)": round(answer.job_s / 3600, 3),
                "Bound by": answer.bottleneck,
                "Speed (items/s per node)": round(answer.items_per_s, 1),
                "Jobs per node and window": answer.jobs_per_node,
                "Energy (kWh/day)": None if answer.energy_kwh_per_day is None else round(answer.energy_kwh_per_day, 2),
                "Cost (USD/month)": answer.cost_usd_per_month,
                "Cost holds": answer.cost_basis,
                "Profile": answer.profile_id,
            }
            for answer in plan.answers
        ]
    )


def offers_table(found: list[tuple[MachineType, Offer]]) -> pd.DataFrame:
    """Offers of the catalog."""
    rows = [
        {
            "Machine": machine.name,
            "Region": offer.region,
            "GPU": "" if machine.gpu_model is None else f"{machine.gpu_count:g}× {machine.gpu_model}",
            "vCPUs": machine.vcpus,
            "Memory (GiB)": machine.memory_gib,
            "Price (USD/h)": offer.price_usd_per_h,
            "Price date": offer.price_date.isoformat(),
            "Source": offer.source,
        }
        for machine, offer in found
    ]
    return pd.DataFrame(
        rows,
        columns=[
            "Machine",
            "Region",
            "GPU",
            "vCPUs",
            "Memory (GiB)",
            "Price (USD/h)",
            "Price date",
            "Source",
        ],
    )


def result_json(result: Plan | Infeasible | JobPlan) -> str:
    """Whole result as JSON, with the headline and the keys that other programs rely on, whatever the status."""
    document = result.model_dump(mode="json")
    always: dict[str, object] = {
        "status": result.status,
        "headline": headline(result),
        "fleet": [],
        "cost_usd_per_month": None,
        "p99_response_s": None,
        "workloads": [],
        "simulation": None,
        "mip_gap_frac": result.provenance.mip_gap_frac,
        "rejections": [],
        "evidence": [],
    }
    return json.dumps({**always, **document}, indent=2, ensure_ascii=False) + "\n"


def result_csv(result: Plan | Infeasible | JobPlan) -> bytes:
    """Main table as CSV: UTF-8 with byte order mark, CRLF, text cells that look like formulas made harmless."""
    match result:
        case JobPlan():
            table = jobs_table(result)
        case Plan():
            table = fleet_table(result.fleet)
        case Infeasible():
            table = fleet_table(result.cheapest)
    return frame_csv(table)


def limits_csv(plan: Plan) -> bytes:
    """Response time under each limit as CSV, in the same form."""
    return frame_csv(limits_table(plan))


def frame_csv(table: pd.DataFrame) -> bytes:
    """Any table as CSV, in the same form."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(table.columns)
    for row in table.itertuples(index=False):
        writer.writerow(["" if pd.isna(value) else harmless(value) for value in row])
    return buffer.getvalue().encode("utf-8-sig")


def harmless(value: object) -> object:
    """Text that a spreadsheet would run as a formula gets a leading apostrophe; numbers stay numbers.

    Examples
    --------
    >>> harmless("=1+1"), harmless(-5)
    ("'=1+1", -5)
    """
    if isinstance(value, str) and value.lstrip(" ").startswith(FORMULA_STARTS):
        return "'" + value
    return value


def _alternative_note(option: Alternative) -> str:
    notes = ["too close to the limit for the simulator"] if option.extra_frac < 0 else []
    return ", ".join([*notes, *(["extrapolated"] if option.extrapolated else [])])


def rounded_ms(seconds: float | None, *, digits: int = 5) -> float | None:
    """Milliseconds with so many significant digits; None stays None."""
    return None if seconds is None else float(f"{s_to_ms(seconds):.{digits}g}")


def trace_table(statistics: TraceStatistics) -> pd.DataFrame:
    """Counts of requests in windows of several lengths, shortest first."""
    rows = [
        {
            "Window (s)": float(f"{window.window_s:.6g}"),
            "Windows": window.windows,
            "Peak to mean": float(f"{window.peak_to_mean:.3g}"),
            "Index of dispersion": float(f"{window.index_of_dispersion:.3g}"),
            "± standard error": float(f"{window.index_standard_error:.2g}"),
            "Idle windows (%)": round(100 * window.idle_frac, 1),
        }
        for window in statistics.windows
    ]
    columns = ["Window (s)", "Windows", "Peak to mean", "Index of dispersion", "± standard error", "Idle windows (%)"]
    return pd.DataFrame(rows, columns=columns)
