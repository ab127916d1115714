"""What a browser session holds, and the one cached way from a form to a plan."""

import datetime

import streamlit as st

from advisor.catalog import load_catalog
from advisor.domain.machine import Catalog
from advisor.domain.plan import Infeasible, Plan
from advisor.domain.profile import Profile
from advisor.domain.workload import Scenario
from advisor.planning import plan
from advisor.store.paths import DATA, PROFILES, SCENARIOS
from advisor.store.profiles import read_profile, read_profiles
from advisor.store.scenarios import read_scenario

_UPLOADS = "uploaded_profiles"
_UPLOADER = "uploader_number"
_KEPT_PLANS = 64


@st.cache_resource
def catalog() -> Catalog:
    """Shipped catalog, read once per process."""
    return load_catalog(DATA)


@st.cache_resource
def shipped_profiles() -> tuple[Profile, ...]:
    """Shipped profiles, read once per process."""
    return read_profiles(PROFILES)


def first_scenario() -> Scenario:
    """Scenario that the first page starts with."""
    scenario = read_scenario(SCENARIOS / "resnet-online.yaml")
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


def answer(scenario: Scenario) -> Plan | Infeasible:
    """Plan of a scenario with the profiles of this session, computed once per distinct question."""
    today = datetime.datetime.now(datetime.UTC).date()
    return _answer(scenario.model_dump_json(), tuple(sorted(uploaded_profiles().values())), today)


@st.cache_data(max_entries=_KEPT_PLANS, show_spinner="Finding the cheapest fleet and simulating it …")
def _answer(scenario_json: str, uploads: tuple[str, ...], today: datetime.date) -> Plan | Infeasible:
    own = {profile.profile_id: profile for profile in (read_profile(text, file="upload") for text in uploads)}
    known = {profile.profile_id: profile for profile in shipped_profiles()} | own
    scenario = Scenario.model_validate_json(scenario_json)
    result = plan(scenario, known.values(), catalog(), today=today, preferred=frozenset(own))
    if not isinstance(result, Plan | Infeasible):
        raise TypeError("online traffic is answered by a plan")
    return result
