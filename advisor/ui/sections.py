"""Parts that the two kinds of answer share: warnings, files, evidence, rejections."""

import functools

import streamlit as st

from advisor.domain.plan import Infeasible, Plan
from advisor.reports.excel import result_xlsx
from advisor.reports.tables import evidence_table, rejection_summary, rejection_table, result_csv, result_json
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
    with st.container(horizontal=True, key="downloads"):
        for label, ending, kind, build in (
            ("Excel", "xlsx", XLSX, result_xlsx),
            ("CSV", "csv", "text/csv", result_csv),
            ("JSON", "json", "application/json", result_json),
        ):
            st.download_button(
                label,
                functools.partial(build, result),
                f"{name}.{ending}",
                kind,
                on_click="ignore",
                key=ending,
                icon=":material/download:",
            )


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
