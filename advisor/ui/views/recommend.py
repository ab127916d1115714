"""Recommend: traffic, limit, budget and place in; the fleet, why, what else, and files to take away out."""

import streamlit as st

from advisor.domain.plan import Infeasible, Plan
from advisor.reports.sentences import (
    break_even_sentence,
    budget_sentence,
    headline,
    method_sentence,
    money,
    overload_sentence,
    traffic_sentence,
    why,
)
from advisor.reports.tables import alternatives_table, break_even_table, fleet_table
from advisor.ui import sections, session
from advisor.ui.charts import NO_TOOLBAR, break_even_figure
from advisor.ui.forms import scenario_form
from advisor.ui.frames import show_frame
from advisor.ui.metrics import plan_metrics
from advisor.ui.text import bullets, markdown

FIRST = ("Machine", "Count", "Cost (USD/month)")
FLEET_FIRST = (
    *FIRST,
    "Traffic (req/s)",
    "Capacity under the limit (req/s)",
    "Capacity, likely (req/s)",
    "Capacity, at best (req/s)",
)


def page() -> None:
    """Draw the page: the headline first, then why, then the chart and what else could be had."""
    st.title("What should we run it on?", anchor=False)
    question = scenario_form(session.first_scenario(), session.all_profiles(), session.catalog())
    result = session.answer(question)
    match result:
        case Plan():
            _plan(result)
        case Infeasible():
            _infeasible(result)
    made = result.provenance
    st.caption(f"Inference Fleet Advisor {made.version}, {made.today}. List prices; a month is 730 hours.")


def _plan(plan: Plan) -> None:
    crossing = break_even_sentence(plan.break_even)
    with st.container(border=True, key="headline"):
        st.header(markdown(headline(plan)), anchor=False)
        st.markdown(markdown(crossing))
        budget = budget_sentence(plan)
        if budget:
            st.success(markdown(budget), icon=":material/check_circle:")
    _metrics(plan)
    sections.warnings(plan)
    st.subheader("The fleet", anchor=False)
    show_frame(fleet_table(plan.fleet), key="fleet", alt="Machines of the fleet", first=FLEET_FIRST)
    sections.downloads(plan)
    sections.response_time(plan)
    st.subheader("Why this fleet", anchor=False)
    said = (crossing, traffic_sentence(plan), method_sentence(plan))
    st.markdown(bullets(tuple(reason for reason in why(plan) if reason not in said)))
    _break_even(plan)
    st.subheader("What else could be had", anchor=False)
    if plan.alternatives:
        show_frame(alternatives_table(plan), key="alternatives", alt="Fleets of other machines", first=FIRST)
    else:
        st.markdown("No other machine type with a profile meets the limits.")
    sections.evidence(plan)
    with st.expander(f"Assumptions ({len(plan.assumptions)})"):
        st.markdown(bullets(plan.assumptions))
    sections.rejections(plan)


def _metrics(plan: Plan) -> None:
    """Four in a row on a desk, two on a phone."""
    with st.container(horizontal=True, key="metrics"):
        for metric in plan_metrics(plan):
            st.metric(
                metric.label,
                metric.value,
                metric.note,
                help=metric.help,
                delta_color="off",
                delta_arrow="off",
                border=True,
                height="stretch",
            )


def _break_even(plan: Plan) -> None:
    steps, budget = plan.break_even, plan.scenario.budget_usd_per_month
    st.subheader("Where a GPU starts to pay" if steps.winners else "Cost against traffic", anchor=False)
    st.plotly_chart(
        break_even_figure(steps, plan.demand_rps, plan.cost_usd_per_month, budget),
        key="break_even",
        config=NO_TOOLBAR,
        alt=f"Cost of the cheapest CPU and GPU fleets against traffic. {break_even_sentence(steps)}",
    )
    if steps.resolution_usd > 0.01:
        st.caption(
            markdown(f"In the steps the price of a machine is rounded up by less than {money(steps.resolution_usd)}.")
        )
    with st.expander("The numbers behind the chart of costs"):
        show_frame(break_even_table(steps), key="break_even_table", alt="Steps of the chart")


def _infeasible(result: Infeasible) -> None:
    with st.container(border=True, key="headline"):
        st.header("No fleet meets all limits", anchor=False)
        st.error(markdown(headline(result)), icon=":material/block:")
        if result.relaxations:
            st.markdown("What would help:")
            st.markdown(bullets(tuple(relaxation.sentence for relaxation in result.relaxations)))
    st.markdown(markdown(result.traffic_reason))
    sections.warnings(result)
    if result.best_effort:
        st.subheader(f"Within the limits: {result.served_frac:.0%} of the traffic in time", anchor=False)
        show_frame(
            fleet_table(result.best_effort), key="best_effort", alt="Fleet that serves the most", first=FLEET_FIRST
        )
        late = overload_sentence(result)
        if late is not None:
            st.markdown(markdown(late))
    if result.cheapest:
        st.subheader("Cheapest fleet without the budget", anchor=False)
        show_frame(fleet_table(result.cheapest), key="cheapest", alt="Cheapest fleet over budget", first=FLEET_FIRST)
        sections.downloads(result)
        sections.evidence(result)
    sections.rejections(result)
