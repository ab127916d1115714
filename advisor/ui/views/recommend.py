"""Recommend: traffic, limit, budget and place in; the fleet, why, what else, and files to take away out."""

import functools

import streamlit as st

from advisor.domain.plan import Infeasible, Plan
from advisor.errors import AdvisorError
from advisor.reports.excel import result_xlsx
from advisor.reports.sentences import (
    break_even_sentence,
    budget_sentence,
    headline,
    money,
    simulation_sentence,
    why,
)
from advisor.reports.tables import (
    alternatives_table,
    break_even_table,
    evidence_table,
    fleet_table,
    rejection_summary,
    rejection_table,
    result_csv,
    result_json,
)
from advisor.ui import session
from advisor.ui.charts import NO_TOOLBAR, break_even_figure
from advisor.ui.forms import scenario_form
from advisor.ui.frames import show_frame
from advisor.ui.metrics import plan_metrics
from advisor.ui.text import bullets, markdown

FIRST = ("Machine", "Count", "Cost (USD/month)")


def page() -> None:
    """Draw the page: the headline first, charts last."""
    st.title("What should we run it on?", anchor=False)
    try:
        scenario = scenario_form(session.first_scenario(), session.all_profiles(), session.catalog())
        result = session.answer(scenario)
    except AdvisorError as error:
        st.error(markdown(str(error)), icon=":material/error:")
        return
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
                width="stretch",
            )
    _warnings(plan)
    st.subheader("The fleet", anchor=False)
    show_frame(fleet_table(plan.fleet), key="fleet", alt="Machines of the fleet", first=FIRST)
    st.markdown(markdown(simulation_sentence(plan)))
    _downloads(plan)
    st.subheader("Why this fleet", anchor=False)
    st.markdown(bullets(tuple(reason for reason in why(plan) if reason != crossing)))
    _evidence(plan)
    st.subheader("What else could be had", anchor=False)
    show_frame(
        alternatives_table(plan), key="alternatives", alt="Cheapest fleets of other machines", first=FIRST
    )
    _break_even(plan)
    _details(plan)


def _infeasible(result: Infeasible) -> None:
    with st.container(border=True, key="headline"):
        st.header("No fleet meets all limits", anchor=False)
        st.error(markdown(headline(result)), icon=":material/block:")
        if result.relaxations:
            st.markdown("What would help:")
            st.markdown(bullets(tuple(relaxation.sentence for relaxation in result.relaxations)))
    _warnings(result)
    if result.best_effort:
        st.subheader(f"Within the limits: {result.served_frac:.0%} of the traffic in time", anchor=False)
        show_frame(
            fleet_table(result.best_effort), key="best_effort", alt="Fleet that serves the most", first=FIRST
        )
    if result.cheapest:
        st.subheader("Cheapest fleet without the budget", anchor=False)
        show_frame(
            fleet_table(result.cheapest), key="cheapest", alt="Cheapest fleet over budget", first=FIRST
        )
        _downloads(result)
        _evidence(result)
    _details(result)


def _warnings(result: Plan | Infeasible) -> None:
    if result.warnings:
        st.warning(bullets(result.warnings), icon=":material/warning:")


def _downloads(result: Plan | Infeasible) -> None:
    name = f"fleet_{result.scenario.name}_{result.provenance.today.isoformat()}"
    with st.container(horizontal=True, key="downloads"):
        for label, key, kind, build in (
            (
                "Excel",
                "xlsx",
                "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
                result_xlsx,
            ),
            ("CSV", "csv", "text/csv", result_csv),
            ("JSON", "json", "application/json", result_json),
        ):
            st.download_button(
                label,
                functools.partial(build, result),
                f"{name}.{key}",
                kind,
                on_click="ignore",
                key=key,
                icon=":material/download:",
            )


def _evidence(result: Plan | Infeasible) -> None:
    st.subheader("Where the numbers come from", anchor=False)
    show_frame(evidence_table(result), key="evidence", alt="Evidence of each number", first=("Evidence",))


def _break_even(plan: Plan) -> None:
    st.subheader("Where a GPU starts to pay", anchor=False)
    steps, budget = plan.break_even, plan.scenario.budget_usd_per_month
    st.plotly_chart(
        break_even_figure(steps, plan.demand_rps, plan.cost_usd_per_month, budget),
        key="break_even",
        config=NO_TOOLBAR,
        alt=f"Cost of the cheapest CPU and GPU fleets against traffic. {break_even_sentence(steps)}",
    )
    if steps.resolution_usd > 0.01:
        st.caption(markdown(f"Costs are rounded up to {money(steps.resolution_usd)}."))
    with st.expander("The numbers behind the chart"):
        show_frame(break_even_table(steps), key="break_even_table", alt="Steps of the chart")


def _details(result: Plan | Infeasible) -> None:
    if isinstance(result, Plan):
        with st.expander(f"Assumptions ({len(result.assumptions)})"):
            st.markdown(bullets(result.assumptions))
    with st.expander(f"Not in the running: {len(result.rejections)} machine types, with reasons"):
        summary, all_of_them = rejection_summary(result.rejections), rejection_table(result.rejections)
        show_frame(summary, key="rejection_summary", alt="Reasons and how many machine types each took out")
        show_frame(all_of_them, key="rejections", alt="Machine types not in the running")
