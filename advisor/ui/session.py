"""What a browser session holds, and the one way from a form to a plan."""

import datetime
import os
import time
from concurrent.futures import Executor, ThreadPoolExecutor

import streamlit as st

from advisor.catalog import load_catalog
from advisor.domain.machine import Catalog
from advisor.domain.plan import Infeasible, Plan
from advisor.domain.profile import Profile
from advisor.domain.workload import Scenario
from advisor.planning import plan
from advisor.store.capacities import CapacityStore, default_cache_path
from advisor.store.paths import DATA, PROFILES, SCENARIOS
from advisor.store.profiles import read_profile, read_profiles
from advisor.store.scenarios import Question, read_scenario
from advisor.ui.answers import Answers, LookedUp, Work
from advisor.ui.text import markdown

_UPLOADS = "uploaded_profiles"
_UPLOADER = "uploader_number"
_KEPT_PLANS = 64
_PLANS_AT_ONCE = 4
_LOOK_EVERY_S = 0.25


@st.cache_resource
def catalog() -> Catalog:
    """Shipped catalog, read once per process."""
    return load_catalog(DATA)


@st.cache_resource
def shipped_profiles() -> tuple[Profile, ...]:
    """Shipped profiles, read once per process."""
    return read_profiles(PROFILES)


@st.cache_resource
def _answers() -> Answers:
    return Answers(most_kept=_KEPT_PLANS, at_once=_PLANS_AT_ONCE)


@st.cache_resource
def _capacities() -> CapacityStore:
    return CapacityStore(default_cache_path())


@st.cache_resource
def _simulators() -> Executor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="simulator")


@st.cache_resource
def first_scenario() -> Scenario:
    """Scenario that the first page starts with."""
    scenario = read_scenario(SCENARIOS / "resnet-online.yaml").scenario
    if not isinstance(scenario, Scenario):
        raise TypeError("resnet-online.yaml is not a scenario of online traffic")
    return scenario


def uploaded_profiles() -> dict[str, str]:
    """Texts of the profiles uploaded in this browser session, by profile_id."""
    uploads: dict[str, str] = st.session_state.setdefault(_UPLOADS, {})
    return uploads


def keep_upload(profile: Profile) -> None:
    """Use a profile in this browser session; one of the same name makes room."""
    uploaded_profiles()[profile.profile_id] = profile.model_dump_json()


def forget_uploads() -> None:
    """Plan with the shipped profiles alone again."""
    uploaded_profiles().clear()
    st.session_state[_UPLOADER] = st.session_state.get(_UPLOADER, 0) + 1


def uploader_key() -> str:
    """Name of the upload field; a new one is an empty field."""
    return f"upload_{st.session_state.get(_UPLOADER, 0)}"


def all_profiles() -> tuple[Profile, ...]:
    """Shipped and uploaded profiles; an upload takes the place of a shipped one of the same name."""
    known = {profile.profile_id: profile for profile in shipped_profiles()}
    known |= {name: read_profile(text, file=name) for name, text in uploaded_profiles().items()}
    return tuple(known.values())


def answer(question: Question) -> Plan | Infeasible:
    """Plan of a scenario with the profiles of this session, computed once per distinct question.

    A line on the page says how far it is. Any change of an input, and Streamlit's own stop, ends it there.
    """
    today = datetime.datetime.now(datetime.UTC).date()
    uploads = tuple(sorted(uploaded_profiles().items()))
    traces = tuple(sorted((name, trace.sha256) for name, trace in question.traces.items()))
    key = (question.scenario.model_dump_json(), uploads, traces, today)
    known = _answers().known(key)
    if known is not None:
        return known
    # What belongs to the session is read here: the planner's thread has none.
    profiles, own = all_profiles(), frozenset(uploaded_profiles())
    prices, capacities, simulators = catalog(), _capacities(), _simulators()

    def compute(work: Work) -> Plan | Infeasible:
        result = plan(
            question.scenario,
            profiles,
            prices,
            today=today,
            preferred=own,
            traces=question.traces,
            cache=LookedUp(capacities, work),
            executor=simulators,
            progress=work.hear,
        )
        if not isinstance(result, Plan | Infeasible):
            raise TypeError("online traffic is answered by a plan")
        return result

    return _watched(_answers().ask(key, compute))


def _watched(work: Work) -> Plan | Infeasible:
    """Show how far the work is until it is done.

    Each call of Streamlit in the loop is a place where it may end this script, since the page was left, an input has
    changed or Stop was pressed; then the work is given up. No later call is possible then, so the line stays: it says
    what to do, and has no wheel that would turn on.
    """
    place, begun_s = st.empty(), time.monotonic()
    try:
        while not work.done_within(_LOOK_EVERY_S):
            text = f"Planning for {time.monotonic() - begun_s:.0f} s: {work.line} …"
            place.markdown(f":material/hourglass_top: {markdown(text)} To plan anew after a stop, change an input.")
        place.empty()
        return work.answer()
    finally:
        work.abandon()
