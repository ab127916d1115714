"""Inputs that say how requests come: from widgets to the arrivals of a scenario."""

import math
import re
from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.domain.trace import Trace
from advisor.domain.workload import HOURS_PER_WEEK
from advisor.errors import AdvisorError, InputError
from advisor.queueing.dispersion import TraceStatistics, trace_statistics
from advisor.reports.sentences import rate, trace_sentence
from advisor.reports.tables import trace_table
from advisor.store.paths import DATA
from advisor.store.traces import parse_trace, read_trace
from advisor.ui.frames import show_frame
from advisor.ui.text import bullets, markdown
from advisor.units import SECONDS_PER_HOUR

KINDS = {
    "independent (Poisson)": "poisson",
    "more or less even gaps": "renewal",
    "bursts": "bursts",
    "daily swing": "sinusoid",
    "recorded trace": "trace",
    "week of hours": "hourly_week",
}
KIND_HELP = (
    "**Independent**: many users who know nothing of each other. **More or less even gaps**: independent gaps between "
    "requests that vary less or more than that. **Bursts**: at times the rate is a multiple of what it is otherwise. "
    "**Daily swing**: a rate that rises and falls; the traffic above is its peak. **Recorded trace**: time stamps from "
    "your own log. **Week of hours**: traffic of each hour of a week; the traffic above is that of the busiest hour."
)
MY_FILE = "my own file"
SAMPLES = {
    "sample: LLM for code": "azure_llm_2023_code.csv",
    "sample: LLM for chat": "azure_llm_2023_conv.csv",
}
MOST_MB = 100
_TRACE, _READ, _WEEK = "own_trace", "trace_file_read", "own_week"
_POISSON = {"kind": "poisson"}


@dataclass(frozen=True)
class Chosen:
    """Arrivals as chosen on the page.

    Attributes
    ----------
    fields
        Arrivals as a scenario file has them.
    trace
        The trace that they name.
    own_rate
        Whether the rate is that of the trace.
    refused
        Why the last input was not taken.
    note
        What the page goes on with instead of what was asked for, or which rate counts.
    """

    fields: dict[str, Any]
    trace: Trace | None = None
    own_rate: bool = False
    refused: str | None = None
    note: str | None = None

    def say(self) -> None:
        """Draw what must be seen although the inputs are folded away."""
        if self.refused is not None:
            st.error(markdown(self.refused), icon=":material/block:")
        if self.note is not None:
            st.info(markdown(self.note), icon=":material/info:")


def arrivals_form() -> Chosen:
    """Draw the kind of arrivals and the inputs of that kind alone."""
    columns = st.columns(4, vertical_alignment="bottom")
    chosen = columns[0].selectbox("Arrivals", list(KINDS), key="arrivals", bind="query-params", help=KIND_HELP)
    kind = KINDS[chosen]
    match kind:
        case "renewal":
            scv = columns[1].number_input(
                "Variability of gaps (SCV)",
                min_value=0.05,
                max_value=100.0,
                value=4.0,
                step=0.25,
                key="scv",
                bind="query-params",
                help="Variance over squared mean of the gaps. 1: independent; 0.25: rather even; 4: much less even.",
            )
            return Chosen({"kind": kind, "scv": scv})
        case "bursts":
            ratio = _whole(columns[1], "Rate in a burst (times)", 4, 2, 1000, key="ratio", help_="Over that between.")
            share = _whole(columns[2], "Time in bursts (%)", 10, 1, 99, key="share", help_="Example: 10")
            length = _whole(columns[3], "Mean length of a burst (s)", 10, 1, 86_400, key="burst", help_="Example: 10")
            return Chosen({"kind": kind, "ratio": ratio, "burst_frac": share / 100, "burst_s": length})
        case "sinusoid":
            swing = _whole(columns[1], "Swing (%)", 60, 1, 100, key="swing", help_="Around the middle; 100: down to 0.")
            hours = _whole(columns[2], "Peak to peak (h)", 24, 1, 8760, key="period", help_="A day has 24.")
            return Chosen({"kind": kind, "amplitude_frac": swing / 100, "period_s": hours * SECONDS_PER_HOUR})
        case "trace":
            return _trace_form(columns[1], columns[2])
        case "hourly_week":
            return _week_form()
    return Chosen(_POISSON)


def _whole(place: DeltaGenerator, label: str, value: int, least: int, most: int, *, key: str, help_: str) -> int:
    """Draw an input of a whole number that lives in the address."""
    return int(
        place.number_input(
            label, min_value=least, max_value=most, value=value, key=key, bind="query-params", help=help_
        )
    )


def _trace_form(left: DeltaGenerator, right: DeltaGenerator) -> Chosen:
    """Draw the choice of a trace, its statistics and whose rate counts."""
    source = left.selectbox(
        "Trace",
        [MY_FILE, *SAMPLES],
        key="trace",
        bind="query-params",
        help="The samples are public traces of two services of 2023, an hour each; they show what this input does.",
    )
    own_rate = right.toggle(
        "At the rate of the trace",
        value=True,
        key="trace_rate",
        bind="query-params",
        help="Off: the trace is sped up or slowed down to the traffic entered above.",
    )
    refused = None
    if source == MY_FILE:
        refused = _read_upload()
        trace: Trace | None = st.session_state.get(_TRACE)
    else:
        trace = _sample(SAMPLES[source])
    if trace is None:
        ask = "Upload a trace, or choose a sample. Until then the plan is for independent (Poisson) arrivals."
        return Chosen(_POISSON, refused=refused, note=ask)
    statistics = _statistics(trace.sha256, trace)
    st.markdown(markdown(trace_sentence(trace.name, statistics)))
    show_frame(trace_table(statistics), key="trace_table", alt="Counts of requests in windows of several lengths")
    if trace.warnings:
        st.caption(bullets(tuple(f"{line[0].upper()}{line[1:]}." for line in trace.warnings)))
    return Chosen(
        {"kind": "trace", "file": trace.name}, trace, own_rate=own_rate, refused=refused, note=_whose(trace, own_rate)
    )


def _whose(trace: Trace, own_rate: bool) -> str:
    """Say which trace and which rate the plan is for."""
    if own_rate:
        return f"Planned for {trace.name} at its own mean rate, {rate(trace.rate_rps)}; the traffic above is not used."
    return f"Planned for {trace.name}, sped up or slowed down so that its mean rate is the traffic above."


def _read_upload() -> str | None:
    """Draw the upload field and keep the trace of a new file; a file that cannot be read leaves the last one in use."""
    file = st.file_uploader(
        f"A CSV file with a header and one row per request, in it a column of time stamps such as timestamp or t_s "
        f"(up to {MOST_MB} MB; kept until this browser session ends)",
        type=["csv"],
        max_upload_size=MOST_MB,
        key="trace_file",
    )
    if file is None:
        return None
    refused: str | None
    number, refused = st.session_state.get(_READ, (None, None))
    if number != file.file_id:
        try:
            st.session_state[_TRACE], refused = parse_trace(file.getvalue(), file=file.name), None
        except AdvisorError as error:
            refused = str(error)
        st.session_state[_READ] = (file.file_id, refused)
    return refused


def _week_form() -> Chosen:
    """Draw the field for the hours of a week."""
    text = st.text_area(
        f"{HOURS_PER_WEEK} numbers of at least 0, one for each hour of a week, divided by blanks, commas or lines",
        key="week",
        persist_state="session",
        placeholder="120 95 80 …",
        help="In any unit, such as requests per hour: only their ratios count, and the traffic above is that of the "
        "busiest hour. A point before decimals. A column copied from a spreadsheet fits.",
    )
    refused = None
    if text.strip():
        try:
            st.session_state[_WEEK] = week_of(text)
        except AdvisorError as error:
            refused = str(error)
    week = st.session_state.get(_WEEK)
    if week is None:
        ask = f"Enter {HOURS_PER_WEEK} numbers. Until then the plan is for independent (Poisson) arrivals."
        return Chosen(_POISSON, refused=refused, note=ask)
    note = None if refused is None else "Planned for the week that was entered before."
    return Chosen({"kind": "hourly_week", "weights": week}, refused=refused, note=note)


def week_of(text: str) -> list[float]:
    r"""Traffic of the hours of a week from text.

    Raises
    ------
    InputError
        When there are not 168 numbers of at least 0, or no traffic at all.

    Examples
    --------
    >>> week_of("1, 2.5\n" * 84)[:3]
    [1.0, 2.5, 1.0]
    """
    words = [word for word in re.split(r"[\s,;]+", text) if word]
    numbers = []
    for hour, word in enumerate(words, start=1):
        try:
            numbers.append(float(word))
        except ValueError:
            numbers.append(math.nan)
        if not 0 <= numbers[-1] < math.inf:
            raise InputError(f"hour {hour}", word, "a number of at least 0, with a point before decimals", file="week")
    if len(numbers) != HOURS_PER_WEEK:
        raise InputError("hours", len(numbers), f"exactly {HOURS_PER_WEEK} numbers", file="week")
    if max(numbers) == 0:
        raise InputError("traffic", 0, "above 0 in at least one hour", file="week")
    return numbers


@st.cache_resource
def _sample(name: str) -> Trace:
    return read_trace(DATA / "traces" / name)


@st.cache_resource(max_entries=8)
def _statistics(sha256: str, _trace: Trace) -> TraceStatistics:
    """Statistics of a trace, once per file; its hash is the key."""
    return trace_statistics(_trace.times_s)
