"""Start with ``streamlit run app.py``: pages and HTTP routes in one process.

The line below stands literally here: Streamlit finds the routes by reading this file.
"""

import streamlit as st

from advisor.api.routes import ROUTES

app = st.App("advisor/ui/main.py", routes=ROUTES)
