"""Profiles: what was measured, imported or published, and the place to bring one's own."""

import datetime

import streamlit as st

from advisor.domain.profile import Profile
from advisor.errors import AdvisorError
from advisor.reports.profile_tables import profiles_table
from advisor.store.profiles import read_profile
from advisor.ui import profile_sections, session
from advisor.ui.frames import show_frame
from advisor.ui.text import bullets, markdown

MOST_MB = 10
ALL_MODELS = "all models"
COMMANDS = """\
# is this machine fit to measure on?
python -m advisor doctor
# measure
python -m advisor profile MODEL.onnx -o profile.json
# check its predictions under real load
python -m advisor verify profile.json
# is a new version slower?
python -m advisor compare OLD.json NEW.json
"""
FIRST = ("Model", "Device", "Precision", "Evidence", "Verified under load")
EVIDENCE = ("measured", "imported", "published", "estimated")


def page() -> None:
    """Draw the page."""
    st.title("Profiles", anchor=False)
    st.markdown("How fast each model runs on each machine. Measure yours on your machine, then load the file here:")
    st.code(COMMANDS, language="bash", wrap_lines=True)
    loaded = _upload()
    st.header("All profiles", anchor=False)
    shown = _chosen(session.all_profiles())
    if not shown:
        st.info("No profile fits this choice.")
        return
    table = profiles_table(shown, today=datetime.datetime.now(datetime.UTC).date())
    show_frame(table, key="profiles_table", alt="Profiles", first=FIRST)
    names = [profile.profile_id for profile in shown]
    if loaded in names:
        st.session_state["profiles_one"] = loaded
    one = st.selectbox("Look at one", names, key="profiles_one", persist_state="session")
    _one(next(profile for profile in shown if profile.profile_id == one))


def _upload() -> str | None:
    """Read each file by itself: a bad one is refused with one sentence, a good one is used at once.

    Returns the last profile that was not yet in use.
    """
    loaded = None
    files = st.file_uploader(
        f"Load profiles (JSON, up to {MOST_MB} MB each; kept until this browser session ends)",
        type=["json"],
        accept_multiple_files=True,
        max_upload_size=MOST_MB,
        key=session.uploader_key(),
    )
    shipped = {profile.profile_id for profile in session.shipped_profiles()}
    for file in files:
        try:
            profile = read_profile(file.getvalue(), file=file.name)
        except AdvisorError as error:
            st.error(markdown(str(error)), icon=":material/block:")
            continue
        name, model = profile.profile_id, profile.model.name
        if name not in session.uploaded_profiles():
            loaded = name
        session.keep_upload(profile)
        instead = ", instead of the shipped one," if name in shipped else ""
        st.success(
            markdown(f"{file.name}: {name} is in use{instead} for {model}. Choose {model} on the Recommend page."),
            icon=":material/check_circle:",
        )
    mine = sorted(session.uploaded_profiles())
    if mine:
        with st.container(horizontal=True, vertical_alignment="center", key="mine"):
            st.markdown(markdown(f"In use from your files: {', '.join(mine)}."), width="content")
            st.button("Forget them", on_click=session.forget_uploads, key="forget")
    return loaded


def _chosen(profiles: tuple[Profile, ...]) -> tuple[Profile, ...]:
    """Profiles that the two filters leave: one's own first, then measured ones."""
    mine = session.uploaded_profiles()
    models = [ALL_MODELS, *sorted({profile.model.name for profile in profiles})]
    columns = st.columns(2)
    model = columns[0].selectbox("Model", models, key="profiles_model", persist_state="session")
    kinds = columns[1].multiselect(
        "Evidence (none chosen: all)", EVIDENCE, key="profiles_kind", persist_state="session"
    )
    return tuple(
        sorted(
            (
                profile
                for profile in profiles
                if model in (ALL_MODELS, profile.model.name) and (not kinds or profile.evidence.kind in kinds)
            ),
            key=lambda profile: (
                profile.profile_id not in mine,
                profile.evidence.kind != "measured",
                profile.model.name,
                profile.profile_id,
            ),
        )
    )


def _one(profile: Profile) -> None:
    evidence = profile.evidence
    st.header(markdown(profile.profile_id), anchor=False)
    date = evidence.date.isoformat() if evidence.date else "date not stated"
    st.markdown(markdown(f"{evidence.kind.capitalize()}, {date}, {evidence.source}. {evidence.note or ''}"))
    if profile.warnings:
        st.warning(bullets(profile.warnings), icon=":material/warning:")
    profile_sections.verification(profile)
    profile_sections.cells(profile)
    profile_sections.knees(profile)
    profile_sections.energy(profile)
    profile_sections.idle_starts(profile)
    profile_sections.environment(profile)
