"""Inputs of the Recommend page: from widgets to a scenario."""

import streamlit as st

from advisor.domain.machine import Catalog
from advisor.domain.profile import Profile
from advisor.domain.workload import Scenario
from advisor.store.scenarios import online_scenario
from advisor.ui.text import markdown
from advisor.units import s_to_ms

ALL_REGIONS = "all regions"
AS_PROFILED = "as profiled"


def scenario_form(first: Scenario, profiles: tuple[Profile, ...], catalog: Catalog) -> Scenario:
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
        rate = st.number_input(
            "Peak traffic (req/s)",
            min_value=1,
            max_value=1_000_000,
            value=round(first.workload.arrival_rate_rps),
            key="rps",
            bind="query-params",
            help="Requests per second in the busiest hour; one request is one item. Example: 120",
        )
        limit = st.number_input(
            "p99 limit (ms)",
            min_value=1,
            max_value=600_000,
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
        region = st.selectbox(
            "Region",
            regions,
            index=regions.index(first.regions[0]) if first.regions else 0,
            key="region",
            bind="query-params",
            help="Where machines may stand.",
        )
    headroom, precisions, length = _more(model, profiles)
    return online_scenario(
        name=f"{model}-online",
        model=model,
        demand={"rate_rps": rate},
        sla={"p99_ms": limit},
        budget_usd_per_month=budget or None,
        regions=[] if region == ALL_REGIONS else [region],
        headroom_pct=headroom,
        precisions=precisions,
        sequence_length=length,
    )


def _more(model: str, profiles: tuple[Profile, ...]) -> tuple[int, list[str], int | None]:
    """Draw the inputs that most people leave alone: headroom, precisions, length of texts."""
    infos = [profile.model for profile in profiles if profile.model.name == model]
    precisions = sorted({info.precision for info in infos if info.precision is not None})
    lengths = {str(length): length for length in sorted({info.sequence_length or 0 for info in infos}) if length}
    with st.expander("More: headroom, precision, length of texts"):
        columns = st.columns(3)
        headroom = columns[0].number_input(
            "Headroom (%)",
            min_value=0,
            max_value=500,
            value=0,
            key="headroom",
            bind="query-params",
            help="Plan for this much more than the peak traffic.",
        )
        chosen = columns[1].multiselect(
            "Precisions allowed (none chosen: all)",
            precisions,
            key=f"precisions_{model}",
            bind="query-params",
            help="A lower precision is faster and may be less accurate: check with your own data.",
        )
        length = columns[2].selectbox(
            "Sequence length (tokens)",
            [AS_PROFILED, *lengths],
            key=f"length_{model}",
            bind="query-params",
            disabled=not lengths,
            help="Only for models of text.",
        )
    return headroom, chosen, lengths.get(length)


def _say_if_missing(key: str, options: list[str], what_to_do: str) -> None:
    """Say that a value of the address is not to be had, before the widget falls back to its default."""
    asked = st.query_params.get(key)
    if asked is not None and asked not in options:
        st.warning(markdown(f"The address of this page asks for the {key} “{asked}”. {what_to_do}"))
