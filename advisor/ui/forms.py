"""Inputs of the Recommend page: from widgets to a scenario."""

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.capacity.candidates import device_names, devices_of
from advisor.domain.machine import Catalog
from advisor.domain.profile import Profile
from advisor.domain.workload import Routing, Scenario
from advisor.store.scenarios import Question, online_scenario
from advisor.ui.arrivals import arrivals_form
from advisor.ui.text import markdown
from advisor.units import s_to_ms

ALL_REGIONS = "all regions"
AS_PROFILED = "as profiled"
ROUTINGS: dict[str, Routing] = {
    "at random": "random",
    "in turn": "round_robin",
    "least outstanding": "least_outstanding",
    "one shared queue": "central_queue",
}
ROUTING_HELP = (
    "How requests reach replicas. **At random**: what a stateless load balancer or DNS does. **In turn**: each replica "
    "gets every n-th request (round robin). **Least outstanding**: the balancer counts, and picks the replica with the "
    "fewest requests not yet answered. **One shared queue**: replicas fetch their work when they are free."
)
FURTHER_LIMITS = {"p50_ms": "p50 limit (ms)", "p95_ms": "p95 limit (ms)", "p999_ms": "p99.9 limit (ms)"}
LONGEST_MS = 600_000
Columns = Sequence[DeltaGenerator]


def scenario_form(first: Scenario, profiles: tuple[Profile, ...], catalog: Catalog) -> Question:
    """Draw the inputs and read them; they live in the address, so that a link reproduces the answer.

    Raises
    ------
    InputError
        When a value does not fit.
    """
    models = sorted({profile.model.name for profile in profiles})
    regions = [ALL_REGIONS, *sorted({offer.region for offer in catalog.offers})]
    _say_if_missing("model", models, "There is no profile of it here: load one on the Profiles page.")
    _say_if_missing("region", regions, "The price list does not have it.")
    with st.container(horizontal=True, vertical_alignment="bottom", key="inputs"):
        model = st.selectbox(
            "Model",
            models,
            index=models.index(first.workload.model),
            key="model",
            bind="query-params",
            help="Models with at least one profile; add your own on the Profiles page.",
        )
        rate, limit, budget = _numbers(first)
        region = _region(first, regions)
    with st.expander("More: arrivals, routing, further limits, headroom, precision"):
        arrivals = arrivals_form()
        upper, lower = st.columns(4), st.columns(4)
        routing, wait = _routing(upper[:2], first)
        limits = _further_limits(lower[:3])
        headroom, length, precisions = _rest([*upper[2:], lower[3]], model, profiles)
        as_measured = _call_order(model, profiles, catalog)
    arrivals.say()
    scenario = online_scenario(
        arrivals.trace,
        name=f"{model}-online",
        model=model,
        demand={"rate_rps": None if arrivals.own_rate else rate, "arrivals": arrivals.fields},
        sla={"p99_ms": limit, **limits},
        budget_usd_per_month=budget or None,
        regions=[] if region == ALL_REGIONS else [region],
        headroom_pct=headroom,
        precisions=precisions,
        sequence_length=length,
        routing=routing,
        batch_delay_ms=wait,
        call_order="as_measured" if as_measured else "independent",
    )
    return Question(scenario, {} if arrivals.trace is None else {arrivals.trace.name: arrivals.trace})


def _region(first: Scenario, regions: list[str]) -> str:
    """Draw the choice of a region."""
    return st.selectbox(
        "Region",
        regions,
        index=regions.index(first.regions[0]) if first.regions else 0,
        key="region",
        bind="query-params",
        help="Where machines may stand.",
    )


def _numbers(first: Scenario) -> tuple[int, int, int]:
    """Draw traffic, limit and budget."""
    rate = st.number_input(
        "Peak traffic (req/s)",
        min_value=1,
        max_value=1_000_000,
        value=round(first.workload.arrival_rate_rps),
        key="rps",
        bind="query-params",
        help="Requests per second in the busiest hour, with bursts their mean; one request is one item. Example: 120",
    )
    limit = st.number_input(
        "p99 limit (ms)",
        min_value=1,
        max_value=LONGEST_MS,
        value=round(s_to_ms(first.workload.sla.response_time_s)),
        key="p99",
        bind="query-params",
        help="99 of 100 requests must be answered within this time, waiting included. Example: 100",
    )
    budget = st.number_input(
        "Budget (USD/month)",
        min_value=0,
        max_value=100_000_000,
        value=round(first.budget_usd_per_month or 0),
        key="budget",
        bind="query-params",
        help="Hard limit: a fleet that costs more is not recommended. 0: no limit. Example: 2000",
    )
    return rate, limit, budget


def _routing(columns: Columns, first: Scenario) -> tuple[Routing, int]:
    """Draw how requests reach replicas, and how long these wait for a full batch."""
    names = list(ROUTINGS)
    chosen = columns[0].selectbox(
        "Routing",
        names,
        index=list(ROUTINGS.values()).index(first.routing),
        key="routing",
        bind="query-params",
        help=ROUTING_HELP,
    )
    wait = columns[1].number_input(
        "Batch wait (ms)",
        min_value=0,
        max_value=60_000,
        value=round(s_to_ms(first.batch_delay_s)),
        key="batch_wait",
        bind="query-params",
        help="Longest time a free replica waits for its batch to fill. 0: it takes at once what is there.",
    )
    return ROUTINGS[chosen], wait


def _further_limits(columns: Columns) -> dict[str, int]:
    """Draw limits beside p99; 0 is none."""
    limits = {}
    for column, (name, label) in zip(columns, FURTHER_LIMITS.items(), strict=True):
        value = column.number_input(
            label,
            min_value=0,
            max_value=LONGEST_MS,
            value=0,
            key=name.removesuffix("_ms"),
            bind="query-params",
            help="A further limit that must hold, too. 0: none.",
        )
        if value:
            limits[name] = value
    return limits


def _rest(columns: Columns, model: str, profiles: tuple[Profile, ...]) -> tuple[int, int | None, list[str]]:
    """Draw the inputs that most people leave alone: headroom, length of texts, precisions."""
    infos = [profile.model for profile in profiles if profile.model.name == model]
    precisions = sorted({info.precision for info in infos if info.precision is not None})
    lengths = {str(length): length for length in sorted({info.sequence_length or 0 for info in infos}) if length}
    headroom = columns[0].number_input(
        "Headroom (%)",
        min_value=0,
        max_value=500,
        value=0,
        key="headroom",
        bind="query-params",
        help="Plan for this much more than the peak traffic.",
    )
    length = columns[1].selectbox(
        "Sequence length (tokens)",
        [AS_PROFILED, *lengths],
        key=f"length_{model}",
        bind="query-params",
        disabled=not lengths,
        help="Only for models of text.",
    )
    chosen = columns[2].multiselect(
        "Precisions (none: all)",
        precisions,
        key=f"precisions_{model}",
        bind="query-params",
        help="A lower precision is faster and may be less accurate: check with your own data.",
    )
    return headroom, lengths.get(length), chosen


def _call_order(model: str, profiles: tuple[Profile, ...], catalog: Catalog) -> bool:
    """Draw whether stalls come in series, where a profile for some machine type keeps the order of its calls."""
    devices = devices_of(catalog.machine_types)
    kept = any(
        any(cell.series_s is not None for cell in profile.cells) and device_names(profile, catalog) & devices
        for profile in profiles
        if profile.model.name == model
    )
    return kept and st.toggle(
        "Calls in the order measured",
        key="call_order",
        bind="query-params",
        help="On: service times follow each other as in the profile, so that stalls come in series as they did; only "
        "profiles that keep this order are used. Off: calls are independent of each other.",
    )


def _say_if_missing(key: str, options: list[str], what_to_do: str) -> None:
    """Say that a value of the address is not to be had, before the widget falls back to its default."""
    asked = st.query_params.get(key)
    if asked is not None and asked not in options:
        st.warning(markdown(f"The address of this page asks for the {key} “{asked}”. {what_to_do}"))
