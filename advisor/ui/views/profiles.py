"""Profiles: what was measured, imported or published, and the place to bring one's own."""

import streamlit as st

from advisor.domain.profile import Profile
from advisor.errors import AdvisorError
from advisor.reports.tables import cells_table, profiles_table
from advisor.store.profiles import read_profile
from advisor.ui import session
from advisor.ui.charts import NO_TOOLBAR, service_figure
from advisor.ui.frames import show_frame
from advisor.ui.text import bullets, markdown

MOST_MB = 10
ALL_MODELS = "all models"
EVIDENCE = ("measured", "imported", "published", "estimated")


def page() -> None:
    """Draw the page."""
    st.title("Profiles", anchor=False)
    st.markdown("How fast each model runs on each machine. Measure yours on your machine, then load the file here:")
    st.code("python -m advisor profile MODEL.onnx -o profile.json", language="bash", wrap_lines=True)
    _upload()
    st.header("All profiles", anchor=False)
    shown = _chosen(session.all_profiles())
    if not shown:
        st.info("No profile fits this choice.")
        return
    show_frame(profiles_table(shown), key="profiles_table", alt="Profiles", first=("Model", "Device", "Precision"))
    names = [profile.profile_id for profile in shown]
    one = st.selectbox("Look at one", names, key="profiles_one", persist_state="session")
    _one(next(profile for profile in shown if profile.profile_id == one))


def _upload() -> None:
    """Read each file by itself: a bad one is refused with one sentence, a good one is used at once."""
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
        session.keep_upload(profile)
        name, model = profile.profile_id, profile.model.name
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
    show_frame(cells_table(profile), key="cells", alt=f"Cells of {profile.profile_id}")
    if any(cell.batch_size is not None and cell.service_mean_s is not None for cell in profile.cells):
        st.plotly_chart(
            service_figure(profile),
            key="service",
            config=NO_TOOLBAR,
            alt=f"Time per call against batch size of {profile.profile_id}",
        )
