"""Page set-up and navigation."""

import streamlit as st

from advisor.ui.views import profiles, recommend

# An emoji is drawn by the browser; a named icon would be fetched from an outside font server.
st.set_page_config(page_title="Inference Fleet Advisor", page_icon="🧭", layout="wide")
st.navigation(
    [
        st.Page(recommend.page, title="Recommend", url_path="recommend", default=True),
        st.Page(profiles.page, title="Profiles", url_path="profiles"),
    ],
    position="top",
).run()
