"""Parts of one profile on the page; a part that the file does not hold is not drawn."""

import streamlit as st

from advisor.capacity.knee import sweeps
from advisor.domain.profile import Profile
from advisor.reports.profile_sentences import (
    drift_sentences,
    errors_sentence,
    idle_power_sentence,
    repeats_sentence,
    served_sentence,
    verification_sentence,
)
from advisor.reports.profile_tables import (
    cells_table,
    energy_table,
    facts_table,
    idle_starts_table,
    load_runs_table,
    sweeps_table,
)
from advisor.ui.charts import NO_TOOLBAR, service_figure
from advisor.ui.frames import show_frame
from advisor.ui.profile_charts import load_figure
from advisor.ui.text import bullets


def cells(profile: Profile) -> None:
    """Draw the cells, how many windows count, the drift, and the time per call against the batch size."""
    st.subheader("Time per call", anchor=False)
    show_frame(cells_table(profile), key="cells", alt=f"Cells of {profile.profile_id}")
    counted = repeats_sentence(profile)
    sentences = (*([counted] if counted else []), *drift_sentences(profile))
    if sentences:
        st.markdown(bullets(sentences))
    if any(cell.batch_size is not None and cell.service_mean_s is not None for cell in profile.cells):
        st.plotly_chart(
            service_figure(profile),
            key="service",
            config=NO_TOOLBAR,
            alt=f"Time per call against batch size of {profile.profile_id}",
        )


def knees(profile: Profile) -> None:
    """Draw where the throughput levels off."""
    found = sweeps(profile)
    if found:
        st.subheader("Where it saturates", anchor=False)
        show_frame(sweeps_table(found), key="sweeps", alt="Knee and highest throughput of each sweep")
        st.caption(
            "The knee is the smallest size with 95 % of the highest throughput. ≥: throughput still grew at the "
            "largest size measured, or only one was. Such a figure is a floor, not a capacity."
        )


def verification(profile: Profile) -> None:
    """Draw what the profile predicted under real load, and what was observed."""
    runs = profile.load_runs
    if runs:
        st.subheader("Verified under load", anchor=False)
        verdict, errors = verification_sentence(runs), errors_sentence(runs)
        st.markdown(bullets((verdict, served_sentence(profile), *([errors] if errors else []))))
        st.plotly_chart(
            load_figure(runs),
            key="load_runs_figure",
            config=NO_TOOLBAR,
            alt=f"Response times under load, observed and predicted. {verdict}",
        )
        show_frame(load_runs_table(runs), key="load_runs", alt="Runs under load")


def energy(profile: Profile) -> None:
    """Draw energy per item and idle power; what was not measured is called an estimate."""
    table, idle = energy_table(profile), idle_power_sentence(profile)
    if table.empty and idle is None:
        return
    st.subheader("Energy", anchor=False)
    if idle is not None:
        st.markdown(bullets((idle,)))
    if not table.empty:
        show_frame(
            table,
            key="energy",
            alt="Energy per item of each cell",
            first=("Batch", "Energy (J/item)", "± (J/item)", "Evidence"),
        )
        st.caption(
            "±: half of the 95 % interval, or for an estimate half of its band. "
            "Estimates whose bands overlap rank nothing."
        )


def idle_starts(profile: Profile) -> None:
    """Draw how slow calls are that find their replica idle."""
    if profile.idle_starts:
        st.subheader("Calls after idling", anchor=False)
        show_frame(idle_starts_table(profile), key="idle_starts", alt="Calls that found their replica idle")


def environment(profile: Profile) -> None:
    """Draw the facts of the machine and the command that was given, behind one click."""
    if profile.environment:
        with st.expander(f"The machine and its state: {len(profile.environment)} facts"):
            if profile.command is not None:
                st.code(profile.command, language=None, wrap_lines=True)
            show_frame(facts_table(profile.environment), key="facts", alt="Facts of the machine and its state")
