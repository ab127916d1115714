"""Page set-up and navigation."""

import streamlit as st

from advisor.errors import AdvisorError
from advisor.ui.text import markdown
from advisor.ui.views import profiles, recommend

# An emoji is drawn by the browser; a named icon would be fetched from an outside font server.
st.set_page_config(page_title="Inference Fleet Advisor", page_icon="🧭", layout="wide")
page = st.navigation(
    [
        st.Page(recommend.page, title="Recommend", default=True),
        st.Page(profiles.page, title="Profiles", url_path="profiles"),
    ],
    position="top",
)
try:
    page.run()
except AdvisorError as error:
    st.error(markdown(str(error)), icon=":material/error:")
