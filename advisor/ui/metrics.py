"""The four numbers under the headline."""

from typing import NamedTuple

from advisor.domain.plan import Plan
from advisor.domain.workload import percentile_label
from advisor.reports.sentences import milliseconds, money


class Metric(NamedTuple):
    """A number with its name, one remark, and what it means."""

    label: str
    value: str
    note: str
    help: str


def plan_metrics(plan: Plan) -> tuple[Metric, ...]:
    """Cost to the cent, predicted and simulated percentile, capacity used."""
    answer, verdict, budget = plan.workloads[0], plan.simulation, plan.scenario.budget_usd_per_month
    percentile = percentile_label(answer.percentile)
    machines = sum(line.count for line in plan.fleet)
    spare = "no budget set" if budget is None else f"{money(budget - plan.cost_usd_per_month)} under budget"
    return (
        Metric(
            "Cost (USD/month)",
            f"${plan.cost_usd_per_month:,.2f}",
            spare,
            "List prices of all machines for 730 hours; no tax, storage or traffic.",
        ),
        Metric(
            f"Predicted {percentile}",
            milliseconds(answer.value_s),
            f"{milliseconds(answer.limit_s - answer.value_s)} under limit",
            f"{answer.method.label}: {answer.method.model}, since {answer.method.reason}.",
        ),
        Metric(
            f"Simulated {percentile}",
            milliseconds(verdict.limits[0].value_s),
            f"± {milliseconds(verdict.limits[0].ci95_s)}",
            f"From {verdict.requests:,} simulated requests, with the 95 % interval.",
        ),
        Metric(
            "Capacity used",
            f"{max(line.rate_rps / line.capacity_rps for line in plan.fleet):.0%}",
            f"{machines} machine{'' if machines == 1 else 's'}",
            "Peak traffic over what the machines sustain within the time limit; above 100 % answers come late.",
        ),
    )
