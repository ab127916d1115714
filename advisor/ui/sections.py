"""Parts of an answer on the page: warnings, files, response time, evidence, rejections."""

import functools
from collections.abc import Callable

import streamlit as st

from advisor.domain.plan import Infeasible, Plan
from advisor.reports.excel import result_xlsx
from advisor.reports.sentences import likely_sentence, method_sentence, simulation_sentence, traffic_sentence
from advisor.reports.tables import (
    distribution_table,
    evidence_table,
    limits_csv,
    limits_table,
    rejection_summary,
    rejection_table,
    result_csv,
    result_json,
)
from advisor.ui.charts import NO_TOOLBAR, response_figure
from advisor.ui.frames import show_frame
from advisor.ui.text import bullets

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def warnings(result: Plan | Infeasible) -> None:
    """Draw all warnings in one box."""
    if result.warnings:
        st.warning(bullets(result.warnings), icon=":material/warning:")


def downloads(result: Plan | Infeasible) -> None:
    """Draw the buttons; a file is built when its button is pressed."""
    name = f"fleet_{result.scenario.name}_{result.provenance.today.isoformat()}"
    files: list[tuple[str, str, str, str, Callable[[], bytes | str]]] = [
        ("Excel", "xlsx", f"{name}.xlsx", XLSX, functools.partial(result_xlsx, result)),
        ("CSV", "csv", f"{name}.csv", "text/csv", functools.partial(result_csv, result)),
        ("JSON", "json", f"{name}.json", "application/json", functools.partial(result_json, result)),
    ]
    if isinstance(result, Plan):
        limits = functools.partial(limits_csv, result)
        files.insert(2, ("CSV, response time", "limits_csv", f"{name}_response_time.csv", "text/csv", limits))
    with st.container(horizontal=True, key="downloads"):
        for label, key, file, kind, build in files:
            st.download_button(label, build, file, kind, on_click="ignore", key=key, icon=":material/download:")


def response_time(plan: Plan) -> None:
    """Draw how fast the fleet answers: under which traffic, by which method, and the whole distribution."""
    st.subheader("How fast it answers", anchor=False)
    sentences = (traffic_sentence(plan), method_sentence(plan), simulation_sentence(plan))
    st.markdown(bullets(sentences))
    show_frame(limits_table(plan), key="limits", alt="Response time under each limit")
    st.plotly_chart(
        response_figure(plan.distribution, plan.workloads),
        key="response_time",
        config=NO_TOOLBAR,
        alt=f"Share of requests slower than a time, predicted and simulated. {likely_sentence(plan)}",
    )
    st.caption("A limit holds where the lines pass below its mark: no more requests are slower than it allows.")
    with st.expander("The numbers behind the chart of response times"):
        show_frame(distribution_table(plan), key="distribution", alt="Share of requests slower than a time")


def evidence(result: Plan | Infeasible) -> None:
    """Draw where speed and prices come from."""
    st.subheader("Where the numbers come from", anchor=False)
    show_frame(evidence_table(result), key="evidence", alt="Evidence of each number", first=("Evidence",))


def rejections(result: Plan | Infeasible) -> None:
    """Draw what is not in the running, behind one click."""
    with st.expander(f"Not in the running: {len(result.rejections)} machine types, with reasons"):
        summary, all_of_them = rejection_summary(result.rejections), rejection_table(result.rejections)
        show_frame(summary, key="rejection_summary", alt="Reasons and how many machine types each took out")
        show_frame(all_of_them, key="rejections", alt="Machine types not in the running")
